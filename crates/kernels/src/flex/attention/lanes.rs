//! Blocks of queries as vector lanes.

use crate::flex::simd::dispatch;
use pulp::{Simd, WithSimd};
use std::sync::LazyLock;

/// Vectors per query block.
pub(super) const WIDE: usize = 2;

/// Queries per block on this machine.
struct BlockWidth;

impl WithSimd for BlockWidth {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> usize {
        WIDE * S::F32_LANES
    }
}

/// Queries per block on this machine: one per lane.
pub(super) static WIDTH: LazyLock<usize> = LazyLock::new(|| dispatch(BlockWidth));

/// The lanes of one query block: numbers for [`Twice`](crate::flex::simd::Twice).
pub(super) type Block<S> = [<S as Simd>::f32s; WIDE];

/// Rows of lanes as vectors.
#[inline(always)]
pub(super) fn blocks<S: Simd>(values: &[f32]) -> &[Block<S>] {
    S::as_simd_f32s(values).0.as_chunks::<WIDE>().0
}

/// Rows of lanes as vectors, to be written.
#[inline(always)]
pub(super) fn blocks_mut<S: Simd>(values: &mut [f32]) -> &mut [Block<S>] {
    S::as_mut_simd_f32s(values).0.as_chunks_mut::<WIDE>().0
}
