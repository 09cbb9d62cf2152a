//! Whether a method was trained long enough: how much its score in length moves from half the steps
//! to all of them.

use super::groups::{Run, TRAINED};
use super::learned::InLength;
use super::measure::difference_of;
use super::point::{Absent, Point, difference_parts, row_in, value_at, value_in};
use super::setting::{Method, Setting};
use crate::metric::{LOSS_NATS, STILL_LEARNING, of_difference};
use crate::record::{EvalRow, RunRecord};
use crate::stats::Estimate;
use crate::text::{list, name, thousands};
use std::collections::BTreeSet;

/// Up to this many methods are named even if all are still learning.
const MOST_LISTED: usize = 3;

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
    /// difference, or for perplexities the relative change. For a variant, that of the trained
    /// encoding. Runs that were not trained with half their steps do not count, nor do those that
    /// `train.stop` ended: they took as many steps as their score needed.
    pub fn learning(&self, method: &Method) -> Point {
        let (method, metric) = (self.trained(method), self.lead());
        let runs = self.groups[method.group].runs.iter();
        let runs: Vec<(&Run<'_>, &RunRecord)> = runs
            .filter_map(|run| Some((run, run.half?)))
            .filter(|(run, half)| !run.is_ended_early() && !half.is_ended_early())
            .collect();
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
            absent,
            ..Point::default()
        }
    }

    /// Whether a method's score in length still moves by more than [`STILL_LEARNING`].
    pub fn is_still_learning(&self, method: &Method) -> bool {
        let estimate = self.learning(method).estimate;
        estimate.is_some_and(|change| change.mean.abs() > STILL_LEARNING)
    }

    /// Whether every method is still learning: a mark on all of them tells none apart.
    pub fn are_all_still_learning(&self) -> bool {
        self.methods
            .iter()
            .all(|method| self.is_still_learning(method))
    }

    /// Sentences on the methods that are still learning; none where no run was trained with half
    /// its steps, or where no method moves and none has learned the task: a score that stays at its
    /// floor says nothing.
    pub fn learning_note(&self) -> Option<String> {
        let counted = self.still_learning_note()?;
        let other_text = self.other_text_note().map(|note| format!(" {note}"));
        Some(counted + &other_text.unwrap_or_default())
    }

    /// Of a text that is cut to fit all test lengths, runs with fewer lengths score more.
    fn other_text_note(&self) -> Option<String> {
        let len = self.in_length?;
        let tokens = |row: Option<&EvalRow>| Some(row?.metrics.get(LOSS_NATS)?.n);
        let runs = self.groups.iter().flat_map(|group| &group.runs);
        let mut pairs = runs.filter_map(|run| {
            let half = tokens(row_in(run.half?, TRAINED, len))?;
            Some((half, tokens(run.row(TRAINED, len))?))
        });
        let (half, all) = pairs.find(|(half, all)| half != all)?;
        Some(format!(
            "Runs of half the steps are scored on {} tokens of the text, the others on {}.",
            thousands(half),
            thousands(all)
        ))
    }

    fn still_learning_note(&self) -> Option<String> {
        let len = self.in_length.filter(|_| self.has_halves())?;
        let trained = self.methods.iter().filter(|m| !self.is_variant(m));
        let change = |method: &Method| self.learning(method).estimate;
        let tested: Vec<(&Method, Estimate)> =
            trained.filter_map(|m| Some((m, change(m)?))).collect();
        let mut still = tested.clone();
        still.retain(|(method, _)| self.is_still_learning(method));
        let metric = self.lead();
        let least = match of_difference(metric) == metric {
            true => STILL_LEARNING.to_string(),
            false => format!("{} %", 100.0 * STILL_LEARNING),
        };
        let moves = format!("from half the steps to all, {metric} at {len} moves by");
        let number = |change: &Estimate| difference_parts(metric, change).0;
        let named = |(method, change): &(&Method, Estimate)| {
            format!("{} ({})", name(&method.title, 60), number(change))
        };
        let moved = |(method, change): &(&Method, Estimate)| {
            format!("{} ({})", number(change), name(&method.title, 60))
        };
        Some(match (still.len(), tested.len()) {
            (0, all) => {
                let learned = tested.iter();
                let learned = learned.filter(|(m, _)| self.converged(m) == InLength::Converged);
                let which = match learned.count() {
                    0 => return None,
                    count if count < all => " that has learned the task",
                    _ => "",
                };
                format!("No method{which} is still learning: {moves} at most {least}.")
            }
            (1, 1) => format!(
                "{} is still learning: {moves} more than {least}.",
                named(&still[0])
            ),
            (count, all) if count == all && all > MOST_LISTED => {
                still.sort_by(|a, b| a.1.mean.total_cmp(&b.1.mean));
                let ends = [&still[0], &still[all - 1]].map(moved);
                format!(
                    "All {all} methods are still learning: {moves} {} to {}.",
                    ends[0], ends[1]
                )
            }
            (count, all) => format!(
                "{count} of {all} methods {} still learning: {moves} more than {least} for {}.",
                if count == 1 { "is" } else { "are" },
                list(&still.iter().map(named).collect::<Vec<_>>(), 12)
            ),
        })
    }
}
