//! The rows and metrics that an evaluation has, and the lengths that have none.

use super::RunSpec;
use super::coordinates::past_end;
use posenc::{EncodingConfig, PositionsConfig};
use records::metric::{EXACT_MATCH, LAST_LOSS_NATS, LOSS_NATS, TOKEN_ACCURACY};
use records::record::{EvalRow, EvalStatus};
use std::collections::BTreeMap;
use tasks::{Scoring, Task};

/// Most bins of the loss by position.
const POSITION_BINS: usize = 64;

/// Tokens in a bin of the loss by position.
pub fn bin_width(seq_len: usize) -> usize {
    seq_len.div_ceil(POSITION_BINS).max(1)
}

/// The most bins of the loss by position that a sequence of this many tokens has.
pub fn position_bins(task: &dyn Task, seq_len: usize) -> usize {
    if task.scoring() == Scoring::Answer {
        0
    } else {
        seq_len.div_ceil(bin_width(seq_len))
    }
}

/// The names of the metrics of a test set, at most: a group without rows has none.
pub fn metric_names(task: &dyn Task, last_tokens: Option<usize>) -> Vec<String> {
    let mut names = vec![LOSS_NATS.to_owned()];
    if task.scoring() != Scoring::LanguageModel {
        names.push(TOKEN_ACCURACY.to_owned());
    }
    if task.scoring() == Scoring::Answer {
        names.push(EXACT_MATCH.to_owned());
    }
    let groups = task.groups().into_iter();
    names.extend(groups.map(|(name, _)| format!("{EXACT_MATCH}_{name}")));
    names.extend(last_tokens.map(|_| LAST_LOSS_NATS.to_owned()));
    names
}

/// A row without numbers, and the reason for it.
pub fn empty_row(variant: &str, test_len: usize, status: EvalStatus, reason: String) -> EvalRow {
    let (metrics, loss_by_position) = (BTreeMap::new(), Vec::new());
    EvalRow {
        variant: variant.to_owned(),
        test_len,
        status,
        reason: Some(reason),
        metrics,
        loss_by_position,
        loss_by_block: Vec::new(),
        distinct_rows: None,
        from_len: None,
        denominators: None,
    }
}

/// Why an encoding cannot be evaluated at a length, if its positions, those drawn, or the
/// coordinates that it reads end before it. `largest` is the largest coordinate on each axis.
pub fn unsupported(
    spec: &RunSpec,
    encoding: &EncodingConfig,
    positions: &PositionsConfig,
    seq_len: usize,
    largest: &[f64],
) -> Option<String> {
    if let Some(longest) = positions.max_seq_len().filter(|longest| seq_len > *longest) {
        return Some(format!(
            "{seq_len} tokens, but {} positions are drawn out of {longest}",
            positions.kind()
        ));
    }
    let facts = encoding.facts(&spec.model.transformer.shape());
    if let Some((axis, reach, end)) = past_end(&facts, largest) {
        return Some(format!(
            "coordinates up to {reach} on axis {axis}, but the {} encoding ends at max_position = \
             {end} on it",
            encoding.kind()
        ));
    }
    // Scaled or drawn positions need another number of table rows than there are tokens.
    let (rows, limit) = (positions.test_rows(seq_len), facts.max_position?);
    let reach = if rows == seq_len {
        String::new()
    } else {
        format!(" at positions up to {}", rows - 1)
    };
    (rows > limit).then(|| {
        format!(
            "{seq_len} tokens{reach}, but the {} encoding ends at max_position = {limit}",
            encoding.kind()
        )
    })
}
