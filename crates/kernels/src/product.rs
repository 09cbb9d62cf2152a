//! Products of matrices: the two forms everything else is made of.
//!
//! Every element of a product is one chain of fused multiply-adds in the order of the summed index, starting from what is there.
//! How the work is cut into blocks, vectors or threads therefore never changes a bit.
//!
//! The right-hand matrix lies in *panels*: stripes of columns, as wide as one tile of accumulators, one after the other. A tile of
//! the result stays in registers while one row of a panel after the other is multiplied by single numbers of the left-hand matrix,
//! which is read where it lies.

use crate::flex::for_each;
use crate::memory::Buffer;
use crate::simd::{Lanes, dispatch};
use pulp::{Simd, WithSimd};
use std::sync::LazyLock;

/// Rows of a panel that are multiplied before the next rows of the left-hand matrix are taken: they stay in the innermost cache.
const DEPTH: usize = 128;

/// Width of a panel, and of the vectors it consists of, on this machine.
#[derive(Clone, Copy)]
struct Widths {
    panel: usize,
    vector: usize,
}

impl WithSimd for Widths {
    type Output = Widths;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> Widths {
        let vectors = if S::REGISTER_COUNT >= 32 { 4 } else { 2 };
        Widths { panel: vectors * S::F32_LANES, vector: S::F32_LANES }
    }
}

static WIDTHS: LazyLock<Widths> = LazyLock::new(|| dispatch(Widths { panel: 0, vector: 0 }));

/// Numbers a row of `cols` columns takes in panels: the last panel is as narrow as whole vectors allow.
pub(crate) fn padded(cols: usize) -> usize {
    cols.next_multiple_of(WIDTHS.vector)
}

/// How the elements of a matrix lie in memory.
#[derive(Clone, Copy)]
enum Layout {
    /// Row by row, this far apart.
    Rows(usize),
    /// Panel by panel, each so many rows long.
    Panels(usize),
}

impl Layout {
    /// Where a panel of a matrix starts, and how far apart its rows are.
    #[inline(always)]
    fn panel(self, cols: usize, panel: usize, widths: Widths) -> (usize, usize) {
        let first = panel * widths.panel;
        match self {
            Self::Rows(stride) => (first, stride),
            Self::Panels(rows) => (first * rows, widths.panel.min(cols.next_multiple_of(widths.vector) - first)),
        }
    }
}

/// A matrix to read.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    values: &'a [f32],
    rows: usize,
    cols: usize,
    layout: Layout,
}

/// A matrix to write.
pub(crate) struct MatrixMut<'a> {
    values: &'a mut [f32],
    rows: usize,
    cols: usize,
    layout: Layout,
}

impl<'a> Matrix<'a> {
    /// `cols` columns of rows that are `stride` apart.
    pub(crate) fn rows(values: &'a [f32], rows: usize, cols: usize, stride: usize) -> Self {
        assert!(cols <= stride && (rows == 0 || values.len() >= (rows - 1) * stride + cols), "the values of a matrix");
        Self { values, rows, cols, layout: Layout::Rows(stride) }
    }

    /// In panels, `rows * padded(cols)` numbers.
    pub(crate) fn panels(values: &'a [f32], rows: usize, cols: usize) -> Self {
        assert_eq!(values.len(), rows * padded(cols), "the values of a matrix in panels");
        Self { values, rows, cols, layout: Layout::Panels(rows) }
    }

    /// The same matrix without its last rows.
    pub(crate) fn first_rows(self, rows: usize) -> Self {
        assert!(rows <= self.rows, "a matrix has no more rows than it has");
        Self { rows, ..self }
    }

    /// Rows and columns.
    pub(crate) fn shape(&self) -> [usize; 2] {
        [self.rows, self.cols]
    }

    /// Gives the elements of a row to `f` beside those of `target`.
    pub(crate) fn row(self, row: usize, target: &mut [f32], f: impl Fn(&mut f32, f32)) {
        let widths = *WIDTHS;
        for (panel, target) in target.chunks_mut(widths.panel).enumerate() {
            let (start, stride) = self.layout.panel(self.cols, panel, widths);
            target.iter_mut().zip(&self.values[start + row * stride..]).for_each(|(y, x)| f(y, *x));
        }
    }

    /// Copies into panels.
    pub(crate) fn pack(self, panels: &mut [f32]) {
        let widths = *WIDTHS;
        for panel in 0..self.cols.div_ceil(widths.panel) {
            let (from, stride) = self.layout.panel(self.cols, panel, widths);
            let (to, wide) = Layout::Panels(self.rows).panel(self.cols, panel, widths);
            let count = widths.panel.min(self.cols - panel * widths.panel);
            for (row, target) in panels[to..][..self.rows * wide].chunks_exact_mut(wide).enumerate() {
                target[..count].copy_from_slice(&self.values[from + row * stride..][..count]);
                target[count..].fill(0.0);
            }
        }
    }

    /// Copies the transposed matrix into panels.
    pub(crate) fn pack_transposed(self, panels: &mut [f32]) {
        for (panel, values) in panels.chunks_mut((self.cols * WIDTHS.panel).max(1)).enumerate() {
            self.pack_panel_transposed(panel, values);
        }
    }

    /// Copies the rows that make one panel of the transposed matrix.
    fn pack_panel_transposed(self, panel: usize, values: &mut [f32]) {
        let Layout::Rows(stride) = self.layout else { unreachable!("only matrices that lie in rows are transposed") };
        let (first, wide) = (panel * WIDTHS.panel, values.len() / self.cols);
        for lane in 0..wide {
            let lanes = values[lane..].iter_mut().step_by(wide);
            match self.values.get((first + lane) * stride..) {
                Some(row) if first + lane < self.rows => lanes.zip(&row[..self.cols]).for_each(|(to, x)| *to = *x),
                _ => lanes.for_each(|to| *to = 0.0),
            }
        }
    }

    /// A copy in panels of its own.
    pub(crate) fn packed(self) -> Buffer {
        let mut panels = Buffer::new(self.rows * padded(self.cols));
        self.pack(&mut panels);
        panels
    }

    /// A transposed copy in panels of its own.
    pub(crate) fn packed_transposed(self) -> Buffer {
        let mut panels = Buffer::new(self.cols * padded(self.rows));
        let tasks = panels.chunks_mut((self.cols * WIDTHS.panel).max(1)).enumerate().collect();
        for_each(tasks, self.rows * self.cols, |(panel, values)| self.pack_panel_transposed(panel, values));
        panels
    }
}

impl<'a> MatrixMut<'a> {
    /// `cols` columns of rows that are `stride` apart.
    pub(crate) fn rows(values: &'a mut [f32], rows: usize, cols: usize, stride: usize) -> Self {
        assert!(cols <= stride && (rows == 0 || values.len() >= (rows - 1) * stride + cols), "the values of a matrix");
        Self { values, rows, cols, layout: Layout::Rows(stride) }
    }

    /// In panels, `rows * padded(cols)` numbers.
    pub(crate) fn panels(values: &'a mut [f32], rows: usize, cols: usize) -> Self {
        assert_eq!(values.len(), rows * padded(cols), "the values of a matrix in panels");
        Self { values, rows, cols, layout: Layout::Panels(rows) }
    }
}

/// What a product starts from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum From {
    /// Nothing: the target is overwritten.
    Zero,
    /// What is in the target.
    Target,
}

/// `y = a b`, or `y += a b`; `b` lies in panels.
pub(crate) fn product(a: Matrix<'_>, b: Matrix<'_>, y: MatrixMut<'_>, from: From) {
    assert!(a.cols == b.rows && y.rows == a.rows && y.cols == b.cols && matches!(b.layout, Layout::Panels(_)), "matrices fit");
    dispatch(Product { a, b, y, from, transposed: false });
}

/// `y = a^T b`, or `y += a^T b`; `b` lies in panels.
pub(crate) fn product_transposed(a: Matrix<'_>, b: Matrix<'_>, y: MatrixMut<'_>, from: From) {
    assert!(a.rows == b.rows && y.rows == a.cols && y.cols == b.cols && matches!(b.layout, Layout::Panels(_)), "matrices fit");
    dispatch(Product { a, b, y, from, transposed: true });
}

struct Product<'a> {
    a: Matrix<'a>,
    b: Matrix<'a>,
    y: MatrixMut<'a>,
    from: From,
    transposed: bool,
}

impl WithSimd for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, s: S) {
        let widths = Widths { panel: 0, vector: 0 }.with_simd(s);
        for panel in 0..self.b.cols.div_ceil(widths.panel) {
            let vectors = widths.panel.min(self.b.cols.next_multiple_of(widths.vector) - panel * widths.panel) / S::F32_LANES;
            // Tiles of 16 accumulators, or 8 where there are 16 registers: enough to hide the latency of an addition.
            match (S::REGISTER_COUNT >= 32, vectors) {
                (_, 1) => self.stripe::<S, 8, 1>(s, panel, widths),
                (true, 2) => self.stripe::<S, 8, 2>(s, panel, widths),
                (true, 3) => self.stripe::<S, 4, 3>(s, panel, widths),
                (true, _) => self.stripe::<S, 4, 4>(s, panel, widths),
                (false, _) => self.stripe::<S, 4, 2>(s, panel, widths),
            }
        }
    }
}

impl Product<'_> {
    /// One panel of the result, `V` vectors wide, in tiles of `R` rows.
    #[inline(always)]
    fn stripe<S: Simd, const R: usize, const V: usize>(&mut self, s: S, panel: usize, widths: Widths) {
        let (a, b) = (self.a, self.b);
        let (start, wide) = b.layout.panel(b.cols, panel, widths);
        let (vectors, _) = S::as_simd_f32s(&b.values[start..][..b.rows * wide]);
        let rows = vectors.as_chunks::<V>().0;
        let mut sink = Sink { start: 0, stride: 0, count: widths.panel.min(b.cols - panel * widths.panel) };
        (sink.start, sink.stride) = self.y.layout.panel(self.y.cols, panel, widths);
        let y = &mut *self.y.values;
        for first in (0..b.rows).step_by(DEPTH) {
            let rows = &rows[first..(first + DEPTH).min(b.rows)];
            let fresh = first == 0 && self.from == From::Zero;
            let mut row = 0;
            while row < self.y.rows {
                let whole = row + R <= self.y.rows;
                match (self.transposed, whole) {
                    (false, true) => sink.tile::<S, R, V>(s, y, row, fresh, |s, sums| along_rows(s, a, row, first, rows, widths, sums)),
                    (false, false) => sink.tile::<S, 1, V>(s, y, row, fresh, |s, sums| along_rows(s, a, row, first, rows, widths, sums)),
                    (true, true) => sink.tile::<S, R, V>(s, y, row, fresh, |s, sums| along_columns(s, a, row, first, rows, widths, sums)),
                    (true, false) => sink.tile::<S, 1, V>(s, y, row, fresh, |s, sums| along_columns(s, a, row, first, rows, widths, sums)),
                }
                row += if whole { R } else { 1 };
            }
        }
    }
}

/// Where a stripe of the result goes.
struct Sink {
    start: usize,
    stride: usize,
    /// Columns that exist; the vectors may reach past them.
    count: usize,
}

impl Sink {
    /// Takes `R` rows from the target, or zeros, and puts back what `sums` makes of them.
    #[inline(always)]
    fn tile<S: Simd, const R: usize, const V: usize>(
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
        if !fresh {
            for (i, tile) in tile.iter_mut().enumerate() {
                let source = &y[self.start + (row + i) * self.stride..];
                if whole {
                    tile.copy_from_slice(&S::as_simd_f32s(&source[..wide]).0[..V]);
                } else {
                    let mut line = [[s.zero(); V]];
                    bytemuck::cast_slice_mut::<_, f32>(&mut line)[..self.count].copy_from_slice(&source[..self.count]);
                    [*tile] = line;
                }
            }
        }
        let tile = sums(s, tile);
        for (i, tile) in tile.iter().enumerate() {
            let target = &mut y[self.start + (row + i) * self.stride..];
            if whole {
                S::as_mut_simd_f32s(&mut target[..wide]).0.copy_from_slice(tile);
            } else {
                let line = [*tile];
                target[..self.count].copy_from_slice(&bytemuck::cast_slice::<_, f32>(&line)[..self.count]);
            }
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
        let (panel, within) = ((first + k) / widths.panel, (first + k) % widths.panel);
        let (start, stride) = a.layout.panel(a.cols, panel, widths);
        let n = if matches!(a.layout, Layout::Rows(_)) { b.len() - k } else { (widths.panel - within).min(b.len() - k) };
        let mut rows = [&[][..]; R];
        for (i, slice) in rows.iter_mut().enumerate() {
            *slice = &a.values[start + (row + i) * stride + within..][..n];
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

/// `sums[i] += sum over k of a[first + k][column + i] * b[k]`.
#[inline(always)]
fn along_columns<S: Simd, const R: usize, const V: usize>(
    s: S,
    a: Matrix<'_>,
    column: usize,
    first: usize,
    b: &[[S::f32s; V]],
    widths: Widths,
    mut sums: [[S::f32s; V]; R],
) -> [[S::f32s; V]; R] {
    let (start, stride) = a.layout.panel(a.cols, column / widths.panel, widths);
    let values = &a.values[start + first * stride + column % widths.panel..];
    for (b, values) in b.iter().zip(values.chunks(stride)) {
        let values: &[f32; R] = values.first_chunk().expect("columns inside a row");
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
mod tests {
    use super::*;

    fn noise(n: usize, seed: u32) -> Vec<f32> {
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
    fn chain(y: &[f32], [n, k, m]: [usize; 3], a: impl Fn(usize, usize) -> f32, b: impl Fn(usize, usize) -> f32) -> Vec<f32> {
        let fma = |x: f32, y: f32, z: f32| if cfg!(target_arch = "x86_64") { x.mul_add(y, z) } else { x * y + z };
        let element = |i: usize, j: usize| (0..k).fold(y[i * m + j], |sum, k| fma(a(i, k), b(k, j), sum));
        (0..n * m).map(|at| element(at / m, at % m)).collect()
    }

    #[test]
    fn an_element_is_one_chain_however_the_matrices_lie() {
        for [n, k, m] in [[1, 1, 1], [3, 5, 7], [4, 64, 64], [9, 130, 80], [17, 300, 33], [5, 16, 200], [8, 70, 112]] {
            let (a, b, y) = (noise(n * k, 1), noise(k * m, 2), noise(n * m, 3));
            let expected = chain(&y, [n, k, m], |i, j| a[i * k + j], |i, j| b[i * m + j]);
            let fresh = chain(&vec![0.0; n * m], [n, k, m], |i, j| a[i * k + j], |i, j| b[i * m + j]);
            let panels = Matrix::rows(&b, k, m, m).packed();
            let b_panels = Matrix::panels(&panels, k, m);
            let a_panels = Matrix::rows(&a, n, k, k).packed();
            let transposed: Vec<f32> = (0..k * n).map(|at| a[at % n * k + at / n]).collect();
            let t_panels = Matrix::rows(&transposed, k, n, n).packed();
            let double = Matrix::rows(&transposed, k, n, n).packed_transposed();
            assert!(*double == *a_panels, "a transposed copy of the transposed matrix");
            for a in [Matrix::rows(&a, n, k, k), Matrix::panels(&a_panels, n, k)] {
                let mut sum = y.clone();
                product(a, b_panels, MatrixMut::rows(&mut sum, n, m, m), From::Target);
                assert_eq!(sum, expected, "{n} {k} {m}");
                product(a, b_panels, MatrixMut::rows(&mut sum, n, m, m), From::Zero);
                assert_eq!(sum, fresh, "{n} {k} {m}");
            }
            for a in [Matrix::rows(&transposed, k, n, n), Matrix::panels(&t_panels, k, n)] {
                let mut sum = y.clone();
                product_transposed(a, b_panels, MatrixMut::rows(&mut sum, n, m, m), From::Target);
                assert_eq!(sum, expected, "{n} {k} {m}");
                let mut sum = Matrix::rows(&y, n, m, m).packed();
                product_transposed(a, b_panels, MatrixMut::panels(&mut sum, n, m), From::Target);
                assert_eq!(*sum, *Matrix::rows(&expected, n, m, m).packed(), "{n} {k} {m}");
            }
        }
    }
}
