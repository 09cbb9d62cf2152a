//! Operations that a host of encodings may have in a faster form.

use crate::tensors::{cells, for_batch};
use burn::tensor::{Bool, Device, IndexingUpdateOp, Int, Tensor, activation};

/// Tensor operations that encodings ask their host for. The defaults are the definitions, which
/// run on every backend; a host may override them with operations that give the same numbers.
pub trait Ops {
    /// The matrix product `a b`, `[B, H, N, M]`, of `a`, `[B, H, N, K]`, and `b`, `[B, H, K, M]`;
    /// one of them may have 1 in place of B or H and is then shared. A host overrides this if the
    /// product of its backend rounds factors, for example to TF32.
    fn matmul(&self, a: Tensor<4>, b: Tensor<4>) -> Tensor<4> {
        a.matmul(b)
    }

    /// Rotates the pairs of the first `2 R` dimensions of `x`, `[B, H, L, E]`, by the angles whose
    /// cos and sin are `[1, 1 or H, L, R]`, or `[B, ..]`, or `[G, ..]` for G models side by side;
    /// the other dimensions pass through. Pair i is `(2i, 2i + 1)` if `interleaved`, else `(i, i +
    /// R)`.
    fn rotate(&self, x: Tensor<4>, [cos, sin]: [Tensor<4>; 2], interleaved: bool) -> Tensor<4> {
        let [batch, heads, length, head_dim] = x.dims();
        let pairs = cos.dims()[3];
        let [cos, sin] = [cos, sin].map(|table| for_batch(table, batch));
        // Partial rotation: dimensions from 2 pairs on stay as they are.
        let rest = (2 * pairs < head_dim).then(|| x.clone().slice_dim(3, 2 * pairs..head_dim));
        let turn = |a: Tensor<4>, b: Tensor<4>| {
            let turned_a = a.clone() * cos.clone() - b.clone() * sin.clone();
            (turned_a, b * cos.clone() + a * sin.clone())
        };
        let rotated = if interleaved {
            // [B, H, L, pairs, 2]: the last axis holds the two members of a pair.
            let x = x
                .slice_dim(3, 0..2 * pairs)
                .reshape([batch, heads, length, pairs, 2]);
            let [a, b] = [0, 1].map(|side| {
                x.clone()
                    .slice_dim(4, side..side + 1)
                    .reshape([batch, heads, length, pairs])
            });
            let (a, b) = turn(a, b);
            Tensor::stack::<5>(vec![a, b], 4).reshape([batch, heads, length, 2 * pairs])
        } else {
            let (a, b) = turn(
                x.clone().slice_dim(3, 0..pairs),
                x.slice_dim(3, pairs..2 * pairs),
            );
            Tensor::cat(vec![a, b], 3)
        };
        match rest {
            Some(rest) => Tensor::cat(vec![rotated, rest], 3),
            None => rotated,
        }
    }

    /// `x[b, h, i, columns[b, h, i, j]]`, `[B, H, Q, K]`, of `x`, `[B, H, Q, N]`, and `columns`,
    /// `[1 or B, 1 or H, Q, K]`.
    fn gather_columns(&self, x: Tensor<4>, columns: Tensor<4, Int>) -> Tensor<4> {
        let [batch, heads, rows, _] = x.dims();
        let places = columns.dims()[3];
        x.gather(3, columns.expand([batch, heads, rows, places]))
    }

    /// The transpose of [`gather_columns`](Self::gather_columns): the sums of `x`, `[B, H, Q, K]`,
    /// over equal columns, `[B, H, Q, n]`.
    fn scatter_columns(&self, x: Tensor<4>, columns: Tensor<4, Int>, n: usize) -> Tensor<4> {
        let [batch, heads, rows, places] = x.dims();
        let empty = Tensor::zeros([batch, heads, rows, n], (&x.device(), x.dtype()));
        let columns = columns.expand([batch, heads, rows, places]);
        empty.scatter(3, columns, x, IndexingUpdateOp::Add)
    }

    /// `x[b, h, i, at[b, h, i, j]]`, `[B, H, Q, K]`, where a place between two columns of `x`, `[B,
    /// H, Q, N]`, gives what lies between their values. Places are `[B, H, Q, K]`, from 0 to N - 1.
    fn interpolate_columns(&self, x: Tensor<4>, at: Tensor<4>) -> Tensor<4> {
        let last = (x.dims()[3] - 1) as f64;
        // The gradient of a place flows through `share`; the columns it lies between are constants.
        let below = at.clone().detach().floor();
        let share = at - below.clone();
        // At the last column `share` is 0, so the clamped upper neighbour has no weight.
        let [lower, upper] = [0.0, 1.0].map(|step| {
            let columns = (below.clone() + step).clamp_max(last).int();
            self.gather_columns(x.clone(), columns)
        });
        lower.clone() + (upper - lower) * share
    }

    /// The sum of `sigmoid(logits)` from each key to the query's own, at most `limit`. `logits` and
    /// the result are `[B, H, Q, K]`; query row i sees the keys `0..=first_query + i`, and the
    /// result for later keys is 0.
    fn count_open_keys(&self, logits: Tensor<4>, first_query: usize, limit: f64) -> Tensor<4> {
        let shape @ [_, _, queries, keys] = logits.dims();
        let hidden = later_keys(queries, keys, first_query, &logits.device()).expand(shape);
        let gates = activation::sigmoid(logits).mask_fill(hidden, 0.0);
        // Sums from the last key backwards.
        let sums = gates.flip([3]).cumsum(3).flip([3]);
        sums.clamp_max(limit)
    }

    /// `f(diagonals[R - 1 - i + j] / units[i])`, `[1, H, R, C]`, for row i and column j: a network
    /// of one input for every cell of a matrix.
    fn diagonal_network(&self, network: DiagonalNetwork) -> Tensor<4> {
        let DiagonalNetwork {
            diagonals,
            units,
            hidden: [w1, b1],
            weights,
            biases,
        } = network;
        let ([n], [rows], heads) = (diagonals.dims(), units.dims(), biases.dims()[0]);
        let columns = n + 1 - rows;
        let matrix = if rows == 1 {
            diagonals.reshape([1, columns])
        } else {
            // Copies of the diagonals in a row, cut into rows that are shorter by one: each row
            // starts one diagonal before the row above.
            let copies = diagonals.unsqueeze::<2>().expand([rows, n]);
            let copies: Tensor<1> = copies.reshape([rows * n]);
            let cut = copies.slice_dim(0, rows - 1..rows - 1 + rows * (n - 1));
            cut.reshape([rows, n - 1]).slice_dim(1, 0..columns)
        };
        let cells: Tensor<2> = (matrix / units.reshape([rows, 1])).reshape([rows * columns, 1]);
        let hidden = cells * w1.unsqueeze() + b1.unsqueeze();
        let outputs = activation::relu(hidden).matmul(weights) + biases.unsqueeze();
        // From [cells, H]: heads first, then cells row by row.
        outputs.transpose().reshape([1, heads, rows, columns])
    }
}

/// A network of one input, a hidden layer of ReLU units and H outputs, and the matrix it is applied
/// to; see [`Ops::diagonal_network`].
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

/// `[1, 1, queries, keys]`, true where the key comes after the query.
pub(crate) fn later_keys(
    queries: usize,
    keys: usize,
    first_query: usize,
    device: &Device,
) -> Tensor<4, Bool> {
    cells([queries, keys], device, |row, key| key > first_query + row)
}

/// The definitions.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlainOps;

impl Ops for PlainOps {}
