//! The causal mask and the bias of a tile of logits.

use super::bias::BiasRows;
use super::lanes::{Block, WIDE};
use crate::flex::simd::Lanes;
use crate::flex::twice::{Twice, pairs};
use pulp::Simd;

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
    pub(super) fn apply<S: Simd>(self, lanes: Twice<S>, tile: &mut [Block<S>]) {
        if let Some(bias) = self.bias {
            for (i, x) in tile.iter_mut().enumerate() {
                let (row, off) = bias.row(self.first_key + i, WIDE * S::F32_LANES);
                let mut row = pairs::<S>(row)[0];
                if bias.is_decay() {
                    row = lanes.sub(row, lanes.splat(off));
                }
                *x = lanes.add(*x, row);
            }
        }
        let mut index = [lanes.zero()];
        bytemuck::cast_slice_mut::<_, f32>(&mut index)
            .iter_mut()
            .enumerate()
            .for_each(|(i, x)| *x = i as f32);
        let [index] = index;
        let hidden = lanes.splat(f32::NEG_INFINITY);
        // Every lane sees the keys up to the first query of the block: only later rows are
        // compared.
        for (i, x) in tile
            .iter_mut()
            .enumerate()
            .skip((self.own + 1).saturating_sub(self.first_key))
        {
            // Lanes below this number belong to queries before the key.
            let ahead = lanes.splat((self.first_key + i - self.own) as f32);
            *x = lanes.where_less(index, ahead, hidden, *x);
        }
    }
}
