//! Small helpers for tensors: upload, read back, gradients that pass unchanged.

use burn::tensor::{Device, Tensor, TensorData};

/// Uploads a host table, rounding each entry once to the device's float type.
pub(crate) fn upload<const D: usize>(
    values: Vec<f64>,
    shape: [usize; D],
    device: &Device,
) -> Tensor<D> {
    Tensor::from_data(TensorData::new(values, shape), device)
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
