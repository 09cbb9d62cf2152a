//! How much memory of a GPU a run needs: its tensors, as the backends of CubeCL hold them.
//!
//! The constants were fitted to what Burn's CUDA backend allocates, which `scripts/cuda-check`
//! repeats without a GPU. Contexts and compiled kernels are the driver's: see
//! [`DRIVER_BYTES`](super::DRIVER_BYTES).

use super::{AttentionKind, Share, facts_in, is_materialised, when};
use posenc::Facts;
use tiny_transformer::TransformerConfig;

/// Bytes that the buffer pools hold before there is a model.
pub const RESIDENT: u64 = 16 << 20;
/// Bytes of the buffer pools for each byte of tensors.
const POOLS: f64 = 1.05;
/// Numbers of the hidden layer of a network of positions, for each query and key.
const HIDDEN: f64 = 32.0;
/// Copies of that layer in training.
const HIDDEN_KEPT: f64 = 6.0;
/// Copies of it in evaluation.
const HIDDEN_COPIES: f64 = 4.0;

/// What a stretch of a training needs. It is the sum of
///
/// - per block and token `8 d_model + 2 d_ff` numbers saved for the backward pass, and what an
///   encoding outside fused attention keeps,
/// - as much for one block again, for gradients on their way,
/// - four copies of the logits over the vocabulary,
/// - a bias that is materialised, and
/// - six copies of the parameters: gradients, moments, and parts of sums.
pub(super) fn of_share(model: &TransformerConfig, share: &Share<'_>) -> u64 {
    let tokens = (share.rows * share.seq_len) as f64;
    let cells = (share.seq_len as f64).powi(2);
    let pairs = model.n_heads as f64 * cells;
    let facts = facts_in(model, share.encoding, model.dropout == 0.0);
    let kept = match model.attention {
        AttentionKind::Linear => 4.0,
        _ => facts.bias_kept,
    } * share.rows as f64
        * pairs;
    let alike = if facts.needs_axes() {
        share.rows as f64
    } else {
        1.0
    };
    let bias = when(
        is_materialised(&facts, share.positions),
        facts.bias_workspace * pairs * alike,
    );
    let network = when(facts.diagonal_network, HIDDEN_KEPT * HIDDEN * cells);
    let transform = facts.transform_kept * (model.n_heads * model.head_dim) as f64;
    let layers = model.n_layers as f64;
    let numbers = tokens * ((layers + 1.0) * per_token(model) + layers * transform)
        + layers * kept
        + tokens * 4.0 * model.vocab_size as f64
        + bias
        + network
        + 6.0 * share.parameters as f64;
    (POOLS * 4.0 * numbers) as u64
}

/// Numbers of one block for each token.
fn per_token(model: &TransformerConfig) -> f64 {
    8.0 * model.d_model as f64 + 2.0 * model.d_ff as f64
}

/// What decides the memory of an evaluation.
pub(super) struct Evaluation<'a> {
    pub model: &'a TransformerConfig,
    pub facts: &'a Facts,
    /// Of a batch.
    pub tokens: f64,
    /// Logits of a block of queries, where attention is not fused.
    pub unfused: f64,
    /// Cells of that block, for all rows and heads once.
    pub cells: f64,
    /// Numbers of weights that are watched, and of what decoding keeps.
    pub beside: f64,
    pub parameters: u64,
}

/// What an evaluation needs: a batch on its way through one block, its logits over the vocabulary,
/// what is held of a block of logits, and the parameters.
pub(super) fn of_evaluation(e: &Evaluation<'_>) -> u64 {
    let inner = (e.model.n_heads * e.model.head_dim) as f64;
    let token =
        per_token(e.model) + 2.2 * e.model.vocab_size as f64 + e.facts.transform_workspace * inner;
    let network = when(e.facts.diagonal_network, HIDDEN_COPIES * HIDDEN * e.cells);
    let numbers = e.tokens * token
        + (e.facts.bias_workspace + 3.0) * e.unfused
        + network
        + e.beside
        + e.parameters as f64;
    (POOLS * 4.0 * numbers) as u64
}
