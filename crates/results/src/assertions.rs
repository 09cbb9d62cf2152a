//! What a correct suite must show at tiny scale: the assertions of `assertions.json`, held against
//! any set of records.

use crate::claims::{Claim, Claims, Comparison, Verdict, places};
use crate::record::RunRecord;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The committed assertions, as data.
const COMMITTED: &str = include_str!("assertions.json");

/// A list of assertions, and other names of the methods they speak of, as in [`Claims::aliases`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assertions {
    /// By the name an assertion uses.
    #[serde(default)]
    pub aliases: BTreeMap<String, Vec<String>>,
    /// In the order of the report.
    pub assertions: Vec<Assertion>,
}

/// One thing that published results let expect of a correct suite.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assertion {
    /// Its number.
    pub id: u32,
    /// In words.
    pub text: String,
    /// What was published.
    pub basis: String,
    /// What must hold.
    #[serde(default)]
    pub checks: Vec<Claim>,
    /// What may fail at tiny scale without a mistake of ours.
    #[serde(default)]
    pub fragile_checks: Vec<Claim>,
    /// How it is covered, where it is not about records.
    #[serde(default)]
    pub elsewhere: Option<String>,
}

/// What the records say to an assertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// Every check there are records for agrees.
    Holds,
    /// A check that must hold does not.
    Fails,
    /// A check fails that may at tiny scale.
    FragileFails,
    /// Inside the interval, a single seed, or not converged.
    Undecided,
    /// None that it could be held against.
    NoRecords,
    /// It is not about records.
    Elsewhere,
}

impl Standing {
    /// `holds`, `fails`, `fails (fragile)`, `undecided`, `no records`, `not about records`.
    pub fn name(self) -> &'static str {
        match self {
            Standing::Holds => "holds",
            Standing::Fails => "fails",
            Standing::FragileFails => "fails (fragile)",
            Standing::Undecided => "undecided",
            Standing::NoRecords => "no records",
            Standing::Elsewhere => "not about records",
        }
    }
}

/// An assertion in one experiment and setting.
#[derive(Clone, Debug, PartialEq)]
pub struct Stand {
    /// [`Assertion::id`].
    pub id: u32,
    /// As in [`crate::claims::Outcome::place`].
    pub place: String,
    /// The result.
    pub standing: Standing,
    /// What it rests on.
    pub numbers: Vec<Comparison>,
}

impl Assertions {
    /// Those that are committed with this crate.
    ///
    /// # Errors
    ///
    /// When the file is not such a list, which a test excludes.
    pub fn committed() -> Result<Self, serde_json::Error> {
        serde_json::from_str(COMMITTED)
    }

    /// Each assertion in every experiment and setting it can be held against; at least one entry
    /// for each, in their order.
    pub fn evaluate(&self, records: &[RunRecord]) -> Vec<Stand> {
        let places = places(records);
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
                .evaluate_in(&places)
                .into_iter()
                .filter(|o| o.verdict != Verdict::NotTested)
            {
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
                let standing = if assertion.elsewhere.is_some() {
                    Standing::Elsewhere
                } else {
                    Standing::NoRecords
                };
                out.push(Stand {
                    id: assertion.id,
                    place: String::new(),
                    standing,
                    numbers: Vec::new(),
                });
            }
            for (place, numbers) in by_place {
                let standing = standing(&numbers);
                out.push(Stand {
                    id: assertion.id,
                    place,
                    standing,
                    numbers: numbers.into_iter().map(|n| n.1).collect(),
                });
            }
        }
        out
    }
}

/// What was not tested neither holds nor fails; the numbers name it.
fn standing(numbers: &[(bool, Comparison)]) -> Standing {
    let any = |is: &dyn Fn(&(bool, Comparison)) -> bool| numbers.iter().any(is);
    if any(&|(fragile, n)| !fragile && n.verdict == Verdict::Disagrees) {
        Standing::Fails
    } else if any(&|(_, n)| n.verdict == Verdict::Disagrees) {
        Standing::FragileFails
    } else if any(&|(_, n)| n.verdict == Verdict::Undecided) {
        Standing::Undecided
    } else if any(&|(_, n)| n.verdict == Verdict::Agrees) {
        Standing::Holds
    } else {
        Standing::NoRecords
    }
}
