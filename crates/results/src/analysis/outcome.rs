//! What the points of a setting amount to: whether a method has learned its task, how far it keeps
//! its score, and which method is best.

use super::groups::Run;
use super::point::{Point, value_at};
use super::setting::{Method, Setting};
use crate::metric::{self, better_first};
use crate::stats::{self, Estimate, Scale};
use std::cmp::Ordering;

/// Whether a method has learned its task at the lengths it was trained on: only then is anything
/// said about longer ones.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum InLength {
    Converged,
    /// The score that says so, against the one needed.
    Unconverged(String),
    /// No score at a length up to the training length.
    Untested,
}

/// How far a method keeps its in-length score.
pub(crate) struct Reach {
    /// None: not even at the first length past training. Otherwise a test length.
    pub test_len: Option<usize>,
    /// Whether it has the score at the training length: a variant may have lost it there.
    pub in_length: bool,
    /// Nothing longer was tested.
    pub is_longest: bool,
    /// Runs with an in-length score, and runs.
    pub seeds: (usize, usize),
}

impl Setting<'_> {
    /// Where answers are scored whole: the share of exact ones, the mean over seeds and over tested
    /// lengths up to the training length, is at least [`metric::LEARNED`]. Elsewhere: the
    /// leading metric's in-length mean is better than guessing. Of a variant, the scores of the
    /// trained encoding say it: the weights are the same.
    pub(crate) fn converged(&self, method: &Method) -> InLength {
        let method = self.trained(method);
        let lead = self.lead();
        let answers = self.task.primary_metric != metric::LOSS_NATS;
        // Only means are needed here, so no interval is computed.
        let exact_at =
            |len| move |run: &Run<'_>| value_at(run, &method.variant, metric::EXACT_MATCH, len);
        let exact: Vec<f64> = self
            .lengths
            .iter()
            .filter(|&&len| answers && len <= self.task.train_len)
            .filter_map(|&len| {
                Some(
                    self.point_by(method, Scale::Linear, exact_at(len))
                        .estimate?
                        .mean,
                )
            })
            .collect();
        if let Some(mean) = stats::mean(&exact).filter(|mean| mean.is_finite()) {
            if mean >= metric::LEARNED {
                return InLength::Converged;
            }
            let most = self.in_length.unwrap_or_default();
            let score = metric::number(mean, 3);
            return InLength::Unconverged(format!(
                "{} {score} in length (mean over seeds and tested lengths up to {most}), below {}",
                metric::EXACT_MATCH,
                metric::LEARNED
            ));
        }
        let here = self
            .in_length
            .and_then(|len| Some((len, self.point(method, lead, len).estimate?.mean)));
        let Some((len, mean)) = here else {
            return InLength::Untested;
        };
        let chance = metric::chance(self.task, lead);
        // Where guessing has no score, any score but 0 is better.
        let is_better = chance.map_or(mean != 0.0, |c| {
            better_first(lead, mean, c) == Ordering::Less
        });
        if is_better {
            return InLength::Converged;
        }
        let chance = chance.unwrap_or_default();
        let text = |value: f64| metric::number(value, metric::decimals(lead, value));
        InLength::Unconverged(format!(
            "{lead} {} at {len}, no better than guessing ({})",
            text(mean),
            text(chance)
        ))
    }

    /// How far a method keeps the in-length score of its trained encoding. None where there is no
    /// in-length score, or one that says the task was not learned.
    pub(crate) fn reach(&self, method: &Method) -> Option<Reach> {
        let metric = self.lead();
        let base = self.point(method, metric, self.in_length?);
        let own = base.estimate?;
        let trained = self.point(self.trained(method), metric, self.in_length?);
        let in_length = trained.estimate?;
        if self.converged(method) != InLength::Converged {
            return None;
        }
        let has_score =
            !self.is_variant(method) || metric::is_kept(metric, own.mean, in_length.mean);
        let mut reach = Reach {
            test_len: None,
            in_length: has_score,
            is_longest: has_score,
            seeds: (base.values.len(), base.runs),
        };
        if !has_score {
            return Some(reach);
        }
        for len in self.longer() {
            let there = self.point(method, metric, len);
            // A length that fewer runs have a number for would compare means over different seeds.
            let kept = there.values.len() == base.values.len()
                && there
                    .estimate
                    .is_some_and(|e| metric::is_kept(metric, e.mean, in_length.mean));
            // A score that recovers at a longer length does not count.
            if !kept {
                reach.is_longest = false;
                break;
            }
            reach.test_len = Some(len);
        }
        Some(reach)
    }

    /// The one method that is better than chance and than every other, by intervals that share no
    /// point, if there is one.
    pub(crate) fn clear_best(&self, points: &[Point], metric: &str) -> Option<usize> {
        let numbered: Vec<(usize, &Point, Estimate)> = points
            .iter()
            .enumerate()
            .filter_map(|(i, p)| Some((i, p, p.estimate?)))
            .collect();
        // `better_first` orders the better one first, so the best is the minimum.
        let best = numbered
            .iter()
            .min_by(|a, b| better_first(metric, a.2.mean, b.2.mean))?;
        let rivals = numbered.iter().filter(|other| other.0 != best.0);
        let clear = numbered.len() > 1
            && best.1.is_whole()
            && !self.is_at_chance(metric, &best.2)
            && rivals
                .clone()
                .all(|other| best.2.is_separated_from(&other.2));
        clear.then_some(best.0)
    }

    /// Where no method is clearly best: the one with the best mean and those whose intervals touch
    /// its own. Empty where these are all that have numbers, where an interval is missing, and
    /// where the best is at chance.
    pub(crate) fn near_best(&self, points: &[Point], metric: &str) -> Vec<usize> {
        let numbered: Vec<(usize, Estimate)> = points
            .iter()
            .enumerate()
            .filter_map(|(i, p)| Some((i, p.estimate?)))
            .collect();
        let best = numbered
            .iter()
            .min_by(|a, b| better_first(metric, a.1.mean, b.1.mean));
        let Some((_, best)) = best.filter(|best| !self.is_at_chance(metric, &best.1)) else {
            return Vec::new();
        };
        let is_interval_missing = numbered.iter().any(|(_, e)| e.interval.is_none());
        let near = numbered.iter().filter(|(_, e)| !best.is_separated_from(e));
        let near: Vec<usize> = near.map(|(at, _)| *at).collect();
        if is_interval_missing || near.len() == numbered.len() {
            return Vec::new();
        }
        near
    }

    /// Whether the interval of a score includes guessing or lies below it; where guessing has no
    /// score, whether a share is 0.
    pub(crate) fn is_at_chance(&self, metric: &str, estimate: &Estimate) -> bool {
        let Some(chance) = metric::chance(self.task, metric) else {
            return metric::is_share(metric) && estimate.mean == 0.0;
        };
        // A single seed has no interval and is judged by its value.
        let (low, high) = estimate.interval.unwrap_or((estimate.mean, estimate.mean));
        let worst = if metric::lower_is_better(metric) {
            high
        } else {
            low
        };
        better_first(metric, worst, chance) != Ordering::Less
    }
}
