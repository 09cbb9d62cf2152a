//! GEMM through bfloat16 parts: every block of 32 x 32 sums is one call of the matrix unit.
//!
//! Products of parts are exact in `f32`, and those too small to matter are left out. The rest is
//! summed in `f32`, in an order that [`EmulatedUnit`] defines; the matrix unit gives the same bits.

use super::amx::{Places, SIDE, Unit};
use super::bf16_parts::{BLOCK, Bf16Parts, BlockShape};
use super::emulated::EmulatedUnit;
use super::matrix::{Accumulate, MatrixMut};
use crate::flex::buffer_pool::Buffer;
use crate::flex::simd::dispatch;
use std::ops::Range;

/// Blocks along the summed index that are used for all rows before the next ones: they stay in L1.
const DEPTH: usize = 4;

/// `y = a b`, or `y += a b`.
pub(super) fn multiply_bf16(
    a: &Bf16Parts<'_>,
    b: &Bf16Parts<'_>,
    y: MatrixMut<'_>,
    accumulate: Accumulate,
) {
    multiply_with(Unit::open().as_ref(), a, b, y, accumulate);
}

/// The same on the matrix unit, or emulated.
fn multiply_with(
    unit: Option<&Unit>,
    a: &Bf16Parts<'_>,
    b: &Bf16Parts<'_>,
    y: MatrixMut<'_>,
    accumulate: Accumulate,
) {
    let fit = (a.shape.parts, a.shape.summed) == (b.shape.parts, b.shape.summed);
    assert!(
        fit && y.shape() == [a.shape.across, b.shape.across],
        "matrices fit"
    );
    // If neither is split, one would be split again for every strip of the other.
    let whole = (a.scratch_len() > 0 && b.scratch_len() > 0).then(|| b.to_split());
    let b = whole.as_ref().unwrap_or(b);
    let (rows, columns) = (a.shape.strip_pairs(), b.shape.strip_pairs());
    let targets = (0..columns)
        .map(|pair| Target::new(&y, [0, 1].map(|i| b.shape.strip(2 * pair + i))))
        .collect();
    let mut product = BlockProduct {
        unit,
        shape: a.shape,
        y,
        targets,
        accumulate,
    };
    let mut scratch = Buffer::new(a.scratch_len() + b.scratch_len());
    let depths = |blocks: usize| (0..blocks).step_by(DEPTH);
    // An operand that is not yet split is split once, in the outer loop.
    if b.scratch_len() > 0 {
        for column in 0..columns {
            let right = b.strip_pair(column, &mut scratch);
            for depth in depths(a.shape.blocks()) {
                (0..rows).for_each(|row| {
                    product.add(row, column, a.strip_pair(row, &mut []), right, depth)
                });
            }
        }
    } else if a.scratch_len() > 0 {
        for row in 0..rows {
            let left = a.strip_pair(row, &mut scratch);
            for depth in depths(a.shape.blocks()) {
                (0..columns).for_each(|column| {
                    product.add(row, column, left, b.strip_pair(column, &mut []), depth)
                });
            }
        }
    } else {
        for depth in depths(a.shape.blocks()) {
            for row in 0..rows {
                let left = a.strip_pair(row, &mut []);
                (0..columns).for_each(|column| {
                    product.add(row, column, left, b.strip_pair(column, &mut []), depth)
                });
            }
        }
    }
}

/// Where the sums of a pair of column strips go.
struct Target {
    /// Start and end of each.
    strips: [[usize; 2]; 2],
    /// Their places in row 0, if both have 16 adjacent columns: then the unit writes there
    /// directly.
    places: Option<Places>,
}

impl Target {
    fn new(y: &MatrixMut<'_>, strips: [[usize; 2]; 2]) -> Self {
        let mut places = Places {
            starts: [0; 2],
            strides: [0; 2],
        };
        let mut whole = true;
        for (i, [first, end]) in strips.into_iter().enumerate() {
            whole &= end - first == SIDE;
            if whole {
                let segment = y.segment(first);
                (places.starts[i], places.strides[i]) = (segment.start, segment.stride);
                whole &= segment.count >= SIDE;
            }
        }
        Self {
            strips,
            places: whole.then_some(places),
        }
    }
}

/// A product, computed in blocks of 32 x 32 sums.
struct BlockProduct<'a> {
    unit: Option<&'a Unit>,
    /// Of the left-hand matrix.
    shape: BlockShape,
    y: MatrixMut<'a>,
    /// By pair of column strips.
    targets: Vec<Target>,
    accumulate: Accumulate,
}

impl BlockProduct<'_> {
    /// Adds the products of up to [`DEPTH`] blocks from `depth` on to the sums of one pair of row
    /// strips and one pair of column strips.
    #[inline]
    fn add(&mut self, row: usize, column: usize, left: &[u32], right: &[u32], depth: usize) {
        let blocks = depth * self.shape.block_len()
            ..(depth + DEPTH).min(self.shape.blocks()) * self.shape.block_len();
        let factors = [&left[blocks.clone()], &right[blocks]];
        let (row, parts) = (row * BLOCK, self.shape.parts);
        let rows = row..(row + BLOCK).min(self.shape.across);
        let fresh = depth == 0 && self.accumulate == Accumulate::Overwrite;
        let Target { strips, places } = &self.targets[column];
        if let (Some(places), BLOCK) = (places, rows.len()) {
            let starts = [0, 1].map(|i| places.starts[i] + row * places.strides[i]);
            return sum(
                self.unit,
                parts,
                factors,
                self.y.values,
                Places { starts, ..*places },
                fresh,
            );
        }
        // At the edges the unit works on a copy of the block.
        let (strips, mut block) = (*strips, [0.0; BLOCK * BLOCK]);
        if !fresh {
            for_each_sum(&mut self.y, strips, rows.clone(), &mut block, |y, x| {
                *x = *y
            });
        }
        sum(
            self.unit,
            parts,
            factors,
            &mut block,
            Places {
                starts: [0, SIDE],
                strides: [BLOCK; 2],
            },
            fresh,
        );
        for_each_sum(&mut self.y, strips, rows, &mut block, |y, x| *y = *x);
    }
}

/// Calls `f` for every element of a pair of strips with its place in a block.
fn for_each_sum(
    y: &mut MatrixMut<'_>,
    strips: [[usize; 2]; 2],
    rows: Range<usize>,
    block: &mut [f32; BLOCK * BLOCK],
    f: impl Fn(&mut f32, &mut f32),
) {
    for (strip, [first, end]) in strips.into_iter().enumerate() {
        for (row, line) in rows.clone().zip(block.chunks_exact_mut(BLOCK)) {
            for (column, x) in (first..end).zip(&mut line[strip * SIDE..]) {
                f(&mut y.segment_mut(row, column)[0], x);
            }
        }
    }
}

/// One block of sums, on the matrix unit or emulated.
fn sum(
    unit: Option<&Unit>,
    parts: usize,
    [a, b]: [&[u32]; 2],
    c: &mut [f32],
    places: Places,
    fresh: bool,
) {
    match (unit, parts) {
        (Some(unit), 1) => unit.sum::<1>(a, b, c, places, fresh),
        (Some(unit), 2) => unit.sum::<2>(a, b, c, places, fresh),
        (Some(unit), _) => unit.sum::<3>(a, b, c, places, fresh),
        (None, _) => dispatch(EmulatedUnit {
            parts,
            a,
            b,
            c,
            places,
            fresh,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flex::gemm::bf16_parts::{BLOCK, part_pairs, split};
    use crate::flex::gemm::f32_tiles::tests::noise;
    use crate::flex::gemm::matrix::Matrix;
    use crate::flex::gemm::multiply_f32;

    /// The definition: sums in the order of the blocks, then of the pairs of parts, and within a
    /// block of both its halves by themselves.
    fn defined(
        parts: usize,
        start: f32,
        a: impl Fn(usize) -> f32,
        b: impl Fn(usize) -> f32,
        n: usize,
    ) -> f32 {
        let s = pulp::Scalar::new();
        let parts_of = |x: f32| match parts {
            1 => split::<_, 1>(s, x).map(f32::from_bits).to_vec(),
            2 => split::<_, 2>(s, x).map(f32::from_bits).to_vec(),
            _ => split::<_, 3>(s, x).map(f32::from_bits).to_vec(),
        };
        let mut sum = start;
        for block in (0..n).step_by(BLOCK) {
            for [left, right] in part_pairs(parts) {
                let half = |first: usize| {
                    (first..(first + SIDE).min(n)).fold(0.0f32, |half, i| {
                        parts_of(a(i))[*left].mul_add(parts_of(b(i))[*right], half)
                    })
                };
                sum += half(block) + half(block + SIDE);
            }
        }
        sum
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "every layout of both operands")]
    fn products_are_those_of_the_definition_however_matrices_lie() {
        let unit = Unit::open();
        for ([n, k, m], group) in [
            ([1, 1, 1], 1),
            ([3, 5, 7], 7),
            ([40, 33, 50], 25),
            ([32, 64, 96], 32),
            ([70, 140, 34], 17),
            ([65, 31, 144], 48),
        ] {
            let (a, b, y) = (noise(n * k, 1), noise(k * m, 2), noise(n * m, 3));
            let transposed = |x: &[f32], rows: usize, cols: usize| -> Vec<f32> {
                (0..rows * cols)
                    .map(|at| x[at % rows * cols + at / rows])
                    .collect()
            };
            let (a_transposed, b_transposed) = (transposed(&a, n, k), transposed(&b, k, m));
            let (a_panels, b_panels) = (
                Matrix::row_major(&a, n, k, k).to_packed(k),
                Matrix::row_major(&b, k, m, m).to_packed(group),
            );
            for parts in [1, 2, 3] {
                let left = [
                    Bf16Parts::lhs(Matrix::row_major(&a, n, k, k), parts),
                    Bf16Parts::lhs(Matrix::packed(&a_panels, n, k), parts),
                    Bf16Parts::lhs_transposed(Matrix::row_major(&a_transposed, k, n, n), parts),
                ];
                let right = [
                    Bf16Parts::rhs(Matrix::row_major(&b, k, m, m), parts, group),
                    Bf16Parts::rhs(Matrix::grouped(&b_panels, k, m, group), parts, group),
                    Bf16Parts::rhs_transposed(
                        Matrix::row_major(&b_transposed, m, k, k),
                        parts,
                        group,
                    ),
                ];
                for accumulate in [Accumulate::Overwrite, Accumulate::Add] {
                    let start = |at: usize| {
                        if accumulate == Accumulate::Overwrite {
                            0.0
                        } else {
                            y[at]
                        }
                    };
                    let element = |i: usize, j: usize| {
                        defined(
                            parts,
                            start(i * m + j),
                            |l| a[i * k + l],
                            |l| b[l * m + j],
                            k,
                        )
                    };
                    let expected: Vec<f32> = (0..n * m).map(|at| element(at / m, at % m)).collect();
                    for (left, right) in left.iter().zip(&right) {
                        // Put into parts before, or while they are multiplied.
                        let (whole_left, whole_right) = (left.to_split(), right.to_split());
                        for (left, right) in [
                            (left, right),
                            (&whole_left, right),
                            (left, &whole_right),
                            (&whole_left, &whole_right),
                        ] {
                            for unit in [None, unit.as_ref()] {
                                let mut rows = y.clone();
                                multiply_with(
                                    unit,
                                    left,
                                    right,
                                    MatrixMut::row_major(&mut rows, n, m, m),
                                    accumulate,
                                );
                                assert_eq!(rows, expected, "{n} {k} {m}");
                                let mut panels = Matrix::row_major(&y, n, m, m).to_packed(group);
                                multiply_with(
                                    unit,
                                    left,
                                    right,
                                    MatrixMut::grouped(&mut panels, n, m, group),
                                    accumulate,
                                );
                                let panels = Matrix::grouped(&panels, n, m, group);
                                for (i, expected) in expected.chunks(m).enumerate() {
                                    let mut row = vec![0.0; m];
                                    panels.zip_row(i, &mut row, |y, x| *y = x);
                                    assert_eq!(row, expected, "{n} {k} {m} in panels");
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn three_parts_are_as_exact_as_f32_two_hold_16_bits_and_one_8() {
        let [n, k, m] = [64, 512, 64];
        let (a, b) = (noise(n * k, 5), noise(k * m, 6));
        let exact: Vec<f64> = (0..n * m)
            .map(|at| {
                (0..k)
                    .map(|l| f64::from(a[at / m * k + l]) * f64::from(b[l * m + at % m]))
                    .sum()
            })
            .collect();
        let error = |y: &[f32]| {
            (y.iter()
                .zip(&exact)
                .map(|(y, x)| (f64::from(*y) - x).powi(2))
                .sum::<f64>()
                / exact.len() as f64)
                .sqrt()
        };
        let (rows, cols) = (
            Matrix::row_major(&a, n, k, k),
            Matrix::row_major(&b, k, m, m),
        );
        let mut y = vec![0.0; n * m];
        multiply_f32(
            rows,
            Matrix::packed(&cols.to_packed(m), k, m),
            MatrixMut::row_major(&mut y, n, m, m),
            Accumulate::Overwrite,
        );
        let f32 = error(&y);
        let [one, two, three] = [1, 2, 3].map(|parts| {
            multiply_bf16(
                &Bf16Parts::lhs(rows, parts),
                &Bf16Parts::rhs(cols, parts, m),
                MatrixMut::row_major(&mut y, n, m, m),
                Accumulate::Overwrite,
            );
            error(&y)
        });
        let size = (exact.iter().map(|x| x * x).sum::<f64>() / exact.len() as f64).sqrt();
        assert!(
            three <= f32 && two < 2f64.powi(-16) * size && one < 2f64.powi(-8) * size,
            "{f32:e} {three:e} {two:e} {one:e} of {size}"
        );
    }

    #[test]
    fn the_matrix_unit_computes_what_plain_arithmetic_does() {
        let Some(unit) = Unit::open() else { return };
        // Numbers of all sizes, so that some are flushed to 0.
        for (seed, scale) in [(1, 1.0), (2, 1e-18), (3, 1e-19), (4, 1e18)] {
            let x = noise(4 * BLOCK * BLOCK, seed)
                .iter()
                .zip(noise(4 * BLOCK * BLOCK, seed + 9))
                .map(|(x, y)| x * scale * (8.0 * y).exp2())
                .collect::<Vec<_>>();
            let (a, b) = x.split_at(2 * BLOCK * BLOCK);
            let start = noise(BLOCK * BLOCK, seed + 20)
                .iter()
                .map(|x| x * scale * scale)
                .collect::<Vec<_>>();
            for parts in [1, 2, 3] {
                let a = Bf16Parts::lhs(Matrix::row_major(a, BLOCK, 2 * BLOCK, 2 * BLOCK), parts);
                let b = Bf16Parts::lhs(Matrix::row_major(b, BLOCK, 2 * BLOCK, 2 * BLOCK), parts);
                let mut scratch = [Buffer::new(a.scratch_len()), Buffer::new(b.scratch_len())];
                let [first, second] = &mut scratch;
                let (a, b) = (a.strip_pair(0, first), b.strip_pair(0, second));
                for fresh in [true, false] {
                    let places = Places {
                        starts: [0, SIDE],
                        strides: [BLOCK; 2],
                    };
                    let (mut fast, mut slow) = (start.clone(), start.clone());
                    sum(Some(&unit), parts, [a, b], &mut fast, places, fresh);
                    sum(None, parts, [a, b], &mut slow, places, fresh);
                    let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                    assert_eq!(bits(&fast), bits(&slow), "{parts} parts, {scale}");
                }
            }
        }
    }
}
