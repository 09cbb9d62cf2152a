//! The inputs of one attention.

use super::bias::{BiasRows, BlockBias};
use super::qkv_layout::PartView;
use super::row_ops::RotationTables;
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
    /// The bias of a block of queries of one head.
    pub(super) fn bias_rows(
        &self,
        [sequence, head]: [usize; 2],
        block: usize,
        own: usize,
    ) -> Option<BiasRows<'_>> {
        self.bias
            .map(|bias| bias.rows([self.first_sequence + sequence, head], block, own))
    }

    /// The number of keys that the last of these queries sees.
    pub(super) fn visible(&self, queries: &Range<usize>) -> usize {
        (self.first_query + queries.end).min(self.k.shape()[2])
    }
}
