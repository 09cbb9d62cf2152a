//! Two sets of records compared run by run for equality.

use super::by_id;
use crate::record::{EvalRow, EvalStatus, RunRecord};
use crate::spec::canonical_text;
use crate::text;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;

/// Variant, test length and range of a row.
type RowKey = (String, usize, String);
/// Status and scores of a row.
type RowScores = (EvalStatus, BTreeMap<String, f64>);

/// Whether two sets of records are equal, run by run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Comparison {
    /// Number of runs in both that are equal in weights, losses and scores, whatever build made
    /// them.
    pub identical: usize,
    /// How many of the identical ones are later evaluations of runs, and how many of all in both.
    pub evaluations: [usize; 2],
    /// Runs in both that differ.
    pub different: Vec<Difference>,
    /// Runs only in the first set, as [`name`](Difference::name).
    pub only_first: Vec<String>,
    /// Runs only in the second set.
    pub only_second: Vec<String>,
    /// By metric: the largest change of a score over all different runs, absolute, with both
    /// values.
    pub largest: BTreeMap<String, [f64; 2]>,
}

/// A run whose records differ.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Experiment, labels, seed and id.
    pub name: String,
    /// What differs, the weights first.
    pub what: Vec<String>,
}

impl Comparison {
    /// Compares by run id, and later evaluations by the run that they evaluate too; where a set
    /// holds a run twice, as part of several experiments, its last record counts. How finely the
    /// loss by position was kept does not matter.
    pub fn of(first: &[RunRecord], second: &[RunRecord]) -> Self {
        let (first, mut second) = (by_id(first), by_id(second));
        let mut out = Self::default();
        for (id, a) in first {
            let Some(b) = second.remove(&id) else {
                out.only_first.push(a.title());
                continue;
            };
            let what = out.differences(a, b);
            if a.evaluation_of.is_some() {
                out.evaluations[0] += usize::from(what.is_empty());
                out.evaluations[1] += 1;
            }
            if what.is_empty() {
                out.identical += 1
            } else {
                out.different.push(Difference {
                    name: a.title(),
                    what,
                })
            }
        }
        out.only_second = second.values().map(|record| record.title()).collect();
        out
    }

    /// Whether every run is in both and identical.
    pub fn is_identical(&self) -> bool {
        self.different.is_empty() && self.only_first.is_empty() && self.only_second.is_empty()
    }

    fn differences(&mut self, a: &RunRecord, b: &RunRecord) -> Vec<String> {
        let mut what = Vec::new();
        let mut note = |differs: bool, text: &str| {
            if differs {
                what.push(text.to_owned());
            }
        };
        note(a.model != b.model, "weights");
        note(a.status != b.status || a.diverged != b.diverged, "status");
        note(a.train != b.train, "training loss");
        note(a.task != b.task, "task or corpus");
        note(a.spec != b.spec, "specification");
        note(a.seed != b.seed, "seed");
        let others = other_differences(a, b);
        let rows = |record: &RunRecord| -> BTreeMap<RowKey, RowScores> {
            let row = |row: &crate::record::EvalRow| {
                let metrics = row
                    .metrics
                    .iter()
                    .map(|(name, metric)| (name.clone(), metric.value))
                    .collect();
                (
                    (row.variant.clone(), row.test_len, row.length()),
                    (row.status, metrics),
                )
            };
            record.evals.iter().map(row).collect()
        };
        // By variant and length, so that the order of rows does not matter.
        let (a, b) = (rows(a), rows(b));
        note(a.keys().ne(b.keys()), "what was evaluated");
        let mut scores = 0;
        for (key, (status, metrics)) in &a {
            let Some((other_status, others)) = b.get(key) else {
                continue;
            };
            note(
                status != other_status,
                &format!("status of {} at {}", text::name(&key.0, 40), key.2),
            );
            for (metric, value) in metrics {
                let Some(other) = others.get(metric).filter(|other| *other != value) else {
                    continue;
                };
                scores += 1;
                let largest = self
                    .largest
                    .entry(metric.clone())
                    .or_insert([*value, *other]);
                if (value - other).abs() > (largest[0] - largest[1]).abs() {
                    *largest = [*value, *other];
                }
            }
        }
        note(scores > 0, &format!("{scores} scores"));
        what.extend(others);
        what
    }
}

/// What differs beside the training and the scores.
fn other_differences(a: &RunRecord, b: &RunRecord) -> Vec<String> {
    let mut what = Vec::new();
    if a.selected != b.selected {
        what.push("how values were chosen".to_owned());
    }
    let facts = [&a.encoding_facts, &b.encoding_facts];
    if facts[0] != facts[1] && facts.iter().all(|facts| !facts.is_empty()) {
        what.push("facts of the encoding".to_owned());
    }
    let differs = |row: &&EvalRow| {
        let other = b.evals.iter().find(|other| is_same_row(row, other));
        other.is_some_and(|other| details_differ(row, other))
    };
    match a.evals.iter().filter(differs).count() {
        0 => {}
        rows => what.push(format!(
            "counts, or losses by block or position, of {rows} rows"
        )),
    }
    what
}

/// Whether two rows are of one variant at one length.
fn is_same_row(a: &EvalRow, b: &EvalRow) -> bool {
    (&a.variant, a.test_len, a.from_len) == (&b.variant, b.test_len, b.from_len)
}

/// Whether rows differ in what is recorded beside scores: counts, denominators, losses by block, or
/// by position where both have the same bins. What one of them lacks is no difference.
fn details_differ(a: &EvalRow, b: &EvalRow) -> bool {
    let counts = |row: &EvalRow| -> Vec<(String, u64)> {
        let metrics = row.metrics.iter();
        metrics
            .map(|(name, metric)| (name.clone(), metric.n))
            .collect()
    };
    let bins = |row: &EvalRow| -> Vec<(usize, usize)> {
        let bins = row.loss_by_position.iter();
        bins.map(|bin| (bin.from, bin.to)).collect()
    };
    let both = !a.metrics.is_empty() && !b.metrics.is_empty();
    both && (counts(a) != counts(b) || a.distinct_rows != b.distinct_rows)
        || a.denominators.is_some() && b.denominators.is_some() && a.denominators != b.denominators
        || a.loss_by_block.len() == b.loss_by_block.len() && a.loss_by_block != b.loss_by_block
        || bins(a) == bins(b) && a.loss_by_position != b.loss_by_position
}

/// What two records of one run disagree in, in a few words; none where they agree.
///
/// Allowed to differ: experiment, labels, build, device, the bins of the loss by position, and rows
/// that one of them lacks or skipped for lack of memory.
pub fn disagreement(a: &RunRecord, b: &RunRecord) -> Option<String> {
    if std::ptr::eq(a, b) {
        return None;
    }
    let mut what = Vec::new();
    let mut note = |differs: bool, text: String| {
        if differs {
            what.push(text);
        }
    };
    note(
        canonical_text(&a.spec) != canonical_text(&b.spec) || a.seed != b.seed,
        "the specification".into(),
    );
    note(a.model != b.model, "the weights".into());
    note(
        a.status != b.status || a.diverged != b.diverged,
        "the status".into(),
    );
    note(a.train != b.train, "the training loss".into());
    let mut scores = 0;
    let mut first = None;
    for row in a
        .evals
        .iter()
        .filter(|row| row.status != EvalStatus::Skipped)
    {
        let other = b.evals.iter().find(|other| is_same_row(row, other));
        let Some(other) = other.filter(|other| other.status != EvalStatus::Skipped) else {
            continue;
        };
        let same = (row.status, &row.metrics) == (other.status, &other.metrics);
        if !same || details_differ(row, other) {
            scores += 1;
            first.get_or_insert_with(|| {
                format!("{} at {}", text::name(&row.variant, 40), row.length())
            });
        }
    }
    let more = if scores > 1 {
        format!(" and {} more", scores - 1)
    } else {
        String::new()
    };
    note(
        scores > 0,
        format!("the scores of {}{more}", first.unwrap_or_default()),
    );
    (!what.is_empty()).then(|| what.join(", "))
}

/// Of two records of one run that agree, the more detailed one comes first: by rows with a result,
/// then by the length of labels, which names distinguish methods by, then by bins of the loss by
/// position.
pub fn fuller_first(a: &RunRecord, b: &RunRecord) -> Ordering {
    let results = |r: &RunRecord| {
        r.evals
            .iter()
            .filter(|row| row.status != EvalStatus::Skipped)
            .count()
    };
    let json = |r: &RunRecord| serde_json::to_string(r).unwrap_or_default();
    let by_size = results(b)
        .cmp(&results(a))
        .then_with(|| b.label_chars().cmp(&a.label_chars()))
        .then_with(|| b.bins().cmp(&a.bins()));
    // Records of one size are ordered by their text: the order of reading must not decide.
    by_size.then_with(|| {
        if a == b {
            Ordering::Equal
        } else {
            json(a).cmp(&json(b))
        }
    })
}

/// Runs named in each list.
const MOST_NAMED: usize = 20;

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let both = self.identical + self.different.len();
        let [same, all] = self.evaluations;
        write!(f, "{} of {} runs", self.identical - same, both - all)?;
        if all > 0 {
            write!(f, " and {same} of {all} later evaluations")?;
        }
        write!(f, " in both are identical")?;
        for (runs, place) in [(&self.only_first, "first"), (&self.only_second, "second")] {
            for run in runs.iter().take(MOST_NAMED) {
                write!(f, "\nonly in the {place}: {run}")?;
            }
            if let Some(more) = runs.len().checked_sub(MOST_NAMED).filter(|more| *more > 0) {
                write!(f, "\nonly in the {place}: {more} more")?;
            }
        }
        for difference in self.different.iter().take(MOST_NAMED) {
            write!(
                f,
                "\ndifferent: {}: {}",
                difference.name,
                difference.what.join(", ")
            )?;
        }
        if let Some(more) = self
            .different
            .len()
            .checked_sub(MOST_NAMED)
            .filter(|more| *more > 0)
        {
            write!(f, "\ndifferent: {more} more")?;
        }
        for (metric, [a, b]) in &self.largest {
            write!(
                f,
                "\nlargest change of {}: {a} to {b}",
                text::name(metric, 40)
            )?;
        }
        Ok(())
    }
}
