//! GEMM: matrix products in `f32` or through bfloat16 parts, on packed operands.
//!
//! [`Matrix::as_lhs`] and [`Matrix::as_rhs`] prepare the operands for the chosen arithmetic, and
//! [`multiply`] runs the matching micro-kernel.

pub(crate) mod amx;
mod bf16_parts;
mod bf16_product;
mod emulated;
mod f32_tiles;
mod formats;
mod layout;
mod matrix;
mod operands;
mod pack;

pub(crate) use f32_tiles::{multiply_f32, multiply_f32_transposed};
pub(crate) use formats::goes_through_parts;
pub(crate) use layout::{Panel, padded, padded_groups, panel_width};
pub(crate) use matrix::{Accumulate, Matrix, MatrixMut};
pub(crate) use operands::{Lhs, Rhs, multiply};
