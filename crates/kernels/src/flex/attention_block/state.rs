//! The settings of the attention block, its memory layouts, and what is saved.

use crate::flex::attention::{AttentionCall, BlockBias, PartView, QkvLayout, RotationTables};
use crate::flex::buffer_pool::Buffer;
use crate::flex::partial_sums::NormTensors;
use burn::backend::TensorMetadata;
use burn_flex::FlexTensor;
use std::ops::Range;

/// `x + attention(norm(x) qkv) output` of x, scale, shift, qkv, output, the bias of output and that
/// of logits, of which shift and biases are optional. `qkv` may have its bias as a further row.
pub(crate) struct AttentionBlock {
    /// `[B, H, L, E]`.
    pub(crate) shape: [usize; 4],
    pub(crate) eps: f64,
    pub(crate) bias: BiasInputs,
    pub(crate) rotation: Option<RotationTables>,
    pub(crate) scale: f64,
}

/// What the inputs of the bias are, if there is one.
#[derive(Clone, Copy)]
pub(crate) enum BiasInputs {
    /// One value per query and key.
    Dense,
    /// One value per distance.
    ByDistance,
    /// Running sums of a decay.
    Decays,
    /// The six tensors of a network.
    Network,
}

/// What the backward pass needs.
pub(crate) struct Saved {
    pub(super) x: FlexTensor,
    pub(super) norm: NormTensors,
    pub(super) qkv: FlexTensor,
    pub(super) output: FlexTensor,
    pub(super) bias: Option<BlockBias>,
    /// Queries, keys and values.
    pub(super) projected: Buffer,
    /// The output of attention.
    pub(super) attended: Buffer,
    pub(super) log_sum: Buffer,
}

impl Saved {
    /// Columns of what `qkv` multiplies: D, and one more for a bias.
    pub(super) fn inputs(&self) -> usize {
        self.qkv.shape()[0]
    }
}

impl AttentionBlock {
    /// The layout of the queries, keys and values of some sequences.
    pub(super) fn qkv_layout(&self, sequences: usize) -> QkvLayout {
        let [_, heads, length, head_dim] = self.shape;
        QkvLayout {
            shape: [sequences, heads, length, head_dim],
            parts: 3,
        }
    }

    /// The layout of the output of attention for some sequences.
    pub(super) fn output_layout(&self, sequences: usize) -> QkvLayout {
        self.qkv_layout(sequences).single_part()
    }

    /// The attention of some of the sequences.
    pub(super) fn call<'a>(
        &'a self,
        sequences: Range<usize>,
        projected: &'a [f32],
        bias: Option<&'a BlockBias>,
    ) -> AttentionCall<'a> {
        let layout = self.qkv_layout(sequences.len());
        let [q, k, v] = [0, 1, 2].map(|part| PartView {
            values: projected,
            layout,
            part,
        });
        let (first_sequence, rotation, scale) =
            (sequences.start, self.rotation.as_ref(), self.scale as f32);
        AttentionCall {
            q,
            k,
            v,
            bias,
            first_sequence,
            rotation,
            scale,
            first_query: 0,
        }
    }
}
