//! Operands prepared for a product, and the product.

use super::f32_tiles::{multiply_f32, multiply_f32_transposed};
use super::layout::Order;
use super::matrix::{Accumulate, Matrix, MatrixMut};
use crate::flex::buffer_pool::Buffer;

/// A left-hand matrix, prepared for products.
pub(crate) enum Lhs<'a> {
    Plain(Matrix<'a>),
    /// Read transposed.
    Transposed(Matrix<'a>),
}

/// A right-hand matrix, prepared for products.
pub(crate) enum Rhs<'a> {
    /// Packed already.
    Packed(Matrix<'a>),
    /// A packed copy.
    Copy {
        panels: Buffer,
        shape: [usize; 2],
        /// Columns after which panels restart.
        band: usize,
    },
}

impl<'a> Matrix<'a> {
    pub(crate) fn as_lhs(self) -> Lhs<'a> {
        Lhs::Plain(self)
    }

    /// The transposed matrix as a left-hand one.
    pub(crate) fn as_lhs_transposed(self) -> Lhs<'a> {
        Lhs::Transposed(self)
    }

    /// As a right-hand matrix whose panels restart with every `band` of columns. A packed matrix
    /// keeps the bands it has.
    pub(crate) fn as_rhs(self, band: usize) -> Rhs<'a> {
        match self.layout.order {
            // The kernels read panels on the right, so only row-major matrices are copied.
            Order::Packed { .. } => Rhs::Packed(self),
            Order::RowMajor(_) => Rhs::Copy {
                panels: self.to_packed(band),
                shape: self.shape(),
                band,
            },
        }
    }

    /// The transposed matrix as a right-hand one, with bands of its columns.
    pub(crate) fn as_rhs_transposed(self, band: usize) -> Rhs<'static> {
        let [rows, cols] = self.shape();
        Rhs::Copy {
            // The kernels read a transposed matrix on the left only: here it is copied.
            panels: self.to_packed_transposed(band),
            shape: [cols, rows],
            band,
        }
    }
}

impl Rhs<'_> {
    fn panels(&self) -> Matrix<'_> {
        match self {
            Self::Packed(matrix) => *matrix,
            Self::Copy {
                panels,
                shape: [rows, cols],
                band,
            } => Matrix::in_bands(panels, *rows, *cols, *band),
        }
    }

    /// Rows and columns.
    pub(crate) fn shape(&self) -> [usize; 2] {
        self.panels().shape()
    }
}

/// `y = a b`, or `y += a b`.
pub(crate) fn multiply(a: &Lhs<'_>, b: &Rhs<'_>, y: MatrixMut<'_>, accumulate: Accumulate) {
    match a {
        Lhs::Plain(a) => multiply_f32(*a, b.panels(), y, accumulate),
        Lhs::Transposed(a) => multiply_f32_transposed(*a, b.panels(), y, accumulate),
    }
}
