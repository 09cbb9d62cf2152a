//! The weights of attention, and keys counted by content, against their definitions.

use crate::common::{Input, compare, differences, input, same_for_any_threads};
use burn::tensor::{Device, Tensor, TensorData};
use longreach_kernels::{DiagonalNetwork, reference};

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

type Count = fn(Tensor<4>, usize, f64) -> Tensor<4>;

fn counted(count: Count, x: &Tensor<1>, [queries, keys, first]: [usize; 3]) -> Tensor<1> {
    let logits = x.clone().reshape([2, queries, 3, keys]).swap_dims(1, 2);
    // Some counts reach the limit, which is no sum of the others.
    count(logits * 2.0, first, 4.321).reshape([2 * 3 * queries * keys])
}

#[test]
fn fused_counts_agree_with_their_definition() {
    for sizes @ [queries, keys, _] in SIZES {
        compare(
            1.0,
            &format!("counts {sizes:?}"),
            &[input(&[2 * 3 * queries * keys], 1)],
            &|x| counted(longreach_kernels::count_open_keys, &x[0], sizes),
            &|x| counted(reference::count_open_keys, &x[0], sizes),
        );
    }
    differences("counts", &[input(&[2 * 3 * 4 * 9], 1)], &|x| {
        counted(reference::count_open_keys, &x[0], [4, 9, 5])
    });
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
    for sizes in NETWORKS {
        compare(
            1.0,
            &format!("networks {sizes:?}"),
            &network_inputs(sizes),
            &|x| network(longreach_kernels::diagonal_network, x, sizes),
            &|x| network(reference::diagonal_network, x, sizes),
        );
    }
    let sizes = [3, 5, 4, 2];
    differences("networks", &network_inputs(sizes), &|x| {
        network(reference::diagonal_network, x, sizes)
    });
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
    same_for_any_threads("counts", &[input(&[2 * 3 * 130 * 130], 1)], &|x| {
        counted(longreach_kernels::count_open_keys, &x[0], [130, 130, 0])
    });
}

#[test]
fn a_number_that_is_none_stays_none() {
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
    let counts = longreach_kernels::count_open_keys(row([0.0, f32::NAN, 0.0]), 2, 1.0);
    let counts = host(counts);
    assert!(counts[0].is_nan() && counts[1].is_nan(), "{counts:?}");
    assert_eq!(counts[2], 0.5);
}
