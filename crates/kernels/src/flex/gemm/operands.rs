//! Operands prepared for the arithmetic of a product, and the product.

use super::bf16_parts::Bf16Parts;
use super::bf16_product::multiply_bf16;
use super::f32_tiles::{multiply_f32, multiply_f32_transposed};
use super::formats::{parts_of, tf32};
use super::layout::Order;
use super::matrix::{Accumulate, Matrix, MatrixMut};
use crate::Matmul;
use crate::flex::buffer_pool::Buffer;

/// A left-hand matrix, prepared for products.
pub(crate) enum Lhs<'a> {
    Plain(Matrix<'a>),
    /// Read transposed.
    Transposed(Matrix<'a>),
    /// A packed copy, rounded, that is read transposed or not.
    Rounded {
        panels: Buffer,
        shape: [usize; 2],
        transposed: bool,
    },
    /// Either, in bfloat16 parts.
    Bf16(Bf16Parts<'a>),
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
        group: usize,
    },
    /// In bfloat16 parts.
    Bf16(Bf16Parts<'a>),
}

/// A packed copy as the factors of a product: no processor multiplies TF32, so that it is emulated.
fn rounded(mut panels: Buffer, matmul: Matmul) -> Buffer {
    if matmul == Matmul::Tf32 {
        panels.iter_mut().for_each(|x| *x = tf32(*x));
    }
    panels
}

impl<'a> Matrix<'a> {
    pub(crate) fn as_lhs(self, matmul: Matmul) -> Lhs<'a> {
        match parts_of(matmul) {
            None if matmul == Matmul::Tf32 => self.as_rounded_lhs(false),
            None => Lhs::Plain(self),
            Some(parts) => Lhs::Bf16(Bf16Parts::lhs(self, parts)),
        }
    }

    /// The transposed matrix as a left-hand one.
    pub(crate) fn as_lhs_transposed(self, matmul: Matmul) -> Lhs<'a> {
        match parts_of(matmul) {
            None if matmul == Matmul::Tf32 => self.as_rounded_lhs(true),
            None => Lhs::Transposed(self),
            Some(parts) => Lhs::Bf16(Bf16Parts::lhs_transposed(self, parts)),
        }
    }

    fn as_rounded_lhs(self, transposed: bool) -> Lhs<'a> {
        let shape = self.shape();
        Lhs::Rounded {
            panels: rounded(self.to_packed(shape[1]), Matmul::Tf32),
            shape,
            transposed,
        }
    }

    /// As a right-hand matrix whose panels restart with every `group` of columns. A packed matrix
    /// keeps the groups it has.
    pub(crate) fn as_rhs(self, group: usize, matmul: Matmul) -> Rhs<'a> {
        match (parts_of(matmul), self.layout.order) {
            (Some(parts), _) => Rhs::Bf16(Bf16Parts::rhs(self, parts, group)),
            // The kernels read panels on the right, so only row-major matrices are copied.
            (None, Order::Packed { .. }) if matmul == Matmul::F32 => Rhs::Packed(self),
            (None, order) => {
                let group = match order {
                    Order::Packed { group, .. } => group,
                    Order::RowMajor(_) => group,
                };
                Rhs::Copy {
                    panels: rounded(self.to_packed(group), matmul),
                    shape: self.shape(),
                    group,
                }
            }
        }
    }

    /// The transposed matrix as a right-hand one, with groups of its columns.
    pub(crate) fn as_rhs_transposed(self, group: usize, matmul: Matmul) -> Rhs<'static> {
        let [rows, cols] = self.shape();
        match parts_of(matmul) {
            None => Rhs::Copy {
                // The kernels read a transposed matrix on the left only: here it is copied.
                panels: rounded(self.to_packed_transposed(group), matmul),
                shape: [cols, rows],
                group,
            },
            Some(parts) => Rhs::Bf16(Bf16Parts::rhs_transposed(self, parts, group).to_split()),
        }
    }
}

impl Lhs<'_> {
    /// Splits into parts now, for use in several products.
    pub(crate) fn prepared(self) -> Self {
        match self {
            Self::Bf16(parts) => Self::Bf16(parts.to_split()),
            other => other,
        }
    }
}

impl Rhs<'_> {
    /// Splits into parts now, for use in several products.
    pub(crate) fn prepared(self) -> Self {
        match self {
            Self::Bf16(parts) => Self::Bf16(parts.to_split()),
            other => other,
        }
    }

    fn panels(&self) -> Matrix<'_> {
        match self {
            Self::Packed(matrix) => *matrix,
            Self::Copy {
                panels,
                shape: [rows, cols],
                group,
            } => Matrix::grouped(panels, *rows, *cols, *group),
            Self::Bf16(_) => panic!("both operands are prepared with one `Matmul`"),
        }
    }

    /// Rows and columns.
    pub(crate) fn shape(&self) -> [usize; 2] {
        match self {
            Self::Bf16(parts) => parts.rhs_shape(),
            _ => self.panels().shape(),
        }
    }
}

/// `y = a b`, or `y += a b`, of operands prepared with one [`Matmul`].
pub(crate) fn multiply(a: &Lhs<'_>, b: &Rhs<'_>, y: MatrixMut<'_>, accumulate: Accumulate) {
    match (a, b) {
        (Lhs::Bf16(a), Rhs::Bf16(b)) => multiply_bf16(a, b, y, accumulate),
        (Lhs::Plain(a), b) => multiply_f32(*a, b.panels(), y, accumulate),
        (
            Lhs::Rounded {
                panels,
                shape: [rows, cols],
                transposed,
            },
            b,
        ) => {
            let a = Matrix::packed(panels, *rows, *cols);
            if *transposed {
                multiply_f32_transposed(a, b.panels(), y, accumulate);
            } else {
                multiply_f32(a, b.panels(), y, accumulate);
            }
        }
        (Lhs::Transposed(a), b) => multiply_f32_transposed(*a, b.panels(), y, accumulate),
        (Lhs::Bf16(_), _) => panic!("both operands are prepared with one `Matmul`"),
    }
}
