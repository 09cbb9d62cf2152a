//! Tiles in shared memory: loads with a rotation, stores with its inverse, products.
//!
//! Rows of queries, keys, values and their gradients lie there in fours of dimensions, each of
//! which a unit reads at once: shared memory is read less often than units multiply.

use super::settings::{CUBE, Settings, UNITS};
use crate::cube::pairs::{is_first, pair, partner};
use burn_cubecl::cubecl;
use cubecl::prelude::*;

/// Dimensions that are read from shared memory at once.
pub(super) type Four = Vector<f32, Const<4>>;

/// Logits below this are those of hidden keys. Shading languages have no -inf.
pub(super) const LOWEST: f32 = -3.0e38;

/// Row of this unit in the grid of units.
#[cube]
pub(super) fn unit_row() -> usize {
    UNIT_POS as usize / UNITS
}

/// Column of this unit in the grid of units.
#[cube]
pub(super) fn unit_column() -> usize {
    UNIT_POS as usize % UNITS
}

/// Loads `count` rows of one batch and head (`place`) of `[B, H, L, E]`, from element `at` on,
/// rotated by table `table` of `tables`, `[4 G, 1, L, R]`. `rows` are the first row and the end:
/// rows from there on, and dimensions past the last, become 0 and are not read.
#[cube]
#[allow(
    clippy::too_many_arguments,
    reason = "kernels are compiled for the last three"
)]
#[allow(
    clippy::collapsible_if,
    reason = "the outer condition is known when the kernel is compiled"
)]
pub(super) fn load(
    to: &mut Shared<[Four]>,
    from: &Tensor<f32>,
    tables: &Tensor<f32>,
    at: u32,
    place: (usize, usize),
    rows: (usize, usize),
    #[comptime] count: usize,
    #[comptime] table: Option<usize>,
    #[comptime] s: Settings,
) {
    let at = at as usize + place.0 * from.stride(0) + place.1 * from.stride(1);
    let (row_stride, dim_stride) = (from.stride(2), from.stride(3));
    let group = group_of(tables, place.0, from.shape(0));
    let fours = comptime![s.fours()];
    for step in 0..comptime![(count * fours).div_ceil(CUBE)] {
        let i = step * CUBE + UNIT_POS as usize;
        let row = i / fours;
        let first = i % fours * 4;
        if row < count {
            let position = rows.0 + row;
            let start = at + position * row_stride;
            let mut four = Four::new(0.0);
            #[unroll]
            for n in 0..4usize {
                let dim = first + n;
                let mut x = 0.0f32;
                if position < rows.1 && dim < s.head_dim {
                    x = from[start + dim * dim_stride];
                    if comptime![table.is_some() && s.pairs > 0] {
                        if dim < comptime![2 * s.pairs] {
                            let other =
                                from[start + partner(dim, s.pairs, s.interleaved) * dim_stride];
                            let (cos, sin) = angle(tables, group, position, dim, table, s);
                            x = x * cos
                                + select(is_first(dim, s.pairs, s.interleaved), -other, other)
                                    * sin;
                        }
                    }
                }
                four.insert(n, x);
            }
            to[row * comptime![s.stride()] + first / 4] = four;
        }
    }
}

/// Stores the rows of a tile in shared memory, from row `first` on, rotated back by table `table`.
#[cube]
#[allow(
    clippy::too_many_arguments,
    reason = "kernels are compiled for the last three"
)]
#[allow(
    clippy::collapsible_if,
    reason = "the outer condition is known when the kernel is compiled"
)]
pub(super) fn store(
    from: &Shared<[Four]>,
    to: &mut Tensor<f32>,
    tables: &Tensor<f32>,
    at: u32,
    place: (usize, usize),
    first: usize,
    #[comptime] table: Option<usize>,
    #[comptime] s: Settings,
) {
    let at = at as usize + place.0 * to.stride(0) + place.1 * to.stride(1);
    let (length, row_stride, dim_stride) = (to.shape(2), to.stride(2), to.stride(3));
    let group = group_of(tables, place.0, to.shape(0));
    let steps = comptime![(s.rows * s.padded).div_ceil(CUBE)];
    for step in 0..steps {
        let i = step * CUBE + UNIT_POS as usize;
        let row = i / s.padded;
        let dim = i % s.padded;
        let position = first + row;
        if row < s.rows && position < length && dim < s.head_dim {
            let start = row * comptime![s.stride()];
            let mut x = one_of(from, start, dim);
            if comptime![table.is_some() && s.pairs > 0] {
                if dim < comptime![2 * s.pairs] {
                    let other = one_of(from, start, partner(dim, s.pairs, s.interleaved));
                    let (cos, sin) = angle(tables, group, position, dim, table, s);
                    x = x * cos
                        + select(is_first(dim, s.pairs, s.interleaved), other, -other) * sin;
                }
            }
            to[at + position * row_stride + dim * dim_stride] = x;
        }
    }
}

/// One dimension of the row that begins at `start`.
#[cube]
fn one_of(tile: &Shared<[Four]>, start: usize, dim: usize) -> f32 {
    let four = tile[start + dim / 4];
    let n = dim % 4;
    let (low, high) = (
        select(n == 0, four.extract(0usize), four.extract(1usize)),
        select(n == 2, four.extract(2usize), four.extract(3usize)),
    );
    select(n < 2, low, high)
}

/// Which of the G tables of each kind is that of a sequence of `batch`.
#[cube]
fn group_of(tables: &Tensor<f32>, sequence: usize, batch: usize) -> usize {
    sequence * (tables.shape(0) / 4) / batch
}

/// Cos and sin for a dimension at a position of a sequence in a group.
#[cube]
fn angle(
    tables: &Tensor<f32>,
    group: usize,
    position: usize,
    dim: usize,
    #[comptime] table: Option<usize>,
    #[comptime] s: Settings,
) -> (f32, f32) {
    let first = comptime![table.unwrap_or(0)];
    let one = tables.stride(0);
    let groups = tables.shape(0) / 4;
    let at =
        (first * groups + group) * one + position * s.pairs + pair(dim, s.pairs, s.interleaved);
    (tables[at], tables[at + groups * one])
}

/// The cells of `a b^T` that this unit owns, of a tile `a` of rows and a tile `b` of columns.
#[cube]
pub(super) fn products(
    a: &Shared<[Four]>,
    b: &Shared<[Four]>,
    out: &mut Array<f32>,
    #[comptime] s: Settings,
) {
    let (m, n) = comptime![(s.unit_rows(), s.unit_columns())];
    let stride = comptime![s.stride()];
    let rows = unit_row() * stride;
    let columns = unit_column() * stride;
    #[unroll]
    for i in 0..m * n {
        out[i] = 0.0;
    }
    let mut values = Array::<Four>::new(n);
    for four in 0..s.fours() {
        #[unroll]
        for j in 0..n {
            values[j] = b[columns + comptime![j * UNITS * stride] + four];
        }
        #[unroll]
        for i in 0..m {
            let x = a[rows + comptime![i * UNITS * stride] + four];
            #[unroll]
            for j in 0..n {
                let y = values[j];
                #[unroll]
                for dim in 0..4usize {
                    out[i * n + j] += x.extract(dim) * y.extract(dim);
                }
            }
        }
    }
}

/// Adds `cells x` to the dimensions that this unit owns: cells are a tile of rows and columns, `x`
/// is a tile of columns.
#[cube]
pub(super) fn accumulate(
    cells: &Shared<[f32]>,
    x: &Shared<[Four]>,
    out: &mut Array<f32>,
    #[comptime] s: Settings,
) {
    let (m, n) = comptime![(s.unit_rows(), s.unit_fours())];
    let stride = comptime![s.stride()];
    let cell_stride = comptime![s.cell_stride()];
    let rows = unit_row() * cell_stride;
    let mut values = Array::<Four>::new(n);
    for column in 0..s.columns {
        #[unroll]
        for j in 0..n {
            values[j] = x[column * stride + own_four(j, s)];
        }
        #[unroll]
        for i in 0..m {
            let weight = cells[rows + comptime![i * UNITS * cell_stride] + column];
            #[unroll]
            for j in 0..n {
                let value = values[j];
                #[unroll]
                for dim in 0..4usize {
                    out[(i * n + j) * 4 + dim] += weight * value.extract(dim);
                }
            }
        }
    }
}

/// The place in a row of the four dimensions number `j` of this unit. Where a row has fewer fours
/// than units, some own none: they read padding, and write nothing.
#[cube]
pub(super) fn own_four(#[comptime] j: usize, #[comptime] s: Settings) -> usize {
    let four = unit_column() + comptime![j * UNITS];
    if comptime![(j + 1) * UNITS <= s.fours()] {
        four
    } else {
        select(four < s.fours(), four, comptime![s.fours()])
    }
}

/// Writes the cells that this unit owns to shared memory.
#[cube]
pub(super) fn put_cells(from: &Array<f32>, to: &mut Shared<[f32]>, #[comptime] s: Settings) {
    let (m, n) = comptime![(s.unit_rows(), s.unit_columns())];
    #[unroll]
    for i in 0..m {
        #[unroll]
        for j in 0..n {
            let row = unit_row() + comptime![i * UNITS];
            let column = unit_column() + comptime![j * UNITS];
            to[row * comptime![s.cell_stride()] + column] = from[i * n + j];
        }
    }
}

/// Writes the dimensions that this unit owns, times `factor`, to a tile in shared memory.
#[cube]
pub(super) fn put_rows(
    from: &Array<f32>,
    to: &mut Shared<[Four]>,
    factor: f32,
    #[comptime] s: Settings,
) {
    let (m, n) = comptime![(s.unit_rows(), s.unit_fours())];
    #[unroll]
    for i in 0..m {
        #[unroll]
        for j in 0..n {
            let four = own_four(j, s);
            if four < s.fours() {
                let row = unit_row() + comptime![i * UNITS];
                let mut x = Four::new(0.0);
                #[unroll]
                for dim in 0..4usize {
                    x.insert(dim, from[(i * n + j) * 4 + dim] * factor);
                }
                to[row * comptime![s.stride()] + four] = x;
            }
        }
    }
}

/// `exp(logit - largest)`; 0 for a hidden key.
#[cube]
pub(super) fn weight(logit: f32, largest: f32) -> f32 {
    select(logit <= LOWEST, 0.0, (logit - largest).exp())
}
