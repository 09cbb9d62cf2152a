//! Stub of the `cube` module without a backend of CubeCL: there is nothing fused.

use crate::{AdamWUpdate, Bias, Matmul, Rotation};
use burn::tensor::{Device, Int, Tensor};
use std::collections::BTreeMap;

/// Nothing to count.
pub enum Launches {}

impl Launches {
    /// `None`: no backend of CubeCL is compiled in.
    pub fn watch() -> Option<Self> {
        None
    }

    /// How often each kernel was launched since the last call.
    pub fn take(&self) -> BTreeMap<String, usize> {
        match *self {}
    }
}

pub(crate) fn device_memory(_: &Device) -> Option<u64> {
    None
}

pub(crate) fn matmul<const D: usize>(_: &Tensor<D>, _: &Tensor<D>, _: Matmul) -> Option<Tensor<D>> {
    None
}

pub(crate) fn attention(
    _: [&Tensor<4>; 3],
    _: &Option<Tensor<4>>,
    _: f64,
    _: usize,
) -> Option<Tensor<4>> {
    None
}

pub(crate) fn projected_attention(
    _: &Tensor<2>,
    _: [usize; 4],
    _: &Option<Rotation>,
    _: &Option<Bias>,
    _: f64,
) -> Option<Tensor<4>> {
    None
}

pub(crate) fn rotate(_: [&Tensor<4>; 3], _: bool) -> Option<Tensor<4>> {
    None
}

pub(crate) fn norm(
    _: &Tensor<2>,
    _: &Tensor<1>,
    _: Option<&Tensor<1>>,
    _: f64,
) -> Option<Tensor<2>> {
    None
}

pub(crate) fn nll(_: &Tensor<2>, _: &Tensor<1, Int>) -> Option<Tensor<1>> {
    None
}

pub(crate) fn embedding(_: &Tensor<2>, _: &Tensor<2, Int>, _: usize) -> Option<Tensor<3>> {
    None
}

pub(crate) fn gelu(_: &Tensor<2>) -> Option<Tensor<2>> {
    None
}

pub(crate) fn swiglu(_: &Tensor<2>, _: &Tensor<2>) -> Option<Tensor<2>> {
    None
}

pub(crate) fn adamw(_: &[AdamWUpdate]) -> Option<Vec<[Tensor<1>; 3]>> {
    None
}

pub(crate) fn square_sums(_: &[Tensor<1>], _: usize) -> Option<Tensor<1>> {
    None
}
