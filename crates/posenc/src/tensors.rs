//! Small helpers for tensors: upload, read back, gradients that pass unchanged.

use burn::tensor::{Bool, Device, Tensor, TensorData};
use std::ops::Range;

/// Uploads a host table, rounding each entry once to the device's float type.
pub(crate) fn upload<const D: usize>(
    values: Vec<f64>,
    shape: [usize; D],
    device: &Device,
) -> Tensor<D> {
    Tensor::from_data(TensorData::new(values, shape), device)
}

/// `[1, 1, rows, columns]`, true where `holds(row, column)`.
pub(crate) fn cells(
    [rows, columns]: [usize; 2],
    device: &Device,
    holds: impl Fn(usize, usize) -> bool,
) -> Tensor<4, Bool> {
    let all = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
    let all: Vec<bool> = all.map(|(row, column)| holds(row, column)).collect();
    Tensor::from_data(TensorData::new(all, [1, 1, rows, columns]), device)
}

/// `[1, 1, queries, keys]`, true where the key comes after the query.
pub(crate) fn later_keys(
    queries: usize,
    keys: usize,
    first_query: usize,
    device: &Device,
) -> Tensor<4, Bool> {
    cells([queries, keys], device, |row, key| key > first_query + row)
}

/// The `range` of a dimension; `x` itself if the range is whole, which saves copies of the slice
/// and of its gradient.
pub(crate) fn cut<const D: usize>(x: &Tensor<D>, dim: usize, range: Range<usize>) -> Tensor<D> {
    if range == (0..x.dims()[dim]) {
        return x.clone();
    }
    x.clone().slice_dim(dim, range)
}

/// `x`, `[B, H, L, w]`, with zeros up to `width`: `[B, H, L, width]`.
pub(crate) fn padded(x: Tensor<4>, width: usize) -> Tensor<4> {
    let [batch, heads, length, own] = x.dims();
    if own == width {
        return x;
    }
    let shape = [batch, heads, length, width - own];
    let zeros = Tensor::zeros(shape, (&x.device(), x.dtype()));
    Tensor::cat(vec![x, zeros], 3)
}

/// `x`, `[1 or B, ..]`, or `[G, ..]` for G models, in a shape that broadcasts with a batch of B
/// sequences: those of a model have its part.
pub(crate) fn for_batch(x: Tensor<4>, batch: usize) -> Tensor<4> {
    let [groups, a, b, c] = x.dims();
    if [1, batch].contains(&groups) {
        return x;
    }
    let x = x.unsqueeze_dim::<5>(1);
    let x = x.expand([groups, batch / groups, a, b, c]);
    x.reshape([batch, a, b, c])
}

/// `x`, `[B, Q, D]`, plus the rows of every model, `[G, Q, D]`.
pub(crate) fn plus_rows(x: Tensor<3>, rows: Tensor<3>) -> Tensor<3> {
    let ([batch, queries, width], [groups, ..]) = (x.dims(), rows.dims());
    if groups == 1 {
        return x + rows;
    }
    let x: Tensor<4> = x.reshape([groups, batch / groups, queries, width]);
    let sum = x + rows.unsqueeze_dim(1);
    sum.reshape([batch, queries, width])
}

/// A parameter's values on the host, in f64.
pub(crate) fn to_host<const D: usize>(value: Tensor<D>) -> Vec<f64> {
    value
        .into_data()
        .convert::<f64>()
        .try_to_vec()
        .expect("data was just converted to f64")
}

/// Zero with the gradient of `value`: added to a constant, it gives it that gradient.
pub(crate) fn straight_through<const D: usize>(value: Tensor<D>) -> Tensor<D> {
    value.clone() - value.detach()
}

/// `value` clamped to `low..=high` with the gradient of `value` itself, so that a parameter outside
/// the range can return.
pub(crate) fn clamp_straight_through<const D: usize>(
    value: Tensor<D>,
    low: f64,
    high: f64,
) -> Tensor<D> {
    let inside = value.clone().detach().clamp(low, high);
    straight_through(value) + inside
}

/// `base^exponent` of bases of at least 0.
pub(crate) fn power(base: Tensor<4>, exponent: Tensor<4>) -> Tensor<4> {
    // 0^r = 0, but its derivative by r goes through ln 0.
    let positive = base.clone().clamp_min(f64::from(f32::MIN_POSITIVE));
    (positive.log() * exponent).exp() * base.greater_elem(0.0).float()
}
