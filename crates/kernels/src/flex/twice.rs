//! Two vectors in lockstep.

use super::simd::Lanes;
use pulp::Simd;

/// Two vectors at once, each operation on both before the next.
///
/// `exp` and its kin are one long chain of dependent operations. The processor sees too few
/// instructions ahead to overlap the chains of two vectors that follow each other.
#[derive(Clone, Copy)]
pub(crate) struct Twice<S>(pub(crate) S);

impl<S: Simd> Lanes for Twice<S> {
    type V = [S::f32s; 2];

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        [self.0.splat(x); 2]
    }
    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        [self.0.add(a[0], b[0]), self.0.add(a[1], b[1])]
    }
    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        [self.0.sub(a[0], b[0]), self.0.sub(a[1], b[1])]
    }
    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        [self.0.mul(a[0], b[0]), self.0.mul(a[1], b[1])]
    }
    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        [self.0.div(a[0], b[0]), self.0.div(a[1], b[1])]
    }
    #[inline(always)]
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        [self.0.fma(a[0], b[0], c[0]), self.0.fma(a[1], b[1], c[1])]
    }
    #[inline(always)]
    fn abs(self, x: Self::V) -> Self::V {
        [self.0.abs(x[0]), self.0.abs(x[1])]
    }
    #[inline(always)]
    fn where_less(self, a: Self::V, b: Self::V, yes: Self::V, no: Self::V) -> Self::V {
        [
            self.0.where_less(a[0], b[0], yes[0], no[0]),
            self.0.where_less(a[1], b[1], yes[1], no[1]),
        ]
    }
    #[inline(always)]
    fn low_bits_to_exponent(self, x: Self::V) -> Self::V {
        [
            self.0.low_bits_to_exponent(x[0]),
            self.0.low_bits_to_exponent(x[1]),
        ]
    }
}

/// Numbers as vectors in twos, for [`Twice`].
#[inline(always)]
pub(crate) fn pairs<S: Simd>(values: &[f32]) -> &[[S::f32s; 2]] {
    S::as_simd_f32s(values).0.as_chunks().0
}

/// Numbers as vectors in twos, to be written.
#[inline(always)]
pub(crate) fn pairs_mut<S: Simd>(values: &mut [f32]) -> &mut [[S::f32s; 2]] {
    S::as_mut_simd_f32s(values).0.as_chunks_mut().0
}
