//! Stub of the `flex` module without the feature: every operation runs its definition.

pub(crate) use crate::reference::{
    attention, attention_block, attention_weights, break_stick, cell_network, count_open_keys,
    diagonal_network, gather_columns, gelu, interpolate_columns, layer_norm, mlp, nll, rms_norm,
    rotate, scatter_columns, swiglu,
};
use crate::{AdamWUpdate, Matmul, Norm, reference};
use burn::tensor::Tensor;

pub(crate) fn on_threads<R: Send>(f: impl FnOnce() -> R + Send) -> std::io::Result<R> {
    Ok(f())
}

pub(crate) fn vector_problem() -> Option<String> {
    None
}

pub(crate) fn free_buffers() {}

pub(crate) fn materialises_networks(_: &Tensor<3>) -> bool {
    true
}

pub(crate) fn linear(x: Tensor<2>, norm: Option<Norm>, w: Tensor<2>, matmul: Matmul) -> Tensor<2> {
    reference::linear_in(x, norm, w, matmul)
}

pub(crate) fn adamw(update: AdamWUpdate) -> [Tensor<1>; 3] {
    let AdamWUpdate {
        theta,
        grad,
        moments,
        steps,
    } = update;
    reference::adamw(theta, grad, moments, &steps)
}
