//! The operations that encodings ask for, fused where the backend has them.

use crate::Matmul;
use burn::tensor::{Int, Tensor};
use ops::{CellNetwork, DiagonalNetwork, Ops};

/// [`Ops`] by the operations of this crate; products are [`Matmul::F32`].
#[derive(Clone, Copy, Debug, Default)]
pub struct FusedOps;

impl Ops for FusedOps {
    fn matmul(&self, a: Tensor<4>, b: Tensor<4>) -> Tensor<4> {
        crate::matmul(a, b, Matmul::F32)
    }

    fn rotate(&self, x: Tensor<4>, [cos, sin]: [Tensor<4>; 2], interleaved: bool) -> Tensor<4> {
        crate::rotate(x, cos, sin, interleaved)
    }

    fn gather_columns(&self, x: Tensor<4>, columns: Tensor<4, Int>) -> Tensor<4> {
        crate::gather_columns(x, columns)
    }

    fn scatter_columns(&self, x: Tensor<4>, columns: Tensor<4, Int>, n: usize) -> Tensor<4> {
        crate::scatter_columns(x, columns, n)
    }

    fn interpolate_columns(&self, x: Tensor<4>, at: Tensor<4>) -> Tensor<4> {
        crate::interpolate_columns(x, at)
    }

    fn count_open_keys(&self, logits: Tensor<4>, first_query: usize, limit: f64) -> Tensor<4> {
        crate::count_open_keys(logits, first_query, limit)
    }

    fn break_stick(&self, logits: Tensor<4>, first_query: usize) -> Tensor<4> {
        crate::break_stick(logits, first_query)
    }

    fn cell_network(&self, x: Tensor<4>, network: CellNetwork) -> Tensor<4> {
        crate::cell_network(x, network)
    }

    fn diagonal_network(&self, network: DiagonalNetwork) -> Tensor<4> {
        crate::diagonal_network(network)
    }
}
