//! Tensor operations that positional encodings ask their host for.
//!
//! The functions here are the definitions, in plain tensor operations for every backend and float
//! type. [`Ops`] is the interface by which an encoding (`posenc`) calls them and a host
//! (`longreach-kernels`) replaces them with faster ones that give the same numbers.

mod definitions;

use burn::tensor::{Int, Tensor};
pub use definitions::{
    break_stick, cell_network, count_open_keys, diagonal_network, gather_columns,
    interpolate_columns, rotate, scatter_columns,
};

/// Tensor operations that encodings ask their host for. The defaults are the definitions, which
/// run on every backend; a host may override them with operations that give the same numbers.
pub trait Ops {
    /// The matrix product `a b`, `[B, H, N, M]`, of `a`, `[B, H, N, K]`, and `b`, `[B, H, K, M]`;
    /// one of them may have 1 in place of B or H and is then shared. A host overrides this if the
    /// product of its backend rounds factors, for example to TF32.
    fn matmul(&self, a: Tensor<4>, b: Tensor<4>) -> Tensor<4> {
        a.matmul(b)
    }

    /// [`rotate`] by tables of cos and sin.
    fn rotate(&self, x: Tensor<4>, [cos, sin]: [Tensor<4>; 2], interleaved: bool) -> Tensor<4> {
        rotate(x, cos, sin, interleaved)
    }

    /// [`gather_columns`].
    fn gather_columns(&self, x: Tensor<4>, columns: Tensor<4, Int>) -> Tensor<4> {
        gather_columns(x, columns)
    }

    /// [`scatter_columns`].
    fn scatter_columns(&self, x: Tensor<4>, columns: Tensor<4, Int>, n: usize) -> Tensor<4> {
        scatter_columns(x, columns, n)
    }

    /// [`interpolate_columns`].
    fn interpolate_columns(&self, x: Tensor<4>, at: Tensor<4>) -> Tensor<4> {
        interpolate_columns(x, at)
    }

    /// [`count_open_keys`].
    fn count_open_keys(&self, logits: Tensor<4>, first_query: usize, limit: f64) -> Tensor<4> {
        count_open_keys(logits, first_query, limit)
    }

    /// [`break_stick`].
    fn break_stick(&self, logits: Tensor<4>, first_query: usize) -> Tensor<4> {
        break_stick(logits, first_query)
    }

    /// [`cell_network`], with the product of this host.
    fn cell_network(&self, x: Tensor<4>, network: CellNetwork) -> Tensor<4> {
        cell_network(x, network, |a, b| self.matmul(a, b))
    }

    /// [`diagonal_network`], with the product of the backend.
    fn diagonal_network(&self, network: DiagonalNetwork) -> Tensor<4> {
        diagonal_network(network, Tensor::matmul)
    }
}

/// The definitions.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlainOps;

impl Ops for PlainOps {}

/// Cos and sin tables of a rotation of queries and keys, `[1, 1, length, pairs]`, possibly
/// multiplied by factors; `[G, 1, length, pairs]` for G models side by side. Pairs are those of the
/// first dimensions of a head; the rest stays. See [`rotate`].
#[derive(Clone, Debug)]
pub struct Rotation {
    /// Cos and sin for queries.
    pub queries: [Tensor<4>; 2],
    /// Cos and sin for keys.
    pub keys: [Tensor<4>; 2],
    /// Whether pair i is `(2i, 2i + 1)` instead of `(i, i + pairs)`.
    pub interleaved: bool,
}

impl Rotation {
    /// Tables of cos and sin for queries and for keys.
    pub fn new(queries: [Tensor<4>; 2], keys: [Tensor<4>; 2], interleaved: bool) -> Self {
        Self {
            queries,
            keys,
            interleaved,
        }
    }
}

/// A network of C inputs, a hidden layer of N leaky ReLU units and H outputs, of G models side by
/// side; see [`cell_network`].
#[derive(Clone, Debug)]
pub struct CellNetwork {
    /// Weights of the hidden layer, `[G C, N]`.
    pub w1: Tensor<2>,
    /// Biases of the hidden layer, `[G N]`.
    pub b1: Tensor<1>,
    /// Slope of a hidden unit below 0.
    pub slope: f64,
    /// Weights of the outputs, `[G N, H]`.
    pub w2: Tensor<2>,
    /// Biases of the outputs, `[G H]`.
    pub b2: Tensor<1>,
}

/// A network of one input, a hidden layer of ReLU units and H outputs, and the matrix it is applied
/// to; see [`diagonal_network`].
#[derive(Clone, Debug)]
pub struct DiagonalNetwork {
    /// One number per diagonal of the matrix, from its lower left corner to its upper right one,
    /// `[R + C - 1]`.
    pub diagonals: Tensor<1>,
    /// Divisor of every row, `[R]`.
    pub units: Tensor<1>,
    /// Weights and biases of the hidden layer, `[N]`.
    pub hidden: [Tensor<1>; 2],
    /// Weights of the outputs, `[N, H]`.
    pub weights: Tensor<2>,
    /// Biases of the outputs, `[H]`.
    pub biases: Tensor<1>,
}
