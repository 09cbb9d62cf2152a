//! Blocks of queries as vector lanes, and the mask of a tile of their logits.

use super::bias::BiasRows;
use crate::flex::simd::{Lanes, dispatch};
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

/// An expression for each vector of a block.
///
/// Not a closure, which may be compiled without the instruction set of its caller.
macro_rules! each {
    (|$i:ident| $value:expr) => {
        [
            {
                let $i = 0;
                $value
            },
            {
                let $i = 1;
                $value
            },
        ]
    };
}

pub(super) use each;

/// The lanes of one query block.
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

/// The causal mask and the bias of one block of queries against one tile of keys.
#[derive(Clone, Copy)]
pub(super) struct Mask<'a> {
    pub(super) first_key: usize,
    /// Key index of the block's first query.
    pub(super) own: usize,
    pub(super) bias: Option<BiasRows<'a>>,
}

impl Mask<'_> {
    /// Adds the bias, and sets the logits of later keys to -inf.
    #[inline(always)]
    pub(super) fn apply<S: Simd>(self, s: S, tile: &mut [Block<S>]) {
        if let Some(bias) = self.bias {
            for (i, x) in tile.iter_mut().enumerate() {
                let bias = blocks::<S>(bias.row(self.first_key + i, WIDE * S::F32_LANES))[0];
                *x = each!(|i| s.add(x[i], bias[i]));
            }
        }
        let mut index = [[s.zero(); WIDE]];
        bytemuck::cast_slice_mut::<_, f32>(&mut index)
            .iter_mut()
            .enumerate()
            .for_each(|(i, x)| *x = i as f32);
        let [index] = index;
        let hidden = s.splat(f32::NEG_INFINITY);
        // Every lane sees the keys up to the first query of the block: only later rows are compared.
        for (i, x) in tile
            .iter_mut()
            .enumerate()
            .skip((self.own + 1).saturating_sub(self.first_key))
        {
            let ahead = s.splat((self.first_key + i - self.own) as f32);
            *x = each!(|i| s.select_f32s(s.less_than_f32s(index[i], ahead), hidden, x[i]));
        }
    }
}
