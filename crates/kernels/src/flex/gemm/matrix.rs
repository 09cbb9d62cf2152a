//! A matrix: a layout and a slice. And what a product does with one.

use super::layout::{Layout2d, Order, Segment, WIDTHS, Widths};
use std::ops::{Deref, DerefMut, Range};

/// What a product does with its target.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accumulate {
    /// `y = a b`.
    Overwrite,
    /// `y += a b`.
    Add,
}

/// A matrix over the slice `V`.
#[derive(Clone, Copy)]
pub(crate) struct MatrixOver<V> {
    pub(super) values: V,
    pub(super) layout: Layout2d,
}

/// A matrix to read.
pub(crate) type Matrix<'a> = MatrixOver<&'a [f32]>;

/// A matrix to write.
pub(crate) type MatrixMut<'a> = MatrixOver<&'a mut [f32]>;

impl<V: Deref<Target = [f32]>> MatrixOver<V> {
    /// `cols` columns of rows that are `stride` apart.
    pub(crate) fn row_major(values: V, rows: usize, cols: usize, stride: usize) -> Self {
        Self::new(values, Layout2d::row_major(rows, cols, stride))
    }

    /// Packed: `rows * padded(cols)` numbers.
    pub(crate) fn packed(values: V, rows: usize, cols: usize) -> Self {
        Self::in_bands(values, rows, cols, cols)
    }

    /// Packed, with panels that restart with every `band` of columns: `rows * padded_bands(cols,
    /// band)` numbers.
    pub(crate) fn in_bands(values: V, rows: usize, cols: usize, band: usize) -> Self {
        Self::new(values, Layout2d::packed(rows, cols, band))
    }

    fn new(values: V, layout: Layout2d) -> Self {
        assert!(layout.fits(values.len()), "the values of a matrix");
        Self { values, layout }
    }

    /// Some rows of the same matrix.
    pub(crate) fn row_range(self, rows: Range<usize>) -> Self {
        Self {
            layout: self.layout.row_range(rows),
            ..self
        }
    }

    /// Rows and columns.
    pub(crate) fn shape(&self) -> [usize; 2] {
        [self.layout.rows, self.layout.cols]
    }

    /// The columns from `column` on that are adjacent in memory.
    #[inline(always)]
    pub(crate) fn segment(&self, column: usize) -> Segment {
        self.layout.segment(column, *WIDTHS)
    }
}

impl<'a> Matrix<'a> {
    #[inline(always)]
    pub(super) fn segment_for(self, column: usize, widths: Widths) -> Segment {
        self.layout.segment(column, widths)
    }

    /// Some columns of a row-major matrix.
    pub(crate) fn column_range(self, columns: Range<usize>) -> Self {
        assert!(
            matches!(self.layout.order, Order::RowMajor(_)) && columns.end <= self.layout.cols,
            "columns of a row-major matrix"
        );
        Self {
            // With an unchanged row stride the first column is only a later start.
            values: &self.values[columns.start.min(self.values.len())..],
            layout: Layout2d {
                cols: columns.len(),
                ..self.layout
            },
        }
    }

    /// Calls `f` for every element of a row with the element of `target` in the same column.
    pub(crate) fn zip_row(self, row: usize, target: &mut [f32], f: impl Fn(&mut f32, f32)) {
        let widths = *WIDTHS;
        let mut column = 0;
        while column < self.layout.cols {
            let segment = self.segment_for(column, widths);
            let values = &self.values[segment.start + row * segment.stride..][..segment.count];
            target[column..][..segment.count]
                .iter_mut()
                .zip(values)
                .for_each(|(y, x)| f(y, *x));
            column += segment.count;
        }
    }

    /// Whether a row has a number other than zero.
    pub(crate) fn has_nonzero(self, row: usize) -> bool {
        let mut column = 0;
        while column < self.layout.cols {
            let segment = self.segment(column);
            let values = &self.values[segment.start + row * segment.stride..][..segment.count];
            if values.iter().any(|value| *value != 0.0) {
                return true;
            }
            column += segment.count;
        }
        false
    }

    /// Copies some rows of a whole matrix to one of those rows alone, of the same order.
    pub(crate) fn copy_rows(self, rows: &[usize], mut to: &mut [f32]) {
        let mut column = 0;
        while column < self.layout.cols {
            let Segment {
                start,
                stride,
                count,
            } = self.segment(column);
            for row in rows {
                let (now, later) = to.split_at_mut(stride);
                now.copy_from_slice(&self.values[start + row * stride..][..stride]);
                to = later;
            }
            column += count;
        }
    }

    /// A row as one slice: borrowed where it lies in one segment, else gathered in `scratch`,
    /// which holds a row.
    pub(crate) fn contiguous_row<'b>(self, row: usize, scratch: &'b mut [f32]) -> &'b [f32]
    where
        'a: 'b,
    {
        let segment = self.segment(0);
        let cols = self.layout.cols;
        if segment.count == cols {
            return &self.values[segment.start + row * segment.stride..][..cols];
        }
        let gathered = &mut scratch[..cols];
        self.zip_row(row, gathered, |y, x| *y = x);
        gathered
    }
}

impl<V: DerefMut<Target = [f32]>> MatrixOver<V> {
    /// The elements of a row from `column` on that are adjacent in memory.
    #[inline(always)]
    pub(crate) fn segment_mut(&mut self, row: usize, column: usize) -> &mut [f32] {
        let segment = self.layout.segment(column, *WIDTHS);
        &mut self.values[segment.start + row * segment.stride..][..segment.count]
    }
}
