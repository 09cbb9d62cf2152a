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
