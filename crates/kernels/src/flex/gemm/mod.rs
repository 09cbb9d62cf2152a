//! GEMM: matrix products in `f32`, on packed operands.
//!
//! [`Matrix::as_lhs`] and [`Matrix::as_rhs`] prepare the operands, and [`multiply`] runs the
//! matching micro-kernel.

mod f32_tiles;
mod layout;
mod matrix;
mod operands;
mod pack;

pub(crate) use f32_tiles::{multiply_f32, multiply_f32_transposed};
pub(crate) use layout::{Panel, padded, padded_bands, panel_width};
pub(crate) use matrix::{Accumulate, Matrix, MatrixMut};
pub(crate) use operands::{Lhs, Rhs, multiply};
