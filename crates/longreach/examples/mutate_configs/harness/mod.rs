//! Mutated configs: what is mutated, how, and whether the answer is right. Shared by
//! `scripts/mutate-configs` and a test.
//!
//! A mutant is a pure function of its number: the numbers below a total are spread over every base,
//! key, mutator and form.

#![allow(dead_code)]

pub mod bases;
pub mod encodings;
pub mod judge;
pub mod mutators;
pub mod schema;
pub mod texts;
pub mod valid;

use bases::Base;
use judge::{Outcome, Verdict};
use mutators::{Form, MUTATORS, Target, Type};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// One mutant that is waiting to be made.
struct Case {
    base: usize,
    key: usize,
    mutator: usize,
    form: Form,
}

/// Everything a run of the harness needs.
pub struct Harness {
    /// Valid configs.
    pub bases: Vec<Base>,
    types: BTreeMap<String, Type>,
    cases: Vec<Case>,
    file: PathBuf,
}

/// What became of the mutants of one mutator.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    pub tried: usize,
    /// Refused with code 2, or 3 where a named file is at fault, with the key and the place.
    pub refused: usize,
    /// Valid by the table of reasons, and accepted.
    pub accepted: usize,
    pub wrong: usize,
}

/// What was found.
#[derive(Default)]
pub struct Report {
    pub tallies: BTreeMap<&'static str, Tally>,
    pub violations: Vec<String>,
    /// Slowest answer, in seconds.
    pub slowest: f64,
}

impl Harness {
    /// Reads the bases. Mutants are written to one file in `directory`.
    pub fn new(directory: &Path) -> Self {
        let bases = bases::all(directory);
        let types = mutators::types(&bases);
        let mut cases = Vec::new();
        for (base, found) in bases.iter().enumerate() {
            for key in 0..found.keys.len() {
                for mutator in 0..MUTATORS.len() {
                    cases.extend([Form::File, Form::Argument].map(|form| Case {
                        base,
                        key,
                        mutator,
                        form,
                    }));
                }
            }
        }
        Self {
            bases,
            types,
            cases,
            file: directory.join("mutant.toml"),
        }
    }

    /// How many different mutants of keys there are, those included that do not fit.
    pub fn total(&self) -> usize {
        self.cases.len()
    }

    /// Judges `count` mutants of keys: mutant i of them is a function of i alone.
    pub fn keys(&self, count: usize, report: &mut Report) {
        // A prime above any total visits every case once before any twice, and keeps neighbours far
        // apart.
        const STEP: usize = 7_368_787;
        let (mut tried, mut number) = (0, 0);
        while tried < count && number < self.cases.len() {
            if self.one(
                number.wrapping_mul(STEP) % self.cases.len(),
                number as u64,
                report,
            ) {
                tried += 1;
            }
            number += 1;
        }
    }

    fn one(&self, case: usize, seed: u64, report: &mut Report) -> bool {
        let Case {
            base,
            key,
            mutator,
            form,
        } = &self.cases[case];
        let base = &self.bases[*base];
        let path = &base.keys[*key];
        let (name, make) = MUTATORS[*mutator];
        let id = schema::id(&base.table, path);
        let Some(value) = schema::find(&base.table, path) else {
            return false;
        };
        let kind = self
            .types
            .get(&id)
            .copied()
            .unwrap_or_else(|| Type::of(&id, value));
        let target = Target {
            table: &base.table,
            path,
            value,
            id: &id,
            kind,
            seed,
        };
        let Some(mutant) = mutators::mutate(&base.text, &target, make, *form) else {
            return false;
        };
        let outcome = judge::answer(&self.file, mutant.text.as_bytes(), &mutant.overrides);
        let reason = valid::reason(&target, name, *form);
        let verdict = judge::judge(&outcome, reason, &mutant, *form);
        let printed = || {
            format!(
                "{} in {}, {name}, {form:?} ({id})",
                schema::dotted(path),
                base.name
            )
        };
        report.take(name, &outcome, verdict, printed);
        true
    }
}

impl Report {
    /// Adds one answer.
    pub fn take(
        &mut self,
        name: &'static str,
        outcome: &Outcome,
        verdict: Verdict,
        printed: impl Fn() -> String,
    ) {
        let tally = self.tallies.entry(name).or_default();
        tally.tried += 1;
        self.slowest = self.slowest.max(outcome.secs);
        match verdict {
            Verdict::Refused => tally.refused += 1,
            Verdict::Accepted => tally.accepted += 1,
            Verdict::Wrong(why) => {
                tally.wrong += 1;
                self.violations.push(format!("{}: {why}", printed()));
            }
        }
    }

    /// Sum over all mutators.
    pub fn sum(&self) -> Tally {
        self.tallies
            .values()
            .fold(Tally::default(), |sum, tally| Tally {
                tried: sum.tried + tally.tried,
                refused: sum.refused + tally.refused,
                accepted: sum.accepted + tally.accepted,
                wrong: sum.wrong + tally.wrong,
            })
    }
}
