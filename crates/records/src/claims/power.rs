//! How many seeds would decide what the records leave undecided, if every mean and spread stayed as
//! it is.

use super::verdict::{Comparison, Outcome, Verdict};
use crate::stats::ALPHA;

/// The largest number of seeds that is tried.
pub const MOST_SEEDS: usize = 100;

/// What would decide a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// The number of seeds in all, and the verdict that they would lead to.
    Seeds(usize, Verdict),
    /// More than [`MOST_SEEDS`].
    More,
}

impl Outcome {
    /// How many seeds would decide an undecided claim; none for other claims, for a single seed and
    /// where a method is to learn its task first.
    pub fn power(&self) -> Option<Power> {
        // What agrees because there is no value needs no seeds.
        let is_open = |n: &&Comparison| n.estimate.is_some() || n.verdict != Verdict::Agrees;
        let numbers: Vec<&Comparison> = self.numbers.iter().filter(is_open).collect();
        if self.verdict != Verdict::Undecided {
            return None;
        }
        // Holm's procedure rejects nothing that is not rejected at its first level.
        let tests = numbers.iter().filter(|n| n.has_interval()).count();
        if tests == 0 {
            return None;
        }
        let against = numbers
            .iter()
            .filter_map(|n| n.seeds(ALPHA / tests as f64, false));
        let agreeing: Option<Vec<usize>> = numbers.iter().map(|n| n.seeds(ALPHA, true)).collect();
        let all = agreeing.and_then(|all| all.into_iter().max());
        let found = [(all, Verdict::Agrees), (against.min(), Verdict::Disagrees)];
        let least = found
            .into_iter()
            .filter_map(|(seeds, is)| Some((seeds?, is)))
            .min();
        match least {
            Some((seeds, verdict)) => Some(Power::Seeds(seeds, verdict)),
            None if numbers
                .iter()
                .all(|n| n.has_interval() && n.bound.is_some()) =>
            {
                Some(Power::More)
            }
            None => None,
        }
    }
}

impl Comparison {
    /// How many seeds put the whole interval that leaves out `alpha` on the claim's side, or on the
    /// other; at least as many as there are.
    fn seeds(&self, alpha: f64, side: bool) -> Option<usize> {
        let (estimate, bound) = self.estimate.zip(self.bound)?;
        (estimate.n.max(2)..=MOST_SEEDS).find(|seeds| {
            let interval = estimate.interval_with(alpha, *seeds);
            interval.and_then(|interval| bound.side(interval)) == Some(side)
        })
    }
}
