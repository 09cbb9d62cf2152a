//! The metric registry: what each stored or derived number means.
//!
//! A metric is one entry of [`METRICS`]; whoever computes it refers to its name. Records store the
//! loss in nats. Perplexity and bits per byte are derived for each run. The scale of a metric says
//! how it is averaged over seeds and compared: perplexities by their logarithms, which are the
//! losses in nats, so that a mean perplexity is exp of the mean loss.

use crate::record::{EvalRow, Metric, TaskFacts};
use crate::stats::Scale;
use std::cmp::Ordering;
use std::collections::BTreeSet;

pub use crate::number::significant;
pub use crate::number::{Decimals, number};

/// Mean loss, nats per counted token: the stored form.
pub const LOSS_NATS: &str = "loss_nats";
/// Mean loss over the last predictions of every window, nats per counted token.
pub const LAST_LOSS_NATS: &str = "last_loss_nats";
/// exp of the loss.
pub const PERPLEXITY: &str = "perplexity";
/// Loss in bits, by byte of text.
pub const BITS_PER_BYTE: &str = "bits_per_byte";
/// Share of answers that are right from the first token to the last. `exact_match_GROUP` is the
/// same over a group of test rows.
pub const EXACT_MATCH: &str = "exact_match";
/// Share of tokens that are right, each given the true ones before it.
pub const TOKEN_ACCURACY: &str = "token_accuracy";
/// Mean distance between queries and keys, `attention_distance_LAYER_HEAD`. It describes a model
/// and is not a score.
pub const ATTENTION_DISTANCE: &str = "attention_distance";
/// Share of pairs whose attention weight f32 rounds to 0, `blind_LAYER_HEAD`.
pub const BLIND: &str = "blind";
/// How stable a rotary head's order of two keys is under a change of distance,
/// `semantic_score_LAYER_HEAD`.
pub const SEMANTIC_SCORE: &str = "semantic_score";
/// How far one token moves the logits of a rotary head, `positional_score_LAYER_HEAD`.
pub const POSITIONAL_SCORE: &str = "positional_score";
/// What is recorded of every head, `NAME_LAYER_HEAD`. They describe a model and are not scores.
/// `NAME` alone is the mean over all heads.
pub const OF_HEADS: [&str; 4] = [ATTENTION_DISTANCE, BLIND, SEMANTIC_SCORE, POSITIONAL_SCORE];
/// A score relative to the one in length, see [`extrapolation_ratio`].
pub const RATIO: &str = "ratio";
/// A difference on [`Scale::Log`]: 0.05 for 5 % more.
pub const CHANGE: &str = "relative_change";
/// The share of the in-length score, averaged over log2 of the length.
pub const KEPT_AREA: &str = "kept_area";

/// Share of the in-length score that counts as kept.
pub const KEPT: f64 = 0.9;
/// Share of exact answers in length from which on a task counts as learned; below it nothing is
/// said about longer lengths.
pub const LEARNED: f64 = 0.95;
/// Change of a share, or relative change of a perplexity, from half the steps to all above which a
/// method is still learning.
pub const STILL_LEARNING: f64 = 0.03;

/// Smallest difference of two losses in nats that counts as one, about 1 % of a perplexity and what
/// two seeds of one method differ by.
const SMALLEST_NATS: f64 = 0.01;

/// Which values of a metric are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// A smaller value is better.
    Lower,
    /// A larger value is better.
    Higher,
}

/// How a metric follows from [`LOSS_NATS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Derivation {
    /// [`perplexity`].
    Perplexity,
    /// [`bits_per_byte`].
    BitsPerByte,
}

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricDef {
    /// Its name, and the beginning, before `_`, of the names of its parts: of a group of rows, of a
    /// head.
    pub name: &'static str,
    /// Which values are better.
    pub direction: Direction,
    /// How a value is printed.
    pub decimals: Decimals,
    /// Whether it is a share of test rows or tokens, with values in [0, 1].
    pub is_share: bool,
    /// How it is averaged and compared.
    pub scale: Scale,
    /// How it is derived, if it is not stored.
    pub derived_from_loss: Option<Derivation>,
    /// One sentence without a full stop, for records whose task gives no definition. A task's own
    /// definition and its level of guessing are in [`TaskFacts`], because they depend on it.
    pub definition: &'static str,
}

/// A stored score where more is better, printed with three decimals.
const SCORE: MetricDef = MetricDef {
    name: "",
    direction: Direction::Higher,
    decimals: Decimals::Three,
    is_share: false,
    scale: Scale::Linear,
    derived_from_loss: None,
    definition: "as recorded; the task gives no definition",
};

/// Every metric. Where a name has several entries' names as its beginning, the longest counts.
pub const METRICS: &[MetricDef] = &[
    MetricDef {
        name: LOSS_NATS,
        direction: Direction::Lower,
        definition: "mean cross-entropy in nats per counted token; lower is better",
        ..SCORE
    },
    MetricDef {
        name: LAST_LOSS_NATS,
        direction: Direction::Lower,
        definition: "mean cross-entropy in nats per counted token over the last predictions of \
                     every window; lower is better",
        ..SCORE
    },
    MetricDef {
        name: PERPLEXITY,
        direction: Direction::Lower,
        decimals: Decimals::Significant,
        scale: Scale::Log,
        derived_from_loss: Some(Derivation::Perplexity),
        definition: "exp of the mean loss in nats per counted token; lower is better",
        ..SCORE
    },
    MetricDef {
        name: BITS_PER_BYTE,
        direction: Direction::Lower,
        derived_from_loss: Some(Derivation::BitsPerByte),
        definition: "mean loss in nats per counted token, divided by ln 2 and by the bytes of a \
                     token; lower is better",
        ..SCORE
    },
    MetricDef {
        name: EXACT_MATCH,
        is_share: true,
        definition: "share of test rows whose answer is right from the first token to the last",
        ..SCORE
    },
    MetricDef {
        name: TOKEN_ACCURACY,
        is_share: true,
        definition: "share of answer tokens that are right",
        ..SCORE
    },
    MetricDef {
        name: ATTENTION_DISTANCE,
        definition: "distance in tokens between a query and what it attends to, each key weighed \
                     by its attention weight, the mean over all queries of the test windows; it \
                     describes the model and is not a score",
        ..SCORE
    },
    MetricDef {
        name: BLIND,
        definition: "share of the pairs of a query and an earlier key, or its own, whose attention \
                     weight is exactly 0 in f32 as the device computes it, over all queries of \
                     the test windows; masked pairs count; it describes the model and is \
                     not a score",
        ..SCORE
    },
    MetricDef {
        name: SEMANTIC_SCORE,
        definition: "1 less the probability that two keys change their order for a query when \
                     only their distance from it changes, by a Gaussian estimate over the \
                     distances of the window (Wu et al. 2026, arXiv 2609.39929); mean over the \
                     first 32 rows, 4 queries and 16 keys of each; it describes the model and is \
                     not a score",
        ..SCORE
    },
    MetricDef {
        name: POSITIONAL_SCORE,
        definition: "mean change of a logit when the distance grows by one token, over the norm \
                     of the products of its rotated pairs (Wu et al. 2026, arXiv 2609.39929); \
                     mean over the first 32 rows, 4 queries and 16 keys of each; it describes the \
                     model and is not a score",
        ..SCORE
    },
    MetricDef {
        name: RATIO,
        decimals: Decimals::Significant,
        definition: "score over the score in length",
        ..SCORE
    },
    MetricDef {
        name: CHANGE,
        decimals: Decimals::Percent,
        definition: "relative change, exp of the mean difference of logarithms, less 1",
        ..SCORE
    },
    MetricDef {
        name: KEPT_AREA,
        definition: "share of the in-length score, averaged over log2 of the length",
        ..SCORE
    },
];

/// The entry of a metric, or of the one that it is a part of.
pub fn find(metric: &str) -> Option<&'static MetricDef> {
    let is_part = |rest: &str| rest.is_empty() || rest.starts_with('_');
    // A part's name extends its metric's, so the longest name that fits is the metric meant.
    METRICS
        .iter()
        .filter(|def| metric.strip_prefix(def.name).is_some_and(is_part))
        .max_by_key(|def| def.name.len())
}

/// [`find`]; for a name of no entry that of a stored score where more is better.
fn definition_of(metric: &str) -> &'static MetricDef {
    find(metric).unwrap_or(&SCORE)
}

/// perplexity = exp(loss).
pub fn perplexity(loss_nats: f64) -> f64 {
    loss_nats.exp()
}

/// bits per byte = loss / ln 2 / bytes per token.
pub fn bits_per_byte(loss_nats: f64, bytes_per_token: f64) -> f64 {
    loss_nats / std::f64::consts::LN_2 / bytes_per_token
}

/// A derived metric from a loss in nats; none for a stored one, or where the task lacks what it
/// needs.
fn derive(task: &TaskFacts, metric: &str, loss_nats: f64) -> Option<f64> {
    let def = METRICS.iter().find(|def| def.name == metric)?;
    match def.derived_from_loss? {
        Derivation::Perplexity => Some(perplexity(loss_nats)),
        Derivation::BitsPerByte => Some(bits_per_byte(loss_nats, task.bytes_per_token?)),
    }
}

/// Whether the metric is a share of test rows or of tokens, so that its values lie in [0, 1].
pub fn is_share(metric: &str) -> bool {
    definition_of(metric).is_share
}

/// How the metric is averaged over seeds and compared.
pub fn scale(metric: &str) -> Scale {
    definition_of(metric).scale
}

/// Factor from a difference of losses in nats to one of a metric that is computed from the loss,
/// on its scale; none for other metrics.
pub fn per_nat(task: &TaskFacts, metric: &str) -> Option<f64> {
    match metric {
        LOSS_NATS => Some(1.0),
        _ => match METRICS
            .iter()
            .find(|def| def.name == metric)?
            .derived_from_loss?
        {
            Derivation::Perplexity => Some(1.0),
            Derivation::BitsPerByte => Some(bits_per_byte(1.0, task.bytes_per_token?)),
        },
    }
}

/// Smallest difference that counts as one, on the metric's scale; 0, any, for what is not a loss: a
/// share differs little wherever its task is too easy or too hard.
pub fn smallest_difference(metric: &str) -> f64 {
    match metric {
        LOSS_NATS | LAST_LOSS_NATS | PERPLEXITY => SMALLEST_NATS,
        BITS_PER_BYTE => bits_per_byte(SMALLEST_NATS, 1.0),
        _ => 0.0,
    }
}

/// The metric that a difference of two values of a metric is printed as.
pub fn of_difference(metric: &str) -> &str {
    match scale(metric) {
        Scale::Linear => metric,
        Scale::Log => CHANGE,
    }
}

/// Number of distinct test rows behind a share: a row that appears twice is not tested twice. The
/// tokens of one row are not independent of each other, so a share of tokens counts the rows of the
/// exact match beside it, where there is one.
pub fn rows(row: &EvalRow, metric: &str) -> Option<u64> {
    let of = |name: &str| row.metrics.get(name).map(|stored| stored.n);
    let rows = of(EXACT_MATCH).filter(|_| metric.starts_with(TOKEN_ACCURACY));
    let bounds = [rows, row.distinct_rows].into_iter().flatten();
    Some(bounds.fold(of(metric)?, u64::min))
}

/// Whether a smaller value is a better one.
pub fn lower_is_better(metric: &str) -> bool {
    definition_of(metric).direction == Direction::Lower
}

/// Orders two values, the better one first.
pub fn better_first(metric: &str, a: f64, b: f64) -> Ordering {
    if lower_is_better(metric) {
        a.total_cmp(&b)
    } else {
        b.total_cmp(&a)
    }
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

/// Layer and head of `name`, one of [`OF_HEADS`], by a metric's name.
pub fn head_of(name: &str, metric: &str) -> Option<(usize, usize)> {
    let (layer, head) = metric
        .strip_prefix(name)?
        .strip_prefix('_')?
        .split_once('_')?;
    Some((layer.parse().ok()?, head.parse().ok()?))
}

/// Layer and head of whatever is recorded of every head, by a metric's name.
pub fn head(metric: &str) -> Option<(usize, usize)> {
    OF_HEADS.iter().find_map(|name| head_of(name, metric))
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
    // A loss is shown in its derived forms, not in nats.
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

/// Whether a table of a metric would repeat what a report shows elsewhere: bits per byte are the
/// logarithm of the perplexity, and exact matches by depth are the numbers of a figure.
pub fn is_repetition(metric: &str, lead: &str) -> bool {
    metric == BITS_PER_BYTE && lead == PERPLEXITY || depth(metric).is_some()
}

/// The mean over all heads of one of [`OF_HEADS`], with the smallest count of a head.
fn over_heads(row: &EvalRow, name: &str) -> Option<(f64, u64)> {
    let heads = row.metrics.iter();
    let heads = heads.filter(|(metric, _)| head_of(name, metric).is_some());
    let heads: Vec<&Metric> = heads.map(|(_, stored)| stored).collect();
    let sum: f64 = heads.iter().map(|head| head.value).sum();
    let n = heads.iter().map(|head| head.n).min()?;
    Some((sum / heads.len() as f64, n))
}

/// A stored or derived metric of one evaluation, with the count it is a mean over. One of
/// [`OF_HEADS`] by its name alone is the mean over all heads.
pub fn value(task: &TaskFacts, row: &EvalRow, metric: &str) -> Option<(f64, u64)> {
    if let Some(stored) = row.metrics.get(metric) {
        return Some((stored.value, stored.n));
    }
    if OF_HEADS.contains(&metric) {
        return over_heads(row, metric);
    }
    // What is not stored may follow from the loss.
    let loss = row.metrics.get(LOSS_NATS)?;
    Some((derive(task, metric, loss.value)?, loss.n))
}

/// The score of guessing, stored or derived.
pub fn chance(task: &TaskFacts, metric: &str) -> Option<f64> {
    let derived = || derive(task, metric, *task.chance.get(LOSS_NATS)?);
    task.chance
        .get(metric)
        .copied()
        .or_else(derived)
        .filter(|c| c.is_finite())
}

/// The task's own sentence on a metric, or the registry's.
pub fn definition(task: &TaskFacts, metric: &str) -> String {
    match task.definitions.get(metric) {
        Some(text) => text.clone(),
        None => format!("{}.", definition_of(metric).definition),
    }
}

/// Decimals that suit a value of this metric, in its [`unit`](unit()).
pub fn decimals(metric: &str, value: f64) -> usize {
    definition_of(metric).decimals.of(value)
}

/// The factor of values in print, and the text after them.
pub fn unit(metric: &str) -> (f64, &'static str) {
    definition_of(metric).decimals.unit()
}

#[cfg(test)]
mod tests;
