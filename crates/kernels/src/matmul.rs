//! The formats that factors of matrix products are rounded to.

use serde::{Deserialize, Serialize};

/// How the matrix products of linear layers are computed, forward and backward.
///
/// Inputs, sums and outputs are `f32` in any case. Fused operations follow it for `f32` tensors on
/// Flex and on the backends of CubeCL; other backends and float types ignore it. Products inside
/// attention are in `f32`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Matmul {
    /// Factors keep all 24 significant bits, also on GPUs whose tensor cores would round them.
    #[default]
    #[serde(rename = "f32")]
    F32,
    /// Six bfloat16 products, summed in `f32`. Every number is split into three bfloat16 parts,
    /// which hold all 24 significant bits: as exact as `f32` products. On the backends of CubeCL
    /// this is [`F32`](Self::F32).
    #[serde(rename = "bf16_x6")]
    Bf16x6,
    /// Three bfloat16 products, summed in `f32`. Every number is split into two bfloat16 parts,
    /// which hold 16 significant bits. On the backends of CubeCL this is [`F32`](Self::F32).
    #[serde(rename = "bf16_x3")]
    Bf16x3,
    /// Factors are rounded to bfloat16, 8 significant bits, halves to even; sums are in `f32`. For
    /// tensor cores of a GPU, or the matrix unit of a processor.
    #[serde(rename = "bf16")]
    Bf16,
    /// Factors are rounded to TF32, 11 significant bits, halves away from zero; sums are in `f32`.
    /// For tensor cores of a GPU; other devices round the factors first.
    #[serde(rename = "tf32")]
    Tf32,
}
