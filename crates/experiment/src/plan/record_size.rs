//! The size of the record that a run will have. A record that is too large to be read again is
//! refused before anything is trained.

use crate::spec::blocks::Blocks;
use crate::spec::scores::{empty_row, metric_names, position_bins};
use crate::spec::{EvalSpec, ModelSpec, TestLen};
use records::metric;
use records::record::{Denominators, EvalRow, EvalStatus, Metric, PositionBin};
use serde::Serialize;
use tasks::Task;

/// Numbers that a row of evaluations may hold, at most.
pub(super) struct RowSize {
    /// Metrics.
    pub(super) metrics: usize,
    /// Bytes in the record.
    pub(super) bytes: u64,
    /// The same without losses by position.
    pub(super) bytes_without_bins: u64,
}

/// The largest row of an evaluation, without its variant's name.
pub(super) fn largest_row(eval: &EvalSpec, model: &ModelSpec, task: &dyn Task) -> RowSize {
    let longest = eval.test_lens.iter().copied().max().unwrap_or(1);
    let seq_len = task.seq_len(longest);
    // As many digits as a number of its kind has.
    let metric = Metric {
        value: 1.234_567_890_123_456_7,
        n: (task.test_rows(longest) as u64).saturating_mul(seq_len as u64),
    };
    let mut names = metric_names(task, eval.last_tokens);
    if eval.attention_distance {
        let (layers, heads) = (model.transformer.n_layers, model.transformer.n_heads);
        let all = (1..=layers).flat_map(|layer| (1..=heads).map(move |head| (layer, head)));
        names.extend(
            all.flat_map(|(layer, head)| metric::OF_HEADS.map(|of| format!("{of}_{layer}_{head}"))),
        );
    }
    let heads = (model.transformer.n_layers * model.transformer.n_heads) as u64;
    let denominators = metric.n.saturating_mul(heads);
    let bins = (0..position_bins(task, seq_len)).map(|_| PositionBin {
        from: seq_len,
        to: seq_len,
        loss_nats: metric.value,
    });
    let mut row = EvalRow {
        metrics: names.into_iter().map(|name| (name, metric)).collect(),
        loss_by_position: bins.collect(),
        loss_by_block: vec![metric.value; Blocks::of(task).map_or(0, |blocks| blocks.count())],
        distinct_rows: None,
        from_len: eval.test_lens.written().iter().find_map(TestLen::from),
        denominators: (model.transformer.may_divide_by_zero()).then_some(Denominators {
            count: denominators,
            negative: denominators,
            clamped: denominators,
        }),
        reason: None,
        ..empty_row("", longest, EvalStatus::Ok, String::new())
    };
    let bytes = pretty_bytes(&row, 2);
    row.loss_by_position.clear();
    row.loss_by_block.clear();
    RowSize {
        metrics: row.metrics.len(),
        bytes,
        bytes_without_bins: pretty_bytes(&row, 4),
    }
}

/// Bytes of a value as indented JSON, `levels` deep in a document.
pub(super) fn pretty_bytes(value: &impl Serialize, levels: usize) -> u64 {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    // A comma and a line feed follow it.
    (text.len() + 2 * levels * text.lines().count() + 2) as u64
}
