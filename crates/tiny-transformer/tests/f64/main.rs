//! Gradients and linear attention in `f64`.
//!
//! A second test program: the float type of a device is set once per process, before its first
//! tensor.

#[path = "../it/common/mod.rs"]
mod common;
mod golden;
mod gradients;
mod linear_attention;
mod side_by_side;

use burn::tensor::{Device, FloatDType};
use std::sync::LazyLock;

static DEVICE: LazyLock<Device> = LazyLock::new(|| {
    let mut device = Device::flex();
    device.configure(FloatDType::F64).expect("no tensor yet");
    device
});
