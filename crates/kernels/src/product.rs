//! Products of matrices: the two forms everything else is made of.
//!
//! Every element of a product is one chain of fused multiply-adds in the order of the summed index,
//! starting from what is there. How the work is cut into blocks, vectors or threads therefore never
//! changes a bit.
//!
//! The right-hand matrix lies in *panels*: stripes of columns, as wide as one tile of accumulators,
//! one after the other. A tile of the result stays in registers while one row of a panel after the
//! other is multiplied by single numbers of the left-hand matrix, which is read where it lies.
//! Panels may start anew with every group of so many columns: each group is then a matrix of its
//! own in panels, one after the other, as the heads of attention want it.

use crate::Matmul;
use crate::flex::for_each;
use crate::memory::Buffer;
use crate::simd::{Lanes, SQUARE, dispatch, transpose};
use crate::split::{self, Parts};
use pulp::{Simd, WithSimd};
use std::ops::Range;
use std::sync::LazyLock;

/// Rows of a panel that are multiplied before the next rows of the left-hand matrix are taken: they
/// stay in the innermost cache.
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
        Widths {
            panel: vectors * S::F32_LANES,
            vector: S::F32_LANES,
        }
    }
}

static WIDTHS: LazyLock<Widths> = LazyLock::new(|| {
    dispatch(Widths {
        panel: 0,
        vector: 0,
    })
});

/// Numbers a row of `cols` columns takes in panels: the last panel is as narrow as whole vectors
/// allow.
pub(crate) fn padded(cols: usize) -> usize {
    cols.next_multiple_of(WIDTHS.vector)
}

/// The same for groups of columns: each of them as a matrix of its own.
pub(crate) fn padded_groups(cols: usize, group: usize) -> usize {
    cols / group.max(1) * padded(group)
}

/// One panel, or several that follow each other, of matrices with so many columns: the first
/// column, how many there are, and how many numbers a row takes.
pub(crate) struct Panel {
    first: usize,
    pub(crate) count: usize,
    wide: usize,
}

impl Panel {
    /// The panels in steps, as wide as the left-hand side of a product pays for: one, from which
    /// multiply-adds gain nothing in going wider, while parts are summed faster the longer the
    /// sums are.
    pub(crate) fn of(cols: usize, matmul: Matmul) -> impl Iterator<Item = Self> {
        let Widths { panel, vector } = *WIDTHS;
        let step = if matmul == Matmul::F32 {
            panel
        } else {
            128usize.next_multiple_of(panel)
        };
        (0..cols).step_by(step).map(move |first| {
            let count = step.min(cols - first);
            Self {
                first,
                count,
                wide: count.next_multiple_of(vector),
            }
        })
    }

    /// Its columns.
    pub(crate) fn columns(&self) -> Range<usize> {
        self.first..self.first + self.count
    }

    /// Where it lies in a matrix of so many rows.
    pub(crate) fn range(&self, rows: usize) -> Range<usize> {
        self.first * rows..(self.first + self.wide) * rows
    }
}

/// How the elements of a matrix lie in memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// Row by row, this far apart.
    Rows(usize),
    /// Panel by panel, each so many rows long; panels start anew with every group of columns.
    Panels { rows: usize, group: usize },
}

/// Columns that follow each other in the same rows.
#[derive(Clone, Copy)]
struct Run {
    /// Index of the first of them in row 0.
    start: usize,
    /// From row to row.
    stride: usize,
    /// How many there are.
    count: usize,
}

impl Layout {
    /// The columns from `column` on.
    #[inline(always)]
    fn run(self, cols: usize, column: usize, widths: Widths) -> Run {
        match self {
            Self::Rows(stride) => Run {
                start: column,
                stride,
                count: cols - column,
            },
            Self::Panels { rows, group } => {
                let (before, within) = if group == cols {
                    (0, column)
                } else {
                    (column / group, column % group)
                };
                let wide = group.next_multiple_of(widths.vector);
                let (panel, lane) = (within / widths.panel * widths.panel, within % widths.panel);
                let stride = widths.panel.min(wide - panel);
                Run {
                    start: (before * wide + panel) * rows + lane,
                    stride,
                    count: (widths.panel - lane).min(group - within),
                }
            }
        }
    }
}

/// Rows and columns on the way to being transposed.
#[repr(align(64))]
struct Square([u32; SQUARE * SQUARE]);

impl Square {
    fn lines(&mut self) -> &mut [[f32; SQUARE]] {
        bytemuck::cast_slice_mut::<u32, f32>(&mut self.0)
            .as_chunks_mut()
            .0
    }
}

/// A matrix to read.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    values: &'a [f32],
    /// Rows that come before.
    skip: usize,
    rows: usize,
    cols: usize,
    layout: Layout,
}

/// A matrix to write.
pub(crate) struct MatrixMut<'a> {
    values: &'a mut [f32],
    /// Rows that come before.
    skip: usize,
    rows: usize,
    cols: usize,
    layout: Layout,
}

impl<'a> Matrix<'a> {
    /// `cols` columns of rows that are `stride` apart.
    pub(crate) fn rows(values: &'a [f32], rows: usize, cols: usize, stride: usize) -> Self {
        assert!(
            cols <= stride && (rows == 0 || values.len() >= (rows - 1) * stride + cols),
            "the values of a matrix"
        );
        Self {
            values,
            skip: 0,
            rows,
            cols,
            layout: Layout::Rows(stride),
        }
    }

    /// In panels, `rows * padded(cols)` numbers.
    pub(crate) fn panels(values: &'a [f32], rows: usize, cols: usize) -> Self {
        Self::grouped(values, rows, cols, cols)
    }

    /// In panels that start anew with every `group` of columns, `rows * padded_groups(cols, group)`
    /// numbers.
    pub(crate) fn grouped(values: &'a [f32], rows: usize, cols: usize, group: usize) -> Self {
        assert_eq!(
            (values.len(), cols % group.max(1)),
            (rows * padded_groups(cols, group), 0),
            "the values of a matrix in panels"
        );
        Self {
            values,
            skip: 0,
            rows,
            cols,
            layout: Layout::Panels { rows, group },
        }
    }

    /// Some rows of the same matrix.
    pub(crate) fn part(self, rows: Range<usize>) -> Self {
        assert!(
            rows.end <= self.rows,
            "a matrix has no more rows than it has"
        );
        Self {
            skip: self.skip + rows.start,
            rows: rows.len(),
            ..self
        }
    }

    /// Rows and columns.
    pub(crate) fn shape(&self) -> [usize; 2] {
        [self.rows, self.cols]
    }

    #[inline(always)]
    fn run(self, column: usize, widths: Widths) -> Run {
        let run = self.layout.run(self.cols, column, widths);
        Run {
            start: run.start + self.skip * run.stride,
            ..run
        }
    }

    /// Where the columns from `column` on lie that lie side by side: where in row 0, how far apart
    /// from row to row, and how many.
    #[inline(always)]
    pub(crate) fn columns(self, column: usize) -> (usize, usize, usize) {
        let run = self.run(column, *WIDTHS);
        (run.start, run.stride, run.count)
    }

    /// The numbers that [`columns`](Self::columns) speaks of.
    pub(crate) fn values(self) -> &'a [f32] {
        self.values
    }

    /// Gives the elements of a row to `f` beside those of `target`.
    pub(crate) fn row(self, row: usize, target: &mut [f32], f: impl Fn(&mut f32, f32)) {
        let widths = *WIDTHS;
        let mut column = 0;
        while column < self.cols {
            let run = self.run(column, widths);
            let values = &self.values[run.start + row * run.stride..][..run.count];
            target[column..][..run.count]
                .iter_mut()
                .zip(values)
                .for_each(|(y, x)| f(y, *x));
            column += run.count;
        }
    }

    /// A row in one piece: where it lies, or, if it lies in several, gathered in `scratch`.
    pub(crate) fn whole_row<'b>(self, row: usize, scratch: &'b mut Vec<f32>) -> &'b [f32]
    where
        'a: 'b,
    {
        let run = self.run(0, *WIDTHS);
        if run.count == self.cols {
            return &self.values[run.start + row * run.stride..][..self.cols];
        }
        scratch.resize(self.cols, 0.0);
        self.row(row, scratch, |y, x| *y = x);
        scratch
    }

    /// Copies into panels, which start anew with every `group` of columns.
    pub(crate) fn pack(self, panels: &mut [f32], group: usize) {
        let widths = *WIDTHS;
        let layout = Layout::Panels {
            rows: self.rows,
            group,
        };
        let mut column = 0;
        while column < self.cols {
            let (from, to) = (
                self.run(column, widths),
                layout.run(self.cols, column, widths),
            );
            let count = from.count.min(to.count);
            // What fills the last vector of a group up is 0.
            let lane = column % group % widths.panel;
            let fill = if (column + count) % group == 0 {
                (lane + count).next_multiple_of(widths.vector) - lane
            } else {
                count
            };
            for row in 0..self.rows {
                let target = &mut panels[to.start + row * to.stride..][..fill];
                target[..count]
                    .copy_from_slice(&self.values[from.start + row * from.stride..][..count]);
                target[count..].fill(0.0);
            }
            column += count;
        }
    }

    /// Copies the transposed matrix into panels.
    pub(crate) fn pack_transposed(self, panels: &mut [f32]) {
        for (panel, values) in panels
            .chunks_mut((self.cols * WIDTHS.panel).max(1))
            .enumerate()
        {
            self.pack_panel_transposed(panel * WIDTHS.panel, values);
        }
    }

    /// Copies rows from `first` on, as many as there is place for, into one panel of the transposed
    /// matrix.
    fn pack_panel_transposed(self, first: usize, values: &mut [f32]) {
        let widths = *WIDTHS;
        let wide = values.len() / self.cols;
        let mut square = Square([0; SQUARE * SQUARE]);
        let mut column = 0;
        while column < self.cols {
            let run = self.run(column, widths);
            let row =
                |lane: usize| &self.values[run.start + (first + lane) * run.stride..][..run.count];
            let values = &mut values[column * wide..];
            let mut lane = 0;
            while lane < wide {
                let lanes = if lane + SQUARE <= wide && first + lane + SQUARE <= self.rows {
                    SQUARE
                } else {
                    1
                };
                let squares = if lanes == SQUARE {
                    run.count / SQUARE * SQUARE
                } else {
                    0
                };
                for at in (0..squares).step_by(SQUARE) {
                    for (i, line) in square.lines().iter_mut().enumerate() {
                        line.copy_from_slice(&row(lane + i)[at..][..SQUARE]);
                    }
                    transpose(std::slice::from_mut(&mut square.0));
                    for (i, line) in square.lines().iter().enumerate() {
                        values[(at + i) * wide + lane..][..SQUARE].copy_from_slice(line);
                    }
                }
                for lane in (lane..lane + lanes).filter(|_| squares < run.count) {
                    let places = values[squares * wide + lane..].iter_mut().step_by(wide);
                    if first + lane < self.rows {
                        places
                            .zip(&row(lane)[squares..])
                            .for_each(|(to, x)| *to = *x);
                    } else {
                        places.take(run.count).for_each(|to| *to = 0.0);
                    }
                }
                lane += lanes;
            }
            column += run.count;
        }
    }

    /// A copy in panels of its own, which start anew with every `group` of columns.
    pub(crate) fn packed(self, group: usize) -> Buffer {
        let mut panels = Buffer::new(self.rows * padded_groups(self.cols, group));
        self.pack(&mut panels, group);
        panels
    }

    /// A transposed copy in panels of its own, which start anew with every `group` of columns.
    pub(crate) fn packed_transposed(self, group: usize) -> Buffer {
        let mut panels = Buffer::new(self.cols * padded_groups(self.rows, group));
        let groups = panels
            .chunks_mut((self.cols * padded(group)).max(1))
            .enumerate();
        let tasks = groups.flat_map(|(index, values)| {
            let values = values
                .chunks_mut((self.cols * WIDTHS.panel).max(1))
                .enumerate();
            values.map(move |(panel, values)| (index * group, panel * WIDTHS.panel, values))
        });
        for_each(
            tasks.collect(),
            self.rows * self.cols,
            |(first, within, values)| {
                self.part(first..first + group)
                    .pack_panel_transposed(within, values);
            },
        );
        panels
    }
}

impl<'a> MatrixMut<'a> {
    /// `cols` columns of rows that are `stride` apart.
    pub(crate) fn rows(values: &'a mut [f32], rows: usize, cols: usize, stride: usize) -> Self {
        assert!(
            cols <= stride && (rows == 0 || values.len() >= (rows - 1) * stride + cols),
            "the values of a matrix"
        );
        Self {
            values,
            skip: 0,
            rows,
            cols,
            layout: Layout::Rows(stride),
        }
    }

    /// In panels, `rows * padded(cols)` numbers.
    pub(crate) fn panels(values: &'a mut [f32], rows: usize, cols: usize) -> Self {
        Self::grouped(values, rows, cols, cols)
    }

    /// In panels that start anew with every `group` of columns, `rows * padded_groups(cols, group)`
    /// numbers.
    pub(crate) fn grouped(values: &'a mut [f32], rows: usize, cols: usize, group: usize) -> Self {
        assert_eq!(
            (values.len(), cols % group.max(1)),
            (rows * padded_groups(cols, group), 0),
            "the values of a matrix in panels"
        );
        Self {
            values,
            skip: 0,
            rows,
            cols,
            layout: Layout::Panels { rows, group },
        }
    }

    /// Some rows of the same matrix.
    pub(crate) fn part(self, rows: Range<usize>) -> Self {
        assert!(
            rows.end <= self.rows,
            "a matrix has no more rows than it has"
        );
        Self {
            skip: self.skip + rows.start,
            rows: rows.len(),
            ..self
        }
    }

    /// Rows.
    pub(crate) fn height(&self) -> usize {
        self.rows
    }

    /// Rows and columns.
    pub(crate) fn shape(&self) -> [usize; 2] {
        [self.rows, self.cols]
    }

    /// Where the columns from `column` on lie that lie side by side: where in row 0, how far apart
    /// from row to row, and how many.
    #[inline(always)]
    pub(crate) fn columns(&self, column: usize) -> (usize, usize, usize) {
        let run = self.layout.run(self.cols, column, *WIDTHS);
        (run.start + self.skip * run.stride, run.stride, run.count)
    }

    /// The numbers that [`columns`](Self::columns) speaks of.
    pub(crate) fn values(&mut self) -> &mut [f32] {
        self.values
    }

    /// The places of a row from `column` on, as far as they lie side by side.
    #[inline(always)]
    pub(crate) fn places(&mut self, row: usize, column: usize) -> &mut [f32] {
        let run = self.layout.run(self.cols, column, *WIDTHS);
        &mut self.values[run.start + (self.skip + row) * run.stride..][..run.count]
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

/// `y = a b`, or `y += a b`; `b` lies in panels, and where `y` lies in panels too, in groups as
/// large.
///
/// Of `a` as many columns are used as `b` has rows.
pub(crate) fn product(a: Matrix<'_>, b: Matrix<'_>, y: MatrixMut<'_>, from: From) {
    assert!(
        a.cols >= b.rows && y.rows == a.rows && fit(&b, &y),
        "matrices fit"
    );
    dispatch(Product {
        a,
        b,
        y,
        from,
        transposed: false,
    });
}

/// `y = a^T b`, or `y += a^T b`; `b` lies in panels, and where `y` lies in panels too, in groups as
/// large.
///
/// Of `a` as many columns are used as `y` has rows.
pub(crate) fn product_transposed(a: Matrix<'_>, b: Matrix<'_>, y: MatrixMut<'_>, from: From) {
    assert!(
        a.rows == b.rows && y.rows <= a.cols && fit(&b, &y),
        "matrices fit"
    );
    dispatch(Product {
        a,
        b,
        y,
        from,
        transposed: true,
    });
}

/// A left-hand matrix, ready for products.
pub(crate) enum Left<'a> {
    /// As it lies.
    Rows(Matrix<'a>),
    /// Transposed.
    Columns(Matrix<'a>),
    /// Either in parts.
    Parts(Parts<'a>),
}

/// A right-hand matrix, ready for products.
pub(crate) enum Right<'a> {
    /// In panels.
    Panels(Matrix<'a>),
    /// Put into panels, which start anew with every so many columns: its rows, its columns, and
    /// these.
    Packed(Buffer, [usize; 2], usize),
    /// In parts.
    Parts(Parts<'a>),
}

impl<'a> Matrix<'a> {
    /// For products from the left.
    pub(crate) fn left(self, matmul: Matmul) -> Left<'a> {
        match split::parts_of(matmul) {
            None => Left::Rows(self),
            Some(parts) => Left::Parts(Parts::left(self, parts)),
        }
    }

    /// The transposed matrix, for products from the left.
    pub(crate) fn left_transposed(self, matmul: Matmul) -> Left<'a> {
        match split::parts_of(matmul) {
            None => Left::Columns(self),
            Some(parts) => Left::Parts(Parts::left_transposed(self, parts)),
        }
    }

    /// For products from the right, whose columns come in groups of so many. What lies in panels
    /// already has these groups.
    pub(crate) fn right(self, group: usize, matmul: Matmul) -> Right<'a> {
        match (split::parts_of(matmul), self.layout) {
            (Some(parts), _) => Right::Parts(Parts::right(self, parts, group)),
            (None, Layout::Panels { .. }) => Right::Panels(self),
            (None, Layout::Rows(_)) => Right::Packed(self.packed(group), self.shape(), group),
        }
    }

    /// The transposed matrix, for products from the right, whose columns come in groups of so many.
    pub(crate) fn right_transposed(self, group: usize, matmul: Matmul) -> Right<'static> {
        match split::parts_of(matmul) {
            None => Right::Packed(self.packed_transposed(group), [self.cols, self.rows], group),
            Some(parts) => Right::Parts(Parts::right_transposed(self, parts, group).whole()),
        }
    }

    /// Some columns of a matrix that lies row by row.
    pub(crate) fn side(self, columns: Range<usize>) -> Self {
        assert!(
            matches!(self.layout, Layout::Rows(_)) && columns.end <= self.cols,
            "columns that lie side by side"
        );
        Self {
            values: &self.values[columns.start.min(self.values.len())..],
            cols: columns.len(),
            ..self
        }
    }
}

impl<'a> Left<'a> {
    /// For several products.
    pub(crate) fn kept(self) -> Self {
        match self {
            Self::Parts(parts) => Self::Parts(parts.whole()),
            other => other,
        }
    }
}

impl<'a> Right<'a> {
    /// For several products.
    pub(crate) fn kept(self) -> Self {
        match self {
            Self::Parts(parts) => Self::Parts(parts.whole()),
            other => other,
        }
    }

    fn panels(&self) -> Matrix<'_> {
        match self {
            Self::Panels(matrix) => *matrix,
            Self::Packed(values, [rows, cols], group) => {
                Matrix::grouped(values, *rows, *cols, *group)
            }
            Self::Parts(_) => panic!("both sides of a product are in parts, or neither"),
        }
    }

    /// Rows and columns.
    pub(crate) fn shape(&self) -> [usize; 2] {
        match self {
            Self::Parts(parts) => parts.right_shape(),
            _ => self.panels().shape(),
        }
    }
}

/// `y = a b`, or `y += a b`, of two matrices made ready in the same way.
pub(crate) fn multiply(a: &Left<'_>, b: &Right<'_>, y: MatrixMut<'_>, from: From) {
    match (a, b) {
        (Left::Parts(a), Right::Parts(b)) => split::product(a, b, y, from),
        (Left::Rows(a), b) => product(*a, b.panels(), y, from),
        (Left::Columns(a), b) => product_transposed(*a, b.panels(), y, from),
        (Left::Parts(_), _) => panic!("both sides of a product are in parts, or neither"),
    }
}

/// Whether the columns of a right-hand matrix are those of a result.
fn fit(b: &Matrix<'_>, y: &MatrixMut<'_>) -> bool {
    let grouped = match (b.layout, y.layout) {
        (Layout::Panels { group: b, .. }, Layout::Panels { group: y, .. }) => b == y,
        (Layout::Panels { .. }, Layout::Rows(_)) => true,
        (Layout::Rows(_), _) => false,
    };
    y.cols == b.cols && grouped
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
        let widths = Widths {
            panel: 0,
            vector: 0,
        }
        .with_simd(s);
        let mut column = 0;
        while column < self.b.cols {
            let panel = self.b.run(column, widths);
            // Tiles of 16 accumulators, or 8 where there are 16 registers: enough to hide the
            // latency of an addition.
            match (S::REGISTER_COUNT >= 32, panel.stride / S::F32_LANES) {
                (true, 1) => self.stripe::<S, 16, 1>(s, column, panel, widths),
                (false, 1) => self.stripe::<S, 8, 1>(s, column, panel, widths),
                (true, 2) => self.stripe::<S, 8, 2>(s, column, panel, widths),
                (true, 3) => self.stripe::<S, 4, 3>(s, column, panel, widths),
                (true, _) => self.stripe::<S, 4, 4>(s, column, panel, widths),
                (false, _) => self.stripe::<S, 4, 2>(s, column, panel, widths),
            }
            column += panel.count;
        }
    }
}

impl Product<'_> {
    /// One panel of the result, `V` vectors wide, in tiles of `R` rows.
    #[inline(always)]
    fn stripe<S: Simd, const R: usize, const V: usize>(
        &mut self,
        s: S,
        column: usize,
        panel: Run,
        widths: Widths,
    ) {
        let (a, b) = (self.a, self.b);
        let (vectors, _) = S::as_simd_f32s(&b.values[panel.start..][..b.rows * panel.stride]);
        let rows = vectors.as_chunks::<V>().0;
        let target = self.y.layout.run(self.y.cols, column, widths);
        let sink = Sink {
            start: target.start + self.y.skip * target.stride,
            stride: target.stride,
            count: panel.count,
        };
        let y = &mut *self.y.values;
        for first in (0..b.rows).step_by(DEPTH) {
            let rows = &rows[first..(first + DEPTH).min(b.rows)];
            let fresh = first == 0 && self.from == From::Zero;
            let mut row = 0;
            while row < self.y.rows {
                let enough = row + R <= self.y.rows;
                if self.transposed {
                    // The columns of a tile are read in one piece.
                    let run = a.run(row, widths);
                    if enough && R <= run.count {
                        sink.tile::<S, R, V>(s, y, row, fresh, |s, sums| {
                            along_columns(s, a, run, first, rows, sums)
                        });
                        row += R;
                    } else {
                        sink.tile::<S, 1, V>(s, y, row, fresh, |s, sums| {
                            along_columns(s, a, run, first, rows, sums)
                        });
                        row += 1;
                    }
                } else if enough {
                    sink.tile::<S, R, V>(s, y, row, fresh, |s, sums| {
                        along_rows(s, a, row, first, rows, widths, sums)
                    });
                    row += R;
                } else {
                    sink.tile::<S, 1, V>(s, y, row, fresh, |s, sums| {
                        along_rows(s, a, row, first, rows, widths, sums)
                    });
                    row += 1;
                }
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
        let first = self.start + row * self.stride;
        if !fresh {
            let mut rest = &y[first..];
            for tile in &mut tile {
                if whole {
                    tile.copy_from_slice(&S::as_simd_f32s(&rest[..wide]).0[..V]);
                } else {
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
        let run = a.run(first + k, widths);
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

/// `sums[i] += sum over k of a[first + k][i] * b[k]`, columns counted from those of `run`.
#[inline(always)]
fn along_columns<S: Simd, const R: usize, const V: usize>(
    s: S,
    a: Matrix<'_>,
    run: Run,
    first: usize,
    b: &[[S::f32s; V]],
    mut sums: [[S::f32s; V]; R],
) -> [[S::f32s; V]; R] {
    // Not `chunks`: they would begin with a division.
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
            let panels = Matrix::rows(&b, k, m, m).packed(m);
            let b_panels = Matrix::panels(&panels, k, m);
            let a_panels = Matrix::rows(&a, n, k, k).packed(k);
            let transposed: Vec<f32> = (0..k * n).map(|at| a[at % n * k + at / n]).collect();
            let t_panels = Matrix::rows(&transposed, k, n, n).packed(n);
            let double = Matrix::rows(&transposed, k, n, n).packed_transposed(k);
            assert!(
                *double == *a_panels,
                "a transposed copy of the transposed matrix"
            );
            for a in [Matrix::rows(&a, n, k, k), Matrix::panels(&a_panels, n, k)] {
                let mut sum = y.clone();
                product(
                    a,
                    b_panels,
                    MatrixMut::rows(&mut sum, n, m, m),
                    From::Target,
                );
                assert_eq!(sum, expected, "{n} {k} {m}");
                product(a, b_panels, MatrixMut::rows(&mut sum, n, m, m), From::Zero);
                assert_eq!(sum, fresh, "{n} {k} {m}");
            }
            for a in [
                Matrix::rows(&transposed, k, n, n),
                Matrix::panels(&t_panels, k, n),
            ] {
                let mut sum = y.clone();
                product_transposed(
                    a,
                    b_panels,
                    MatrixMut::rows(&mut sum, n, m, m),
                    From::Target,
                );
                assert_eq!(sum, expected, "{n} {k} {m}");
                let mut sum = Matrix::rows(&y, n, m, m).packed(m);
                product_transposed(a, b_panels, MatrixMut::panels(&mut sum, n, m), From::Target);
                assert_eq!(
                    *sum,
                    *Matrix::rows(&expected, n, m, m).packed(m),
                    "{n} {k} {m}"
                );
            }
        }
    }

    #[test]
    fn groups_and_parts_of_matrices_give_the_same_elements() {
        for ([n, k, m], group_k, group_m) in [
            ([9, 12, 20], 4, 5),
            ([33, 96, 96], 32, 48),
            ([130, 160, 240], 80, 80),
            ([7, 140, 34], 70, 17),
        ] {
            let (a, b, y) = (noise(n * k, 1), noise(k * m, 2), noise(n * m, 3));
            let expected = chain(&y, [n, k, m], |i, j| a[i * k + j], |i, j| b[i * m + j]);
            let a_groups = Matrix::rows(&a, n, k, k).packed(group_k);
            let b_groups = Matrix::rows(&b, k, m, m).packed(group_m);
            let (a_grouped, b_grouped) = (
                Matrix::grouped(&a_groups, n, k, group_k),
                Matrix::grouped(&b_groups, k, m, group_m),
            );
            let regrouped = a_grouped.packed(k);
            assert!(
                *regrouped == *Matrix::rows(&a, n, k, k).packed(k),
                "groups into one"
            );
            let transposed = a_grouped.packed_transposed(n);
            let mut sum = Matrix::rows(&y, n, m, m).packed(group_m);
            // In two parts of rows.
            let (upper, lower) = (0..n / 3, n / 3..n);
            for rows in [upper, lower] {
                let y = MatrixMut::grouped(&mut sum, n, m, group_m).part(rows.clone());
                product(a_grouped.part(rows), b_grouped, y, From::Target);
            }
            let sum = Matrix::grouped(&sum, n, m, group_m);
            for (i, expected) in expected.chunks(m).enumerate() {
                let mut row = vec![0.0; m];
                sum.row(i, &mut row, |y, x| *y = x);
                assert_eq!(row, expected, "{n} {k} {m}");
            }
            let mut rows = y.clone();
            product_transposed(
                Matrix::panels(&transposed, k, n),
                b_grouped,
                MatrixMut::rows(&mut rows, n, m, m),
                From::Target,
            );
            assert_eq!(rows, expected, "{n} {k} {m}");
            // The groups on the left, transposed, summed over parts of rows.
            let c = noise(n * m, 4);
            let c_groups = Matrix::rows(&c, n, m, m).packed(group_m);
            let c_grouped = Matrix::grouped(&c_groups, n, m, group_m);
            let outer = chain(
                &vec![0.0; k * m],
                [k, n, m],
                |i, j| a[j * k + i],
                |i, j| c[i * m + j],
            );
            let mut sum = vec![0.0; k * m];
            for rows in [0..n / 2, n / 2..n] {
                let y = MatrixMut::rows(&mut sum, k, m, m);
                product_transposed(
                    a_grouped.part(rows.clone()),
                    c_grouped.part(rows),
                    y,
                    From::Target,
                );
            }
            assert_eq!(sum, outer, "{n} {k} {m}");
        }
    }
}
