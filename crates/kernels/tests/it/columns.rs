//! Elements picked by column, and their sums, against the definitions: values, gradients, threads.

use crate::common::{compare, differences, input, same_for_any_threads};
use burn::tensor::{Int, Tensor, TensorData};
use longreach_kernels::reference;

/// Columns in `0..n` in no order, some of them often and some never.
fn columns(x: &Tensor<1>, shape: [usize; 4], n: usize) -> Tensor<4, Int> {
    let count: usize = shape.iter().product();
    let values: Vec<i32> = (0..count)
        .map(|i| (i * i * 7 + i / 3) as i32 % n as i32)
        .collect();
    Tensor::from_data(TensorData::new(values, shape), &x.device())
}

/// Shapes of `columns` for a batch of 2 and 3 heads: shared, by head, by sequence, by both.
const SHARED: [[usize; 2]; 4] = [[1, 1], [1, 3], [2, 1], [2, 3]];

type Gather = fn(Tensor<4>, Tensor<4, Int>) -> Tensor<4>;
type Scatter = fn(Tensor<4>, Tensor<4, Int>, usize) -> Tensor<4>;

/// Gathers from a view of a flat input, with its rows or its heads innermost but one.
fn gathered(gather: Gather, x: &Tensor<1>, [b, h]: [usize; 2], swapped: bool) -> Tensor<1> {
    let view = if swapped {
        x.clone().reshape([2, 5, 3, 9]).swap_dims(1, 2)
    } else {
        x.clone().reshape([2, 3, 5, 9])
    };
    gather(view, columns(x, [b, h, 5, 7], 9)).reshape([2 * 3 * 5 * 7])
}

fn scattered(scatter: Scatter, x: &Tensor<1>, [b, h]: [usize; 2]) -> Tensor<1> {
    let columns = columns(x, [b, h, 5, 7], 9);
    scatter(x.clone().reshape([2, 3, 5, 7]), columns, 9).reshape([2 * 3 * 5 * 9])
}

#[test]
fn fused_operations_agree_with_their_definitions() {
    for shared in SHARED {
        for swapped in [false, true] {
            compare(
                1.0,
                &format!("gather {shared:?} {swapped}"),
                &[input(&[2 * 3 * 5 * 9], 1)],
                &|x| gathered(longreach_kernels::gather_columns, &x[0], shared, swapped),
                &|x| gathered(reference::gather_columns, &x[0], shared, swapped),
            );
        }
        compare(
            1.0,
            &format!("scatter {shared:?}"),
            &[input(&[2 * 3 * 5 * 7], 2)],
            &|x| scattered(longreach_kernels::scatter_columns, &x[0], shared),
            &|x| scattered(reference::scatter_columns, &x[0], shared),
        );
    }
}

#[test]
fn gradients_of_the_definitions_are_those_of_finite_differences() {
    let gather = |x: &[Tensor<1>]| gathered(reference::gather_columns, &x[0], [1, 3], true);
    differences("gather", &[input(&[2 * 3 * 5 * 9], 1)], &gather);
    let scatter = |x: &[Tensor<1>]| scattered(reference::scatter_columns, &x[0], [2, 1]);
    differences("scatter", &[input(&[2 * 3 * 5 * 7], 1)], &scatter);
}

#[test]
fn they_do_not_depend_on_the_number_of_threads() {
    let sizes = [3, 4, 61, 120];
    let count: usize = sizes.iter().product();
    same_for_any_threads("gather and scatter", &[input(&sizes, 1)], &move |x| {
        let columns = columns(&x[0], [1, 1, 61, 120], 120);
        let y = longreach_kernels::gather_columns(x[0].clone().reshape(sizes), columns.clone());
        longreach_kernels::scatter_columns(y, columns, 120).reshape([count])
    });
}

#[test]
#[should_panic(expected = "columns below 9")]
fn a_column_past_the_end_is_refused() {
    let x = Tensor::<4>::zeros([1, 1, 1, 9], &burn::tensor::Device::flex());
    let columns = Tensor::from_data(TensorData::new(vec![9i32], [1, 1, 1, 1]), &x.device());
    longreach_kernels::gather_columns(x, columns);
}

type Interpolate = fn(Tensor<4>, Tensor<4>) -> Tensor<4>;

/// Places from 0 to 8, those of even index whole: at both ends, and between.
fn interpolated(interpolate: Interpolate, inputs: &[Tensor<1>]) -> Tensor<1> {
    let x = inputs[0].clone().reshape([2, 5, 3, 9]).swap_dims(1, 2);
    // Noise lies in -1..1. The factor keeps places away from whole numbers.
    let at = (inputs[1].clone().reshape([2, 3, 5, 7]) * 0.3 + 0.5).clamp(0.2, 0.8);
    let whole: Vec<f64> = (0..7).map(|i| f64::from(i) + f64::from(i / 6)).collect();
    let whole = TensorData::new(whole, [1, 1, 1, 7]);
    let whole = Tensor::<4>::from_data(whole, (&x.device(), x.dtype()));
    // The first place is column 0, the last is 7 and a share.
    interpolate(x, at + whole).reshape([2 * 3 * 5 * 7])
}

#[test]
fn fused_interpolation_agrees_with_its_definition() {
    let inputs = [input(&[2 * 3 * 5 * 9], 1), input(&[2 * 3 * 5 * 7], 2)];
    compare(
        1.0,
        "interpolation",
        &inputs,
        &|x| interpolated(longreach_kernels::interpolate_columns, x),
        &|x| interpolated(reference::interpolate_columns, x),
    );
    differences("interpolation", &inputs, &|x| {
        interpolated(reference::interpolate_columns, x)
    });
}

#[test]
fn interpolation_reads_whole_places_and_the_last_one_exactly() {
    let device = burn::tensor::Device::flex();
    let row = |values: &[f32]| {
        let n = values.len();
        Tensor::<4>::from_data(TensorData::new(values.to_vec(), [1, 1, 1, n]), &device)
    };
    let y = longreach_kernels::interpolate_columns(
        row(&[3.0, -1.0, 8.0]),
        row(&[0.0, 1.0, 2.0, 0.25, 1.5]),
    );
    let y: Vec<f32> = y.into_data().try_to_vec().expect("f32");
    assert_eq!(y, [3.0, -1.0, 8.0, 2.0, 3.5]);
}

#[test]
fn interpolation_does_not_depend_on_the_number_of_threads() {
    let inputs = [input(&[3, 4, 61, 40], 1), input(&[3, 4, 61, 120], 2)];
    same_for_any_threads("interpolation", &inputs, &|x| {
        let at = (x[1].clone().reshape([3, 4, 61, 120]) * 20.0 + 19.5).clamp(0.0, 39.0);
        let y = longreach_kernels::interpolate_columns(x[0].clone().reshape([3, 4, 61, 40]), at);
        y.reshape([3 * 4 * 61 * 120])
    });
}
