//! Which seeds of a method have learned their task at the lengths they were trained on: only of
//! these is anything said about longer ones.

use super::groups::Run;
use super::point::value_at;
use super::setting::{Method, Setting};
use crate::metric::{self, better_first};
use crate::record::RunStatus;
use crate::stats;
use std::cmp::Ordering;
use std::collections::BTreeSet;

/// Whether a method has learned its task at the lengths it was trained on.
#[derive(Clone, Debug, PartialEq)]
pub enum InLength {
    /// At least half of the seeds that have a score in length, or diverged, have.
    Converged,
    /// Fewer have: how many, and their scores against the one needed.
    Unconverged(String),
    /// No seed has a score at a length up to the training length.
    Untested,
}

/// The seeds of a method that have a score in length, and those whose training diverged.
pub struct Learned {
    /// Seed, score in length (NaN of one that diverged), and whether it shows that the task was
    /// learned; by seed.
    pub seeds: Vec<(u64, f64, bool)>,
    /// What the score is and what is needed: `exact_match in length (...), 0.95 needed`.
    what: String,
    metric: String,
}

impl Learned {
    /// How many have learned the task.
    pub fn count(&self) -> usize {
        self.seeds.iter().filter(|(.., learned)| *learned).count()
    }

    /// Whether some have learned the task and some have not.
    pub fn is_partial(&self) -> bool {
        (1..self.seeds.len()).contains(&self.count())
    }

    /// Whether some seed that has not learned the task has a score.
    pub fn has_failed_score(&self) -> bool {
        let mut seeds = self.seeds.iter();
        seeds.any(|(_, score, learned)| !learned && !score.is_nan())
    }

    /// `5 of 7`
    pub fn ratio(&self) -> String {
        format!("{} of {}", self.count(), self.seeds.len())
    }

    /// `5 of 7 seeds learned: exact_match 0.410 (seed 3) ... in length, 0.95 needed`; none where
    /// all did.
    pub fn why_not(&self) -> Option<String> {
        let number = |score: f64| metric::number(score, metric::decimals(&self.metric, score));
        let failed = self.seeds.iter().filter(|(.., learned)| !learned);
        let (diverged, failed): (Vec<_>, Vec<_>) = failed.partition(|(_, score, _)| score.is_nan());
        let scores: Vec<String> = match self.seeds[..] {
            [(_, score, false)] => vec![number(score)],
            _ => failed
                .iter()
                .map(|(seed, score, _)| format!("{} (seed {seed})", number(*score)))
                .collect(),
        };
        let scores = (!failed.is_empty()).then(|| {
            let scores = crate::text::list(&scores, 12);
            format!("{} {scores} {}", self.metric, self.what)
        });
        let seeds: Vec<String> = diverged.iter().map(|(seed, ..)| seed.to_string()).collect();
        let diverged = (!diverged.is_empty()).then(|| {
            let seeds = crate::text::list(&seeds, 12);
            let word = if diverged.len() == 1 { "seed" } else { "seeds" };
            format!("training diverged ({word} {seeds})")
        });
        let why: Vec<String> = scores.into_iter().chain(diverged).collect();
        (!why.is_empty()).then(|| format!("{} seeds learned: {}", self.ratio(), why.join("; ")))
    }
}

impl Setting<'_> {
    /// Judges every seed by itself. Where answers are scored whole: the share of exact ones, the
    /// mean over tested lengths up to the training length, is at least [`metric::LEARNED`].
    /// Elsewhere: the leading metric in length is better than guessing. A training that diverged
    /// has not learned, where others of its method have a score or all diverged. For a variant, the
    /// scores of the trained encoding decide: the weights are the same.
    pub fn learned(&self, method: &Method) -> Learned {
        let method = self.trained(method);
        let lead = self.lead();
        let runs = &self.groups[method.group].runs;
        let exact = |run: &Run<'_>| self.exact_in_length(run, method);
        let by_exact = runs.iter().any(|run| exact(run).is_some());
        let at = self.in_length.unwrap_or_default();
        let chance = self.chance_of(method, lead);
        let judged = |run: &Run<'_>| {
            if by_exact {
                let score = exact(run)?;
                return Some((run.seed, score, score >= metric::LEARNED));
            }
            let score = value_at(run, &method.variant, lead, self.in_length?).ok()?;
            // Where guessing has no score, any score but 0 is better.
            let is_better = chance.map_or(score != 0.0, |c| {
                better_first(lead, score, c) == Ordering::Less
            });
            Some((run.seed, score, is_better))
        };
        let needed = metric::LEARNED;
        let guess = chance.unwrap_or_default();
        let guess = metric::number(guess, metric::decimals(lead, guess));
        let (metric, what) = if by_exact {
            let what = format!("in length (mean over tested lengths up to {at}), {needed} needed");
            (metric::EXACT_MATCH, what)
        } else {
            (lead, format!("at {at}, no better than guessing ({guess})"))
        };
        let diverged = |run: &Run<'_>| {
            (run.status == RunStatus::Diverged).then_some((run.seed, f64::NAN, false))
        };
        // Where the others were not tested in length, one that diverged says nothing of the method.
        let any = runs.iter().any(|run| judged(run).is_some());
        let all = runs.iter().all(|run| diverged(run).is_some());
        let failed = |run: &Run<'_>| diverged(run).filter(|_| any || all);
        let seeds = runs
            .iter()
            .filter_map(|run| judged(run).or_else(|| failed(run)));
        Learned {
            seeds: seeds.collect(),
            what,
            metric: metric.into(),
        }
    }

    /// The share of exact answers of a run, the mean over tested lengths up to the training length.
    fn exact_in_length(&self, run: &Run<'_>, method: &Method) -> Option<f64> {
        let answers = self.task.primary_metric != metric::LOSS_NATS;
        let lengths = self.lengths.iter().copied();
        let lengths = lengths.filter(|len| answers && *len <= self.task.train_len);
        let exact = |len| value_at(run, &method.variant, metric::EXACT_MATCH, len).ok();
        stats::mean(&lengths.filter_map(exact).collect::<Vec<_>>()).filter(|mean| mean.is_finite())
    }

    /// Whether at least half of the seeds that have a score in length, or diverged, have learned
    /// the task.
    pub fn converged(&self, method: &Method) -> InLength {
        let learned = self.learned(method);
        match learned.why_not() {
            _ if learned.seeds.is_empty() => InLength::Untested,
            Some(why) if 2 * learned.count() < learned.seeds.len() => InLength::Unconverged(why),
            _ => InLength::Converged,
        }
    }

    /// Which of these methods have not learned the task: `NoPE learned in 1 of 5 seeds`.
    pub fn unconverged(&self, methods: &[&Method]) -> String {
        let failed = |method: &&&Method| {
            let converged = self.converged(method);
            matches!(converged, InLength::Unconverged(_))
        };
        let named = methods.iter().filter(failed).map(|method| {
            let ratio = self.learned(method).ratio();
            format!("{} learned in {ratio} seeds", method.title)
        });
        named.collect::<Vec<_>>().join(", ")
    }

    /// Seeds that have not learned the task: nothing is said of them past the training length.
    pub fn failed(&self, method: &Method) -> BTreeSet<u64> {
        let seeds = self.learned(method).seeds.into_iter();
        let failed = seeds.filter(|(.., learned)| !learned);
        failed.map(|(seed, ..)| seed).collect()
    }

    /// Whether a number past the training length says nothing: the method did not learn the task in
    /// length.
    pub fn is_extrapolation_of_unconverged(&self, method: &Method, len: usize) -> bool {
        len > self.task.train_len && matches!(self.converged(method), InLength::Unconverged(_))
    }
}
