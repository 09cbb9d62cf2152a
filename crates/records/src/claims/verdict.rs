//! Results of claims: verdicts, comparisons, outcomes.

use super::needed::Needed;
use crate::stats::{ALPHA, Estimate};
use serde::Serialize;
use std::collections::BTreeSet;

/// What the records say of a claim, or of one comparison in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The whole interval is on the claim's side.
    Agrees,
    /// The whole interval is on the other side, or holds only gains that do not count, also by
    /// Holm's procedure over all comparisons of the claim in a setting.
    Disagrees,
    /// Inside the interval, a single seed, not converged, or not rejected by Holm's procedure.
    Undecided,
    /// No records, none with such a number, or a task that is too easy to tell two methods apart.
    NotTested,
}

impl Verdict {
    /// `agrees`, `disagrees`, `undecided`, `not tested`.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Agrees => "agrees",
            Verdict::Disagrees => "disagrees",
            Verdict::Undecided => "undecided",
            Verdict::NotTested => "not tested",
        }
    }
}

/// The comparison of one number with one bound.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// What the number is, in files for programs: `rope at 256 over rope at 64`.
    pub what: String,
    /// The same with names for people.
    pub(super) words: String,
    /// The number, where there is one.
    pub estimate: Option<Estimate>,
    /// The bound in words: `at most 1.1`, `below 0`.
    pub needed: String,
    /// The result.
    pub verdict: Verdict,
    /// Whether the mean alone is on the claim's side; absent where there is no number.
    pub mean_agrees: Option<bool>,
    /// Why no score of as many seeds and test rows can agree, where none can.
    pub impossible: Option<String>,
    /// The number as printed, and why the verdict is what it is.
    pub(super) shown: String,
    pub(super) why: String,
    /// The bound; none where the number was not tested or cannot decide.
    pub(super) bound: Option<Needed>,
}

impl Comparison {
    /// Whether it was tested, with more than one seed.
    pub(super) fn has_interval(&self) -> bool {
        self.verdict != Verdict::NotTested && self.estimate.is_some_and(|e| e.interval.is_some())
    }

    /// Not tested: no score could be shown to be better than either of the two.
    pub(super) fn too_easy(self) -> Self {
        Self {
            verdict: Verdict::NotTested,
            mean_agrees: None,
            why: "both do the task too well to be told apart".into(),
            ..self
        }
    }

    /// Why there is no number that can decide: methods have not learned their task.
    pub fn why_open(&self) -> Option<&str> {
        let is_open = self.verdict == Verdict::Undecided && self.bound.is_none();
        (is_open && self.estimate.is_none()).then_some(&self.why)
    }

    /// The number as printed, or why there is none; just what it is about where it was not tested.
    pub fn text(&self) -> String {
        let said = if self.bound.is_some() {
            &self.shown
        } else {
            &self.why
        };
        match said.as_str() {
            "" => self.words.clone(),
            said => format!("{}: {said}", self.words),
        }
    }

    /// What the number needs, and why the verdict is what it is; none where there is no number.
    pub fn rule(&self) -> Option<String> {
        self.bound
            .map(|_| format!("needed {} ({})", self.needed, self.why))
    }

    /// Whether it disagrees also by the interval that leaves out `alpha`.
    pub(super) fn is_against(&self, alpha: f64) -> bool {
        if self.verdict != Verdict::Disagrees {
            return false;
        }
        let interval = self.estimate.and_then(|e| e.interval_at(alpha));
        let side = self.bound.zip(interval).and_then(|(b, i)| b.side(i));
        side == Some(false)
    }
}

/// A claim in one experiment and setting.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Place of the claim among those given.
    pub claim: usize,
    /// `quickstart: text, trained at 64 bytes`; empty where there are no records for it at all.
    pub place: String,
    /// The result.
    pub verdict: Verdict,
    /// What it rests on.
    pub numbers: Vec<Comparison>,
}

impl Outcome {
    /// How many numbers have a mean on the claim's side, and how many have one at all; `None` where
    /// none has.
    pub fn means(&self) -> Option<[usize; 2]> {
        let means: Vec<bool> = self.numbers.iter().filter_map(|n| n.mean_agrees).collect();
        (!means.is_empty()).then(|| [means.iter().filter(|agrees| **agrees).count(), means.len()])
    }
}

/// Makes a comparison that Holm's procedure over all comparisons with an interval does not reject
/// undecided.
pub(super) fn step_down(numbers: &mut [Comparison]) {
    let tested = numbers.iter_mut().filter(|n| n.has_interval());
    let mut tests: Vec<&mut Comparison> = tested.collect();
    let rejected = holm(tests.len(), |at, alpha| tests[at].is_against(alpha));
    let count = tests.len();
    for (test, is_rejected) in tests.iter_mut().zip(rejected) {
        if test.verdict == Verdict::Disagrees && !is_rejected {
            test.verdict = Verdict::Undecided;
            test.why += &format!(", would disagree alone, not as one of {count} (Holm)");
        }
    }
}

/// Which of `count` hypotheses Holm's step-down procedure (1979) rejects, so that the probability
/// of any wrong rejection is at most 5 %. `is_rejected`: whether a hypothesis is at a level alone,
/// and then also at every higher one.
fn holm(count: usize, is_rejected: impl Fn(usize, f64) -> bool) -> Vec<bool> {
    let mut rejected = vec![false; count];
    loop {
        let left: Vec<usize> = (0..count).filter(|&at| !rejected[at]).collect();
        let level = ALPHA / left.len().max(1) as f64;
        // All that this level rejects, the next, higher ones reject as well.
        let found: Vec<usize> = left
            .into_iter()
            .filter(|&at| is_rejected(at, level))
            .collect();
        if found.is_empty() {
            return rejected;
        }
        found.into_iter().for_each(|at| rejected[at] = true);
    }
}

/// One counterexample settles a claim about many; all must agree for it to agree.
pub(super) fn all_of(verdicts: impl Iterator<Item = Verdict>) -> Verdict {
    let all: BTreeSet<Verdict> = verdicts.collect();
    match all.iter().next() {
        None => Verdict::NotTested,
        _ if all.contains(&Verdict::Disagrees) => Verdict::Disagrees,
        Some(&one) if all.len() == 1 => one,
        _ => Verdict::Undecided,
    }
}

/// How many claims came out how, in one sentence.
pub fn counts(outcomes: &[Outcome]) -> String {
    let count = |verdict: Verdict| outcomes.iter().filter(|o| o.verdict == verdict).count();
    let [agree, disagree, undecided, untested] = [
        Verdict::Agrees,
        Verdict::Disagrees,
        Verdict::Undecided,
        Verdict::NotTested,
    ]
    .map(count);
    let leaning = outcomes
        .iter()
        .filter(|o| {
            o.verdict == Verdict::Undecided && o.means().is_some_and(|[agree, all]| agree == all)
        })
        .count();
    let leaning = if undecided == 0 {
        String::new()
    } else {
        format!(" (by their means alone {leaning} would agree)")
    };
    format!(
        "{agree} agree, {disagree} disagree, {undecided} undecided{leaning}, {untested} not \
         tested."
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Holm's procedure as he states it, by ordered p-values.
    fn by_p_values(p: &[f64]) -> Vec<bool> {
        let mut order: Vec<usize> = (0..p.len()).collect();
        order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
        let mut rejected = vec![false; p.len()];
        for (step, at) in order.into_iter().enumerate() {
            if p[at] > 0.05 / (p.len() - step) as f64 {
                break;
            }
            rejected[at] = true;
        }
        rejected
    }

    proptest! {
        #[test]
        fn levels_and_ordered_p_values_reject_the_same(p in proptest::collection::vec(0.0..0.06_f64, 0..14)) {
            prop_assert_eq!(holm(p.len(), |at, level| p[at] <= level), by_p_values(&p));
        }
    }

    #[test]
    fn holm_by_hand() {
        // 0.02 is below 0.05 / 2, but not below 0.05 / 3, where the procedure stops.
        let p = [0.02, 0.5, 0.03];
        assert_eq!(holm(3, |at, level| p[at] <= level), [false; 3]);
        let p = [0.02, 0.5, 0.01];
        assert_eq!(holm(3, |at, level| p[at] <= level), [true, false, true]);
        assert_eq!(holm(0, |_, _| true), [false; 0]);
        assert_eq!(holm(1, |_, level| 0.05 <= level), [true]);
    }
}
