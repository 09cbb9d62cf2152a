//! Splitting `f32` matrices into bfloat16 parts, in the layout that the matrix unit reads.
//!
//! A number is the sum of a first part with its upper 8 significant bits, rounded, and up to two
//! parts with the remaining bits: 8 bits in one part, 16 in two, all 24 in three.
//!
//! Matrices lie in *blocks*: 32 summed indices of 32 rows, or columns, as tiles of 16 x 16 bfloat16
//! pairs, part after part. A pair holds the summed indices i and i + 16 of its block.

use super::amx::{SIDE, TILE};
use super::layout::Segment;
use super::matrix::Matrix;
use crate::flex::buffer_pool::Buffer;
use crate::flex::simd::{Lanes, dispatch};
use crate::flex::threads::for_each;
use crate::flex::transpose::transpose;
use pulp::{Simd, WithSimd};

/// Rows, columns and summed indices of a block.
pub(super) const BLOCK: usize = 2 * SIDE;

/// The upper half of 32 bits: a bfloat16.
pub(super) const UPPER: u32 = 0xffff_0000;

/// Which parts of left-hand and right-hand numbers are multiplied, in order: those whose product is
/// not below the last bit.
pub(super) const fn part_pairs(parts: usize) -> &'static [[usize; 2]] {
    match parts {
        1 => &[[0, 0]],
        2 => &[[0, 1], [0, 0], [1, 0]],
        _ => &[[0, 2], [0, 1], [1, 1], [1, 0], [2, 0], [0, 0]],
    }
}

/// Splits numbers into bfloat16 parts, each in the upper half of 32 bits. Three parts add up to the
/// number itself.
#[inline(always)]
pub(super) fn split<S: Simd, const P: usize>(s: S, x: S::f32s) -> [S::u32s; P] {
    let mut rest = x;
    let mut parts = [s.splat_u32s(0); P];
    for (i, part) in parts.iter_mut().enumerate() {
        let bits = s.transmute_u32s_f32s(rest);
        // The first part is rounded, so that the rest has either sign. The rest is truncated.
        // A part without a rest is the nearest bfloat16, halves to even, as everywhere else.
        let bits = if P == 1 {
            let odd = s.and_u32s(
                s.wrapping_dyn_shr_u32s(bits, s.splat_u32s(16)),
                s.splat_u32s(1),
            );
            s.add_u32s(bits, s.add_u32s(odd, s.splat_u32s(0x7fff)))
        } else if i == 0 {
            s.add_u32s(bits, s.splat_u32s(0x8000))
        } else {
            bits
        };
        *part = s.and_u32s(bits, s.splat_u32s(UPPER));
        // Exact: the part holds the leading bits of `rest`.
        rest = s.sub(rest, s.transmute_f32s_u32s(*part));
    }
    parts
}

/// How a matrix enters a product.
#[derive(Clone, Copy)]
struct Role {
    /// Whether its columns are the summed index.
    sums_columns: bool,
    /// Whether it is the left-hand matrix, whose rows of a tile hold pairs of summed indices.
    lhs: bool,
}

/// How the blocks of a matrix in parts lie: one pair of strips after the other, each with all its
/// blocks of summed indices. A strip is 16 rows of a left-hand matrix, or 16 columns of a
/// right-hand one.
#[derive(Clone, Copy)]
pub(super) struct BlockShape {
    pub(super) parts: usize,
    /// Length of the summed index.
    pub(super) summed: usize,
    /// Length of the other index.
    pub(super) across: usize,
    /// Strips restart with every `group` of the other index.
    group: usize,
}

impl BlockShape {
    /// Number of strips.
    fn strips(&self) -> usize {
        self.across / self.group.max(1) * self.group.div_ceil(SIDE)
    }

    /// Start and end of a strip; empty past the last.
    pub(super) fn strip(&self, strip: usize) -> [usize; 2] {
        if strip >= self.strips() {
            return [0; 2];
        }
        let per_group = self.group.div_ceil(SIDE);
        let (group, within) = (strip / per_group, strip % per_group);
        let first = group * self.group + within * SIDE;
        [first, (first + SIDE).min((group + 1) * self.group)]
    }

    pub(super) fn strip_pairs(&self) -> usize {
        self.strips().div_ceil(2)
    }

    /// Blocks along the summed index.
    pub(super) fn blocks(&self) -> usize {
        self.summed.div_ceil(BLOCK)
    }

    /// Bfloat16 pairs in a block.
    pub(super) fn block_len(&self) -> usize {
        self.parts * 2 * TILE
    }

    /// Bfloat16 pairs in all blocks of a pair of strips.
    fn strip_pair_len(&self) -> usize {
        self.blocks() * self.block_len()
    }
}

/// A matrix in bfloat16 parts.
///
/// By default it is split when it is multiplied, one pair of strips at a time: what is used once
/// stays in L1. [`to_split`](Self::to_split) splits all of it ahead, for use in several products.
pub(crate) struct Bf16Parts<'a> {
    pub(super) shape: BlockShape,
    storage: Storage<'a>,
}

enum Storage<'a> {
    Split(Buffer),
    Deferred(Matrix<'a>, Role),
}

impl<'a> Bf16Parts<'a> {
    /// A left-hand matrix.
    pub(crate) fn lhs(matrix: Matrix<'a>, parts: usize) -> Self {
        Self::deferred(
            matrix,
            parts,
            Role {
                sums_columns: true,
                lhs: true,
            },
            matrix.shape()[0],
        )
    }

    /// The transposed matrix as a left-hand one.
    pub(crate) fn lhs_transposed(matrix: Matrix<'a>, parts: usize) -> Self {
        Self::deferred(
            matrix,
            parts,
            Role {
                sums_columns: false,
                lhs: true,
            },
            matrix.shape()[1],
        )
    }

    /// A right-hand matrix, with strips that restart with every `group` of columns.
    pub(crate) fn rhs(matrix: Matrix<'a>, parts: usize, group: usize) -> Self {
        Self::deferred(
            matrix,
            parts,
            Role {
                sums_columns: false,
                lhs: false,
            },
            group,
        )
    }

    /// The transposed matrix as a right-hand one, with groups of its columns.
    pub(crate) fn rhs_transposed(matrix: Matrix<'a>, parts: usize, group: usize) -> Self {
        Self::deferred(
            matrix,
            parts,
            Role {
                sums_columns: true,
                lhs: false,
            },
            group,
        )
    }

    fn deferred(matrix: Matrix<'a>, parts: usize, role: Role, group: usize) -> Self {
        let [rows, cols] = matrix.shape();
        let (across, summed) = if role.sums_columns {
            (rows, cols)
        } else {
            (cols, rows)
        };
        Self {
            shape: BlockShape {
                parts,
                summed,
                across,
                group,
            },
            storage: Storage::Deferred(matrix, role),
        }
    }

    /// All of it in parts.
    pub(crate) fn to_split(&self) -> Bf16Parts<'static> {
        let shape = self.shape;
        let mut values = Buffer::new(shape.strip_pairs() * shape.strip_pair_len());
        let work = values.len();
        for_each(
            values
                .chunks_exact_mut(shape.strip_pair_len().max(1))
                .enumerate()
                .collect(),
            work,
            |(pair, values)| {
                self.strip_pair(pair, values);
            },
        );
        Bf16Parts {
            shape,
            storage: Storage::Split(values),
        }
    }

    /// A pair of strips in parts: borrowed, or, if not yet split, written to `scratch`.
    pub(super) fn strip_pair<'b>(&'b self, pair: usize, scratch: &'b mut [f32]) -> &'b [u32] {
        let size = self.shape.strip_pair_len();
        match &self.storage {
            Storage::Split(values) => &bytemuck::cast_slice(values)[pair * size..][..size],
            Storage::Deferred(matrix, role) => {
                let values = bytemuck::cast_slice_mut(&mut scratch[..size]);
                let (shape, matrix, role) = (self.shape, *matrix, *role);
                macro_rules! split {
                    ($parts:literal) => {
                        dispatch(SplitStrips::<$parts> {
                            shape,
                            matrix,
                            role,
                            pair,
                            values,
                        })
                    };
                }
                match shape.parts {
                    1 => split!(1),
                    2 => split!(2),
                    _ => split!(3),
                }
                values
            }
        }
    }

    /// Length of the scratch that [`strip_pair`](Self::strip_pair) needs.
    pub(super) fn scratch_len(&self) -> usize {
        match self.storage {
            Storage::Split(_) => 0,
            Storage::Deferred(..) => self.shape.strip_pair_len(),
        }
    }

    /// Rows and columns of a right-hand matrix.
    pub(crate) fn rhs_shape(&self) -> [usize; 2] {
        [self.shape.summed, self.shape.across]
    }
}

/// Splits a pair of strips of a matrix into parts.
struct SplitStrips<'a, const P: usize> {
    shape: BlockShape,
    matrix: Matrix<'a>,
    role: Role,
    pair: usize,
    values: &'a mut [u32],
}

impl<const P: usize> WithSimd for SplitStrips<'_, P> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let Self {
            shape,
            matrix,
            role,
            pair,
            values,
        } = self;
        let mut scratch = [[0.0; TILE]; 2];
        for half in 0..2 {
            let [start, end] = shape.strip(2 * pair + half);
            let by_column = Columns::of(matrix, start, end);
            for (block, tiles) in values
                .as_chunks_mut::<TILE>()
                .0
                .chunks_exact_mut(2 * P)
                .enumerate()
            {
                let first = block * BLOCK;
                // Tiles of a block alternate: both strips of part 0, both of part 1, and so on.
                let mut tiles = tiles.iter_mut().skip(half).step_by(2);
                let mut tiles: [&mut [u32; TILE]; P] =
                    std::array::from_fn(|_| tiles.next().expect("a tile for every part"));
                // 16 lines of each half of the block: rows of some columns. Elements beyond the
                // strip go into sums that nobody reads.
                let (columns, rows) = if role.sums_columns {
                    (
                        [first, first + SIDE]
                            .map(|column| Columns::of(matrix, column, shape.summed)),
                        [start; 2],
                    )
                } else {
                    ([by_column; 2], [first, first + SIDE])
                };
                let [first_scratch, second_scratch] = &mut scratch;
                let (mut x, x_stride) = columns[0].lines(matrix, rows[0], first_scratch);
                let (mut y, y_stride) = columns[1].lines(matrix, rows[1], second_scratch);
                for i in 0..SIDE {
                    let [x_line, y_line] =
                        [x, y].map(|lines| lines.first_chunk().expect("columns inside a row"));
                    split_row::<S, P>(s, x_line, y_line, &mut tiles, i);
                    (x, y) = (
                        x.get(x_stride..).unwrap_or_default(),
                        y.get(y_stride..).unwrap_or_default(),
                    );
                }
            }
        }
        // Lines run along the other index where the tiles want pairs of summed indices, or the
        // other way round.
        if role.sums_columns != role.lhs {
            transpose(values.as_chunks_mut().0);
        }
    }
}

/// Splits two rows of 16 numbers and interleaves their parts, as row `i` of every part's tile.
#[inline(always)]
fn split_row<S: Simd, const P: usize>(
    s: S,
    x: &[f32; SIDE],
    y: &[f32; SIDE],
    tiles: &mut [&mut [u32; TILE]; P],
    i: usize,
) {
    let (x, y) = (S::as_simd_f32s(x).0, S::as_simd_f32s(y).0);
    for (at, (x, y)) in x.iter().zip(y).enumerate() {
        let (x, y) = (split::<S, P>(s, *x), split::<S, P>(s, *y));
        for part in 0..P {
            // A pair: x in the lower half of the 32 bits, y, 16 summed indices later, in the upper.
            let line = &mut tiles[part].as_chunks_mut::<SIDE>().0[i];
            S::as_mut_simd_u32s(line).0[at] =
                s.or_u32s(s.wrapping_dyn_shr_u32s(x[part], s.splat_u32s(16)), y[part]);
        }
    }
}

/// At most 16 columns of a matrix, read row by row.
#[derive(Clone, Copy)]
struct Columns {
    first: usize,
    end: usize,
    start: usize,
    stride: usize,
    /// Whether they are 16 and adjacent in memory.
    adjacent: bool,
}

impl Columns {
    #[inline(always)]
    fn of(matrix: Matrix<'_>, first: usize, end: usize) -> Self {
        let end = end.min(first + SIDE);
        if first >= end {
            return Self {
                first,
                end: first,
                start: 0,
                stride: 0,
                adjacent: false,
            };
        }
        let Segment {
            start,
            stride,
            count,
        } = matrix.segment(first);
        Self {
            first,
            end,
            start,
            stride,
            adjacent: end - first == SIDE && count >= SIDE,
        }
    }

    /// 16 rows of these columns, and the row stride: borrowed, or, if they are not adjacent or some
    /// are missing and count as 0, gathered in `scratch`.
    #[inline(always)]
    fn lines<'b>(
        &self,
        matrix: Matrix<'b>,
        row: usize,
        scratch: &'b mut [f32; TILE],
    ) -> (&'b [f32], usize) {
        if self.adjacent && row + SIDE <= matrix.shape()[0] {
            return (
                &matrix.values[self.start + row * self.stride..],
                self.stride,
            );
        }
        self.gather(matrix, row, scratch);
        (scratch, SIDE)
    }

    #[inline(never)]
    fn gather(&self, matrix: Matrix<'_>, row: usize, lines: &mut [f32; TILE]) {
        lines.fill(0.0);
        for (row, line) in (row..matrix.shape()[0]).zip(lines.chunks_exact_mut(SIDE)) {
            let mut column = self.first;
            while column < self.end {
                let Segment {
                    start,
                    stride,
                    count,
                } = matrix.segment(column);
                let count = count.min(self.end - column);
                line[column - self.first..][..count]
                    .copy_from_slice(&matrix.values[start + row * stride..][..count]);
                column += count;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flex::gemm::f32_tiles::tests::noise;

    #[test]
    fn three_parts_are_the_number() {
        for x in noise(100_000, 1).into_iter().chain([
            0.0,
            -0.0,
            1.0,
            f32::MIN_POSITIVE,
            1e30,
            -3.3e38,
            1.0 + f32::EPSILON,
            16_777_215.0,
        ]) {
            let s = pulp::Scalar::new();
            let three = split::<_, 3>(s, x).map(f32::from_bits);
            assert_eq!(three[0] + (three[1] + three[2]), x);
            let two = split::<_, 2>(s, x).map(f32::from_bits);
            assert!(
                (two[0] + two[1] - x).abs() <= x.abs() * 2f32.powi(-16),
                "{x} {two:?}"
            );
        }
    }
}
