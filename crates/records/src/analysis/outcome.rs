//! What the points of a setting amount to: how far a method keeps its score, and which is best.

use super::learned::InLength;
use super::point::{Absent, Point};
use super::setting::{Method, Setting};
use crate::metric::{self, better_first};
use crate::stats::Estimate;
use std::cmp::Ordering;

/// How far a method keeps its in-length score.
pub struct Reach {
    /// None: not even at the first length past training at which it was tested. Otherwise a test
    /// length.
    pub test_len: Option<usize>,
    /// Whether it has the score at the training length: a variant may have lost it there.
    pub in_length: bool,
    /// It was tested at no longer length.
    pub is_longest: bool,
    /// Runs that learned the task, and runs.
    pub seeds: (usize, usize),
}

impl Setting<'_> {
    /// How far a method keeps the in-length score of its trained encoding, over the seeds that
    /// learned the task. None where there is no in-length score, or one that says the task was not
    /// learned.
    pub fn reach(&self, method: &Method) -> Option<Reach> {
        let metric = self.lead();
        let base = self.of_learned(method, metric, self.in_length?);
        let own = base.estimate?;
        let trained = self.of_learned(self.trained(method), metric, self.in_length?);
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
            seeds: (base.values.len(), base.runs + base.failed),
        };
        if !has_score {
            return Some(reach);
        }
        for len in self.longer() {
            // Where some runs were not tested, the mean would be over other seeds.
            if !self.is_tested(method, len) {
                continue;
            }
            // The mean of the seeds with a score in length, if none of them has lost it here.
            let there = self.score(method, metric, len);
            let is_in_length = |seed: u64| base.values.iter().any(|(own, _)| *own == seed);
            let values = there.values.iter().filter(|(seed, _)| is_in_length(*seed));
            let values: Vec<f64> = values.map(|(_, value)| *value).collect();
            let kept = values.len() == base.values.len()
                && Estimate::of(metric::scale(metric), &values)
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

    /// Whether all runs that learned the task were tested at a length; all runs where none did.
    pub fn is_tested(&self, method: &Method, len: usize) -> bool {
        let there = match self.is_extrapolation_of_unconverged(method, len) {
            true => self.point(method, self.lead(), len),
            false => self.score(method, self.lead(), len),
        };
        !there.absent.iter().any(|absent| absent.is_untested())
    }

    /// [`reach`](Self::reach) as a multiple of the training length: `≥ 16x`; `1x` where the score is
    /// lost at the first longer length, `none` where a variant has lost it in length.
    pub fn reach_text(&self, method: &Method) -> String {
        let Some(reach) = self.reach(method) else {
            return match self.converged(method) {
                InLength::Unconverged(_) => Absent::Unconverged.name().into(),
                InLength::Converged | InLength::Untested => "-".into(),
            };
        };
        match reach.test_len {
            _ if !reach.in_length => "none".into(),
            None if reach.is_longest => "≥ 1x".into(),
            None => "1x".into(),
            Some(len) if reach.is_longest => format!("≥ {}", self.times(len)),
            Some(len) => self.times(len),
        }
    }

    /// The one method that is better than chance and than every other, by intervals that share no
    /// point, if there is one. None where a method was not tested. `points`: one for each method.
    pub fn clear_best(&self, points: &[Point], metric: &str) -> Option<usize> {
        let (numbered, best) = best_of(points, metric);
        let (at, best) = best?;
        let mut rivals = numbered.iter().filter(|(other, _)| *other != at);
        let clear = numbered.len() > 1
            && points[at].is_whole()
            && !points.iter().any(Point::is_untested)
            && !self.is_at_chance(&self.methods[at], metric, &best)
            && rivals.all(|(_, other)| best.is_separated_from(other));
        clear.then_some(at)
    }

    /// Where no method is clearly best: the one with the best mean and those whose intervals touch
    /// its own. Empty where these are all that have numbers, where an interval is missing, where a
    /// method was not tested, and where the best is at chance.
    pub fn near_best(&self, points: &[Point], metric: &str) -> Vec<usize> {
        let (numbered, best) = best_of(points, metric);
        let is_at_chance =
            |(at, best): &Numbered| self.is_at_chance(&self.methods[*at], metric, best);
        let Some((_, best)) = best.filter(|best| !is_at_chance(best)) else {
            return Vec::new();
        };
        let is_interval_missing = numbered.iter().any(|(_, e)| e.interval.is_none());
        let near = numbered.iter().filter(|(_, e)| !best.is_separated_from(e));
        let near: Vec<usize> = near.map(|(at, _)| *at).collect();
        let is_partial = points.iter().any(Point::is_untested);
        if is_interval_missing || is_partial || near.len() == numbered.len() {
            return Vec::new();
        }
        near
    }

    /// Whether the interval of a score includes guessing or lies below it; where guessing has no
    /// score, whether a share is 0.
    pub fn is_at_chance(&self, method: &Method, metric: &str, estimate: &Estimate) -> bool {
        let Some(chance) = self.chance_of(method, metric) else {
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

/// A number, and which of some points has it.
type Numbered = (usize, Estimate);

/// The points that have a number, and the best of them.
fn best_of(points: &[Point], metric: &str) -> (Vec<Numbered>, Option<Numbered>) {
    let numbered = points.iter().enumerate();
    let numbered: Vec<_> = numbered
        .filter_map(|(i, p)| Some((i, p.estimate?)))
        .collect();
    // `better_first` orders the better one first, so the best is the minimum.
    let by_mean = |a: &&Numbered, b: &&Numbered| better_first(metric, a.1.mean, b.1.mean);
    let best = numbered.iter().min_by(by_mean).copied();
    (numbered, best)
}
