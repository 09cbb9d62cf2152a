//! The inputs of one attention.

use super::bias::{BiasRows, BlockBias};
use super::lanes::WIDTH;
use super::network_bias::NetworkBias;
use super::qkv_layout::{PartView, TILE};
use super::row_ops::RotationTables;
use crate::flex::buffer_pool::Buffer;
use std::ops::Range;

/// The inputs of attention that all its tasks share.
pub(crate) struct AttentionCall<'a> {
    /// Rotated and scaled.
    pub(crate) q: PartView<'a>,
    /// Rotated.
    pub(crate) k: PartView<'a>,
    pub(crate) v: PartView<'a>,
    pub(crate) bias: Option<&'a BlockBias>,
    /// Index of the first sequence among those of the bias.
    pub(crate) first_sequence: usize,
    /// The rotation of q and k: their gradients are rotated back.
    pub(crate) rotation: Option<&'a RotationTables>,
    /// The scale of q, which its gradient receives too.
    pub(crate) scale: f32,
    pub(crate) first_query: usize,
}

impl AttentionCall<'_> {
    /// The network that the bias is, if it is one.
    pub(super) fn network(&self) -> Option<&NetworkBias> {
        self.bias.and_then(BlockBias::as_network)
    }

    /// Scratch for [`bias_rows`](Self::bias_rows) of one tile.
    pub(super) fn bias_scratch(&self) -> Buffer {
        let needed = self.network().is_some();
        Buffer::new(if needed { TILE * *WIDTH } else { 0 })
    }

    /// The bias of a block of queries of one head, the first of which has key index `own`, against
    /// a tile of keys. Computed in `scratch` if it is a network.
    pub(super) fn bias_rows<'b>(
        &'b self,
        [sequence, head]: [usize; 2],
        (block, own): (usize, usize),
        keys: Range<usize>,
        scratch: &'b mut [f32],
    ) -> Option<BiasRows<'b>> {
        let Some(network) = self.network() else {
            let at = [self.first_sequence + sequence, head];
            return self.bias.map(|bias| bias.rows(at, block, own));
        };
        let rows = &mut scratch[..keys.len() * *WIDTH];
        network.tile(head, own, keys.start, rows);
        Some(BiasRows::Dense(rows, keys.start))
    }

    /// The number of keys that the last of these queries sees.
    pub(super) fn visible(&self, queries: &Range<usize>) -> usize {
        (self.first_query + queries.end).min(self.k.shape()[2])
    }
}
