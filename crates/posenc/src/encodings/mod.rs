//! One file per encoding. Each opens with the same five lines: formula, source, deviations,
//! parameters, limits.

pub mod alibi;
pub mod axial_rope;
pub mod cope;
pub mod deberta;
pub mod fire;
pub mod fox;
pub mod hard_alibi;
pub mod kerple;
pub mod learned;
pub mod learned_bias;
pub mod log_scaling;
pub mod nope;
pub mod nope_layers;
pub mod pope;
pub mod rerope;
pub mod rope;
pub mod sandwich;
pub mod self_extend;
pub mod shaw;
pub mod sinusoidal;
pub mod stack;
pub mod t5;
pub mod transformer_xl;
pub mod window;
pub mod xpos;

use burn::tensor::{Device, Tensor, TensorData};

/// Uploads a host table, rounding each entry once to the device's float type.
pub(crate) fn upload<const D: usize>(
    values: Vec<f64>,
    shape: [usize; D],
    device: &Device,
) -> Tensor<D> {
    Tensor::from_data(TensorData::new(values, shape), device)
}

/// Left out of a serialized configuration, so that an option added later changes no identity of
/// older runs.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
