//! The bias that a block adds to the residual sum.

use super::gemm::Accumulate;
use super::partial_sums::{slab_rows, store};
use super::tensors::tensor;
use super::threads::{copy_of, for_each, map};
use burn::backend::TensorMetadata;
use burn_flex::FlexTensor;

/// `x`, `[N, D]`, plus the bias: what the products of a block are added to.
pub(super) fn start(x: &FlexTensor, bias: Option<&FlexTensor>) -> Vec<f32> {
    const ROWS: usize = 128;
    let mut y = copy_of(x.storage());
    if let Some(bias) = bias {
        let (d, work) = (x.shape()[1], y.len());
        for_each(y.chunks_mut((ROWS * d).max(1)).collect(), work, |rows| {
            rows.chunks_mut(d)
                .for_each(|row| store(row, bias.storage(), Accumulate::Add));
        });
    }
    y
}

/// The gradient of that bias from the one of the sum, `[N, D]`: summed over slabs of rows and then
/// over the slabs in order.
pub(super) fn bias_grad(grad: &FlexTensor) -> FlexTensor {
    let [n, d] = grad.shape().dims();
    let slab = (slab_rows(n) * d).max(1);
    let sum = |rows: std::slice::Chunks<'_, f32>| {
        let mut sum = vec![0.0; d];
        rows.for_each(|row| store(&mut sum, row, Accumulate::Add));
        sum
    };
    let slabs = grad.storage::<f32>().chunks(slab).collect();
    let slabs = map(slabs, n * d, |rows: &[f32]| sum(rows.chunks(d))).concat();
    tensor(sum(slabs.chunks(d.max(1))), [d])
}
