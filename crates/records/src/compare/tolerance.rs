//! Two sets of records compared number by number, within a tolerance.

use super::by_id;
use crate::record::{EvalRow, RunRecord};
use std::collections::BTreeMap;
use std::fmt;

/// The largest relative differences between two sets of records.
///
/// A difference is relative to the first set's number, or absolute for numbers below 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Closeness {
    /// Largest relative difference allowed.
    pub tolerance: f64,
    /// For each run in both sets, the number that differs most.
    pub runs: Vec<LargestDifference>,
    /// How many of these are later evaluations of runs.
    pub evaluations: usize,
    /// Numbers compared.
    pub compared: usize,
    /// Runs and numbers that only one of the sets has.
    pub unpaired: usize,
}

/// The number of a run that differs most.
#[derive(Clone, Debug, PartialEq)]
pub struct LargestDifference {
    /// Experiment, labels, seed and id.
    pub run: String,
    /// Name of the number; empty if none was compared.
    pub number: String,
    /// Its relative difference.
    pub relative: f64,
}

impl Closeness {
    /// Compares trainings and metrics by run id. Where a set holds a run twice, its last
    /// record counts.
    pub fn of(first: &[RunRecord], second: &[RunRecord], tolerance: f64) -> Self {
        let (first, mut second) = (by_id(first), by_id(second));
        let mut out = Self {
            tolerance,
            runs: Vec::new(),
            evaluations: 0,
            compared: 0,
            unpaired: 0,
        };
        for (id, record) in &first {
            match second.remove(id) {
                Some(other) => out.add(record, other),
                None => out.unpaired += 1,
            }
        }
        out.unpaired += second.len();
        out
    }

    fn add(&mut self, record: &RunRecord, other: &RunRecord) {
        let (ours, mut theirs) = (numbers(record), numbers(other));
        let mut largest = LargestDifference {
            run: record.title(),
            number: String::new(),
            relative: 0.0,
        };
        for (number, value) in ours {
            let Some(their) = theirs.remove(&number) else {
                self.unpaired += 1;
                continue;
            };
            self.compared += 1;
            let relative = (value - their).abs() / value.abs().max(1.0);
            // NaN is the largest difference of all.
            if relative.is_nan() || relative >= largest.relative {
                (largest.relative, largest.number) = (relative, number);
            }
        }
        self.unpaired += theirs.len();
        self.evaluations += usize::from(record.evaluation_of.is_some());
        self.runs.push(largest);
    }

    /// The largest relative difference of all numbers; NaN if any of them is NaN.
    pub fn largest(&self) -> f64 {
        let all = self.runs.iter().map(|run| run.relative);
        // `f64::max` ignores NaN, and no NaN may pass as within the tolerance.
        all.fold(0.0, |a, b| {
            if a.is_nan() || b.is_nan() {
                f64::NAN
            } else {
                a.max(b)
            }
        })
    }

    /// Whether every number is in both sets and within the tolerance, and there is at least one.
    pub fn is_within(&self) -> bool {
        self.compared > 0 && self.unpaired == 0 && self.largest() <= self.tolerance
    }
}

/// Every number of a record that a device could compute wrongly, by name, except for the loss by
/// position, which two sets may have in other bins.
fn numbers(record: &RunRecord) -> BTreeMap<String, f64> {
    let train = &record.train;
    let count = |name: &str, number: u64| (name.to_owned(), number as f64);
    let stops = train.stop_scores.iter().filter_map(|score| {
        let name = format!("score of train.stop after step {}", score.step);
        Some((name, score.value?))
    });
    let last = train
        .final_loss_nats
        .map(|loss| ("final training loss".to_owned(), loss));
    let all = [
        count("steps", train.steps),
        count("tokens trained on", train.tokens),
        count("parameters", record.model.parameters),
    ];
    let all = all.into_iter().chain(last).chain(stops);
    let curve = record.train.loss_curve.iter();
    let curve = curve.map(|p| (format!("training loss at step {}", p.step), p.loss_nats));
    let named = |row: &EvalRow, after: String| -> Vec<(String, f64)> {
        let name = |name: &str| format!("{name} of {} at {}{after}", row.variant, row.length());
        let metrics = row.metrics.iter();
        let metrics = metrics.map(|(metric, found)| (name(metric), found.value));
        let blocks = row.loss_by_block.iter().enumerate();
        let blocks = blocks.map(|(at, loss)| (name(&format!("loss of block {at}")), *loss));
        metrics.chain(blocks).collect()
    };
    let scores = record.train.scores.iter().flat_map(|at| {
        let after = format!(" after step {}", at.step);
        at.rows
            .iter()
            .flat_map(move |row| named(row, after.clone()))
    });
    let evals = record
        .evals
        .iter()
        .flat_map(|row| named(row, String::new()));
    all.chain(curve).chain(scores).chain(evals).collect()
}

impl fmt::Display for Closeness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let differs = |run: &&LargestDifference| run.relative != 0.0;
        for run in self.runs.iter().filter(differs) {
            let (relative, number) = (run.relative, &run.number);
            writeln!(
                f,
                "{}: largest difference {relative:.1e} ({number})",
                run.run
            )?;
        }
        let (runs, evaluations) = (self.runs.len() - self.evaluations, self.evaluations);
        write!(f, "{} numbers of {runs} runs", self.compared)?;
        if evaluations > 0 {
            write!(f, " and {evaluations} later evaluations")?;
        }
        write!(
            f,
            ", {} without a difference; largest relative difference {:.1e}, tolerance {:.1e}",
            self.runs.iter().filter(|run| !differs(run)).count(),
            self.largest(),
            self.tolerance
        )?;
        if self.unpaired > 0 {
            write!(f, "\n{} runs or numbers are in one set only", self.unpaired)?;
        }
        Ok(())
    }
}
