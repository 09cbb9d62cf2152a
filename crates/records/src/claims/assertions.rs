//! Assertions: what the literature lets one expect of tiny models, evaluated on any set of records.

use super::claim::{Claim, Claims};
use super::experiment_setting::ExperimentSetting;
use super::verdict::{Comparison, Verdict};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The committed assertions.
const COMMITTED: &str = include_str!("assertions.json");

/// A list of assertions, and other names of their methods, as in [`Claims::aliases`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assertions {
    /// By the name an assertion uses.
    #[serde(default)]
    pub aliases: BTreeMap<String, Vec<String>>,
    /// In the order of the report.
    pub assertions: Vec<Assertion>,
}

/// One expectation from the literature.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assertion {
    /// Its number.
    pub id: u32,
    /// The finding in words.
    pub text: String,
    /// Where it was published.
    pub basis: String,
    /// Checks that must hold.
    #[serde(default)]
    pub checks: Vec<Claim>,
    /// Checks that may fail at tiny scale without a mistake.
    #[serde(default)]
    pub fragile_checks: Vec<Claim>,
    /// What covers it instead, if it is not about records.
    #[serde(default)]
    pub elsewhere: Option<String>,
}

/// The result of an assertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AssertionResult {
    /// Every check with records agrees.
    Holds,
    /// A check that must hold disagrees.
    Fails,
    /// Only fragile checks disagree.
    FragileFails,
    /// Inside the interval, a single seed, or not converged.
    Undecided,
    /// No records to evaluate it on.
    NoRecords,
    /// It is not about records; see [`Assertion::elsewhere`].
    Elsewhere,
}

impl AssertionResult {
    /// `holds`, `fails`, `fails (fragile)`, `undecided`, `no records`, `not about records`.
    pub fn name(self) -> &'static str {
        match self {
            AssertionResult::Holds => "holds",
            AssertionResult::Fails => "fails",
            AssertionResult::FragileFails => "fails (fragile)",
            AssertionResult::Undecided => "undecided",
            AssertionResult::NoRecords => "no records",
            AssertionResult::Elsewhere => "not about records",
        }
    }
}

/// An assertion in one experiment and setting.
#[derive(Clone, Debug, PartialEq)]
pub struct AssertionOutcome {
    /// [`Assertion::id`].
    pub id: u32,
    /// As in [`super::Outcome::place`].
    pub place: String,
    /// The result.
    pub result: AssertionResult,
    /// The comparisons it is based on.
    pub numbers: Vec<Comparison>,
}

impl Assertions {
    /// The assertions committed with this crate.
    ///
    /// # Errors
    ///
    /// When the file is not a list of assertions, which a test excludes.
    pub fn committed() -> Result<Self, serde_json::Error> {
        serde_json::from_str(COMMITTED)
    }

    /// Evaluates each assertion in every experiment and setting that has its methods. At least one
    /// entry for each assertion, in their order.
    pub fn evaluate(&self, settings: &[ExperimentSetting<'_>]) -> Vec<AssertionOutcome> {
        let mut out = Vec::new();
        for assertion in &self.assertions {
            let checks = assertion
                .checks
                .iter()
                .chain(&assertion.fragile_checks)
                .cloned()
                .collect();
            let claims = Claims {
                claims: checks,
                aliases: self.aliases.clone(),
                ..Claims::default()
            };
            let mut by_place: Vec<(String, Vec<(bool, Comparison)>)> = Vec::new();
            for outcome in claims
                .evaluate(settings)
                .into_iter()
                .filter(|o| o.verdict != Verdict::NotTested)
            {
                // Claims are numbered in the order of the list, where the fragile ones come last.
                let is_fragile = outcome.claim >= assertion.checks.len();
                let numbers = outcome.numbers.into_iter().map(|n| (is_fragile, n));
                match by_place
                    .iter_mut()
                    .find(|(place, _)| *place == outcome.place)
                {
                    Some((_, all)) => all.extend(numbers),
                    None => by_place.push((outcome.place, numbers.collect())),
                }
            }
            if by_place.is_empty() {
                let result = if assertion.elsewhere.is_some() {
                    AssertionResult::Elsewhere
                } else {
                    AssertionResult::NoRecords
                };
                out.push(AssertionOutcome {
                    id: assertion.id,
                    place: String::new(),
                    result,
                    numbers: Vec::new(),
                });
            }
            for (place, numbers) in by_place {
                let result = result(&numbers);
                out.push(AssertionOutcome {
                    id: assertion.id,
                    place,
                    result,
                    numbers: numbers.into_iter().map(|n| n.1).collect(),
                });
            }
        }
        out
    }
}

/// Comparisons that were not tested do not count; the numbers name them.
fn result(numbers: &[(bool, Comparison)]) -> AssertionResult {
    let any = |is: &dyn Fn(&(bool, Comparison)) -> bool| numbers.iter().any(is);
    if any(&|(fragile, n)| !fragile && n.verdict == Verdict::Disagrees) {
        AssertionResult::Fails
    } else if any(&|(_, n)| n.verdict == Verdict::Disagrees) {
        AssertionResult::FragileFails
    } else if any(&|(_, n)| n.verdict == Verdict::Undecided) {
        AssertionResult::Undecided
    } else if any(&|(_, n)| n.verdict == Verdict::Agrees) {
        AssertionResult::Holds
    } else {
        AssertionResult::NoRecords
    }
}
