//! What a stored number means: names, directions, and the metrics derived from nats.
//!
//! Records store the loss in nats. Perplexity and bits per byte are derived for each run first and
//! averaged over seeds after: the mean of perplexities, not the perplexity of the mean.

use crate::record::{EvalRow, TaskFacts};
use std::collections::BTreeSet;

/// Mean loss, nats per counted token: the stored form.
pub const LOSS_NATS: &str = "loss_nats";
/// exp of the loss.
pub const PERPLEXITY: &str = "perplexity";
/// Loss in bits, by byte of text.
pub const BITS_PER_BYTE: &str = "bits_per_byte";
/// Share of answers that are right from the first token to the last.
pub const EXACT_MATCH: &str = "exact_match";
/// Share of tokens that are right, each given the true ones before it.
pub const TOKEN_ACCURACY: &str = "token_accuracy";
/// A score relative to the one in length, see [`extrapolation_ratio`].
pub const RATIO: &str = "ratio";
/// The longest test length with enough of the in-length score, in the task's unit.
pub(crate) const KEPT_TO: &str = "kept_to";
/// The share of the in-length score, averaged over log2 of the length.
pub(crate) const KEPT_AREA: &str = "kept_area";
/// Beginning of the names of mean attention distances, `attention_distance_LAYER_HEAD`, and the
/// name of their definition. They describe a model and are no score.
pub const ATTENTION_DISTANCE: &str = "attention_distance";
/// Share of the in-length score that counts as kept.
pub const KEPT: f64 = 0.9;
/// Share of exact answers in length from which on a task counts as learned; below it nothing is
/// said about longer lengths.
pub const LEARNED: f64 = 0.95;

/// perplexity = exp(loss).
pub fn perplexity(loss_nats: f64) -> f64 {
    loss_nats.exp()
}

/// bits per byte = loss / ln 2 / bytes per token.
pub fn bits_per_byte(loss_nats: f64, bytes_per_token: f64) -> f64 {
    loss_nats / std::f64::consts::LN_2 / bytes_per_token
}

/// Whether the metric is a share of test rows or of tokens, so that its values lie in [0, 1].
pub fn is_share(metric: &str) -> bool {
    [EXACT_MATCH, TOKEN_ACCURACY].iter().any(|name| {
        metric
            .strip_prefix(name)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
    })
}

/// Number of test rows behind a share. The tokens of one row are not independent of each other, so
/// a share of tokens counts the rows of the exact match beside it, where there is one.
pub fn rows(row: &EvalRow, metric: &str) -> Option<u64> {
    let of = |name: &str| row.metrics.get(name).map(|stored| stored.n);
    let own = of(metric)?;
    Some(if metric.starts_with(TOKEN_ACCURACY) {
        of(EXACT_MATCH).map_or(own, |rows| rows.min(own))
    } else {
        own
    })
}

/// Whether a smaller value is a better one.
pub fn lower_is_better(metric: &str) -> bool {
    ["loss", "perplexity", "bits", "error"]
        .iter()
        .any(|part| metric.contains(part))
}

/// Score at a test length relative to the score at the training length, in the metric's own
/// direction: a perplexity ratio of 2 is a perplexity twice as high, an `exact_match` ratio of 0.5
/// half as many exact answers. None where it is undefined.
pub fn extrapolation_ratio(at_test_len: f64, at_train_len: f64) -> Option<f64> {
    let ratio = at_test_len / at_train_len;
    (at_train_len > 0.0 && ratio.is_finite()).then_some(ratio)
}

/// Whether `value` keeps at least [`KEPT`] of `in_length`; for a metric where lower is better,
/// whether it is at most `in_length / KEPT`.
pub fn is_kept(metric: &str, value: f64, in_length: f64) -> bool {
    if lower_is_better(metric) {
        value <= in_length / KEPT
    } else {
        value >= KEPT * in_length
    }
}

/// The share of the in-length score that is left, 1 for all of it, whatever the metric's direction:
/// for a metric where lower is better the in-length score over the one there. None where it is
/// undefined.
pub fn kept_share(metric: &str, value: f64, in_length: f64) -> Option<f64> {
    if lower_is_better(metric) {
        extrapolation_ratio(in_length, value)
    } else {
        extrapolation_ratio(value, in_length)
    }
}

/// Layer and head of a mean attention distance, by its name.
pub fn head(metric: &str) -> Option<(usize, usize)> {
    let (layer, head) = metric
        .strip_prefix(ATTENTION_DISTANCE)?
        .strip_prefix('_')?
        .split_once('_')?;
    Some((layer.parse().ok()?, head.parse().ok()?))
}

/// The ends of the range of depths, in percent, that an exact match is recorded for by its name,
/// `exact_match_depth_FROM_TO`.
pub fn depth(metric: &str) -> Option<(u32, u32)> {
    let (from, to) = metric
        .strip_prefix(EXACT_MATCH)?
        .strip_prefix("_depth_")?
        .split_once('_')?;
    Some((from.parse().ok()?, to.parse().ok()?))
}

/// The metrics of a task in the order of the report, the leading one first. Perplexity leads for a
/// loss.
pub fn shown(task: &TaskFacts, recorded: &[String]) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let has = |name: &str| recorded.iter().any(|m| m == name);
    if task.primary_metric == LOSS_NATS {
        out.push(PERPLEXITY.into());
        if task.bytes_per_token.is_some() {
            out.push(BITS_PER_BYTE.into());
        }
    } else {
        out.push(task.primary_metric.clone());
    }
    for name in [EXACT_MATCH, TOKEN_ACCURACY] {
        if has(name) && !out.iter().any(|m| m == name) {
            out.push(name.into());
        }
    }
    let recorded: BTreeSet<&String> = recorded.iter().collect();
    let is_score = |name: &str| name != LOSS_NATS && head(name).is_none();
    let others = task
        .definitions
        .keys()
        .filter(|name| is_score(name) && recorded.contains(name) && !out.contains(name));
    let others: Vec<String> = others.cloned().collect();
    out.extend(others);
    out
}

/// A stored or derived metric of one evaluation, with the count it is a mean over.
pub fn value(task: &TaskFacts, row: &EvalRow, metric: &str) -> Option<(f64, u64)> {
    if let Some(stored) = row.metrics.get(metric) {
        return Some((stored.value, stored.n));
    }
    let loss = row.metrics.get(LOSS_NATS)?;
    match metric {
        PERPLEXITY => Some((perplexity(loss.value), loss.n)),
        BITS_PER_BYTE => Some((bits_per_byte(loss.value, task.bytes_per_token?), loss.n)),
        _ => None,
    }
}

/// The score of guessing, stored or derived.
pub fn chance(task: &TaskFacts, metric: &str) -> Option<f64> {
    let loss = || task.chance.get(LOSS_NATS).copied();
    let derived = match metric {
        PERPLEXITY => loss().map(perplexity),
        BITS_PER_BYTE => loss()
            .zip(task.bytes_per_token)
            .map(|(loss, bytes)| bits_per_byte(loss, bytes)),
        _ => None,
    };
    task.chance
        .get(metric)
        .copied()
        .or(derived)
        .filter(|c| c.is_finite())
}

/// The task's own sentence on a metric, or ours for the derived ones.
pub fn definition(task: &TaskFacts, metric: &str) -> String {
    if let Some(text) = task.definitions.get(metric) {
        return text.clone();
    }
    match metric {
        PERPLEXITY => {
            "exp of the mean loss in nats per counted token, for each run; lower is better.".into()
        }
        BITS_PER_BYTE => "mean loss in nats per counted token, divided by ln 2 and by the bytes \
                          of a token; lower is better."
            .into(),
        LOSS_NATS => "mean cross-entropy in nats per counted token; lower is better.".into(),
        _ => "as recorded; the task gives no definition.".into(),
    }
}

/// Decimals that suit a value of this metric: three for shares and bits, about three significant
/// digits otherwise.
pub fn decimals(metric: &str, value: f64) -> usize {
    match metric {
        PERPLEXITY | RATIO => significant(value),
        KEPT_TO => 0,
        _ if value.abs() < 10.0 => 3,
        _ => significant(value),
    }
}

/// About three significant digits, at least.
pub(crate) fn significant(value: f64) -> usize {
    match value.abs() {
        v if v < 10.0 => 2,
        v if v < 1000.0 => 1,
        _ => 0,
    }
}

/// A number for people: fixed decimals, powers of ten from a million on.
pub fn number(value: f64, decimals: usize) -> String {
    if value.abs() >= 1e6 {
        return format!("{value:.1e}");
    }
    let text = format!("{value:.decimals$}");
    // "-0.00" is a rounding artefact, not a sign.
    if text.starts_with('-') && text.bytes().all(|b| matches!(b, b'-' | b'0' | b'.')) {
        text[1..].into()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derived_metrics() {
        assert!((perplexity(0.0) - 1.0).abs() < 1e-15);
        assert!((bits_per_byte(std::f64::consts::LN_2, 1.0) - 1.0).abs() < 1e-15);
        assert!((bits_per_byte(std::f64::consts::LN_2, 4.0) - 0.25).abs() < 1e-15);
    }

    #[test]
    fn kept_in_both_directions() {
        assert!(is_kept("exact_match", 0.9, 1.0) && !is_kept("exact_match", 0.89, 1.0));
        assert!(is_kept(PERPLEXITY, 4.4, 4.0) && !is_kept(PERPLEXITY, 4.5, 4.0));
        assert_eq!(extrapolation_ratio(1.0, 0.0), None);
        assert_eq!(extrapolation_ratio(1.0, 2.0), Some(0.5));
        assert_eq!(kept_share(EXACT_MATCH, 0.5, 1.0), Some(0.5));
        assert_eq!(kept_share(PERPLEXITY, 8.0, 4.0), Some(0.5));
        assert_eq!(kept_share(EXACT_MATCH, 0.5, 0.0), None);
    }

    #[test]
    fn shares_by_name() {
        for name in ["exact_match", "token_accuracy", "exact_match_depth_0_20"] {
            assert!(is_share(name), "{name}");
        }
        for name in [
            "loss_nats",
            PERPLEXITY,
            RATIO,
            KEPT_TO,
            KEPT_AREA,
            "attention_distance_1_1",
            "exact_matches",
        ] {
            assert!(!is_share(name), "{name}");
        }
    }

    #[test]
    fn heads_by_name() {
        assert_eq!(head("attention_distance_1_10"), Some((1, 10)));
        for name in [
            "attention_distance",
            "attention_distance_1",
            "attention_distance_a_1",
            "exact_match",
            "attention_distance_1_2_3",
        ] {
            assert_eq!(head(name), None, "{name}");
        }
    }

    #[test]
    fn depths_by_name() {
        assert_eq!(depth("exact_match_depth_20_40"), Some((20, 40)));
        for name in [
            "exact_match",
            "exact_match_depth_20",
            "token_accuracy_depth_20_40",
            "exact_match_depth_a_b",
        ] {
            assert_eq!(depth(name), None, "{name}");
        }
    }

    #[test]
    fn numbers() {
        assert_eq!(number(-0.001, 2), "0.00");
        assert_eq!(number(-0.01, 2), "-0.01");
        assert_eq!(number(2_345_678.0, 0), "2.3e6");
    }
}
