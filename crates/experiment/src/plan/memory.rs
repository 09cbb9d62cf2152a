//! How much memory a run needs, how much it took, and how much there is.

mod cgroup;
mod device;
mod limit;

pub use limit::{DRIVER_BYTES, Memory, MemoryLimit};

use crate::spec::MAX_LOGITS;
use crate::spec::{EvalSpec, LengthCurriculum, RunSpec, VariantSpec, changes_with_length};
use burn::tensor::Device;
use posenc::{EncodingConfig, Facts, PositionsConfig};
use serde::{Deserialize, Serialize};
use tasks::Task;
use tiny_transformer::{AttentionKind, Mask, QkNorm, SHARED_BIAS, TransformerConfig};

/// The most memory since the last [`forget_peak`]: what the buffer pools of a device hold, or
/// resident memory.
pub fn peak(of: Memory, device: &Device) -> Option<u64> {
    match of {
        Memory::Host => peak_of_host(),
        Memory::Device => device.memory_pool_usage().map(|pools| pools.bytes_reserved),
    }
}

/// Resets [`peak`], where the system or the device allows it.
pub fn forget_peak(of: Memory, device: &Device) {
    match of {
        // 5 resets the peak to the present size, see proc(5).
        Memory::Host => drop(std::fs::write("/proc/self/clear_refs", "5")),
        Memory::Device => device.memory_cleanup(),
    }
}

/// The peak of resident memory, from Linux's process table.
pub fn peak_of_host() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    of_line(&status, "VmHWM:")
}

/// The bytes that a file of `/proc` says in kB in the line that begins with `key`.
fn of_line(text: &str, key: &str) -> Option<u64> {
    let kib = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kib = kib.trim().strip_suffix("kB")?.trim();
    Some(kib.parse::<u64>().ok()? * 1024)
}

/// What a sweep itself may need beside its workers: what it has needed so far, and 64 MiB at least.
pub fn of_sweep() -> u64 {
    peak_of_host().unwrap_or(0).max(1 << 26)
}

/// What the estimates need to know of a task beside the spec.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskSizes {
    /// Bytes that the task holds, or needs while it is built if that is more.
    pub bytes: u64,
    /// Bytes that it holds once it is built.
    #[serde(default)]
    pub held_bytes: u64,
    /// The test lengths in tokens.
    pub seq_lens: Vec<usize>,
    /// Rows of the test set of each length.
    pub rows: Vec<usize>,
}

impl TaskSizes {
    /// The sizes of a task that is tested at these lengths.
    pub fn of(task: &dyn Task, test_lens: &[usize]) -> Self {
        let lengths = test_lens.iter();
        Self {
            bytes: task.memory_bytes(),
            held_bytes: task.held_bytes(),
            seq_lens: lengths
                .clone()
                .map(|length| task.seq_len(*length))
                .collect(),
            rows: lengths.map(|length| task.test_rows(*length)).collect(),
        }
    }

    /// The same with another task in memory, that of `train.stop`.
    #[must_use]
    pub fn beside(mut self, other: Option<&dyn Task>) -> Self {
        if let Some(other) = other {
            self.bytes += other.memory_bytes();
            self.held_bytes += other.held_bytes();
        }
        self
    }
}

/// Memory of a process before its model is built: the program and the corpus.
pub fn resident(of: Memory, task: &TaskSizes) -> u64 {
    match of {
        Memory::Host => mib(PROGRAM_MIB) as u64 + task.bytes,
        Memory::Device => device::RESIDENT,
    }
}

/// What a training is expected to need, in bytes; on a device see `device`. On a CPU it is the sum
/// of
///
/// - the program and the corpus,
/// - per block and token `6 d_model + d_ff` numbers saved for the backward pass, and the weights of
///   attention where they are saved,
/// - per token `8 d_model + 3 vocab_size` numbers of working memory,
/// - sums of the gradients of one block's weights over groups of rows,
/// - a bias that is materialised,
/// - the scores of `train.stop`, and
/// - fourteen copies of the parameters: gradients, moments, updates, packed panels, and a
///   checkpoint being written.
///
/// The constants were fitted to measurements, which `scripts/memory` repeats.
pub fn training(of: Memory, spec: &RunSpec, parameters: u64, task: &TaskSizes) -> u64 {
    let train = &spec.train;
    let whole = Share {
        rows: train.batch_size,
        seq_len: train.seq_len,
        encoding: &spec.model.pe,
        positions: &spec.model.positions,
        mixed: train.length == LengthCurriculum::Mixed,
        parameters,
    };
    // Stages are trained one after the other: the largest counts.
    let stages = train.stages.iter().map(|stage| {
        let share = Share {
            rows: stage.batch_size,
            seq_len: stage.seq_len,
            positions: stage.positions.as_ref().unwrap_or(whole.positions),
            ..whole
        };
        let Some(encoding) = &stage.pe else {
            return share;
        };
        let model = &spec.model.transformer;
        Share {
            encoding,
            parameters: model.num_params(&encoding.facts(&model.shape())),
            ..share
        }
    });
    let model = &spec.model.transformer;
    let needed = |share: Share<'_>| match of {
        Memory::Host => of_share(model, &share),
        Memory::Device => device::of_share(model, &share),
    };
    let largest = stages.map(needed).max().unwrap_or_else(|| needed(whole));
    let largest = largest + stop_scores(of, spec, parameters, task);
    if of == Memory::Device {
        return device::RESIDENT + largest;
    }
    // What only building the task needs is free again before the first step.
    let held = mib(PROGRAM_MIB) as u64 + task.held_bytes;
    (held + largest).max(resident(of, task))
}

/// What the scores of `train.stop` need beside a training, and beside the program and the corpora.
fn stop_scores(of: Memory, spec: &RunSpec, parameters: u64, task: &TaskSizes) -> u64 {
    let Some(eval) = spec.stop_eval() else {
        return 0;
    };
    let at_train_len = TaskSizes {
        seq_lens: vec![spec.train.seq_len],
        rows: Vec::new(),
        ..task.clone()
    };
    let needed = evaluation(
        of,
        spec,
        &eval,
        &eval.variants[0],
        0,
        parameters,
        &at_train_len,
    );
    needed - resident(of, task)
}

/// What decides the memory of a stretch of a training.
#[derive(Clone, Copy)]
struct Share<'a> {
    rows: usize,
    seq_len: usize,
    encoding: &'a EncodingConfig,
    positions: &'a PositionsConfig,
    /// Whether rows have lengths, and so draws of positions, of their own.
    mixed: bool,
    parameters: u64,
}

/// What a stretch of a training needs beside the program and the corpus.
fn of_share(model: &TransformerConfig, share: &Share<'_>) -> u64 {
    let (rows, seq_len) = (share.rows, share.seq_len);
    let tokens = (rows * seq_len) as f64;
    let (d_model, d_ff, vocab) = (
        model.d_model as f64,
        model.d_ff as f64,
        model.vocab_size as f64,
    );
    let pairs = (model.n_heads * seq_len) as f64 * seq_len as f64;
    // Fused attention keeps no weights; with a bias that sees content, or in linear attention, they
    // are kept.
    let facts = facts_in(model, share.encoding, model.dropout == 0.0);
    // Positions may differ from row to row, and then biases and rotations do; or coordinates alone.
    let by_row = share.mixed && share.positions.varies(&facts);
    let bias_kept = match model.attention {
        AttentionKind::Linear => 4.0,
        _ => facts.bias_kept + when(by_row && facts.hooks.logits_bias, 1.0),
    };
    let kept = bias_kept * rows as f64 * pairs;
    let alike = if by_row || facts.needs_axes() {
        rows as f64
    } else {
        1.0
    };
    let joined = when(by_row, 3.0 + when(facts.diagonal_network, 11.0));
    let tiled = pairs > SHARED_BIAS as f64
        && model.dropout == 0.0
        && is_tiled(model, &facts, share.positions);
    let bias = when(
        is_materialised(&facts, share.positions) && !tiled,
        (facts.bias_workspace + joined) * pairs * alike,
    );
    let rotated = when(by_row && facts.rotates_qk, 6.5);
    let transform = (facts.transform_kept + rotated) * (model.n_heads * model.head_dim) as f64;
    let block = tokens * (6.0 * d_model + d_ff + transform) + kept;
    let groups = (tokens / 128.0).ceil().min(8.0);
    let sums = groups * (4.0 * d_model * d_model + 2.0 * d_model * d_ff);
    let step = model.n_layers as f64 * block + tokens * (8.0 * d_model + 3.0 * vocab) + sums + bias;
    let is_unfused = facts.hooks.content_bias || facts.transform_kept > 0.0;
    let unfused = when(is_unfused, mib(TRAINING_UNFUSED_MIB));
    // 4 bytes for each f32.
    (mib(TRAINING_MIB) + unfused + 4.0 * (step + 14.0 * share.parameters as f64)) as u64
}

/// What an evaluation is expected to need, in bytes; `index` is that of the length; on a device see
/// `device`. On a CPU it is the sum of
///
/// - the program and the corpus, and a few copies of the parameters,
/// - a batch of tokens on its way through one layer, and its logits,
/// - where attention is not fused, small tensors, and what the encoding needs for a block of
///   logits,
/// - where the weights are watched, these for a block, and
/// - where answers are decoded, the cache of keys, values and inputs, or many prefixes.
///
/// The constants were fitted to measurements, which `scripts/memory` repeats.
pub fn evaluation(
    of: Memory,
    spec: &RunSpec,
    eval: &EvalSpec,
    variant: &VariantSpec,
    index: usize,
    parameters: u64,
    task: &TaskSizes,
) -> u64 {
    let model = &spec.model.transformer;
    let (Some(encoding), Some(&seq_len)) = (variant.pe.get(index), task.seq_lens.get(index)) else {
        return 0;
    };
    let positions = variant.positions.get(index);
    let positions = positions.unwrap_or(&spec.model.positions);
    // A sequence longer than the batch is a batch by itself.
    let rows = (eval.batch_tokens / seq_len.max(1)).max(1);
    let there = task.rows.get(index).copied().unwrap_or(rows).max(1);
    let rows = rows.min(there);
    let tokens = (rows * seq_len) as f64;
    let (d_model, vocab) = (model.d_model as f64, model.vocab_size as f64);
    // Long sequences go block by block over queries, with one query at least.
    let query = (rows * model.n_heads) as f64 * seq_len as f64;
    let block = (query * seq_len as f64).min(query.max(MAX_LOGITS as f64));
    let declared = encoding.facts(&model.shape());
    let greedy = eval.decode.is_greedy(&declared, positions);
    // Attention to a cache is not fused.
    let cached = greedy && !changes_with_length(&declared, positions);
    let facts = facts_in(model, encoding, !(eval.attention_distance || cached));
    let content = facts.hooks.content_bias || facts.hooks.output_bias;
    let tiled = of == Memory::Host && !cached && is_tiled(model, &facts, positions);
    let by_block = is_materialised(&facts, positions) || (cached && facts.hooks.logits_bias);
    let materialised = by_block && !tiled;
    // A bias by position is made once for all rows of a batch, unless coordinates differ from row
    // to row; one by distance only is a row for each head.
    let bias = match content || (materialised && facts.needs_axes()) {
        true => block,
        false if materialised => block / rows as f64,
        false => 0.0,
    };
    let is_fused = !(content || cached || materialised)
        && facts.transform_workspace == 0.0
        && model.attention != AttentionKind::Linear;
    let watched = when(eval.attention_distance, WATCHED * block);
    let unfused = when(!is_fused || eval.attention_distance, mib(UNFUSED_MIB));
    let inner = (model.n_heads * model.head_dim) as f64;
    let decoding = match (greedy, cached) {
        (false, _) => 0.0,
        // A pass over every prefix: each has another size.
        (true, false) => mib(PREFIXES_MIB) / 4.0,
        (true, true) => CACHE * model.n_layers as f64 * tokens * (2.0 * inner + d_model),
    };
    if of == Memory::Device {
        let evaluation = device::Evaluation {
            model,
            facts: &facts,
            tokens,
            unfused: when(!is_fused, block),
            cells: block / (rows * model.n_heads) as f64,
            beside: watched + decoding,
            parameters,
        };
        return device::RESIDENT + device::of_evaluation(&evaluation);
    }
    let bias = facts.bias_workspace * bias;
    // Blocks of a causal mask have as many sizes as there are blocks. The allocator keeps some of
    // each.
    let unfused = unfused + (4.0 * (bias + watched)).min(mib(KEPT_MIB));
    let transform = facts.transform_workspace * inner;
    let numbers = tokens * (FORWARD * d_model + LOGITS * vocab + transform)
        + bias
        + watched
        + decoding
        + WEIGHTS * parameters as f64;
    resident(of, task) + (mib(EVALUATION_MIB) + unfused + 4.0 * numbers) as u64
}

/// MiB of a process before its model is built.
const PROGRAM_MIB: f64 = 36.0;
/// MiB that any training needs beside it: threads, and what the allocator keeps.
const TRAINING_MIB: f64 = 30.0;
/// MiB that any evaluation needs beside it.
const EVALUATION_MIB: f64 = 21.0;
/// MiB more where attention is not fused: many small tensors of different sizes.
const UNFUSED_MIB: f64 = 20.0;
/// The same in training.
const TRAINING_UNFUSED_MIB: f64 = 14.0;
/// The most MiB that are kept of blocks of other sizes.
const KEPT_MIB: f64 = 44.0;
/// Numbers per token and dimension of a forward pass.
const FORWARD: f64 = 9.0;
/// Copies of the logits.
const LOGITS: f64 = 1.3;
/// Numbers per logit of a block where the weights are read.
const WATCHED: f64 = 4.0;
/// MiB more where answers are decoded from passes over every prefix.
const PREFIXES_MIB: f64 = 30.0;
/// Copies of the cache: the old and the new one.
const CACHE: f64 = 1.6;
/// Copies of the parameters.
const WEIGHTS: f64 = 3.0;

/// The facts of an encoding in this model. `fused` says whether the caller allows attention to be
/// one fused operation. If it is one, decays are added inside it, and no block of a bias is held.
pub(super) fn facts_in(model: &TransformerConfig, encoding: &EncodingConfig, fused: bool) -> Facts {
    let mut facts = encoding.facts(&model.shape());
    let transform = facts.transform_kept + facts.transform_workspace;
    if facts.decays && fused && is_fusable(model) && transform == 0.0 {
        facts.hooks.content_bias = false;
        (facts.bias_workspace, facts.bias_kept, facts.bias_work) = (0.0, 0.0, 0.0);
    }
    facts
}

/// Whether attention of this kind can be one fused operation.
fn is_fusable(model: &TransformerConfig) -> bool {
    model.attention == AttentionKind::Softmax
        && model.mask == Mask::Causal
        && model.qk_norm == QkNorm::None
}

/// Whether a bias by position is held for every query and key.
pub(super) fn is_materialised(facts: &Facts, positions: &PositionsConfig) -> bool {
    let by_distance = facts.by_distance || facts.bias_by_distance;
    facts.hooks.logits_bias && !(by_distance && *positions == PositionsConfig::default())
}

/// Whether fused attention computes a bias by position tile by tile.
fn is_tiled(model: &TransformerConfig, facts: &Facts, positions: &PositionsConfig) -> bool {
    let stepping = *positions == PositionsConfig::default() && !facts.needs_axes();
    let fused = is_fusable(model) && facts.transform_kept == 0.0;
    facts.diagonal_network && stepping && fused && !facts.hooks.content_bias
}

fn when(condition: bool, amount: f64) -> f64 {
    if condition { amount } else { 0.0 }
}

fn mib(n: f64) -> f64 {
    n * f64::from(1 << 20)
}
