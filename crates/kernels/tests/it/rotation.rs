//! Rotation against its definition: values, gradients, threads.

use crate::common::{compare, differences, input, same_for_any_threads};
use burn::tensor::Tensor;
use longreach_kernels::reference;

type Rotate = fn(Tensor<4>, Tensor<4>, Tensor<4>, bool) -> Tensor<4>;

/// Turns a view of a flat input `[batch, length, heads, head_dim]`, or, if it lies by head,
/// `[batch, heads, length, head_dim]`.
fn turned(
    rotate: Rotate,
    x: &Tensor<1>,
    sizes: [usize; 4],
    pairs: usize,
    [interleaved, by_head]: [bool; 2],
) -> Tensor<1> {
    let [batch, heads, length, head_dim] = sizes;
    let angle = input(&[length, pairs], 7).values;
    let [cos, sin] = [f64::cos, f64::sin].map(|f| {
        let values: Vec<f64> = angle.iter().map(|x| f(*x)).collect();
        Tensor::<4>::from_data(
            burn::tensor::TensorData::new(values, [1, 1, length, pairs]),
            (&x.device(), x.dtype()),
        )
    });
    let x = if by_head {
        x.clone().reshape(sizes)
    } else {
        x.clone()
            .reshape([batch, length, heads, head_dim])
            .swap_dims(1, 2)
    };
    rotate(x, cos, sin, interleaved).reshape([batch * length * heads * head_dim])
}

#[test]
fn fused_rotation_agrees_with_its_definition() {
    for (head_dim, pairs) in [
        (2, 1),
        (6, 3),
        (16, 8),
        (9, 2),
        (64, 32),
        (20, 7),
        (1100, 3),
    ] {
        for options in [[false, false], [false, true], [true, false], [true, true]] {
            let sizes = [2, 3, 11, head_dim];
            let apply =
                |rotate: Rotate, x: &[Tensor<1>]| turned(rotate, &x[0], sizes, pairs, options);
            let inputs = [input(&sizes, 1)];
            let what = format!("{head_dim}, {pairs}, {options:?}");
            compare(
                1.0,
                &what,
                &inputs,
                &|x| apply(longreach_kernels::rotate, x),
                &|x| apply(reference::rotate, x),
            );
        }
    }
}

#[test]
fn gradients_of_the_defined_rotation_are_those_of_finite_differences() {
    for interleaved in [false, true] {
        differences("rotation", &[input(&[1, 2, 3, 5], 1)], &|x| {
            turned(
                reference::rotate,
                &x[0],
                [1, 2, 3, 5],
                2,
                [interleaved, true],
            )
        });
    }
}

#[test]
fn rotation_does_not_depend_on_the_number_of_threads() {
    // Heads of which a task has whole ones, and others.
    for head_dim in [16, 20] {
        let sizes = [3, 4, 211, head_dim];
        same_for_any_threads("rotation", &[input(&sizes, 1)], &move |x| {
            turned(longreach_kernels::rotate, &x[0], sizes, 7, [false, false])
        });
    }
}
