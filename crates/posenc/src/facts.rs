//! What a configured encoding declares about itself, and the sizes it is declared for.

use serde::Serialize;
use std::ops::BitOr;

/// Sizes of the model that hosts an encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelShape {
    /// Width of the residual stream.
    pub d_model: usize,
    /// Number of blocks.
    pub n_layers: usize,
    /// Attention heads per block.
    pub n_heads: usize,
    /// Width of one head.
    pub head_dim: usize,
}

/// Lengths in tokens that length-dependent defaults such as `factor = "auto"` resolve to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// Longest sequence trained on.
    pub train_len: usize,
    /// Length trained before the encoding was added: the default of a scaling's `L`. Equal to
    /// [`train_len`](Self::train_len) unless a later stage of training adds the encoding, or
    /// training starts from the weights of another run.
    pub trained_len: usize,
    /// Sequence length the encoding is about to be used at.
    pub test_len: usize,
}

/// Which of the five hooks an encoding uses; combine the constants with `|`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Hooks {
    /// Adds to the embedded input.
    pub embed: bool,
    /// Transforms queries and keys.
    pub transform_qk: bool,
    /// Adds a position-only bias to the logits.
    pub logits_bias: bool,
    /// Adds a bias that depends on queries and keys.
    pub content_bias: bool,
    /// Adds a term to attention's output that depends on the weights.
    pub output_bias: bool,
}

impl Hooks {
    /// No hook: the encoding is the identity.
    pub const NONE: Self = Self {
        embed: false,
        transform_qk: false,
        logits_bias: false,
        content_bias: false,
        output_bias: false,
    };
    /// [`Prepared::embed`](crate::hooks::Prepared::embed).
    pub const EMBED: Self = Self {
        embed: true,
        ..Self::NONE
    };
    /// [`Prepared::transform_qk`](crate::hooks::Prepared::transform_qk).
    pub const TRANSFORM_QK: Self = Self {
        transform_qk: true,
        ..Self::NONE
    };
    /// [`Prepared::logits_bias`](crate::hooks::Prepared::logits_bias).
    pub const LOGITS_BIAS: Self = Self {
        logits_bias: true,
        ..Self::NONE
    };
    /// [`Prepared::content_bias`](crate::hooks::Prepared::content_bias).
    pub const CONTENT_BIAS: Self = Self {
        content_bias: true,
        ..Self::NONE
    };
    /// [`Prepared::output_bias`](crate::hooks::Prepared::output_bias).
    pub const OUTPUT_BIAS: Self = Self {
        output_bias: true,
        ..Self::NONE
    };

    /// These hooks if `condition` holds, else none.
    #[must_use]
    pub fn when(self, condition: bool) -> Self {
        if condition { self } else { Self::NONE }
    }
}

impl BitOr for Hooks {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self {
            embed: self.embed || other.embed,
            transform_qk: self.transform_qk || other.transform_qk,
            logits_bias: self.logits_bias || other.logits_bias,
            content_bias: self.content_bias || other.content_bias,
            output_bias: self.output_bias || other.output_bias,
        }
    }
}

impl std::fmt::Display for Hooks {
    /// The names of the hooks in use, or `none`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let named = [
            (self.embed, "embed"),
            (self.transform_qk, "transform_qk"),
            (self.logits_bias, "logits_bias"),
            (self.content_bias, "content_bias"),
            (self.output_bias, "output_bias"),
        ];
        let used = named.iter().filter(|(on, _)| *on).map(|(_, name)| *name);
        let used: Vec<&str> = used.collect();
        f.write_str(&if used.is_empty() {
            "none".to_owned()
        } else {
            used.join(", ")
        })
    }
}

/// An axis of coordinates that an encoding reads in place of positions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AxisRead {
    /// Which axis, from 0.
    pub axis: usize,
    /// First coordinate without a value.
    pub end: Option<usize>,
    /// Whether coordinates must not fall along the sequence.
    pub rising: bool,
}

impl AxisRead {
    /// A read of `axis` up to coordinate `end`, which is left out.
    pub fn new(axis: usize, end: Option<usize>, rising: bool) -> Self {
        Self { axis, end, rising }
    }
}

/// What a configured encoding declares about itself.
///
/// Tests compare each line with what the hooks are observed to do. Start from [`Facts::new`] and
/// set what differs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Facts {
    /// Hooks that are not the identity.
    pub hooks: Hooks,
    /// Path inside the encoding and shape of every parameter.
    pub parameters: Vec<(String, Vec<usize>)>,
    /// First position without a value. Axes that are read have their own ends.
    pub max_position: Option<usize>,
    /// Whether the same position is encoded differently in sequences of different length.
    pub reads_length: bool,
    /// Whether logits depend on `key - query` only; if `reads_length`, at a given length.
    pub relative: bool,
    /// Whether positions are read through the distances between queries and keys only, so that
    /// distances may be drawn at random.
    pub by_distance: bool,
    /// Whether its bias by position is a row of distances for each head where positions step by
    /// one, though something else about it is not a function of distances.
    pub bias_by_distance: bool,
    /// Whether positions are not read at all: order comes from the mask or from content.
    pub ignores_positions: bool,
    /// Whether linear attention can host it.
    pub linear: bool,
    /// Whether it needs a causal mask: the bias of a pair is defined for keys up to the query.
    pub causal_only: bool,
    /// Whether queries and keys are rotated by their positions, so that other parts of a `stack`
    /// that read them read rotated ones.
    pub rotates_qk: bool,
    /// Whether trained vectors of head_dim are multiplied with queries or keys as `transform_qk`
    /// left them.
    pub reads_transformed_qk: bool,
    /// Whether no other part of a `stack` may rotate queries and keys or read them transformed:
    /// PoPE makes heads wider, the two factors of xPos only fit each other.
    pub exclusive_in_stack: bool,
    /// Whether its content bias is all that it adds to logits, and one of
    /// [`Prepared::decays`](crate::hooks::Prepared::decays): fused attention holds no block of it.
    pub decays: bool,
    /// Highest axis of [`Positions`](crate::Positions) it reads, plus 1; 0 if none.
    pub axes: usize,
    /// Axes that it reads in place of positions: without coordinates on them it has no meaning.
    pub axis_reads: Vec<AxisRead>,
    /// Whether its bias by position is one [`BiasBlocks::network`](crate::BiasBlocks::network)
    /// where positions step by one: evaluation then needs no memory for it.
    pub diagonal_network: bool,
    /// Peak memory while one block of its bias is computed, intermediate results included, in f32
    /// numbers per logit of the block. Measured by `scripts/memory` unless it follows from the
    /// hooks.
    pub bias_workspace: f64,
    /// Memory of its bias that training keeps for the backward pass, in f32 numbers per logit, for
    /// each layer. Measured likewise.
    pub bias_kept: f64,
    /// Peak memory in evaluation of a transform of queries and keys that is not fused, or of a
    /// bias from content that reads every key for each block, as a multiple of the size of the
    /// queries, `[B, H, Q, E]`. Measured likewise.
    pub transform_workspace: f64,
    /// What training keeps of such a transform, or of a bias from content that it computes from
    /// channels, for the backward pass, for each layer, as a multiple of the same size. Measured
    /// likewise.
    pub transform_kept: f64,
    /// Further time of the bias, as the number of f32 numbers per logit that elementwise operations
    /// process in that time. The numbers of `bias_workspace` are counted already; this is for what
    /// is computed and not kept, and for slower operations such as a gather.
    pub bias_work: f64,
}

impl Facts {
    /// Facts of an encoding with these hooks, and with none of the properties below.
    ///
    /// The workspace of a bias is that of a typical one: 2.5 numbers per logit for a position-only
    /// bias, 4.5 for one that depends on content, which takes as much time again.
    pub fn new(hooks: Hooks) -> Self {
        let [bias_workspace, bias_work, bias_kept] = match hooks {
            hooks if hooks.content_bias || hooks.output_bias => [4.5, 4.5, 5.0],
            hooks if hooks.logits_bias => [2.5, 0.0, 0.0],
            _ => [0.0; 3],
        };
        Self {
            hooks,
            bias_workspace,
            bias_work,
            bias_kept,
            ..Self::default()
        }
    }

    /// Facts of several encodings applied one after the other, parameters left out.
    pub fn stacked(parts: &[Self]) -> Self {
        let any = |fact: fn(&Self) -> bool| parts.iter().any(fact);
        let all = |fact: fn(&Self) -> bool| parts.iter().all(fact);
        let readers = |part: &&Self| part.rotates_qk || part.reads_transformed_qk;
        let hooks = parts
            .iter()
            .fold(Hooks::NONE, |hooks, part| hooks | part.hooks);
        let workspace: f64 = parts.iter().map(|part| part.bias_workspace).sum();
        Self {
            hooks,
            parameters: Vec::new(),
            max_position: parts.iter().filter_map(|part| part.max_position).min(),
            reads_length: any(|part| part.reads_length),
            // Two rotations need not commute, and a bias that reads rotated queries depends on the
            // angle they were rotated by.
            relative: all(|part| part.relative) && parts.iter().filter(readers).count() < 2,
            by_distance: all(|part| part.by_distance),
            bias_by_distance: all(|part| {
                part.by_distance || part.bias_by_distance || !part.hooks.logits_bias
            }),
            ignores_positions: all(|part| part.ignores_positions),
            linear: all(|part| part.linear),
            // The sum of two biases is not a network.
            diagonal_network: any(|part| part.diagonal_network)
                && parts.iter().filter(|part| part.hooks.logits_bias).count() == 1,
            causal_only: any(|part| part.causal_only),
            rotates_qk: any(|part| part.rotates_qk),
            reads_transformed_qk: any(|part| part.reads_transformed_qk),
            exclusive_in_stack: any(|part| part.exclusive_in_stack),
            decays: any(|part| part.decays)
                && parts.iter().all(|part| {
                    part.decays || (!part.hooks.content_bias && !part.hooks.logits_bias)
                }),
            axes: parts.iter().map(|part| part.axes).max().unwrap_or(0),
            axis_reads: parts
                .iter()
                .flat_map(|part| part.axis_reads.clone())
                .collect(),
            bias_work: parts.iter().map(|part| part.bias_work).sum(),
            transform_workspace: parts.iter().map(|part| part.transform_workspace).sum(),
            transform_kept: parts.iter().map(|part| part.transform_kept).sum(),
            bias_kept: parts.iter().map(|part| part.bias_kept).sum(),
            // The running sum and the result of an addition, beside the parts.
            bias_workspace: if workspace > 0.0 {
                workspace + 1.5
            } else {
                0.0
            },
        }
    }

    /// Whether it has no meaning where tokens have no coordinates on axes.
    pub fn needs_axes(&self) -> bool {
        !self.axis_reads.is_empty()
    }

    /// First position without a value where tokens have no coordinates: positions are then the
    /// coordinates on every axis.
    pub fn max_position_without_axes(&self) -> Option<usize> {
        let ends = self.axis_reads.iter().filter_map(|read| read.end);
        ends.chain(self.max_position).min()
    }

    /// Number of trainable numbers.
    pub fn num_params(&self) -> usize {
        self.parameters
            .iter()
            .map(|(_, shape)| shape.iter().product::<usize>())
            .sum()
    }
}
