//! GEMM on plain slices and recordings of parallel work, for benchmarks only.

use super::gemm::{Accumulate, Matrix, MatrixMut, multiply_f32, multiply_f32_transposed, padded};
pub use super::recording;
use super::simd::{Lanes, dispatch};
use pulp::{Simd, WithSimd};
use std::hint::black_box;

/// Multiply-adds without a memory access, `rounds` times as many as stay in registers. Returns how
/// many floating-point operations they were.
pub fn multiply_adds(rounds: usize) -> usize {
    struct Rounds(usize);
    impl WithSimd for Rounds {
        type Output = usize;

        #[inline(always)]
        fn with_simd<S: Simd>(self, s: S) -> usize {
            // Enough independent sums to hide the latency of an FMA.
            let mut sums = [s.splat(1.0); 12];
            let (x, y) = (s.splat(black_box(0.5)), s.splat(black_box(0.25)));
            for _ in 0..self.0 {
                for sum in &mut sums {
                    *sum = s.fma(*sum, x, y);
                }
            }
            black_box(sums.map(|sum| s.reduce_sum_f32s(sum)));
            self.0 * sums.len() * S::F32_LANES * 2
        }
    }
    dispatch(Rounds(rounds))
}

/// Length of the packed copy of a matrix with these rows and columns.
pub fn packed_len(rows: usize, cols: usize) -> usize {
    rows * padded(cols)
}

/// `y = a b` in `f32` of `[n, k]` and `[k, m]`; `b` is packed into `panels` first. Allocates
/// nothing.
pub fn gemm(a: &[f32], b: &[f32], y: &mut [f32], [n, k, m]: [usize; 3], panels: &mut [f32]) {
    Matrix::row_major(b, k, m, m).pack(panels, m);
    multiply_f32(
        Matrix::row_major(a, n, k, k),
        Matrix::packed(panels, k, m),
        MatrixMut::row_major(y, n, m, m),
        Accumulate::Overwrite,
    );
}

/// `y = a^T b` in `f32` of `[n, k]` and `[n, m]`, as in the gradient of a weight; `b` is packed
/// into `panels` first. Allocates nothing.
pub fn gemm_transposed(
    a: &[f32],
    b: &[f32],
    y: &mut [f32],
    [n, k, m]: [usize; 3],
    panels: &mut [f32],
) {
    Matrix::row_major(b, n, m, m).pack(panels, m);
    multiply_f32_transposed(
        Matrix::row_major(a, n, k, k),
        Matrix::packed(panels, n, m),
        MatrixMut::row_major(y, k, m, m),
        Accumulate::Overwrite,
    );
}
