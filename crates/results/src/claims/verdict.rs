//! Results of claims: verdicts, comparisons, outcomes.

use crate::stats::Estimate;
use serde::Serialize;
use std::collections::BTreeSet;

/// What the records say to a claim, or to one comparison of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The whole interval is on the claim's side.
    Agrees,
    /// The whole interval is on the other side.
    Disagrees,
    /// Inside the interval, a single seed, or not converged.
    Undecided,
    /// No records, or none with such a number.
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
    /// What the number is: `rope at 256 over rope at 64`.
    pub what: String,
    /// The number, where there is one.
    pub estimate: Option<Estimate>,
    /// The bound in words: `at most 1.1`, `below 0`.
    pub needed: String,
    /// The result.
    pub verdict: Verdict,
    /// Whether the mean alone is on the claim's side; absent where there is no number.
    pub mean_agrees: Option<bool>,
    /// The sentence for people, numbers included.
    pub text: String,
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
pub(crate) fn counts(outcomes: &[Outcome]) -> String {
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
