//! The `f32` micro-kernels: `y = a b` and `y = a^T b` with a packed right-hand matrix.
//!
//! Every element of a product is one chain of fused multiply-adds in the order of the summed index,
//! starting from 0 or from the target. How the work is cut into blocks, vectors or threads
//! therefore never changes a bit.
//!
//! A tile of the result stays in registers while one row of a panel after the other is multiplied
//! by single elements of the left-hand matrix, which is read where it lies.

use super::layout::{Order, Segment, Widths, WidthsOf};
use super::matrix::{Accumulate, Matrix, MatrixMut};
use crate::flex::simd::{Lanes, dispatch};
use pulp::{Simd, WithSimd};

/// Rows of a panel that are used for all rows of the left-hand matrix before the next ones: they
/// stay in L1.
const DEPTH: usize = 128;

/// `y = a b`, or `y += a b`.
///
/// `b` is packed. If `y` is packed too, both have the same bands. The columns of `a` beyond the
/// rows of `b` are ignored.
pub(crate) fn multiply_f32(a: Matrix<'_>, b: Matrix<'_>, y: MatrixMut<'_>, accumulate: Accumulate) {
    assert!(
        a.layout.cols >= b.layout.rows && y.layout.rows == a.layout.rows && fit(&b, &y),
        "matrices fit"
    );
    dispatch(Product {
        a,
        b,
        y,
        accumulate,
        transposed: false,
    });
}

/// `y = a^T b`, or `y += a^T b`.
///
/// `b` is packed. If `y` is packed too, both have the same bands. The columns of `a` beyond the
/// rows of `y` are ignored.
pub(crate) fn multiply_f32_transposed(
    a: Matrix<'_>,
    b: Matrix<'_>,
    y: MatrixMut<'_>,
    accumulate: Accumulate,
) {
    assert!(
        a.layout.rows == b.layout.rows && y.layout.rows <= a.layout.cols && fit(&b, &y),
        "matrices fit"
    );
    dispatch(Product {
        a,
        b,
        y,
        accumulate,
        transposed: true,
    });
}

/// Whether `b` is packed and its columns match those of `y`.
fn fit(b: &Matrix<'_>, y: &MatrixMut<'_>) -> bool {
    let same_bands = match (b.layout.order, y.layout.order) {
        (Order::Packed { band: b, .. }, Order::Packed { band: y, .. }) => b == y,
        (Order::Packed { .. }, Order::RowMajor(_)) => true,
        (Order::RowMajor(_), _) => false,
    };
    y.layout.cols == b.layout.cols && same_bands
}

struct Product<'a> {
    a: Matrix<'a>,
    b: Matrix<'a>,
    y: MatrixMut<'a>,
    accumulate: Accumulate,
    transposed: bool,
}

impl WithSimd for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, s: S) {
        let widths = WidthsOf.with_simd(s);
        let mut column = 0;
        while column < self.b.layout.cols {
            let panel = self.b.segment_for(column, widths);
            // Tiles of 16 accumulators, or 12 with 16 registers: enough independent sums to hide
            // the latency of an FMA, and fewer loads than multiply-adds.
            match (S::REGISTER_COUNT >= 32, panel.stride / S::F32_LANES) {
                (true, 1) => self.stripe::<S, 16, 1>(s, column, panel, widths),
                (false, 1) => self.stripe::<S, 8, 1>(s, column, panel, widths),
                (true, 2) => self.stripe::<S, 8, 2>(s, column, panel, widths),
                (true, 3) => self.stripe::<S, 4, 3>(s, column, panel, widths),
                (true, _) => self.stripe::<S, 4, 4>(s, column, panel, widths),
                (false, _) => self.stripe::<S, 6, 2>(s, column, panel, widths),
            }
            column += panel.count;
        }
    }
}

/// One panel of the result, and the rows of the right-hand panel that are added to it.
struct Stripe<'a, S: Simd, const V: usize> {
    target: Segment,
    /// Index of the first of the rows.
    first: usize,
    rows: &'a [[S::f32s; V]],
    fresh: bool,
    widths: Widths,
}

impl Product<'_> {
    /// One panel of the result, `V` vectors wide, in tiles of `R` rows. What tiles leave over is
    /// computed in tiles of 4 rows, and then row by row.
    #[inline(always)]
    fn stripe<S: Simd, const R: usize, const V: usize>(
        &mut self,
        s: S,
        column: usize,
        panel: Segment,
        widths: Widths,
    ) {
        let (a, b) = (self.a, self.b);
        let (vectors, _) =
            S::as_simd_f32s(&b.values[panel.start..][..b.layout.rows * panel.stride]);
        let rows = vectors.as_chunks::<V>().0;
        let target = Segment {
            count: panel.count,
            ..self.y.layout.segment(column, widths)
        };
        let y_rows = self.y.layout.rows;
        for first in (0..b.layout.rows).step_by(DEPTH) {
            let stripe = Stripe {
                target,
                first,
                rows: &rows[first..(first + DEPTH).min(b.layout.rows)],
                // Rows of the panel after the first DEPTH continue the chains that `y` holds.
                fresh: first == 0 && self.accumulate == Accumulate::Overwrite,
                widths,
            };
            let mut row = 0;
            while row < y_rows {
                let mut left = y_rows - row;
                if self.transposed {
                    // The columns of a tile must be adjacent: they are read as one slice.
                    left = left.min(a.segment_for(row, widths).count);
                }
                // Two tiles of 4 rows are better than one of 6 and two rows.
                row += if left >= R && (R != 6 || left != 8) {
                    self.tile::<S, R, V>(s, &stripe, row)
                } else if R > 4 && left >= 4 {
                    self.tile::<S, 4, V>(s, &stripe, row)
                } else {
                    self.tile::<S, 1, V>(s, &stripe, row)
                };
            }
        }
    }

    /// `R` rows of the result from `row` on. Returns `R`.
    #[inline(always)]
    fn tile<S: Simd, const R: usize, const V: usize>(
        &mut self,
        s: S,
        stripe: &Stripe<'_, S, V>,
        row: usize,
    ) -> usize {
        let (a, transposed) = (self.a, self.transposed);
        let Stripe {
            target,
            first,
            rows,
            fresh,
            widths,
        } = *stripe;
        target.update_tile::<S, R, V>(s, self.y.values, row, fresh, |s, sums| {
            if transposed {
                along_columns(s, a, a.segment_for(row, widths), first, rows, sums)
            } else {
                along_rows(s, a, row, first, rows, widths, sums)
            }
        });
        R
    }
}

impl Segment {
    /// Replaces `R` rows from `row` on by the result of `sums` for them, or for zeros if `fresh`.
    ///
    /// The `V` vectors of a row may reach past the columns of this segment.
    #[inline(always)]
    fn update_tile<S: Simd, const R: usize, const V: usize>(
        &self,
        s: S,
        y: &mut [f32],
        row: usize,
        fresh: bool,
        sums: impl FnOnce(S, [[S::f32s; V]; R]) -> [[S::f32s; V]; R],
    ) {
        let wide = V * S::F32_LANES;
        let whole = self.count == wide;
        let mut tile = [[s.zero(); V]; R];
        let first = self.start + row * self.stride;
        if !fresh {
            let mut rest = &y[first..];
            for tile in &mut tile {
                if whole {
                    tile.copy_from_slice(&S::as_simd_f32s(&rest[..wide]).0[..V]);
                } else {
                    // What follows a narrow segment in memory is not part of it.
                    let mut line = [[s.zero(); V]];
                    bytemuck::cast_slice_mut::<_, f32>(&mut line)[..self.count]
                        .copy_from_slice(&rest[..self.count]);
                    [*tile] = line;
                }
                rest = rest.get(self.stride..).unwrap_or_default();
            }
        }
        let tile = sums(s, tile);
        let mut rest = &mut y[first..];
        for tile in &tile {
            if whole {
                S::as_mut_simd_f32s(&mut rest[..wide])
                    .0
                    .copy_from_slice(tile);
            } else {
                // Numbers past the segment belong to others and must not be written.
                let line = [*tile];
                rest[..self.count]
                    .copy_from_slice(&bytemuck::cast_slice::<_, f32>(&line)[..self.count]);
            }
            rest = rest.get_mut(self.stride..).unwrap_or_default();
        }
    }
}

/// `sums[i] += sum over k of a[row + i][first + k] * b[k]`.
#[inline(always)]
fn along_rows<S: Simd, const R: usize, const V: usize>(
    s: S,
    a: Matrix<'_>,
    row: usize,
    first: usize,
    b: &[[S::f32s; V]],
    widths: Widths,
    mut sums: [[S::f32s; V]; R],
) -> [[S::f32s; V]; R] {
    let mut k = 0;
    while k < b.len() {
        let run = a.segment_for(first + k, widths);
        // The columns of `a` are adjacent only inside one of its panels.
        let n = run.count.min(b.len() - k);
        let mut rows = [&[][..]; R];
        let mut rest = &a.values[run.start + row * run.stride..];
        for slice in &mut rows {
            *slice = &rest[..n];
            rest = rest.get(run.stride..).unwrap_or_default();
        }
        for (k, b) in b[k..k + n].iter().enumerate() {
            for i in 0..R {
                let x = s.splat(rows[i][k]);
                for j in 0..V {
                    sums[i][j] = s.fma(x, b[j], sums[i][j]);
                }
            }
        }
        k += n;
    }
    sums
}

/// `sums[i] += sum over k of a[first + k][i] * b[k]`, columns counted from the start of `run`.
#[inline(always)]
fn along_columns<S: Simd, const R: usize, const V: usize>(
    s: S,
    a: Matrix<'_>,
    run: Segment,
    first: usize,
    b: &[[S::f32s; V]],
    mut sums: [[S::f32s; V]; R],
) -> [[S::f32s; V]; R] {
    // Not `chunks`, which would begin with a division.
    let mut rest = &a.values[run.start + first * run.stride..];
    for b in b {
        let values: &[f32; R] = rest.first_chunk().expect("columns inside a row");
        rest = rest.get(run.stride..).unwrap_or_default();
        for i in 0..R {
            let x = s.splat(values[i]);
            for j in 0..V {
                sums[i][j] = s.fma(x, b[j], sums[i][j]);
            }
        }
    }
    sums
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Numbers from -0.5 to 0.5.
    pub(crate) fn noise(n: usize, seed: u32) -> Vec<f32> {
        let mut state = seed.wrapping_mul(2_654_435_761) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state as f32 / u32::MAX as f32 - 0.5
        };
        (0..n).map(|_| next()).collect()
    }

    /// One chain per element.
    fn chain(
        y: &[f32],
        [n, k, m]: [usize; 3],
        a: impl Fn(usize, usize) -> f32,
        b: impl Fn(usize, usize) -> f32,
    ) -> Vec<f32> {
        let fma = |x: f32, y: f32, z: f32| {
            if cfg!(target_arch = "x86_64") {
                x.mul_add(y, z)
            } else {
                x * y + z
            }
        };
        let element =
            |i: usize, j: usize| (0..k).fold(y[i * m + j], |sum, k| fma(a(i, k), b(k, j), sum));
        (0..n * m).map(|at| element(at / m, at % m)).collect()
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "every layout of both operands")]
    fn an_element_is_one_chain_however_the_matrices_lie() {
        for [n, k, m] in [
            [1, 1, 1],
            [3, 5, 7],
            [4, 64, 64],
            [9, 130, 80],
            [17, 300, 33],
            [5, 16, 200],
            [8, 70, 112],
        ] {
            let (a, b, y) = (noise(n * k, 1), noise(k * m, 2), noise(n * m, 3));
            let expected = chain(&y, [n, k, m], |i, j| a[i * k + j], |i, j| b[i * m + j]);
            let fresh = chain(
                &vec![0.0; n * m],
                [n, k, m],
                |i, j| a[i * k + j],
                |i, j| b[i * m + j],
            );
            let panels = Matrix::row_major(&b, k, m, m).to_packed(m);
            let b_panels = Matrix::packed(&panels, k, m);
            let a_panels = Matrix::row_major(&a, n, k, k).to_packed(k);
            let transposed: Vec<f32> = (0..k * n).map(|at| a[at % n * k + at / n]).collect();
            let t_panels = Matrix::row_major(&transposed, k, n, n).to_packed(n);
            let double = Matrix::row_major(&transposed, k, n, n).to_packed_transposed(k);
            assert!(
                *double == *a_panels,
                "a transposed copy of the transposed matrix"
            );
            for a in [
                Matrix::row_major(&a, n, k, k),
                Matrix::packed(&a_panels, n, k),
            ] {
                let mut sum = y.clone();
                multiply_f32(
                    a,
                    b_panels,
                    MatrixMut::row_major(&mut sum, n, m, m),
                    Accumulate::Add,
                );
                assert_eq!(sum, expected, "{n} {k} {m}");
                multiply_f32(
                    a,
                    b_panels,
                    MatrixMut::row_major(&mut sum, n, m, m),
                    Accumulate::Overwrite,
                );
                assert_eq!(sum, fresh, "{n} {k} {m}");
            }
            for a in [
                Matrix::row_major(&transposed, k, n, n),
                Matrix::packed(&t_panels, k, n),
            ] {
                let mut sum = y.clone();
                multiply_f32_transposed(
                    a,
                    b_panels,
                    MatrixMut::row_major(&mut sum, n, m, m),
                    Accumulate::Add,
                );
                assert_eq!(sum, expected, "{n} {k} {m}");
                let mut sum = Matrix::row_major(&y, n, m, m).to_packed(m);
                multiply_f32_transposed(
                    a,
                    b_panels,
                    MatrixMut::packed(&mut sum, n, m),
                    Accumulate::Add,
                );
                assert_eq!(
                    *sum,
                    *Matrix::row_major(&expected, n, m, m).to_packed(m),
                    "{n} {k} {m}"
                );
            }
        }
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "every layout of both operands")]
    fn bands_and_parts_of_matrices_give_the_same_elements() {
        for ([n, k, m], band_k, band_m) in [
            ([9, 12, 20], 4, 5),
            ([33, 96, 96], 32, 48),
            ([130, 160, 240], 80, 80),
            ([7, 140, 34], 70, 17),
        ] {
            let (a, b, y) = (noise(n * k, 1), noise(k * m, 2), noise(n * m, 3));
            let expected = chain(&y, [n, k, m], |i, j| a[i * k + j], |i, j| b[i * m + j]);
            let a_panels = Matrix::row_major(&a, n, k, k).to_packed(band_k);
            let b_panels = Matrix::row_major(&b, k, m, m).to_packed(band_m);
            let (a_bands, b_bands) = (
                Matrix::in_bands(&a_panels, n, k, band_k),
                Matrix::in_bands(&b_panels, k, m, band_m),
            );
            let rejoined = a_bands.to_packed(k);
            assert!(
                *rejoined == *Matrix::row_major(&a, n, k, k).to_packed(k),
                "bands into one"
            );
            let transposed = a_bands.to_packed_transposed(n);
            let mut sum = Matrix::row_major(&y, n, m, m).to_packed(band_m);
            // In two parts of rows.
            let (upper, lower) = (0..n / 3, n / 3..n);
            for rows in [upper, lower] {
                let y = MatrixMut::in_bands(&mut sum, n, m, band_m).row_range(rows.clone());
                multiply_f32(a_bands.row_range(rows), b_bands, y, Accumulate::Add);
            }
            let sum = Matrix::in_bands(&sum, n, m, band_m);
            for (i, expected) in expected.chunks(m).enumerate() {
                let mut row = vec![0.0; m];
                sum.zip_row(i, &mut row, |y, x| *y = x);
                assert_eq!(row, expected, "{n} {k} {m}");
            }
            let mut rows = y.clone();
            multiply_f32_transposed(
                Matrix::packed(&transposed, k, n),
                b_bands,
                MatrixMut::row_major(&mut rows, n, m, m),
                Accumulate::Add,
            );
            assert_eq!(rows, expected, "{n} {k} {m}");
            // The bands on the left, transposed, summed over parts of rows.
            let c = noise(n * m, 4);
            let c_panels = Matrix::row_major(&c, n, m, m).to_packed(band_m);
            let c_bands = Matrix::in_bands(&c_panels, n, m, band_m);
            let outer = chain(
                &vec![0.0; k * m],
                [k, n, m],
                |i, j| a[j * k + i],
                |i, j| c[i * m + j],
            );
            let mut sum = vec![0.0; k * m];
            for rows in [0..n / 2, n / 2..n] {
                let y = MatrixMut::row_major(&mut sum, k, m, m);
                multiply_f32_transposed(
                    a_bands.row_range(rows.clone()),
                    c_bands.row_range(rows),
                    y,
                    Accumulate::Add,
                );
            }
            assert_eq!(sum, outer, "{n} {k} {m}");
        }
    }
}
