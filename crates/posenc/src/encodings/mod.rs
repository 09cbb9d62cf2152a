//! One file per encoding. Each opens with the same five lines: formula, source, deviations, parameters, limits.

pub mod alibi;
pub mod learned;
pub mod nope;
pub mod rope;
pub mod sinusoidal;
pub mod stack;

use burn::tensor::{Device, Tensor, TensorData};

/// Uploads a host table, rounding each entry once to the device's float type.
pub(crate) fn upload<const D: usize>(values: Vec<f64>, shape: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::from_data(TensorData::new(values, shape), device)
}
