//! Functions of a layer's input along the sequence: projections, convolutions, phases.
//!
//! A batch has equal parts for `groups` models, and so has each parameter, along its first
//! dimension.

use crate::hooks::Qk;
use crate::ops::Ops;
use crate::rotary::RotaryLayout;
use crate::rotary_tables::RotaryTables;
use crate::tensors::{cut, for_batch};
use burn::tensor::Tensor;

/// `x W`, `[B, T, D]` times `[G D, C]`.
pub(crate) fn projected(
    ops: &dyn Ops,
    x: Tensor<3>,
    weight: Tensor<2>,
    groups: usize,
) -> Tensor<3> {
    let ([batch, length, width], [_, columns]) = (x.dims(), weight.dims());
    let rows = x.reshape([groups, 1, batch / groups * length, width]);
    let weight = weight.reshape([groups, 1, width, columns]);
    ops.matmul(rows, weight).reshape([batch, length, columns])
}

/// Numbers `[G C]` per channel, to be broadcast with `[B, T, C]`.
pub(crate) fn per_channel(numbers: Tensor<1>, batch: usize, groups: usize) -> Tensor<3> {
    let channels = numbers.dims()[0] / groups;
    let numbers = for_batch(numbers.reshape([groups, 1, 1, channels]), batch);
    numbers.squeeze_dim(1)
}

/// `y_t = sum over s of w_s x_(t - K + 1 + s)`, per channel, with zeros before the first token;
/// `x` is `[B, T, C]`, the weight `[G K, C]`, its last row that of the token itself.
pub(crate) fn causal_convolution(x: Tensor<3>, weight: &Tensor<2>, groups: usize) -> Tensor<3> {
    let ([batch, length, channels], [rows, _]) = (x.dims(), weight.dims());
    let kernel = rows / groups;
    let weight = for_batch(weight.clone().reshape([groups, 1, kernel, channels]), batch);
    let weight: Tensor<3> = weight.squeeze_dim(1);
    let padding = Tensor::zeros([batch, kernel - 1, channels], (&x.device(), x.dtype()));
    let padded = if kernel > 1 {
        Tensor::cat(vec![padding, x], 1)
    } else {
        x
    };
    let term = |at: usize| {
        let row = weight.clone().slice_dim(1, at..at + 1);
        padded.clone().slice_dim(1, at..at + length) * row
    };
    (1..kernel).fold(term(0), |sum, at| sum + term(at))
}

/// `[B, T, H C]` by head: `[B, H, T, C]`.
pub(crate) fn by_head(x: Tensor<3>, heads: usize) -> Tensor<4> {
    let [batch, length, width] = x.dims();
    x.reshape([batch, length, heads, width / heads])
        .swap_dims(1, 2)
}

/// `x` divided by the root of its sum of squares over the last dimension, as flash-linear-attention
/// does it.
pub(crate) fn unit<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    let length = (x.clone().square().sum_dim(D - 1) + 1e-6).sqrt();
    x / length
}

/// The last `count` positions of `[B, H, T, C]`: queries are the last of the keys.
pub(crate) fn last_positions(x: &Tensor<4>, count: usize) -> Tensor<4> {
    let length = x.dims()[2];
    cut(x, 2, length - count..length)
}

/// Queries and keys turned by angles that content decides, `[B, H, positions, E/2]`, one for every
/// key; the queries are at the last positions.
pub(crate) fn turned(q: Tensor<4>, k: Tensor<4>, angles: Tensor<4>, ops: &'static dyn Ops) -> Qk {
    let (cos, sin) = (angles.clone().cos(), angles.sin());
    let [query_cos, query_sin] = [&cos, &sin].map(|table| last_positions(table, q.dims()[2]));
    let of = |cos, sin, x| RotaryTables::of_tables(cos, sin, ops).apply(x, RotaryLayout::Half);
    (of(query_cos, query_sin, q), of(cos, sin, k))
}
