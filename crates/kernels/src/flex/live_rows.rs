//! Rows whose gradient is not zero.
//!
//! Padding, and tokens that no loss depends on, have a gradient of zero. Such rows add zeros to the
//! gradients of parameters and get zeros themselves, so a backward pass leaves them out. What
//! remains is summed in the same order, over the same chunks of rows: the bits are the same.

use super::gemm::Matrix;
use super::partial_sums::CHUNK;

/// The rows of a chunk whose gradient is not zero.
pub(super) struct LiveRows {
    rows: [usize; CHUNK],
    count: usize,
}

impl LiveRows {
    /// Of a gradient of `width` columns, of at most [`CHUNK`] rows; `None` where too few are zero
    /// to pay for copies. There is always one: the sums of a chunk begin with a product.
    pub(super) fn of(grad: &[f32], width: usize) -> Option<Self> {
        let (mut rows, mut count) = ([0; CHUNK], 0);
        for (row, values) in grad.chunks(width.max(1)).enumerate() {
            if values.iter().any(|value| *value != 0.0) {
                rows[count] = row;
                count += 1;
            }
        }
        let all = grad.len() / width.max(1);
        let pays = count <= all - all / 8 && all > 1;
        pays.then_some(Self {
            rows,
            count: count.max(1),
        })
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Copies these rows of a matrix to one of as many rows and the same order.
    pub(super) fn gather(&self, from: Matrix<'_>, to: &mut [f32]) {
        from.copy_rows(&self.rows[..self.count], to);
    }

    /// Copies the rows of `from` back to where they were.
    pub(super) fn scatter(&self, from: &[f32], width: usize, to: &mut [f32]) {
        for (row, values) in self.rows[..self.count].iter().zip(from.chunks(width)) {
            to[row * width..][..width].copy_from_slice(values);
        }
    }
}

/// Makes the zeros of rows that are all zero positive: a row that was left out and one that was
/// computed differ in nothing else.
pub(super) fn unsign_zero_rows(grad: &mut [f32], width: usize) {
    for row in grad.chunks_mut(width.max(1)) {
        if row.iter().all(|value| *value == 0.0) {
            row.fill(0.0);
        }
    }
}
