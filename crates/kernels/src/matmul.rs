//! The formats that factors of matrix products are rounded to.

use serde::{Deserialize, Serialize};

/// How the matrix products of linear layers are computed, forward and backward.
///
/// Inputs, sums and outputs are `f32` in any case. Fused operations follow it for `f32` tensors on
/// the backends of CubeCL. On Flex factors are never rounded, and other backends and float types
/// ignore it. Products inside attention are in `f32`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Matmul {
    /// Factors keep all 24 significant bits, also on GPUs whose tensor cores would round them.
    #[default]
    #[serde(rename = "f32")]
    F32,
    /// Factors are rounded to bfloat16, 8 significant bits, halves to even; sums are in `f32`. GPUs
    /// without tensor cores for it round the factors first.
    #[serde(rename = "bf16")]
    Bf16,
    /// Factors are rounded to TF32, 11 significant bits, halves away from zero; sums are in `f32`.
    /// GPUs without tensor cores for it round the factors first.
    #[serde(rename = "tf32")]
    Tf32,
}
