//! Linear layers and the halves of a block against their definitions: values, gradients, threads.

use crate::common::{Input, compare, differences, input, run, same_for_any_threads};
use burn::tensor::{DType, Tensor, TensorData};
use longreach_kernels::bench::recording;
use longreach_kernels::{
    AttentionWeights, Bias, DiagonalNetwork, Linear, Matmul, MlpWeights, Norm, Rotation, reference,
};

pub type Op = Box<dyn Fn(&[Tensor<1>]) -> Tensor<1> + Sync>;

fn flat(x: Tensor<2>) -> Tensor<1> {
    let n = x.dims().iter().product::<usize>();
    x.reshape([n])
}

/// Numbers of about the size weights have.
fn weight(k: usize, m: usize, seed: u64) -> Input {
    let factor = 1.0 / (k as f64).sqrt();
    Input {
        values: input(&[k, m], seed)
            .values
            .iter()
            .map(|x| factor * x)
            .collect(),
    }
}

/// Takes scale and shift off the inputs.
fn norm<'a>(inputs: &mut impl Iterator<Item = &'a Tensor<1>>, shift: bool) -> Norm {
    let mut next = || inputs.next().expect("an input").clone();
    Norm {
        scale: next(),
        shift: shift.then(&mut next),
        eps: 1e-5,
    }
}

/// Takes weights and, if there is one, a bias off the inputs.
fn layer<'a>(
    inputs: &mut impl Iterator<Item = &'a Tensor<1>>,
    shape: [usize; 2],
    biased: bool,
) -> Linear {
    let mut next = || inputs.next().expect("an input").clone();
    Linear {
        w: next().reshape(shape),
        bias: biased.then(&mut next),
    }
}

/// Fused and defined, over `n` rows, with their inputs.
pub fn operations(n: usize, d: usize, ff: usize) -> Vec<(String, Vec<Input>, Op, Op)> {
    type Linear = fn(Tensor<2>, Option<Norm>, Tensor<2>, Matmul) -> Tensor<2>;
    type Half = fn(Tensor<2>, Norm, MlpWeights) -> Tensor<2>;
    let mut operations: Vec<(String, Vec<Input>, Op, Op)> = Vec::new();
    for norms in 0..3 {
        let mut inputs = vec![input(&[n, d], 1)];
        inputs.extend((0..norms).map(|i| input(&[d], 2 + i)));
        inputs.push(weight(d, ff, 4));
        let op = move |linear: Linear| -> Op {
            Box::new(move |x| {
                let mut inputs = x[1..].iter();
                let norm = (norms > 0).then(|| norm(&mut inputs, norms == 2));
                let w = inputs.next().expect("an input").clone().reshape([d, ff]);
                flat(linear(x[0].clone().reshape([n, d]), norm, w, Matmul::F32))
            })
        };
        let definition = op(|x, norm, w, _| reference::linear(x, norm, w));
        operations.push((
            format!("linear, {norms} norm parameters"),
            inputs,
            op(longreach_kernels::linear),
            definition,
        ));
    }
    for (shift, gate, biased) in [
        (true, false, false),
        (false, true, false),
        (false, false, true),
        (true, true, false),
        (true, false, true),
        (true, true, true),
    ] {
        let mut inputs = vec![input(&[n, d], 1), input(&[d], 2)];
        inputs.extend(shift.then(|| input(&[d], 3)));
        let layers = [(d, ff), (d, ff), (ff, d)].into_iter().zip(4..);
        for ((k, m), seed) in layers.skip(usize::from(!gate)) {
            inputs.push(weight(k, m, seed));
            inputs.extend(biased.then(|| input(&[m], seed + 3)));
        }
        let op = move |mlp: Half| -> Op {
            Box::new(move |x| {
                let mut inputs = x[1..].iter();
                let norm = norm(&mut inputs, shift);
                let mut next = |shape| layer(&mut inputs, shape, biased);
                let weights = MlpWeights {
                    up: next([d, ff]),
                    gate: gate.then(|| next([d, ff])),
                    down: next([ff, d]),
                    matmul: Matmul::F32,
                };
                flat(mlp(x[0].clone().reshape([n, d]), norm, weights))
            })
        };
        operations.push((
            format!("mlp, shift {shift}, gate {gate}, biases {biased}"),
            inputs,
            op(longreach_kernels::mlp),
            op(reference::mlp),
        ));
    }
    operations
}

#[test]
fn fused_operations_agree_with_their_definitions() {
    for [n, d, ff] in [
        [1, 2, 3],
        [3, 7, 5],
        [130, 16, 48],
        [5, 40, 96],
        [300, 19, 70],
    ] {
        for (name, inputs, fused, definition) in operations(n, d, ff) {
            let what = format!("{name} [{n}, {d}, {ff}]");
            compare(1.0, &what, &inputs, &*fused, &*definition);
        }
    }
}

#[test]
fn gradients_of_the_definitions_are_those_of_finite_differences() {
    for (name, inputs, _, definition) in operations(3, 4, 5) {
        differences(&name, &inputs, &*definition);
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    for (name, inputs, fused, _) in operations(1030, 35, 67) {
        same_for_any_threads(&name, &inputs, &*fused);
    }
}

/// An attention half: which norm, rotation and bias.
#[derive(Clone, Copy, Debug)]
pub struct Half {
    /// Batch, heads, length, head_dim, d_model.
    sizes: [usize; 5],
    shift: bool,
    /// Interleaved or not.
    rotation: Option<bool>,
    bias: Option<Added>,
    /// Whether the bias takes a gradient.
    learned: bool,
    /// Whether the projections have biases.
    biased: bool,
}

/// What is added to the logits.
#[derive(Clone, Copy, Debug)]
enum Added {
    /// A bias of every query and key, `[sequences, heads, L, L]`: the first two sizes.
    Dense([usize; 2]),
    /// A bias by distance, `[heads, L + 3]`: the number of heads.
    ByDistance(usize),
    /// Running sums of a decay, `[B, H, L]`.
    Decays,
}

impl Half {
    pub fn inputs(&self) -> Vec<Input> {
        let [batch, heads, length, head_dim, d] = self.sizes;
        let mut inputs = vec![input(&[batch, length, d], 1), input(&[d], 2)];
        inputs.extend(self.shift.then(|| input(&[d], 3)));
        let inner = heads * head_dim;
        for ((k, m), seed) in [(d, 3 * inner), (inner, d)].into_iter().zip(4..) {
            inputs.push(weight(k, m, seed));
            inputs.extend(self.biased.then(|| input(&[m], seed + 7)));
        }
        inputs.extend(self.bias_input().filter(|_| self.learned));
        inputs
    }

    fn bias_input(&self) -> Option<Input> {
        let [batch, heads, length, ..] = self.sizes;
        self.bias.map(|bias| match bias {
            Added::Dense([b, h]) => input(&[b, h, length, length], 6),
            Added::ByDistance(h) => input(&[h, length + 3], 6),
            Added::Decays => input(&[batch, heads, length], 6),
        })
    }

    pub fn op(
        self,
        half: fn(
            Tensor<3>,
            Norm,
            AttentionWeights,
            Option<Rotation>,
            Option<Bias>,
            f64,
        ) -> Tensor<3>,
    ) -> Op {
        Box::new(move |x| {
            let [batch, heads, length, head_dim, d] = self.sizes;
            let constant = |input: Input| {
                let shape = [input.values.len()];
                Tensor::<1>::from_data(
                    TensorData::new(input.values, shape),
                    (&x[0].device(), x[0].dtype()),
                )
            };
            let table = |seed| {
                constant(input(&[length, head_dim / 2], seed)).reshape([1, 1, length, head_dim / 2])
            };
            let rotation = self.rotation.map(|interleaved| Rotation {
                queries: [7, 8].map(table),
                keys: [9, 10].map(table),
                interleaved,
            });
            let mut inputs = x[1..].iter();
            let norm = norm(&mut inputs, self.shift);
            let inner = heads * head_dim;
            let [qkv, output] =
                [[d, 3 * inner], [inner, d]].map(|shape| layer(&mut inputs, shape, self.biased));
            let mut next = || inputs.next().expect("an input").clone();
            let bias = self.bias_input().map(|input| {
                if self.learned {
                    next()
                } else {
                    constant(input)
                }
            });
            let bias = self.bias.zip(bias).map(|(kind, bias)| match kind {
                Added::Dense([b, h]) => Bias::Dense(bias.reshape([b, h, length, length])),
                Added::ByDistance(h) => Bias::ByDistance(bias.reshape([1, h, length + 3])),
                Added::Decays => Bias::Decays(bias.reshape([batch, heads, length])),
            });
            let x = x[0].clone().reshape([batch, length, d]);
            half(
                x,
                norm,
                AttentionWeights {
                    qkv,
                    output,
                    heads,
                    matmul: Matmul::F32,
                },
                rotation,
                bias,
                1.0 / (head_dim as f64).sqrt(),
            )
            .reshape([batch * length * d])
        })
    }
}

pub fn halves(sizes: [usize; 5]) -> Vec<Half> {
    let plain = Half {
        sizes,
        shift: true,
        rotation: None,
        bias: None,
        learned: true,
        biased: false,
    };
    let heads = sizes[1];
    vec![
        plain,
        Half {
            biased: true,
            ..plain
        },
        Half {
            shift: false,
            rotation: Some(true),
            bias: Some(Added::ByDistance(heads)),
            biased: true,
            ..plain
        },
        Half {
            shift: false,
            rotation: Some(false),
            ..plain
        },
        Half {
            rotation: Some(true),
            bias: Some(Added::Dense([1, heads])),
            ..plain
        },
        Half {
            bias: Some(Added::Dense([sizes[0], 1])),
            ..plain
        },
        Half {
            bias: Some(Added::ByDistance(heads)),
            ..plain
        },
        Half {
            rotation: Some(false),
            bias: Some(Added::ByDistance(1)),
            ..plain
        },
        Half {
            bias: Some(Added::Dense([sizes[0], heads])),
            learned: false,
            ..plain
        },
        Half {
            bias: Some(Added::ByDistance(heads)),
            learned: false,
            ..plain
        },
        Half {
            bias: Some(Added::Decays),
            ..plain
        },
        Half {
            rotation: Some(false),
            bias: Some(Added::Decays),
            learned: false,
            ..plain
        },
    ]
}

#[test]
fn attention_halves_agree_with_their_definition() {
    // The last has slabs of rows with two whole sequences each.
    let sizes = [
        [1, 1, 1, 2, 3],
        [2, 3, 5, 4, 7],
        [3, 2, 40, 16, 24],
        [1, 2, 150, 6, 10],
        [2, 1, 33, 40, 12],
        [5, 2, 64, 4, 6],
    ];
    for sizes in sizes {
        for half in halves(sizes) {
            let (fused, definition) = (
                half.op(longreach_kernels::attention_block),
                half.op(reference::attention_block),
            );
            compare(
                1.0,
                &format!("{half:?}"),
                &half.inputs(),
                &*fused,
                &*definition,
            );
        }
    }
}

#[test]
fn gradients_of_the_defined_attention_block_are_those_of_finite_differences() {
    for half in halves([2, 2, 3, 2, 3]) {
        differences(
            &format!("{half:?}"),
            &half.inputs(),
            &*half.op(reference::attention_block),
        );
    }
}

/// An attention block whose bias is a network with one output per head, or one for all. Units may
/// have both signs.
fn with_network(
    half: impl Fn(Tensor<3>, Norm, AttentionWeights, Option<Rotation>, Option<Bias>, f64) -> Tensor<3>,
    x: &[Tensor<1>],
    [batch, length, outputs]: [usize; 3],
    [offset, spread]: [f64; 2],
) -> Tensor<1> {
    let (heads, d) = (3, 12);
    let network = DiagonalNetwork {
        diagonals: x[4].clone() * spread + 0.3,
        units: x[5].clone() * spread + offset,
        hidden: [x[6].clone() * 4.0, x[7].clone()],
        weights: x[8].clone().reshape([8, outputs]),
        biases: x[9].clone(),
    };
    let norm = Norm {
        scale: x[1].clone(),
        shift: None,
        eps: 1e-5,
    };
    let weights = AttentionWeights {
        qkv: x[2].clone().reshape([d, 3 * d]).into(),
        output: x[3].clone().reshape([d, d]).into(),
        heads,
        matmul: Matmul::F32,
    };
    let input = x[0].clone().reshape([batch, length, d]);
    let y = half(
        input,
        norm,
        weights,
        None,
        Some(Bias::Network(Box::new(network))),
        0.5,
    );
    y.reshape([batch * length * d])
}

#[test]
fn networks_as_biases_agree_with_their_definition() {
    for sizes @ [batch, length, outputs] in
        [[1, 1, 3], [2, 5, 1], [1, 40, 3], [2, 150, 3], [1, 333, 1]]
    {
        let inputs = [
            input(&[batch * length * 12], 1),
            input(&[12], 2),
            weight(12, 36, 3),
            weight(12, 12, 4),
            input(&[2 * length - 1], 5),
            input(&[length], 6),
            input(&[8], 7),
            input(&[8], 8),
            input(&[8 * outputs], 9),
            input(&[outputs], 10),
        ];
        // Units of both signs give no lines, those of one sign some, and cells that are close
        // together mostly lines.
        for numbers in [[0.0, 1.0], [1.5, 1.0], [1.5, 0.02]] {
            let fused = |x: &[Tensor<1>]| {
                with_network(longreach_kernels::attention_block, x, sizes, numbers)
            };
            let definition =
                |x: &[Tensor<1>]| with_network(reference::attention_block, x, sizes, numbers);
            let what = format!("networks as biases {sizes:?} {numbers:?}");
            // Leeway for the biases of the outputs: a constant changes no weight, so their gradients
            // are rounding errors.
            compare(10.0, &what, &inputs, &fused, &definition);
            same_for_any_threads(&what, &inputs, &fused);
        }
    }
}

#[test]
fn attention_halves_do_not_depend_on_the_number_of_threads() {
    // The second has as many groups of whole sequences as two threads need, the third more.
    for sizes in [[9, 2, 67, 8, 20], [2, 2, 128, 4, 6], [7, 2, 64, 4, 6]] {
        for half in halves(sizes) {
            same_for_any_threads(
                &format!("{half:?}"),
                &half.inputs(),
                &*half.op(longreach_kernels::attention_block),
            );
        }
    }
}

/// Loops over matrix products in the forward and backward passes of `op`, cut for 32 threads, that
/// have fewer than 16 tasks.
fn coarse_loops(inputs: &[Input], op: &Op) -> Vec<String> {
    recording::start(32);
    run(inputs, DType::F32, &**op);
    let (recording, _) = recording::finish().expect("just started");
    let (mut found, mut coarse) = (0, Vec::new());
    for place in recording.places() {
        let files = ["linear.rs", "forward.rs", "backward.rs", "two_rounds.rs"];
        if files.iter().any(|file| place.at.contains(file)) {
            found += 1;
            if place.tasks < 16 * place.loops {
                coarse.push(format!("{place:?}"));
            }
        }
    }
    assert!(found >= 3, "forward pass and two rounds: {found}");
    coarse
}

#[test]
fn work_is_cut_finely_enough_for_32_threads() {
    // 4096 rows, the size of a training step of a tiny model.
    for (name, inputs, fused, _) in operations(4096, 64, 256) {
        let coarse = coarse_loops(&inputs, &fused);
        assert!(coarse.is_empty(), "{name}: {coarse:#?}");
    }
    // Many short sequences, and fewer longer ones.
    for sizes in [[32, 4, 128, 16, 64], [8, 4, 512, 16, 64]] {
        for half in halves(sizes) {
            let op = half.op(longreach_kernels::attention_block);
            let coarse = coarse_loops(&half.inputs(), &op);
            assert!(coarse.is_empty(), "{half:?}: {coarse:#?}");
        }
    }
}
