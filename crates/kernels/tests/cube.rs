//! The fused operations of CubeCL backends against their definitions: on a wgpu adapter, or on
//! another device that `LONGREACH_TEST_DEVICE` names (`cuda`) and that is compiled in.

use burn::tensor::{Device, Int, Tensor, TensorData};
use longreach_kernels::{
    AdamWStep, AdamWUpdate, AttentionWeights, Bias, DiagonalNetwork, Launches, Matmul, Norm,
    Rotation, reference,
};
use std::sync::LazyLock;

#[path = "it/common/noise.rs"]
mod noise;
#[path = "cube/rounded.rs"]
mod rounded;
#[path = "cube/timings.rs"]
mod timings;
use noise::noise;

/// `None` if no device was named and the machine has no adapter. After a first number from a
/// device, every failure fails the test.
static DEVICE: LazyLock<Option<Device>> = LazyLock::new(|| {
    let named = std::env::var("LONGREACH_TEST_DEVICE").ok();
    let found = std::panic::catch_unwind(|| {
        let device = device(named.as_deref().unwrap_or("wgpu"));
        let one = Tensor::<1>::ones([1], &device).into_scalar::<f32>();
        (device, one)
    });
    let Ok((device, one)) = found else {
        assert!(named.is_none(), "the device {named:?} does not work");
        println!("SKIPPED: no wgpu adapter was found, nothing was compared");
        return None;
    };
    assert_eq!(one, 1.0);
    Some(device)
});

fn device(name: &str) -> Device {
    match name {
        #[cfg(feature = "wgpu")]
        "wgpu" => Device::wgpu(Default::default()),
        #[cfg(feature = "vulkan")]
        "vulkan" => Device::vulkan(Default::default()),
        #[cfg(feature = "cuda")]
        "cuda" => Device::cuda(0),
        #[cfg(feature = "rocm")]
        "rocm" => Device::rocm(0),
        _ => panic!("{name} is not compiled in"),
    }
}

/// Values and shape of an input.
type Input = (Vec<f64>, Vec<usize>);

fn input(shape: &[usize], seed: u64) -> Input {
    (noise(shape.iter().product(), seed), shape.to_vec())
}

type Op<'a> = &'a dyn Fn(&[Tensor<4>]) -> Tensor<4>;

fn leaves(device: &Device, inputs: &[Input]) -> Vec<Tensor<4>> {
    let leaf = |(values, shape): &Input| {
        let values: Vec<f32> = values.iter().map(|x| *x as f32).collect();
        Tensor::from_data(TensorData::new(values, shape.clone()), device).require_grad()
    };
    inputs.iter().map(leaf).collect()
}

/// The output of `op` and the gradients of the sum of its products with fixed random numbers.
fn run(device: &Device, inputs: &[Input], op: Op) -> Vec<Vec<f32>> {
    let device = device.clone().autodiff();
    let leaves = leaves(&device, inputs);
    let output = op(&leaves);
    let shape = output.dims();
    let factors: Vec<f32> = noise(shape.iter().product(), 99)
        .iter()
        .map(|x| *x as f32)
        .collect();
    let factors = Tensor::<4>::from_data(TensorData::new(factors, shape), &device);
    let grads = (output.clone() * factors).sum().backward();
    let numbers = |x: Tensor<4>| x.into_data().iter::<f32>().collect();
    let mut results = vec![numbers(output.inner())];
    results.extend(
        leaves
            .iter()
            .map(|x| numbers(x.grad(&grads).expect("a gradient"))),
    );
    results
}

/// The largest difference over all results, each relative to the largest number of that result.
fn compare(what: &str, device: &Device, inputs: &[Input], fused: Op, definition: Op) -> f32 {
    let results = run(device, inputs, fused);
    assert_eq!(
        results,
        run(device, inputs, fused),
        "{what}: twice the same bits"
    );
    let expected = run(&Device::flex(), inputs, definition);
    let mut worst = 0.0f32;
    for (i, (a, b)) in results.iter().zip(&expected).enumerate() {
        let largest = b.iter().fold(0.0f32, |a, b| a.max(b.abs()));
        assert_eq!(a.len(), b.len(), "{what}: length of result {i}");
        for (j, (a, b)) in a.iter().zip(b).enumerate() {
            let off = (a - b).abs() / largest.max(0.1);
            assert!(off <= 1e-5, "{what}: result {i}[{j}]: {a} is not {b}");
            worst = worst.max(off);
        }
    }
    worst
}

#[derive(Clone, Copy, Debug)]
struct Case {
    batch: usize,
    heads: usize,
    queries: usize,
    keys: usize,
    head_dim: usize,
    first: usize,
    /// Batch and head dimension of the bias; 0 for no bias.
    bias: [usize; 2],
    /// Bias of -inf beyond this distance.
    window: usize,
    /// Whether queries, keys and values are views of `[B, L, H, E]`.
    strided: bool,
}

type Attention = fn(Tensor<4>, Tensor<4>, Tensor<4>, Option<Tensor<4>>, f64, usize) -> Tensor<4>;

impl Case {
    /// q, k, v and, if there is one, the bias.
    fn inputs(&self) -> Vec<Input> {
        let c = self;
        let shape = |length| {
            if c.strided {
                [c.batch, length, c.heads, c.head_dim]
            } else {
                [c.batch, c.heads, length, c.head_dim]
            }
        };
        let lengths = [(c.queries, 1), (c.keys, 2), (c.keys, 3)];
        let mut inputs: Vec<Input> = lengths
            .iter()
            .map(|(length, seed)| input(&shape(*length), *seed))
            .collect();
        if c.bias[0] > 0 {
            let mut bias = input(&[c.bias[0], c.bias[1], c.queries, c.keys], 4);
            for (i, x) in bias.0.iter_mut().enumerate() {
                let (query, key) = (c.first + i / c.keys % c.queries, i % c.keys);
                if query.abs_diff(key) >= c.window {
                    *x = f64::NEG_INFINITY;
                }
            }
            inputs.push(bias);
        }
        inputs
    }

    fn apply(&self, attention: Attention, x: &[Tensor<4>]) -> Tensor<4> {
        let [q, k, v] = [0, 1, 2].map(|i| {
            let x = x[i].clone();
            if self.strided { x.swap_dims(1, 2) } else { x }
        });
        let scale = 1.0 / (self.head_dim as f64).sqrt();
        attention(q, k, v, x.get(3).cloned(), scale, self.first)
    }

    fn check(&self, device: &Device) {
        let worst = compare(
            &format!("{self:?}"),
            device,
            &self.inputs(),
            &|x| self.apply(longreach_kernels::attention, x),
            &|x| self.apply(reference::attention, x),
        );
        println!("{worst:.1e} {self:?}");
    }
}

const PLAIN: Case = Case {
    batch: 2,
    heads: 3,
    queries: 5,
    keys: 5,
    head_dim: 8,
    first: 0,
    bias: [0, 0],
    window: usize::MAX,
    strided: true,
};

#[test]
fn attention_agrees_with_its_definition() {
    let Some(device) = &*DEVICE else { return };
    for (queries, keys, first) in [
        (1, 1, 0),
        (5, 5, 0),
        (33, 33, 0),
        (130, 130, 0),
        // Keys of a cache; then keys that no query sees.
        (5, 130, 125),
        (1, 33, 32),
        (40, 130, 3),
        // Bidirectional.
        (5, 5, 5),
        (33, 130, 130),
        (130, 33, 1000),
    ] {
        let lengths = Case {
            queries,
            keys,
            first,
            ..PLAIN
        };
        lengths.check(device);
        Case {
            strided: false,
            head_dim: 10,
            ..lengths
        }
        .check(device);
    }
    // The last one runs the definition.
    for head_dim in [1, 16, 24, 33, 64, 72, 128, 136] {
        Case {
            head_dim,
            batch: 1,
            queries: 70,
            keys: 70,
            ..PLAIN
        }
        .check(device);
    }
}

#[test]
fn attention_with_a_bias_agrees_with_its_definition() {
    let Some(device) = &*DEVICE else { return };
    for bias in [[1, 1], [1, 3], [2, 1], [2, 3]] {
        for (queries, keys, first, window) in [
            (33, 33, 0, usize::MAX),
            (70, 70, 0, 9),
            // Distance 0 is hidden as well: rows that see nothing.
            (18, 18, 0, 0),
            (35, 130, 90, 40),
            (35, 40, 40, usize::MAX),
        ] {
            Case {
                queries,
                keys,
                first,
                bias,
                window,
                ..PLAIN
            }
            .check(device);
        }
    }
    for head_dim in [24, 64, 128] {
        Case {
            head_dim,
            queries: 40,
            keys: 40,
            bias: [1, 3],
            window: 30,
            ..PLAIN
        }
        .check(device);
    }
}

#[test]
fn keys_that_no_query_sees_are_not_read() {
    let Some(device) = &*DEVICE else { return };
    let c = Case {
        queries: 40,
        keys: 130,
        first: 3,
        ..PLAIN
    };
    let mut inputs = c.inputs();
    let row = c.heads * c.head_dim;
    let expected = run(device, &inputs, &|x| {
        c.apply(longreach_kernels::attention, x)
    });
    for input in &mut inputs[1..] {
        for batch in input.0.chunks_mut(c.keys * row) {
            batch[(c.first + c.queries) * row..].fill(f64::NAN);
        }
    }
    let results = run(device, &inputs, &|x| {
        c.apply(longreach_kernels::attention, x)
    });
    assert_eq!(results, expected);
    let hidden = &results[1 + 1][(c.first + c.queries) * row..c.keys * row];
    assert!(hidden.iter().all(|x| *x == 0.0), "no gradient");
}

#[test]
fn a_bias_alone_takes_its_gradient() {
    let Some(device) = &*DEVICE else { return };
    let c = Case {
        bias: [1, 3],
        queries: 20,
        keys: 20,
        ..PLAIN
    };
    let all = run(device, &c.inputs(), &|x| {
        c.apply(longreach_kernels::attention, x)
    });
    let bias_alone = |x: &[Tensor<4>]| {
        let constant = [0, 1, 2].map(|i| x[i].clone().detach());
        let [q, k, v] = constant;
        let leaves = x[0].clone() * 0.0 + x[1].clone() * 0.0 + x[2].clone() * 0.0;
        c.apply(longreach_kernels::attention, &[q, k, v, x[3].clone()]) + leaves.swap_dims(1, 2)
    };
    let some = run(device, &c.inputs(), &bias_alone);
    assert_eq!(all[4], some[4]);
    assert_eq!(all[0], some[0]);
}

#[test]
fn memory_does_not_grow_with_the_square_of_the_length() {
    let Some(device) = &*DEVICE else { return };
    // One matrix of logits would be 128 MiB.
    let (heads, length, head_dim) = (2, 4096, 16);
    let shape = [1, length, heads, head_dim];
    let device = device.clone().autodiff();
    let [q, k, v] = [1, 2, 3].map(|seed| {
        let values: Vec<f32> = input(&shape, seed).0.iter().map(|x| *x as f32).collect();
        Tensor::<4>::from_data(TensorData::new(values, shape), &device)
            .swap_dims(1, 2)
            .require_grad()
    });
    let reserved = || {
        device
            .memory_pool_usage()
            .map_or(0, |usage| usage.bytes_reserved)
    };
    let before = reserved();
    let y = longreach_kernels::attention(q.clone(), k.clone(), v.clone(), None, 0.25, 0);
    let first = y.clone().inner().slice_dim(2, 0..1);
    let same = first - v.clone().inner().slice_dim(2, 0..1);
    assert_eq!(
        same.abs().max().into_scalar::<f32>(),
        0.0,
        "the first query sees one key"
    );
    let grads = y.sum().backward();
    // Every row of weights has the sum 1.
    let sum = v
        .grad(&grads)
        .expect("a gradient")
        .sum()
        .into_scalar::<f32>();
    let expected = (heads * length * head_dim) as f32;
    assert!(
        (sum / expected - 1.0).abs() < 1e-5,
        "{sum} is not {expected}"
    );
    let grown = reserved() - before;
    println!("{} KiB more of device memory", grown >> 10);
    assert!(grown < 32 << 20, "{grown} bytes");
}

#[test]
fn rotations_agree_with_their_definition() {
    let Some(device) = &*DEVICE else { return };
    let (length, head_dim, pairs) = (5, 9, 3);
    for tables in [[1, 1], [1, 3], [2, 1], [2, 3], [4, 1], [4, 3]] {
        for [interleaved, by_position] in
            [[false, false], [false, true], [true, false], [true, true]]
        {
            let table = [tables[0], tables[1], length, pairs];
            let x = if by_position {
                [4, length, 3, head_dim]
            } else {
                [4, 3, length, head_dim]
            };
            let inputs = [input(&x, 1), input(&table, 2), input(&table, 3)];
            let turned = |x: &[Tensor<4>], rotate: Rotate| {
                let [x, cos, sin] = [0, 1, 2].map(|i: usize| x[i].clone());
                let x = if by_position { x.swap_dims(1, 2) } else { x };
                rotate(x, cos, sin, interleaved)
            };
            let what = format!("{tables:?}, {interleaved}, {by_position}");
            let worst = compare(
                &what,
                device,
                &inputs,
                &|x| turned(x, longreach_kernels::rotate),
                &|x| turned(x, reference::rotate),
            );
            println!("{worst:.1e} {what}");
        }
    }
}

type Rotate = fn(Tensor<4>, Tensor<4>, Tensor<4>, bool) -> Tensor<4>;

/// An attention block: what rotates, and what is added.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// Models side by side.
    groups: usize,
    /// Sequences of each.
    batch: usize,
    length: usize,
    head_dim: usize,
    /// Rotated pairs; 0 for no rotation.
    pairs: usize,
    interleaved: bool,
    /// Heads of a bias by distance; 0 for none.
    by_distance: usize,
    /// Heads of a dense bias; 0 for none.
    dense: usize,
    /// Whether the bias is a network, which is materialised.
    network: bool,
    /// Whether the bias is running sums of a decay.
    decays: bool,
}

impl Block {
    const HEADS: usize = 4;
    const WIDTH: usize = 12;

    fn inputs(&self) -> Vec<Input> {
        let (g, inner) = (self.groups, Self::HEADS * self.head_dim);
        let mut inputs = vec![
            input(&[g, self.batch, self.length, Self::WIDTH], 1),
            input(&[g, 1, 1, Self::WIDTH], 2),
            input(&[g, 1, Self::WIDTH, 3 * inner], 3),
            input(&[g, 1, inner, Self::WIDTH], 4),
        ];
        if self.by_distance > 0 {
            // More distances than the sequence has.
            inputs.push(input(&[g, 1, self.by_distance, self.length + 3], 5));
        }
        if self.dense > 0 {
            inputs.push(input(&[g, self.dense, self.length, self.length], 6));
        }
        if self.network {
            inputs.push(input(&[1, 1, 1, 2 * self.length - 1], 7));
            inputs.push(input(&[1, 1, 6, Self::HEADS], 8));
        }
        if self.decays {
            let mut sums = input(&[g, self.batch, Self::HEADS, self.length], 9);
            for row in sums.0.chunks_mut(self.length) {
                let mut sum = 0.0;
                row.iter_mut().for_each(|x| {
                    sum -= x.abs();
                    *x = sum;
                });
            }
            inputs.push(sums);
        }
        inputs
    }

    fn apply(&self, block: AttentionBlock, x: &[Tensor<4>]) -> Tensor<4> {
        let (g, inner) = (self.groups, Self::HEADS * self.head_dim);
        let device = x[0].device();
        let norm = Norm {
            scale: x[1].clone().reshape([g * Self::WIDTH]),
            shift: None,
            eps: 1e-5,
        };
        let weights = AttentionWeights {
            qkv: x[2].clone().reshape([g * Self::WIDTH, 3 * inner]).into(),
            output: x[3].clone().reshape([g * inner, Self::WIDTH]).into(),
            heads: Self::HEADS,
            matmul: Matmul::F32,
        };
        let table = |f: fn(f64) -> f64, shift: usize| {
            let count = g * self.length * self.pairs;
            let angles = (0..count).map(|i| (i * 7 % 31 + shift) as f64 / 5.0);
            let values: Vec<f32> = angles.map(|angle| f(angle) as f32).collect();
            let shape = [g, 1, self.length, self.pairs];
            Tensor::<4>::from_data(TensorData::new(values, shape), &device)
        };
        let rotation = (self.pairs > 0).then(|| Rotation {
            queries: [table(f64::cos, 0), table(f64::sin, 0)],
            keys: [table(f64::cos, 1), table(f64::sin, 1)],
            interleaved: self.interleaved,
        });
        let bias = if self.network {
            let constant = |n: usize| Tensor::ones([n], &device);
            Some(Bias::Network(Box::new(DiagonalNetwork {
                diagonals: x[4].clone().reshape([2 * self.length - 1]),
                units: constant(self.length) * 2.0,
                hidden: [constant(6), constant(6) * 0.5],
                weights: x[5].clone().reshape([6, Self::HEADS]),
                biases: constant(Self::HEADS),
            })))
        } else if self.decays {
            let shape = [g * self.batch, Self::HEADS, self.length];
            Some(Bias::Decays(x[4].clone().reshape(shape)))
        } else if self.by_distance > 0 {
            let shape = [g, self.by_distance, self.length + 3];
            Some(Bias::ByDistance(x[4].clone().reshape(shape)))
        } else {
            x.get(4).cloned().map(Bias::Dense)
        };
        let shape = [g * self.batch, self.length, Self::WIDTH];
        let y = block(
            x[0].clone().reshape(shape),
            norm,
            weights,
            rotation,
            bias,
            0.3,
        );
        y.unsqueeze()
    }
}

impl Block {
    fn check(&self, device: &Device) {
        let worst = compare(
            &format!("{self:?}"),
            device,
            &self.inputs(),
            &|x| self.apply(longreach_kernels::attention_block, x),
            &|x| self.apply(reference::attention_block, x),
        );
        println!("{worst:.1e} {self:?}");
    }
}

type AttentionBlock =
    fn(Tensor<3>, Norm, AttentionWeights, Option<Rotation>, Option<Bias>, f64) -> Tensor<3>;

const BLOCK: Block = Block {
    groups: 1,
    batch: 2,
    length: 33,
    head_dim: 8,
    pairs: 0,
    interleaved: false,
    by_distance: 0,
    dense: 0,
    network: false,
    decays: false,
};

#[test]
fn attention_blocks_agree_with_their_definition() {
    let Some(device) = &*DEVICE else { return };
    let rotations = [(8, 4, false), (8, 4, true), (10, 3, false), (24, 8, true)];
    let mut cases = vec![BLOCK];
    cases.extend(rotations.map(|(head_dim, pairs, interleaved)| Block {
        head_dim,
        pairs,
        interleaved,
        ..BLOCK
    }));
    for length in [1, 5, 70, 130] {
        for (by_distance, dense) in [(1, 0), (4, 0), (0, 4)] {
            cases.push(Block {
                length,
                by_distance,
                dense,
                pairs: 2,
                ..BLOCK
            });
        }
    }
    for length in [1, 5, 70, 130] {
        for groups in [1, 3] {
            cases.push(Block {
                groups,
                length,
                decays: true,
                pairs: 2,
                ..BLOCK
            });
        }
    }
    // Partial sums over several sequences.
    for by_distance in [1, 4] {
        cases.push(Block {
            batch: 300,
            length: 40,
            by_distance,
            ..BLOCK
        });
    }
    for head_dim in [24, 64] {
        cases.push(Block {
            head_dim,
            length: 70,
            by_distance: 4,
            ..BLOCK
        });
    }
    cases.push(Block {
        network: true,
        ..BLOCK
    });
    cases.iter().for_each(|case| case.check(device));
}

#[test]
fn attention_blocks_of_several_models_agree_with_their_definition() {
    let Some(device) = &*DEVICE else { return };
    for groups in [2, 3] {
        let several = Block { groups, ..BLOCK };
        several.check(device);
        for (by_distance, dense) in [(1, 0), (4, 0), (0, 1), (0, 4)] {
            let biased = Block {
                by_distance,
                dense,
                length: 40,
                ..several
            };
            biased.check(device);
        }
        for (pairs, interleaved) in [(4, false), (3, true)] {
            let rotated = Block {
                pairs,
                interleaved,
                ..several
            };
            rotated.check(device);
        }
        // Partial sums over several sequences of each.
        let long = Block {
            batch: 100,
            by_distance: 4,
            pairs: 2,
            ..several
        };
        long.check(device);
    }
}

/// `[1, 1, N, W]` as `[N, W]`.
fn rows(x: &Tensor<4>) -> Tensor<2> {
    let [.., rows, width] = x.dims();
    x.clone().reshape([rows, width])
}

fn vector(x: &Tensor<4>) -> Tensor<1> {
    let length = x.shape().num_elements();
    x.clone().reshape([length])
}

/// The output and gradients of a product in a format, each against products of rounded factors in
/// f64; `[n, k, m]`.
fn check_product(device: &Device, matmul: Matmul, sizes: [usize; 3], op: Op) {
    let [n, k, m] = sizes;
    let inputs = [input(&[1, 1, n, k], 1), input(&[1, 1, k, m], 2)];
    let results = run(device, &inputs, op);
    assert_eq!(results, run(device, &inputs, op), "twice the same bits");
    let grad = noise(n * m, 99);
    let numbers = [&inputs[0].0[..], &inputs[1].0, &grad];
    let expected = rounded::products(matmul, numbers, sizes);
    for (i, (result, expected)) in results.iter().zip(&expected).enumerate() {
        let result: Vec<f64> = result.iter().map(|x| f64::from(*x)).collect();
        let off = rounded::off(&result, expected);
        assert!(
            off < 2e-6,
            "{matmul:?} {sizes:?}, result {i}: off by {off:e}"
        );
    }
}

#[test]
fn products_round_their_factors_as_they_are_asked_to() {
    let Some(device) = &*DEVICE else { return };
    let sizes = [
        [1, 1, 1],
        [3, 7, 5],
        [64, 64, 64],
        [70, 33, 129],
        [257, 128, 16],
        // Sums that are split, into parts of one size and not.
        [64, 2048, 64],
        [70, 1100, 130],
        // Large tiles.
        [2050, 20, 2052],
    ];
    for sizes in sizes {
        for matmul in [Matmul::F32, Matmul::Tf32, Matmul::Bf16] {
            check_product(device, matmul, sizes, &|x| {
                longreach_kernels::linear(rows(&x[0]), None, rows(&x[1]), matmul).unsqueeze()
            });
        }
    }
}

#[test]
fn products_of_groups_are_those_of_each_group() {
    let Some(device) = &*DEVICE else { return };
    for sizes in [[21, 40, 19], [1100, 64, 130]] {
        check_groups(device, 3, sizes);
    }
}

/// Compares products of groups, `[groups n, k]` and `[groups k, m]`, with those of each, to the bit.
fn check_groups(device: &Device, groups: usize, [n, k, m]: [usize; 3]) {
    let inputs = [
        input(&[1, 1, groups * n, k], 1),
        input(&[1, 1, groups * k, m], 2),
    ];
    for matmul in [Matmul::F32, Matmul::Tf32, Matmul::Bf16] {
        let linear = |x: Tensor<4>, w: Tensor<4>| {
            longreach_kernels::linear(rows(&x), None, rows(&w), matmul).unsqueeze::<4>()
        };
        let all = run(device, &inputs, &|x| linear(x[0].clone(), x[1].clone()));
        let each = run(device, &inputs, &|x| {
            let part = |x: &Tensor<4>, g: usize, size: usize| {
                x.clone().slice_dim(2, g * size..(g + 1) * size)
            };
            let parts = (0..groups).map(|g| linear(part(&x[0], g, n), part(&x[1], g, k)));
            Tensor::cat(parts.collect(), 2)
        });
        assert_eq!(all, each, "{matmul:?}");
    }
}

#[test]
fn products_repeat_leading_dimensions_of_1() {
    let Some(device) = &*DEVICE else { return };
    let sizes = [
        ([2, 3, 5, 7], [1, 1, 7, 4]),
        ([1, 1, 5, 7], [2, 3, 7, 4]),
        ([2, 1, 5, 7], [1, 3, 7, 4]),
        ([2, 3, 5, 7], [1, 3, 7, 4]),
    ];
    for (a, b) in sizes {
        let inputs = [input(&a, 1), input(&b, 2)];
        let outputs = |op: Op| {
            let results = run(device, &inputs, op);
            results
                .into_iter()
                .flatten()
                .map(f64::from)
                .collect::<Vec<_>>()
        };
        let repeated =
            outputs(&|x| longreach_kernels::matmul(x[0].clone(), x[1].clone(), Matmul::Tf32));
        let written_out = outputs(&|x| {
            let [a, b] = [
                x[0].clone().expand([2, 3, 5, 7]),
                x[1].clone().expand([2, 3, 7, 4]),
            ];
            let matrices = |x: Tensor<4>| {
                x.iter_dim(0)
                    .flat_map(|x| x.iter_dim(1))
                    .collect::<Vec<_>>()
            };
            let products = matrices(a).into_iter().zip(matrices(b));
            let products = products.map(|(a, b)| {
                longreach_kernels::linear(rows(&a), None, rows(&b), Matmul::Tf32).unsqueeze::<4>()
            });
            Tensor::cat(products.collect(), 1).reshape([2, 3, 5, 4])
        });
        let off = rounded::off(&repeated, &written_out);
        assert!(off < 1e-6, "{a:?} {b:?}: off by {off:e}");
    }
}

/// Rows and columns: few and many, odd, and at the limits of what units of a cube share.
const MATRICES: [[usize; 2]; 9] = [
    [1, 1],
    [3, 5],
    [17, 64],
    [70, 33],
    [513, 128],
    [9, 256],
    [21, 257],
    [5, 2048],
    [3, 2049],
];

#[test]
fn norms_agree_with_their_definition() {
    let Some(device) = &*DEVICE else { return };
    for [n, width] in MATRICES {
        let inputs = [
            input(&[1, 1, n, width], 1),
            input(&[1, 1, 1, width], 2),
            input(&[1, 1, 1, width], 3),
        ];
        let what = format!("layer norm of {n} x {width}");
        type LayerNorm = fn(Tensor<2>, Tensor<1>, Tensor<1>, f64) -> Tensor<2>;
        let layer = |norm: LayerNorm, x: &[Tensor<4>]| {
            norm(rows(&x[0]), vector(&x[1]), vector(&x[2]), 1e-5).unsqueeze()
        };
        // The variance of one column is 0.
        if width > 1 {
            let worst = compare(
                &what,
                device,
                &inputs,
                &|x| layer(longreach_kernels::layer_norm, x),
                &|x| layer(reference::layer_norm, x),
            );
            println!("{worst:.1e} {what}");
        }
        let what = format!("RMS norm of {n} x {width}");
        type RmsNorm = fn(Tensor<2>, Tensor<1>, f64) -> Tensor<2>;
        let rms =
            |norm: RmsNorm, x: &[Tensor<4>]| norm(rows(&x[0]), vector(&x[1]), 1e-5).unsqueeze();
        let worst = compare(
            &what,
            device,
            &inputs[..2],
            &|x| rms(longreach_kernels::rms_norm, x),
            &|x| rms(reference::rms_norm, x),
        );
        println!("{worst:.1e} {what}");
    }
}

/// A norm followed by a product, where scale and shift may be those of several parts.
fn normed(x: &[Tensor<4>], matmul: &Tensor<2>) -> Tensor<4> {
    let norm = Norm {
        scale: vector(&x[1]),
        shift: x.get(2).map(vector),
        eps: 1e-5,
    };
    longreach_kernels::linear(rows(&x[0]), Some(norm), matmul.clone(), Matmul::F32).unsqueeze()
}

#[test]
fn parts_of_a_norm_have_the_bits_of_separate_ones() {
    let Some(device) = &*DEVICE else { return };
    for ([n, width], shift) in [([7, 33], true), ([600, 64], true), ([40, 12], false)] {
        let identity = Tensor::<2>::eye(width, &device.clone().autodiff());
        let vectors = 1 + usize::from(shift);
        let mut inputs = vec![input(&[1, 1, 2 * n, width], 1)];
        inputs.extend((0..vectors as u64).map(|i| input(&[1, 1, 2, width], 2 + i)));
        // Weights have parts too.
        let identities = identity.clone().repeat_dim(0, 2);
        let both = run(device, &inputs, &|x| normed(x, &identities));
        // The same leaves, so that the random factors of the loss are the same ones.
        let halves = run(device, &inputs, &|x| {
            let half = |i: usize| {
                let part = |x: &Tensor<4>| {
                    let rows = x.dims()[2] / 2;
                    x.clone().slice_dim(2, i * rows..(i + 1) * rows)
                };
                normed(&x.iter().map(part).collect::<Vec<_>>(), &identity)
            };
            Tensor::cat(vec![half(0), half(1)], 2)
        });
        assert_eq!(both, halves, "{n} x {width}");
    }
}

#[test]
fn losses_agree_with_their_definition() {
    let Some(device) = &*DEVICE else { return };
    for [n, width] in MATRICES {
        let mut logits = input(&[1, 1, n, width], 1);
        // One row far from 0, and one far apart.
        logits.0[..width].iter_mut().for_each(|x| *x += 200.0);
        logits.0[(n - 1) * width..]
            .iter_mut()
            .for_each(|x| *x *= 50.0);
        type Nll = fn(Tensor<2>, Tensor<1, Int>) -> Tensor<1>;
        let nll = |nll: Nll, x: &[Tensor<4>]| {
            let targets: Vec<i32> = (0..n).map(|i| ((i * 7 + 3) % width) as i32).collect();
            let targets =
                Tensor::<1, Int>::from_data(TensorData::new(targets, [n]), &x[0].device());
            nll(rows(&x[0]), targets).unsqueeze()
        };
        let what = format!("loss of {n} x {width}");
        let worst = compare(
            &what,
            device,
            &[logits],
            &|x| nll(longreach_kernels::nll, x),
            &|x| nll(reference::nll, x),
        );
        println!("{worst:.1e} {what}");
    }
}

#[test]
fn embeddings_agree_with_their_definition() {
    let Some(device) = &*DEVICE else { return };
    // Groups, rows of the tables, columns, and tokens; some rows have no token.
    for (groups, [rows, width], [batch, length]) in [
        (1, [1, 1], [1, 1]),
        (1, [7, 33], [2, 5]),
        (1, [64, 128], [3, 127]),
        (1, [300, 130], [5, 77]),
        (2, [14, 33], [2, 5]),
        (3, [90, 70], [6, 77]),
    ] {
        type Embedding = fn(Tensor<2>, Tensor<2, Int>, usize) -> Tensor<3>;
        let embedding = |embedding: Embedding, x: &[Tensor<4>]| {
            let tokens: Vec<i32> = (0..batch * length)
                .map(|i| (i * i * 7 % (rows / groups)) as i32)
                .collect();
            let tokens = TensorData::new(tokens, [batch, length]);
            let tokens = Tensor::<2, Int>::from_data(tokens, &x[0].device());
            embedding(self::rows(&x[0]), tokens, groups).unsqueeze()
        };
        let what = format!("{batch} x {length} of {rows} x {width}, {groups} groups");
        let worst = compare(
            &what,
            device,
            &[input(&[1, 1, rows, width], 1)],
            &|x| embedding(longreach_kernels::embedding, x),
            &|x| embedding(reference::embedding, x),
        );
        println!("{worst:.1e} {what}");
    }
}

#[test]
fn activations_agree_with_their_definition() {
    let Some(device) = &*DEVICE else { return };
    for [n, width] in MATRICES {
        let mut inputs = [input(&[1, 1, n, width], 1), input(&[1, 1, n, width], 2)];
        // Both tails.
        inputs[0].0.iter_mut().for_each(|x| *x *= 4.0);
        let what = format!("activations of {n} x {width}");
        let gelu = compare(
            &what,
            device,
            &inputs[..1],
            &|x| longreach_kernels::gelu(rows(&x[0])).unsqueeze(),
            &|x| reference::gelu(rows(&x[0])).unsqueeze(),
        );
        let swiglu = compare(
            &what,
            device,
            &inputs,
            &|x| longreach_kernels::swiglu(rows(&x[0]), rows(&x[1])).unsqueeze(),
            &|x| reference::swiglu(rows(&x[0]), rows(&x[1])).unsqueeze(),
        );
        println!("{gelu:.1e} {swiglu:.1e} {what}");
    }
}

fn step(i: usize) -> AdamWStep {
    AdamWStep {
        grad_scale: 0.7 / (i + 1) as f64,
        beta1: 0.9,
        beta2: 0.999,
        root: 0.3 + 0.1 * i as f64,
        eps: 1e-8,
        rate: 3e-3 * (i + 1) as f64,
        keep: 0.999 - 0.01 * i as f64,
    }
}

#[test]
fn updates_agree_with_their_definition() {
    let Some(device) = &*DEVICE else { return };
    for (parts, n) in [(1, 1), (1, 19), (1, 40_001), (2, 1), (3, 1000)] {
        let steps: Vec<AdamWStep> = (0..parts).map(step).collect();
        let x = |device: &Device, seed| {
            let values: Vec<f32> = noise(parts * n, seed).iter().map(|x| *x as f32).collect();
            Tensor::<1>::from_data(TensorData::new(values, [parts * n]), device)
        };
        let numbers =
            |x: [Tensor<1>; 3]| x.map(|x| x.into_data().iter::<f32>().collect::<Vec<_>>());
        for with_moments in [false, true] {
            let inputs = |device: &Device| {
                let moments = with_moments.then(|| [x(device, 3), x(device, 4).square()]);
                (x(device, 1), x(device, 2), moments)
            };
            let updated = || {
                let (theta, grad, moments) = inputs(device);
                numbers(longreach_kernels::adamw(theta, grad, moments, &steps))
            };
            let (theta, grad, moments) = inputs(&Device::flex());
            let expected = numbers(reference::adamw(theta, grad, moments, &steps));
            let results = updated();
            assert_eq!(results, updated(), "twice the same bits");
            for (a, b) in results.iter().flatten().zip(expected.iter().flatten()) {
                assert!(
                    (a - b).abs() <= 1e-6,
                    "{a} is not {b}: {parts} parts of {n}"
                );
            }
        }
    }
}

#[test]
fn updates_of_many_parameters_are_those_of_each() {
    let Some(device) = &*DEVICE else { return };
    // More than one launch takes, of several lengths, parts and steps, some without moments.
    let update = |i: usize| {
        let parts = 1 + i % 3;
        let n = parts * [1, 7, 300, 5000][i % 4];
        let x = |seed: usize| {
            let values: Vec<f32> = noise(n, (4 * i + seed) as u64)
                .iter()
                .map(|x| *x as f32)
                .collect();
            Tensor::<1>::from_data(TensorData::new(values, [n]), device)
        };
        AdamWUpdate {
            theta: x(0),
            grad: x(1),
            moments: (i % 10 < 7).then(|| [x(2), x(3).square()]),
            steps: (i % 5..i % 5 + parts).map(step).collect(),
        }
    };
    let numbers = |x: Vec<[Tensor<1>; 3]>| -> Vec<Vec<u32>> {
        let bits = |x: Tensor<1>| x.into_data().iter::<f32>().map(f32::to_bits).collect();
        x.into_iter().flatten().map(bits).collect()
    };
    let all = numbers(longreach_kernels::adamw_all((0..70).map(update).collect()));
    let each = (0..70)
        .map(update)
        .map(|one| longreach_kernels::adamw(one.theta, one.grad, one.moments, &one.steps));
    assert_eq!(all, numbers(each.collect()));
}

/// Launches of `f`, after one call that fills caches.
fn launches(f: &dyn Fn()) -> usize {
    f();
    let watched = Launches::watch().expect("compiled in");
    f();
    watched.take().values().sum()
}

#[test]
fn operations_are_launched_once_forward_and_once_or_twice_backward() {
    let Some(device) = &*DEVICE else { return };
    // Of this process alone, as nextest runs tests.
    if std::env::var_os("NEXTEST").is_none() || cfg!(feature = "fusion") {
        return;
    }
    let device = device.clone().autodiff();
    let leaf = |shape: [usize; 2]| Tensor::<2>::ones(shape, &device).require_grad();
    let (x, up) = (leaf([8, 16]), leaf([8, 16]));
    let vector = |n: usize| Tensor::<1>::ones([n], &device).require_grad();
    let (scale, shift) = (vector(16), vector(16));
    let targets = Tensor::<1, Int>::zeros([8], &device);
    let weights = Tensor::<2>::ones([8, 16], &device);
    let sum = |y: Tensor<2>| (y * weights.clone()).sum();
    // The sum of products and its gradient alone.
    let around = launches(&|| drop(sum(x.clone()).backward()));
    let of = |f: &dyn Fn() -> Tensor<2>| launches(&|| drop(sum(f()).backward())) - around;
    let layer_norm =
        of(&|| longreach_kernels::layer_norm(x.clone(), scale.clone(), shift.clone(), 1e-5));
    assert_eq!(layer_norm, 3);
    assert_eq!(
        of(&|| longreach_kernels::rms_norm(x.clone(), scale.clone(), 1e-5)),
        3
    );
    assert_eq!(of(&|| longreach_kernels::gelu(x.clone())), 2);
    assert_eq!(of(&|| longreach_kernels::swiglu(x.clone(), up.clone())), 2);
    let nll = || longreach_kernels::nll(x.clone(), targets.clone());
    let forward = launches(&|| drop(nll()));
    assert_eq!(forward, 1);
    let y = vector(8);
    let around = launches(&|| drop(y.clone().sum().backward()));
    assert_eq!(launches(&|| drop(nll().sum().backward())) - around, 2);
    let plain = |n: usize| Tensor::<1>::ones([n], &device.clone().inner());
    let (theta, grad, moments) = (plain(12), plain(12), [plain(12), plain(12)]);
    let update = || {
        let (theta, grad, moments) = (theta.clone(), grad.clone(), moments.clone());
        drop(longreach_kernels::adamw(
            theta,
            grad,
            Some(moments),
            &[step(0), step(1)],
        ));
    };
    assert_eq!(launches(&update), 1);
    let all = || {
        let update = |n: usize| AdamWUpdate {
            theta: plain(n),
            grad: plain(n),
            moments: Some([plain(n), plain(n)]),
            steps: vec![step(0)],
        };
        drop(longreach_kernels::adamw_all(
            [3, 12, 500].map(update).into(),
        ));
    };
    // Each of twelve tensors is filled by a launch.
    assert_eq!(launches(&all), 12 + 1);
    let sums = || drop(longreach_kernels::square_sums(vec![plain(12), plain(6)], 2));
    // Each of these is filled by a launch.
    assert_eq!(launches(&sums), 2 + 1);
}

#[test]
fn square_sums_agree_with_their_definition() {
    let Some(device) = &*DEVICE else { return };
    let sums = |device: &Device, lengths: &[usize], parts: usize| {
        let vectors = lengths.iter().enumerate().map(|(i, n)| {
            let values: Vec<f32> = noise(*n, i as u64).iter().map(|x| *x as f32).collect();
            Tensor::<1>::from_data(TensorData::new(values, [*n]), device)
        });
        let sums = if *device == Device::flex() {
            reference::square_sums(vectors.collect(), parts)
        } else {
            longreach_kernels::square_sums(vectors.collect(), parts)
        };
        sums.into_data().iter::<f32>().collect::<Vec<_>>()
    };
    // More vectors than one launch takes.
    let many: Vec<usize> = (1..=70).collect();
    for (lengths, parts) in [
        (&[1][..], 1),
        (&[127, 128, 129, 70_001], 1),
        (&[2, 600, 4002, 40_000], 2),
        (&[3, 9, 3 * 1001], 3),
        (&many, 1),
    ] {
        let results = sums(device, lengths, parts);
        assert_eq!(results, sums(device, lengths, parts), "twice the same bits");
        let expected = sums(&Device::flex(), lengths, parts);
        assert_eq!(results.len(), lengths.len() * parts);
        for (a, b) in results.iter().zip(&expected) {
            assert!((a - b).abs() <= 1e-5 * b, "{a} is not {b}: {lengths:?}");
        }
    }
}
