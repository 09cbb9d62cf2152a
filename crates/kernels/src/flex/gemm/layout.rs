//! How matrices lie in memory: row-major, or packed into column panels.
//!
//! A packed matrix is cut into *panels*: stripes of columns as wide as one tile of accumulators,
//! one after the other. Within a panel, rows follow each other. The last panel is narrower: as
//! narrow as whole vectors allow.
//!
//! Panels may restart with every *band* of columns. Each band is then a separate packed matrix.
//! Attention uses one band per head.

use crate::flex::simd::dispatch;
use pulp::{Simd, WithSimd};
use std::ops::Range;
use std::sync::LazyLock;

/// Width of a panel on this machine, and of the vectors it consists of.
#[derive(Clone, Copy)]
pub(super) struct Widths {
    pub(super) panel: usize,
    pub(super) vector: usize,
}

/// Asks for the widths of an instruction set.
pub(super) struct WidthsOf;

impl WithSimd for WidthsOf {
    type Output = Widths;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> Widths {
        // A tile of 4 x 4 accumulators needs 32 registers, one of 4 x 2 fits into 16.
        let vectors = if S::REGISTER_COUNT >= 32 { 4 } else { 2 };
        Widths {
            panel: vectors * S::F32_LANES,
            vector: S::F32_LANES,
        }
    }
}

pub(super) static WIDTHS: LazyLock<Widths> = LazyLock::new(|| dispatch(WidthsOf));

/// Columns of a whole panel.
pub(crate) fn panel_width() -> usize {
    WIDTHS.panel
}

/// Columns of one packed row, padding included.
pub(crate) fn padded(cols: usize) -> usize {
    cols.next_multiple_of(WIDTHS.vector)
}

/// The same where panels restart with every `band` of columns.
pub(crate) fn padded_bands(cols: usize, band: usize) -> usize {
    cols / band.max(1) * padded(band)
}

/// A run of consecutive column panels: first column, column count, padded row width.
pub(crate) struct Panel {
    first: usize,
    pub(crate) count: usize,
    width: usize,
}

impl Panel {
    /// Cuts `cols` columns into steps of the best width for a product with these panels: the sums
    /// over a step are long enough to be fast, and its activations stay in L1.
    pub(crate) fn steps(cols: usize) -> impl Iterator<Item = Self> {
        let Widths { panel, vector } = *WIDTHS;
        // Whole panels, so that every step is a packed matrix and begins at a panel.
        let step = 64usize.next_multiple_of(panel);
        (0..cols).step_by(step).map(move |first| {
            let count = step.min(cols - first);
            Self {
                first,
                count,
                width: count.next_multiple_of(vector),
            }
        })
    }

    /// A band of columns of a matrix whose panels restart with every band.
    pub(crate) fn band(first: usize, count: usize) -> Self {
        Self {
            first,
            count,
            width: padded(count),
        }
    }

    pub(crate) fn columns(&self) -> Range<usize> {
        self.first..self.first + self.count
    }

    /// Where it lies in a packed matrix of `rows` rows.
    pub(crate) fn range(&self, rows: usize) -> Range<usize> {
        self.first * rows..(self.first + self.width) * rows
    }
}

/// Order of the elements in memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Row-major, with this row stride.
    RowMajor(usize),
    /// Packed into panels of `rows` rows; panels restart with every `band` of columns.
    Packed { rows: usize, band: usize },
}

/// Consecutive columns that are adjacent in memory.
#[derive(Clone, Copy)]
pub(crate) struct Segment {
    /// Index of the first of them in row 0.
    pub(crate) start: usize,
    /// From row to row.
    pub(crate) stride: usize,
    /// Number of columns.
    pub(crate) count: usize,
}

/// Shape and order of a matrix, which may be a range of the rows of a larger one.
#[derive(Clone, Copy)]
pub(super) struct Layout2d {
    /// Rows of the larger matrix before the first.
    pub(super) skip: usize,
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) order: Order,
}

impl Layout2d {
    pub(super) fn row_major(rows: usize, cols: usize, stride: usize) -> Self {
        Self {
            skip: 0,
            rows,
            cols,
            order: Order::RowMajor(stride),
        }
    }

    pub(super) fn packed(rows: usize, cols: usize, band: usize) -> Self {
        Self {
            skip: 0,
            rows,
            cols,
            order: Order::Packed { rows, band },
        }
    }

    /// Whether `len` numbers are a whole matrix of this layout.
    pub(super) fn fits(&self, len: usize) -> bool {
        let Self { rows, cols, .. } = *self;
        match self.order {
            Order::RowMajor(stride) => {
                cols <= stride && (rows == 0 || len >= (rows - 1) * stride + cols)
            }
            Order::Packed { band, .. } => {
                // Packed values are a whole matrix: the padding has a place too.
                len == rows * padded_bands(cols, band) && cols % band.max(1) == 0
            }
        }
    }

    pub(super) fn row_range(self, rows: Range<usize>) -> Self {
        assert!(rows.end <= self.rows, "rows inside the matrix");
        Self {
            skip: self.skip + rows.start,
            rows: rows.len(),
            ..self
        }
    }

    /// The columns from `column` on that are adjacent in memory.
    #[inline(always)]
    pub(super) fn segment(self, column: usize, widths: Widths) -> Segment {
        let segment = match self.order {
            Order::RowMajor(stride) => Segment {
                start: column,
                stride,
                count: self.cols - column,
            },
            Order::Packed { rows, band } => {
                // One band is the common case, and spares the divisions.
                let (before, within) = if band == self.cols {
                    (0, column)
                } else {
                    (column / band, column % band)
                };
                let padded = band.next_multiple_of(widths.vector);
                let (panel, lane) = (within / widths.panel * widths.panel, within % widths.panel);
                // The last panel of a band is narrower: only whole vectors are kept.
                let stride = widths.panel.min(padded - panel);
                Segment {
                    start: (before * padded + panel) * rows + lane,
                    stride,
                    count: (widths.panel - lane).min(band - within),
                }
            }
        };
        Segment {
            start: segment.start + self.skip * segment.stride,
            ..segment
        }
    }
}
