//! Whether a method was trained long enough: how much its score in length moves from half the steps
//! to all of them.

use super::groups::Run;
use super::measure::difference_of;
use super::point::{Absent, Point, difference_parts, value_at, value_in};
use super::setting::{Method, Setting};
use crate::metric::{STILL_LEARNING, of_difference};
use crate::record::RunRecord;
use crate::text::{list, name};
use std::collections::BTreeSet;

impl Setting<'_> {
    /// Whether any run was also trained with half its steps.
    pub fn has_halves(&self) -> bool {
        let mut runs = self.groups.iter().flat_map(|group| &group.runs);
        runs.any(|run| run.half.is_some())
    }

    /// The seeds of runs that were also trained with half their steps.
    pub fn half_seeds(&self) -> BTreeSet<u64> {
        let runs = self.groups.iter().flat_map(|group| &group.runs);
        let halved = runs.filter(|run| run.half.is_some());
        halved.map(|run| run.seed).collect()
    }

    /// How much the leading score in length moves from half the steps to all, paired by seed: a
    /// difference, of perplexities the relative change. Of a variant, that of the trained encoding.
    /// Runs that were not trained with half their steps do not count.
    pub fn learning(&self, method: &Method) -> Point {
        let (method, metric) = (self.trained(method), self.lead());
        let runs = self.groups[method.group].runs.iter();
        let runs: Vec<(&Run<'_>, &RunRecord)> =
            runs.filter_map(|run| Some((run, run.half?))).collect();
        let pair = |run: &Run<'_>, half: &RunRecord| -> Result<(f64, f64), Absent> {
            let len = self.in_length.ok_or(Absent::Missing)?;
            let all = value_at(run, &method.variant, metric, len)?;
            Ok((all, value_in(half, &method.variant, metric, len)?))
        };
        let (mut pairs, mut values, mut absent) = (Vec::new(), Vec::new(), BTreeSet::new());
        for (run, half) in &runs {
            match pair(run, half) {
                Ok((all, half)) => {
                    pairs.push((all, half));
                    values.push((run.seed, all - half));
                }
                Err(why) => {
                    absent.insert(why);
                }
            }
        }
        let rows = self
            .in_length
            .map_or(1, |len| self.rows(method, metric, len));
        Point {
            values,
            estimate: difference_of(metric, &pairs, (rows, rows)),
            runs: runs.len(),
            failed: 0,
            absent,
        }
    }

    /// Whether a method's score in length still moves by more than [`STILL_LEARNING`].
    pub fn is_still_learning(&self, method: &Method) -> bool {
        let estimate = self.learning(method).estimate;
        estimate.is_some_and(|change| change.mean.abs() > STILL_LEARNING)
    }

    /// A sentence that counts the methods that are still learning; none where no run was trained
    /// with half its steps.
    pub fn learning_note(&self) -> Option<String> {
        let len = self.in_length.filter(|_| self.has_halves())?;
        let trained = || self.methods.iter().filter(|m| !self.is_variant(m));
        let tested = trained().filter(|m| self.learning(m).estimate.is_some());
        let still = trained().filter(|m| self.is_still_learning(m));
        let metric = self.lead();
        let text = |method: &Method| {
            let change = self.learning(method).estimate?;
            let (change, _) = difference_parts(metric, &change);
            Some(format!("{} ({change})", name(&method.title, 60)))
        };
        let still: Vec<String> = still.filter_map(text).collect();
        let kind = if of_difference(metric) == metric {
            format!("by more than {STILL_LEARNING}")
        } else {
            format!("by more than {} %", 100.0 * STILL_LEARNING)
        };
        let which = match still.len() {
            0 => String::new(),
            _ => format!(": {}", list(&still, 12)),
        };
        Some(format!(
            "{} of {} methods are still learning, their {metric} at {len} moves {kind} from half the \
             steps to all{which}.",
            still.len(),
            tested.count()
        ))
    }
}
