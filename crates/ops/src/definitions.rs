//! The definitions of the operations.

use crate::{CellNetwork, DiagonalNetwork};
use burn::tensor::{Bool, IndexingUpdateOp, Int, Tensor, TensorData, activation};

/// Rotates the pairs of the first `2 R` dimensions of `x`, `[B, H, L, E]`, by the angles whose
/// `cos` and `sin` are `[1 or G or B, 1 or H, L, R]`, G models side by side; the other dimensions
/// pass through. Pair i is `(2i, 2i + 1)` if `interleaved`, else `(i, i + R)`.
pub fn rotate(x: Tensor<4>, cos: Tensor<4>, sin: Tensor<4>, interleaved: bool) -> Tensor<4> {
    let shape @ [batch, heads, length, head_dim] = x.dims();
    let [groups, table_heads, ..] = cos.dims();
    if groups > 1 && groups < batch {
        // What shares a table beside each other, so that the table is broadcast over it.
        let (each, wide) = (batch / groups, table_heads == 1);
        let x: Tensor<5> = x.reshape([groups, each, heads, length, head_dim]);
        if wide {
            let x = x.reshape([groups, each * heads, length, head_dim]);
            return rotated(x, cos, sin, interleaved).reshape(shape);
        }
        let x = x.swap_dims(1, 2);
        let x = x.reshape([groups * heads, each, length, head_dim]);
        let [cos, sin] = [cos, sin].map(|table| {
            let [_, _, length, pairs] = table.dims();
            table.reshape([groups * heads, 1, length, pairs])
        });
        let y: Tensor<5> =
            rotated(x, cos, sin, interleaved).reshape([groups, heads, each, length, head_dim]);
        return y.swap_dims(1, 2).reshape(shape);
    }
    rotated(x, cos, sin, interleaved)
}

/// [`rotate`] with tables that are broadcast.
fn rotated(x: Tensor<4>, cos: Tensor<4>, sin: Tensor<4>, interleaved: bool) -> Tensor<4> {
    let [batch, heads, length, head_dim] = x.dims();
    let pairs = cos.dims()[3];
    let rotated = x.clone().slice_dim(3, 0..2 * pairs);
    let (a, b) = if interleaved {
        // Dimension 2 i is paired with 2 i + 1.
        let split = rotated.reshape([batch, heads, length, pairs, 2]);
        let [a, b] = [0..1, 1..2].map(|part| split.clone().slice_dim(4, part).squeeze_dim::<4>(4));
        (a, b)
    } else {
        (
            rotated.clone().slice_dim(3, 0..pairs),
            rotated.slice_dim(3, pairs..2 * pairs),
        )
    };
    let turned_a = a.clone() * cos.clone() - b.clone() * sin.clone();
    let turned_b = b * cos + a * sin;
    let rotated = if interleaved {
        Tensor::stack::<5>(vec![turned_a, turned_b], 4).reshape([batch, heads, length, 2 * pairs])
    } else {
        Tensor::cat(vec![turned_a, turned_b], 3)
    };
    // Dimensions past the last pair are not rotated.
    if 2 * pairs == head_dim {
        rotated
    } else {
        Tensor::cat(vec![rotated, x.slice_dim(3, 2 * pairs..head_dim)], 3)
    }
}

/// `x[b, h, i, columns[b, h, i, j]]`, `[B, H, Q, K]`, of `x`, `[B, H, Q, N]`, and `columns`,
/// `[1 or B, 1 or H, Q, K]`.
pub fn gather_columns(x: Tensor<4>, columns: Tensor<4, Int>) -> Tensor<4> {
    let [batch, heads, rows, _] = x.dims();
    let places = columns.dims()[3];
    x.gather(3, columns.expand([batch, heads, rows, places]))
}

/// The transpose of [`gather_columns`]: the sums of `x`, `[B, H, Q, K]`, over equal columns,
/// `[B, H, Q, n]`.
pub fn scatter_columns(x: Tensor<4>, columns: Tensor<4, Int>, n: usize) -> Tensor<4> {
    let [batch, heads, rows, places] = x.dims();
    let empty = Tensor::zeros([batch, heads, rows, n], (&x.device(), x.dtype()));
    let columns = columns.expand([batch, heads, rows, places]);
    empty.scatter(3, columns, x, IndexingUpdateOp::Add)
}

/// `x[b, h, i, at[b, h, i, j]]`, `[B, H, Q, K]`, where a place between two columns of `x`,
/// `[B, H, Q, N]`, gives what lies between their values. Places are `[B, H, Q, K]`, from 0 to
/// N - 1. The gradient of a place is the slope above it.
pub fn interpolate_columns(x: Tensor<4>, at: Tensor<4>) -> Tensor<4> {
    let last = (x.dims()[3] - 1) as f64;
    // The gradient of a place flows through `share`; the columns it lies between are constants.
    let below = at.clone().detach().floor();
    let share = at - below.clone();
    // At the last column `share` is 0, so the clamped upper neighbour has no weight.
    let [lower, upper] = [0.0, 1.0].map(|step| {
        let columns = (below.clone() + step).clamp_max(last).int();
        gather_columns(x.clone(), columns)
    });
    lower.clone() + (upper - lower) * share
}

/// Where `holds` is true of the row and the column, in the shape of `x`.
fn cells(x: &Tensor<4>, holds: impl Fn(usize, usize) -> bool) -> Tensor<4, Bool> {
    let shape @ [_, _, rows, columns] = x.dims();
    let cells = (0..rows * columns).map(|at| holds(at / columns, at % columns));
    let cells = TensorData::new(cells.collect::<Vec<bool>>(), [1, 1, rows, columns]);
    Tensor::<4, Bool>::from_data(cells, &x.device()).expand(shape)
}

/// The sum of `sigmoid(logits)` from each key to the query's own, at most `limit`. `logits` and the
/// result are `[B, H, Q, K]`; query row i sees the keys `0..=first_query + i`, and the result for
/// later keys is 0.
pub fn count_open_keys(logits: Tensor<4>, first_query: usize, limit: f64) -> Tensor<4> {
    let hidden = cells(&logits, |row, key| key > first_query + row);
    let gates = activation::sigmoid(logits).mask_fill(hidden, 0.0);
    // Sums from the last key backwards.
    let sums = gates.flip([3]).cumsum(3).flip([3]);
    sums.clamp_max(limit)
}

/// What to add to `logits`, `[B, H, Q, K]`, so that their softmax breaks a stick: with m the key of
/// the query itself, `first_query` plus its row, key n < m has the weight `sigmoid(z_n)` times the
/// product of `1 - sigmoid(z_l)` over n < l < m, and m what is left. As a sum: with `s(a)` the sum
/// of `softplus(z_l)` over a <= l < m, it is `-s(n)` for n < m and `-s(0) - z_m` for m; 0 for later
/// keys.
pub fn break_stick(logits: Tensor<4>, first_query: usize) -> Tensor<4> {
    let own = cells(&logits, |row, key| key == first_query + row);
    let later = cells(&logits, |row, key| key > first_query + row);
    // What is not taken, as a logarithm: ln(1 - sigmoid(z)) = -softplus(z).
    let left = activation::softplus(logits.clone(), 1.0);
    let left = left
        .mask_fill(later.clone(), 0.0)
        .mask_fill(own.clone(), 0.0);
    // From the key itself to the one before the query.
    let nearer = left.flip([3]).cumsum(3).flip([3]);
    let all = nearer.clone().slice_dim(3, 0..1);
    // The query's own token has no share to take: its logit goes, the remainder stays.
    let of_own = (all.expand(logits.dims()) + logits).neg();
    nearer.neg().mask_where(own, of_own).mask_fill(later, 0.0)
}

/// `W2 leaky_relu(W1 x + b1) + b2` of the C numbers `x[b, :, i, j]` of every cell of `x`,
/// `[B, C, Q, K]`: `[B, H, Q, K]`. Model g of G has the weights of part g and the sequences of part
/// g. `product` multiplies two matrices.
pub fn cell_network(
    x: Tensor<4>,
    network: CellNetwork,
    product: impl Fn(Tensor<4>, Tensor<4>) -> Tensor<4>,
) -> Tensor<4> {
    let [batch, inputs, rows, columns] = x.dims();
    let groups = network.w1.dims()[0] / inputs;
    // Weights and biases of all models.
    let layer = |x, weight: Tensor<2>, bias: Tensor<1>| {
        let [rows, columns] = weight.dims();
        let weight = weight.reshape([groups, 1, rows / groups, columns]);
        product(x, weight) + bias.reshape([groups, 1, 1, columns])
    };
    let x = x.permute([0, 2, 3, 1]);
    let x = x.reshape([groups, 1, batch / groups * rows * columns, inputs]);
    let hidden = activation::leaky_relu(layer(x, network.w1, network.b1), network.slope);
    let y = layer(hidden, network.w2, network.b2);
    let outputs = y.dims()[3];
    y.reshape([batch, rows, columns, outputs])
        .permute([0, 3, 1, 2])
}

/// `f(diagonals[R - 1 - i + j] / units[i])`, `[1, H, R, C]`, for row i and column j: a network of
/// one input for every cell of a matrix. `product` multiplies two matrices.
pub fn diagonal_network(
    network: DiagonalNetwork,
    product: impl Fn(Tensor<2>, Tensor<2>) -> Tensor<2>,
) -> Tensor<4> {
    let DiagonalNetwork {
        diagonals,
        units,
        hidden: [w1, b1],
        weights,
        biases,
    } = network;
    let ([n], [rows], heads) = (diagonals.dims(), units.dims(), biases.dims()[0]);
    let columns = n + 1 - rows;
    let matrix: Tensor<2> = if rows == 1 {
        diagonals.reshape([1, columns])
    } else {
        // Copies of the diagonals in a row, cut into rows that are shorter by one: each row starts
        // one diagonal before the row above.
        let copies: Tensor<2> = diagonals.unsqueeze::<2>().expand([rows, n]);
        let copies: Tensor<1> = copies.reshape([rows * n]);
        let cut = copies.slice_dim(0, rows - 1..rows - 1 + rows * (n - 1));
        cut.reshape([rows, n - 1]).slice_dim(1, 0..columns)
    };
    let matrix = matrix / units.reshape([rows, 1]);
    // One row per cell, for a network of one input.
    let hidden = matrix.reshape([rows * columns, 1]) * w1.unsqueeze() + b1.unsqueeze();
    let outputs = product(activation::relu(hidden), weights) + biases.unsqueeze();
    outputs.transpose().reshape([1, heads, rows, columns])
}
