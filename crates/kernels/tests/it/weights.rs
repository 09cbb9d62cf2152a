//! The weights of attention, and what encodings by content make of logits, against their
//! definitions.

use crate::common::{Input, compare, differences, input, same_for_any_threads};
use burn::tensor::{Device, Tensor, TensorData};
use longreach_kernels::{CellNetwork, DiagonalNetwork, reference};
use std::fmt::Debug;

/// A fused operation is its definition at all sizes, and the gradients of this are those of finite
/// differences at a small one.
fn agree<O: Copy, S: Copy + Debug>(
    name: &str,
    all: &[S],
    small: S,
    inputs: fn(S) -> Vec<Input>,
    of: fn(O, &[Tensor<1>], S) -> Tensor<1>,
    [fused, definition]: [O; 2],
) {
    for &sizes in all {
        let what = format!("{name} {sizes:?}");
        compare(1.0, &what, &inputs(sizes), &|x| of(fused, x, sizes), &|x| {
            of(definition, x, sizes)
        });
    }
    differences(name, &inputs(small), &|x| of(definition, x, small));
}

type Weights = fn(Tensor<4>, Tensor<4>, Option<Tensor<4>>, f64, usize) -> Tensor<4>;

/// Queries, keys and bias of 2 sequences and 3 heads. The result is flat.
fn weights(weights: Weights, x: &[Tensor<1>], [queries, keys, first]: [usize; 3]) -> Tensor<1> {
    let q = x[0].clone().reshape([2, queries, 3, 8]).swap_dims(1, 2);
    let k = x[1].clone().reshape([2, 3, keys, 8]);
    let bias = x.get(2).map(|x| x.clone().reshape([1, 3, queries, keys]));
    let y = weights(q * 3.0, k, bias, 0.7, first);
    let count = y.dims().iter().product::<usize>();
    y.reshape([count])
}

/// Queries, keys, first query: square, a block at the end, one that sees every key, few keys.
const SIZES: [[usize; 3]; 5] = [
    [19, 19, 0],
    [5, 37, 32],
    [7, 21, 21],
    [1, 1, 0],
    [40, 40, 0],
];

fn inputs([queries, keys, _]: [usize; 3], bias: bool) -> Vec<Input> {
    let mut inputs = vec![
        input(&[2 * queries * 3 * 8], 1),
        input(&[2 * 3 * keys * 8], 2),
    ];
    if bias {
        inputs.push(input(&[3 * queries * keys], 3));
    }
    inputs
}

#[test]
fn fused_weights_agree_with_their_definition() {
    for sizes in SIZES {
        for bias in [false, true] {
            compare(
                1.0,
                &format!("weights {sizes:?} {bias}"),
                &inputs(sizes, bias),
                &|x| weights(longreach_kernels::attention_weights, x, sizes),
                &|x| weights(reference::attention_weights, x, sizes),
            );
        }
    }
    let sizes = [3, 5, 2];
    differences("weights", &inputs(sizes, true), &|x| {
        weights(reference::attention_weights, x, sizes)
    });
}

#[test]
fn a_row_that_sees_nothing_weighs_nothing() {
    let device = Device::flex();
    let q = Tensor::<4>::ones([1, 1, 3, 4], &device);
    let bias = vec![
        f32::NEG_INFINITY,
        0.0,
        0.0,
        f32::NEG_INFINITY,
        f32::NEG_INFINITY,
        0.0,
        0.0,
        0.0,
        0.0,
    ];
    let bias = Tensor::from_data(TensorData::new(bias, [1, 1, 3, 3]), &device);
    let y = longreach_kernels::attention_weights(q.clone(), q, Some(bias), 0.5, 0);
    let y: Vec<f32> = y.into_data().try_to_vec().expect("f32");
    assert_eq!(y[..6], [0.0; 6]);
    assert!((y[6..].iter().sum::<f32>() - 1.0).abs() < 1e-6);
}

/// The logits of 2 sequences and 3 heads.
fn logits([queries, keys, _]: [usize; 3]) -> Vec<Input> {
    vec![input(&[2 * 3 * queries * keys], 1)]
}

type Count = fn(Tensor<4>, usize, f64) -> Tensor<4>;

fn counted(count: Count, x: &[Tensor<1>], [queries, keys, first]: [usize; 3]) -> Tensor<1> {
    let logits = x[0].clone().reshape([2, queries, 3, keys]).swap_dims(1, 2);
    // Some counts reach the limit, which is not a sum of the others.
    count(logits * 2.0, first, 4.321).reshape([2 * 3 * queries * keys])
}

#[test]
fn fused_counts_agree_with_their_definition() {
    let fused = longreach_kernels::count_open_keys;
    let both: [Count; 2] = [fused, reference::count_open_keys];
    agree("counts", &SIZES, [4, 9, 5], logits, counted, both);
}

type Shares = fn(Tensor<4>, usize) -> Tensor<4>;

/// The bias that breaks a stick, of logits of which some are large.
fn shares(shares: Shares, x: &[Tensor<1>], [queries, keys, first]: [usize; 3]) -> Tensor<1> {
    let logits = x[0].clone().reshape([2, queries, 3, keys]).swap_dims(1, 2);
    shares(logits * 4.0, first).reshape([2 * 3 * queries * keys])
}

#[test]
fn fused_shares_agree_with_their_definition() {
    let both: [Shares; 2] = [longreach_kernels::break_stick, reference::break_stick];
    agree("shares", &SIZES, [4, 9, 5], logits, shares, both);
}

type OfCells = fn(Tensor<4>, CellNetwork) -> Tensor<4>;

/// Sizes of networks over cells: sequences, models, inputs, rows, columns, units, outputs. Blocks
/// hold 512 cells and tasks 16,384.
const CELLS: [[usize; 7]; 6] = [
    [1, 1, 1, 1, 1, 1, 1],
    [2, 1, 4, 3, 5, 7, 2],
    [1, 1, 3, 23, 23, 32, 3],
    [1, 1, 8, 31, 33, 5, 4],
    [1, 1, 2, 150, 111, 3, 1],
    [4, 2, 2, 7, 9, 6, 2],
];

fn cell_inputs([batch, groups, inputs, rows, columns, units, outputs]: [usize; 7]) -> Vec<Input> {
    vec![
        input(&[batch * inputs * rows * columns], 1),
        input(&[groups * inputs * units], 2),
        input(&[groups * units], 3),
        input(&[groups * units * outputs], 4),
        input(&[groups * outputs], 5),
    ]
}

/// A network over cells whose inputs are not contiguous.
fn of_cells(f: OfCells, x: &[Tensor<1>], sizes: [usize; 7]) -> Tensor<1> {
    let [batch, groups, inputs, rows, columns, units, outputs] = sizes;
    let network = CellNetwork {
        w1: x[1].clone().reshape([groups * inputs, units]),
        b1: x[2].clone(),
        slope: 0.01,
        w2: x[3].clone().reshape([groups * units, outputs]),
        b2: x[4].clone(),
    };
    let x = x[0].clone().reshape([batch, rows, inputs, columns]);
    f(x.swap_dims(1, 2), network).reshape([batch * outputs * rows * columns])
}

#[test]
fn fused_cell_networks_agree_with_their_definition() {
    let small = [4, 2, 2, 3, 2, 3, 2];
    let both: [OfCells; 2] = [longreach_kernels::cell_network, reference::cell_network];
    agree("cells", &CELLS, small, cell_inputs, of_cells, both);
}

type Network = fn(DiagonalNetwork) -> Tensor<4>;

/// Sizes of networks: rows, columns, units of the hidden layer, outputs.
const NETWORKS: [[usize; 4]; 5] = [
    [1, 1, 1, 1],
    [3, 5, 4, 2],
    [17, 33, 8, 4],
    [40, 64, 32, 5],
    [9, 100, 3, 9],
];

fn network_inputs([rows, columns, hidden, heads]: [usize; 4]) -> Vec<Input> {
    vec![
        input(&[rows + columns - 1], 1),
        input(&[rows], 2),
        input(&[hidden], 3),
        input(&[hidden], 4),
        input(&[hidden * heads], 5),
        input(&[heads], 6),
    ]
}

fn network(f: Network, x: &[Tensor<1>], [rows, columns, hidden, heads]: [usize; 4]) -> Tensor<1> {
    let network = DiagonalNetwork {
        diagonals: x[0].clone() * 3.0,
        units: x[1].clone().exp() + 0.5,
        hidden: [x[2].clone(), x[3].clone()],
        weights: x[4].clone().reshape([hidden, heads]),
        biases: x[5].clone(),
    };
    f(network).reshape([heads * rows * columns])
}

#[test]
fn fused_networks_agree_with_their_definition() {
    let (small, fused) = ([3, 5, 4, 2], longreach_kernels::diagonal_network);
    let both: [Network; 2] = [fused, reference::diagonal_network];
    agree("networks", &NETWORKS, small, network_inputs, network, both);
}

#[test]
fn they_do_not_depend_on_the_number_of_threads() {
    let sizes = [40, 64, 32, 5];
    same_for_any_threads("networks", &network_inputs(sizes), &|x| {
        network(longreach_kernels::diagonal_network, x, sizes)
    });
    let sizes = [130, 130, 0];
    same_for_any_threads("weights", &inputs(sizes, true), &|x| {
        weights(longreach_kernels::attention_weights, x, [130, 130, 0])
    });
    same_for_any_threads("shares", &logits([130, 130, 0]), &|x| {
        shares(longreach_kernels::break_stick, x, [130, 130, 0])
    });
    let sizes = [2, 1, 4, 130, 190, 5, 2];
    same_for_any_threads("cells", &cell_inputs(sizes), &|x| {
        of_cells(longreach_kernels::cell_network, x, sizes)
    });
    same_for_any_threads("counts", &logits([130, 130, 0]), &|x| {
        counted(longreach_kernels::count_open_keys, x, [130, 130, 0])
    });
}

#[test]
fn nan_propagates() {
    let device = Device::flex();
    let row = |values: [f32; 3]| {
        Tensor::<4>::from_data(TensorData::new(values.to_vec(), [1, 1, 1, 3]), &device)
    };
    let host = |x: Tensor<4>| -> Vec<f32> { x.into_data().try_to_vec().expect("f32") };
    let q = Tensor::<4>::zeros([1, 1, 1, 2], &device);
    let k = Tensor::<4>::zeros([1, 1, 3, 2], &device);
    for bias in [
        [f32::NAN; 3],
        [f32::NEG_INFINITY, f32::NAN, f32::NEG_INFINITY],
        [0.0, f32::NAN, 1.0],
    ] {
        let weights =
            longreach_kernels::attention_weights(q.clone(), k.clone(), Some(row(bias)), 1.0, 2);
        assert!(host(weights).iter().any(|x| x.is_nan()), "{bias:?}");
    }
    let vector = |x: f32, n| Tensor::<1>::full([n], x, &device);
    let network = DiagonalNetwork {
        diagonals: Tensor::cat(vec![vector(0.5, 2), vector(f32::NAN, 1)], 0),
        units: vector(1.0, 2),
        hidden: [vector(1.0, 3), vector(-0.2, 3)],
        weights: vector(1.0, 6).reshape([3, 2]),
        biases: vector(0.0, 2),
    };
    let values = host(longreach_kernels::diagonal_network(network.clone()));
    let none: Vec<bool> = values.iter().map(|x| x.is_nan()).collect();
    assert_eq!(none, [false, true, false, false].repeat(2));
    let network = DiagonalNetwork {
        hidden: [vector(f32::NAN, 3), vector(-0.2, 3)],
        ..network
    };
    let values = host(longreach_kernels::diagonal_network(network));
    assert!(values.iter().all(|x| x.is_nan()));
    let network = CellNetwork {
        w1: vector(1.0, 3).reshape([1, 3]),
        b1: vector(-0.2, 3),
        slope: 0.01,
        w2: vector(1.0, 6).reshape([3, 2]),
        b2: vector(0.0, 2),
    };
    let values = host(longreach_kernels::cell_network(
        row([0.0, f32::NAN, 0.0]),
        network,
    ));
    let none: Vec<bool> = values.iter().map(|x| x.is_nan()).collect();
    assert_eq!(none, [false, true, false].repeat(2));
    let shares = host(longreach_kernels::break_stick(row([0.0, f32::NAN, 0.0]), 2));
    assert!(shares.iter().all(|x| x.is_nan()), "{shares:?}");
    let counts = longreach_kernels::count_open_keys(row([0.0, f32::NAN, 0.0]), 2, 1.0);
    let counts = host(counts);
    assert!(counts[0].is_nan() && counts[1].is_nan(), "{counts:?}");
    assert_eq!(counts[2], 0.5);
}
