//! Models side by side: every operation gives each group what it gives the group alone.

use crate::common::{Input, assert_close, input, noise, to_f64};
use burn::tensor::{DType, Device, Tensor, TensorData};
use longreach_kernels as fused;
use longreach_kernels::{AttentionWeights, Bias, Linear, Matmul, MlpWeights, Norm, Rotation};

/// An operation on flat inputs that hold the numbers of so many groups, one after the other.
type Op = Box<dyn Fn(&[Tensor<1>], usize) -> Tensor<1>>;

const WIDTH: usize = 6;
const INNER: usize = 8;
const HEADS: usize = 2;
const LENGTH: usize = 5;
/// Sequences of a group.
const BATCH: usize = 2;

/// The output and the gradients of the sum of its products with `factors`.
fn run(
    inputs: &[Vec<f64>],
    factors: &[f64],
    dtype: DType,
    groups: usize,
    op: &Op,
) -> Vec<Vec<f64>> {
    let device = Device::flex().autodiff();
    let tensor = |values: &[f64]| {
        Tensor::<1>::from_data(
            TensorData::new(values.to_vec(), [values.len()]),
            (&device, dtype),
        )
    };
    let leaves = inputs.iter().map(|x| tensor(x).require_grad());
    let leaves: Vec<Tensor<1>> = leaves.collect();
    let output = op(&leaves, groups);
    let grads = (output.clone() * tensor(factors)).sum_dim(0).backward();
    let grads = leaves
        .iter()
        .map(|x| to_f64(x.grad(&grads).expect("a gradient")));
    std::iter::once(to_f64(output.inner()))
        .chain(grads)
        .collect()
}

/// Compares groups beside each other with each group alone: the same numbers from fused operations
/// in f32, and nearly so from definitions in f64. `shapes` are those of one group.
fn compare(what: &str, shapes: &[&[usize]], outputs: usize, op: Op) {
    compare_up_to(0.0, what, shapes, outputs, op);
}

/// The same with a tolerance in f32.
fn compare_up_to(off: f64, what: &str, shapes: &[&[usize]], outputs: usize, op: Op) {
    for groups in [1, 2, 3] {
        let whole: Vec<Input> = shapes
            .iter()
            .zip(1..)
            .map(|(shape, seed)| input(&[&[groups], *shape].concat(), seed))
            .collect();
        let whole: Vec<Vec<f64>> = whole.into_iter().map(|x| x.values).collect();
        let factors = noise(groups * outputs, 99);
        for dtype in [DType::F32, DType::F64] {
            let together = run(&whole, &factors, dtype, groups, &op);
            for g in 0..groups {
                let part = |x: &Vec<f64>| {
                    let size = x.len() / groups;
                    x[g * size..(g + 1) * size].to_vec()
                };
                let inputs: Vec<Vec<f64>> = whole.iter().map(part).collect();
                let alone = run(&inputs, &part(&factors), dtype, 1, &op);
                let together: Vec<Vec<f64>> = together.iter().map(part).collect();
                let what = format!("{what}, {dtype:?}, group {g} of {groups}");
                let off = if dtype == DType::F32 { off } else { 1e-11 };
                for (a, b) in together.iter().zip(&alone) {
                    assert_close(&what, a, b, off, off);
                }
            }
        }
    }
}

/// A tensor of the first groups of a constant, which does not follow the number of groups.
fn constant<const D: usize>(like: &Tensor<1>, shape: [usize; D], seed: u64) -> Tensor<D> {
    let values = noise(shape.iter().product(), seed);
    Tensor::from_data(
        TensorData::new(values, shape),
        (&like.device(), like.dtype()),
    )
}

fn norm(scale: &Tensor<1>, shift: Option<&Tensor<1>>) -> Norm {
    Norm {
        scale: scale.clone(),
        shift: shift.cloned(),
        eps: 1e-5,
    }
}

fn flat<const D: usize>(x: Tensor<D>) -> Tensor<1> {
    let count = x.dims().iter().product::<usize>();
    x.reshape([count])
}

#[test]
fn norms_of_groups_are_those_of_each() {
    let rows = 3;
    compare("rms", &[&[rows, WIDTH], &[WIDTH]], rows * WIDTH, {
        Box::new(move |x, g| {
            let rows = x[0].clone().reshape([g * rows, WIDTH]);
            flat(fused::rms_norm(rows, x[1].clone(), 1e-5))
        })
    });
    let shapes: &[&[usize]] = &[&[rows, WIDTH], &[WIDTH], &[WIDTH]];
    compare("layer", shapes, rows * WIDTH, {
        Box::new(move |x, g| {
            let rows = x[0].clone().reshape([g * rows, WIDTH]);
            let (scale, shift) = (x[1].clone(), x[2].clone());
            flat(fused::layer_norm(rows, scale, shift, 1e-5))
        })
    });
}

#[test]
fn linear_layers_of_groups_are_those_of_each() {
    let rows = 4;
    for norms in 0..3 {
        let mut shapes: Vec<&[usize]> = vec![&[4, WIDTH], &[WIDTH, INNER]];
        shapes.resize(2 + norms, &[WIDTH]);
        compare(&format!("{norms} of a norm"), &shapes, rows * INNER, {
            Box::new(move |x, g| {
                let norm = x.get(2).map(|scale| norm(scale, x.get(3)));
                let w = x[1].clone().reshape([g * WIDTH, INNER]);
                let rows = x[0].clone().reshape([g * rows, WIDTH]);
                flat(fused::linear(rows, norm, w, Matmul::F32))
            })
        });
    }
}

#[test]
fn feed_forward_blocks_of_groups_are_those_of_each() {
    let rows = 4;
    for gated in [false, true] {
        let weight: &[usize] = &[WIDTH, INNER];
        let mut shapes = vec![&[4, WIDTH][..], &[WIDTH], &[WIDTH], weight, weight];
        shapes.extend([&[INNER][..], &[WIDTH]]);
        if gated {
            shapes.extend([weight, &[INNER]]);
        }
        compare(&format!("gated {gated}"), &shapes, rows * WIDTH, {
            Box::new(move |x, g| {
                let layer = |w: &Tensor<1>, bias: &Tensor<1>, rows: usize| Linear {
                    w: w.clone().reshape([g * rows, w.dims()[0] / (g * rows)]),
                    bias: Some(bias.clone()),
                };
                let weights = MlpWeights {
                    up: layer(&x[3], &x[5], WIDTH),
                    gate: gated.then(|| layer(&x[7], &x[8], WIDTH)),
                    down: layer(&x[4], &x[6], INNER),
                    matmul: Matmul::F32,
                };
                let rows = x[0].clone().reshape([g * rows, WIDTH]);
                flat(fused::mlp(rows, norm(&x[1], Some(&x[2])), weights))
            })
        });
    }
}

/// Cos and sin stand-ins for so many groups.
fn rotation(like: &Tensor<1>, groups: usize) -> Rotation {
    let table = |seed| constant(like, [3, 1, LENGTH, 1], seed).slice_dim(0, 0..groups);
    Rotation {
        queries: [7, 8].map(table),
        keys: [9, 10].map(table),
        interleaved: false,
    }
}

#[test]
fn rotations_of_groups_are_those_of_each() {
    let shape: &[usize] = &[BATCH, HEADS, LENGTH, INNER / HEADS];
    for interleaved in [false, true] {
        let count = shape.iter().product();
        // The tables of every group are inputs, so that each group alone gets its own.
        let tables: &[usize] = &[1, 1, LENGTH, 2];
        compare_up_to(1e-5, "rotation", &[shape, tables, tables], count, {
            Box::new(move |x, g| {
                let table = |x: &Tensor<1>| x.clone().reshape([g, 1, LENGTH, 2]);
                let (cos, sin) = (table(&x[1]), table(&x[2]));
                let shape = [g * BATCH, HEADS, LENGTH, INNER / HEADS];
                let whole = x[0].clone().reshape(shape);
                flat(fused::rotate(whole, cos, sin, interleaved))
            })
        });
    }
}

#[test]
fn attention_of_groups_is_that_of_each() {
    let source: &[usize] = &[BATCH, HEADS, LENGTH, INNER / HEADS];
    let bias: &[usize] = &[1, HEADS, LENGTH, LENGTH];
    let shape = |g: usize| [g * BATCH, HEADS, LENGTH, INNER / HEADS];
    for weights in [false, true] {
        let shapes = [source, source, source, bias];
        let row = if weights { LENGTH } else { INNER / HEADS };
        let shapes = &shapes[usize::from(weights)..];
        compare("attention", shapes, BATCH * HEADS * LENGTH * row, {
            Box::new(move |x, g| {
                let bias = x.last().expect("a bias").clone();
                let bias = Some(bias.reshape([g, HEADS, LENGTH, LENGTH]));
                let [q, k] = [0, 1].map(|i: usize| x[i].clone().reshape(shape(g)));
                if weights {
                    return flat(fused::attention_weights(q, k, bias, 0.5, 0));
                }
                let v = x[2].clone().reshape(shape(g));
                flat(fused::attention(q, k, v, bias, 0.5, 0))
            })
        });
    }
}

/// What is added to the logits of an attention block.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Added {
    Nothing,
    PerGroup,
    PerSequence,
    Shared,
    ByDistance,
    Decays,
}

#[test]
fn attention_blocks_of_groups_are_those_of_each() {
    use Added::{ByDistance, Decays, Nothing, PerGroup, PerSequence, Shared};
    for added in [Nothing, PerGroup, PerSequence, Shared, ByDistance, Decays] {
        for rotated in [false, true] {
            let mut shapes: Vec<&[usize]> = vec![
                &[BATCH, LENGTH, WIDTH],
                &[WIDTH],
                &[WIDTH, 3 * INNER],
                &[INNER, WIDTH],
                &[WIDTH],
            ];
            let bias: Option<&[usize]> = match added {
                Nothing | Shared => None,
                PerGroup => Some(&[1, HEADS, LENGTH, LENGTH]),
                PerSequence => Some(&[BATCH, 1, LENGTH, LENGTH]),
                ByDistance => Some(&[1, HEADS, LENGTH + 2]),
                Decays => Some(&[BATCH, HEADS, LENGTH]),
            };
            shapes.extend(bias);
            let what = format!("{added:?}, rotated {rotated}");
            compare(&what, &shapes, BATCH * LENGTH * WIDTH, {
                Box::new(move |x, g| block(x, g, added, rotated))
            });
        }
    }
}

fn block(x: &[Tensor<1>], g: usize, added: Added, rotated: bool) -> Tensor<1> {
    let weights = AttentionWeights {
        qkv: x[2].clone().reshape([g * WIDTH, 3 * INNER]).into(),
        output: Linear {
            w: x[3].clone().reshape([g * INNER, WIDTH]),
            bias: Some(x[4].clone()),
        },
        heads: HEADS,
        matmul: Matmul::F32,
    };
    let square = |of: usize, heads| x[5].clone().reshape([of, heads, LENGTH, LENGTH]);
    let bias = match added {
        Added::Nothing => None,
        Added::PerGroup => Some(Bias::Dense(square(g, HEADS))),
        Added::PerSequence => Some(Bias::Dense(square(g * BATCH, 1))),
        Added::Shared => Some(Bias::Dense(constant(&x[0], [1, 1, LENGTH, LENGTH], 5))),
        Added::ByDistance => Some(Bias::ByDistance(x[5].clone().reshape([
            g,
            HEADS,
            LENGTH + 2,
        ]))),
        Added::Decays => {
            let sums = x[5].clone().reshape([g * BATCH, HEADS, LENGTH]);
            Some(Bias::Decays(sums))
        }
    };
    // One for all groups: those of each are in the next test.
    let rotation = rotated.then(|| rotation(&x[0], 1));
    let whole = x[0].clone().reshape([g * BATCH, LENGTH, WIDTH]);
    flat(fused::attention_block(
        whole,
        norm(&x[1], None),
        weights,
        rotation,
        bias,
        0.4,
    ))
}

#[test]
fn every_group_of_an_attention_block_has_its_own_rotation() {
    let groups = 3;
    let device = Device::flex();
    for dtype in [DType::F32, DType::F64] {
        let tensor = |shape: &[usize], seed| {
            let values = input(shape, seed).values;
            let count = values.len();
            Tensor::<1>::from_data(TensorData::new(values, [count]), (&device, dtype))
        };
        let x = tensor(&[groups, BATCH, LENGTH, WIDTH], 1);
        let scale = tensor(&[groups, WIDTH], 2);
        let qkv = tensor(&[groups, WIDTH, 3 * INNER], 3);
        let output = tensor(&[groups, INNER, WIDTH], 4);
        let part = |x: &Tensor<1>, g: usize| {
            let size = x.dims()[0] / groups;
            x.clone().slice_dim(0, g * size..(g + 1) * size)
        };
        let run = |[x, scale, qkv, output]: [Tensor<1>; 4], rotation, g: usize| {
            let weights = AttentionWeights {
                qkv: qkv.reshape([g * WIDTH, 3 * INNER]).into(),
                output: output.reshape([g * INNER, WIDTH]).into(),
                heads: HEADS,
                matmul: Matmul::F32,
            };
            let x = x.reshape([g * BATCH, LENGTH, WIDTH]);
            let norm = norm(&scale, None);
            to_f64(fused::attention_block(
                x,
                norm,
                weights,
                Some(rotation),
                None,
                0.4,
            ))
        };
        let tables = rotation(&x, groups);
        let all = [&x, &scale, &qkv, &output];
        let alone: Vec<f64> = (0..groups)
            .flat_map(|g| {
                let table = |x: &Tensor<4>| x.clone().slice_dim(0, g..g + 1);
                let own = Rotation {
                    queries: tables.queries.each_ref().map(table),
                    keys: tables.keys.each_ref().map(table),
                    interleaved: false,
                };
                run(all.map(|x| part(x, g)), own, 1)
            })
            .collect();
        let together = run(all.map(Clone::clone), tables, groups);
        let what = format!("{dtype:?}");
        if dtype == DType::F32 {
            assert_eq!(together, alone);
        }
        assert_close(&what, &together, &alone, 1e-11, 1e-12);
    }
}

#[test]
#[should_panic(expected = "one row of weights per column: 9 for 6")]
fn parameters_of_a_part_of_a_group_are_refused() {
    let x = Tensor::<2>::zeros([4, 6], &Device::flex());
    let w = Tensor::<2>::zeros([9, 2], &Device::flex());
    fused::linear(x, None, w, Matmul::F32);
}
