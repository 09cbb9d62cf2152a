//! The scores of two sets of records: what they have in common, how their configs differ, and every
//! score of one beside that of the other, with the difference and its interval.
//!
//! ```text
//! pairs.rs     settings and methods of one set with those of the other
//! changes.rs   how configs and builds differ
//! spec.rs      what to compare
//! verdict.rs   better, worse, or neither
//! compared.rs  the scores of a pair of settings
//! text.rs      the comparison as text
//! ```

mod changes;
mod compared;
mod pairs;
mod spec;
mod text;
mod verdict;

pub use changes::Change;
pub use compared::{ComparedSetting, Score, SeedsLearned};
pub use spec::ComparisonSpec;
pub use verdict::Verdict;

use super::canonical::canonical;
use super::error::ReportError;
use changes::{config_changes, environment_changes};
use compared::compare;
use pairs::{method_pairs, setting_pairs};
use records::analysis::identity::MethodSpecs;
use records::analysis::roles::Roles;
use records::analysis::setting::{Setting, settings};
use records::order;
use records::record::RunRecord;
use records::text as words;
use serde::Serialize;
use std::collections::BTreeSet;

/// Two sets of records, compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ScoreComparison {
    /// The set that the other is compared with.
    pub first: RecordSet,
    /// The other set.
    pub second: RecordSet,
    /// Number of runs, by run id, that both sets have.
    pub runs_in_both: usize,
    /// Number of settings of the config that are equal for every pair of methods.
    pub equal_settings: usize,
    /// Settings of the config that differ.
    pub config: Vec<Change>,
    /// Commits, versions and devices that differ.
    pub environment: Vec<Change>,
    /// Scores, by setting.
    pub settings: Vec<ComparedSetting>,
    /// Settings that only the first set has.
    pub only_first: Vec<String>,
    /// Settings that only the second set has.
    pub only_second: Vec<String>,
}

/// One of two sets of records.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RecordSet {
    /// What it is called, such as its path.
    pub name: String,
    /// Names of its experiments.
    pub experiments: Vec<String>,
    /// Number of its runs.
    pub runs: usize,
    /// Their seeds, ascending.
    pub seeds: Vec<u64>,
    /// Commits they were made at.
    pub commits: Vec<String>,
}

impl ScoreComparison {
    /// Compares the second set with the first.
    ///
    /// # Errors
    ///
    /// A set without records, two records of one run with different numbers, or a metric that no
    /// setting has.
    pub fn of(
        first: (&str, &[RunRecord]),
        second: (&str, &[RunRecord]),
        spec: &ComparisonSpec,
    ) -> Result<Self, ReportError> {
        let (a, b) = (sorted(first.1)?, sorted(second.1)?);
        let [a_specs, b_specs] = [&a, &b].map(|side| MethodSpecs::new(side).named(spec.names));
        let (ours, theirs) = (settings(&a, &[], &a_specs), settings(&b, &[], &b_specs));
        check_metric(&ours, &theirs, spec)?;
        let paired = setting_pairs(&ours, &theirs);
        let methods: Vec<_> = paired
            .pairs
            .iter()
            .map(|(ours, theirs)| method_pairs(ours, theirs))
            .collect();
        let groups: Vec<_> = methods.iter().flat_map(|m| m.groups.clone()).collect();
        let (equal_settings, config) = config_changes(&groups);
        let compared = paired.pairs.iter().zip(&methods);
        Ok(Self {
            first: side(first.0, &a),
            second: side(second.0, &b),
            runs_in_both: ids(&a).intersection(&ids(&b)).count(),
            equal_settings,
            config,
            environment: environment_changes(&a, &b),
            settings: compared
                .map(|((ours, theirs), methods)| compare(ours, theirs, methods, spec))
                .collect(),
            only_first: names(&paired.only_first, &paired.only_second, (&a, &b), spec),
            only_second: names(&paired.only_second, &paired.only_first, (&a, &b), spec),
        })
    }

    /// Scores of a verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        let scores = self.settings.iter().flat_map(|setting| &setting.scores);
        scores.filter(|score| score.verdict == verdict).count()
    }

    /// Whether a score became worse or was lost.
    pub fn has_regressed(&self) -> bool {
        self.count(Verdict::Worse) + self.count(Verdict::Lost) > 0
    }

    /// Whether every setting, method and length of the first set is in the second, and at least one
    /// score has a seed in common.
    pub fn covers_first(&self) -> bool {
        let covered = |setting: &ComparedSetting| {
            setting.only_first.is_empty() && setting.lengths_only_first.is_empty()
        };
        let scores = || self.settings.iter().flat_map(|setting| &setting.scores);
        let compared = scores().any(|score| score.verdict != Verdict::NoSeed);
        compared && self.only_first.is_empty() && self.settings.iter().all(covered)
    }
}

/// The names of settings. Where one of the others has the same, as two texts that were trained at
/// one length, they are named as in a report over both sets.
fn names(
    side: &[&Setting<'_>],
    others: &[&Setting<'_>],
    (a, b): (&[&RunRecord], &[&RunRecord]),
    spec: &ComparisonSpec,
) -> Vec<String> {
    let is_shared = |one: &&&Setting<'_>| others.iter().any(|other| other.name == one.name);
    if !side.iter().any(|one| is_shared(&one)) {
        return side.iter().map(|one| one.name.clone()).collect();
    }
    let known = ids(a);
    let more = b.iter().filter(|run| !known.contains(run.run_id.as_str()));
    let mut all: Vec<&RunRecord> = a.iter().chain(more).copied().collect();
    all.sort_by(|a, b| order::canonical(a, b));
    let all = settings(&all, &[], &MethodSpecs::new(&all).named(spec.names));
    let runs = |of: &Setting<'_>| -> BTreeSet<String> {
        let runs = of.groups.iter().flat_map(|group| &group.runs);
        runs.map(|run| run.run_id.clone()).collect()
    };
    let name = |one: &&Setting<'_>| {
        let own = runs(one);
        let whole = all.iter().find(|all| !runs(all).is_disjoint(&own));
        whole.unwrap_or(*one).name.clone()
    };
    side.iter().map(name).collect()
}

fn sorted(records: &[RunRecord]) -> Result<Vec<&RunRecord>, ReportError> {
    if records.is_empty() {
        return Err(ReportError::Empty {
            excluded: Vec::new(),
        });
    }
    let all = canonical(records)?;
    let results = Roles::of(all.iter().copied()).results;
    match results.len() {
        0 => Err(ReportError::NoResults { records: all.len() }),
        _ => Ok(results),
    }
}

fn check_metric(
    ours: &[Setting<'_>],
    theirs: &[Setting<'_>],
    spec: &ComparisonSpec,
) -> Result<(), ReportError> {
    let Some(metric) = &spec.metric else {
        return Ok(());
    };
    let of = |sides: &[Setting<'_>]| -> BTreeSet<String> {
        let names = sides.iter().flat_map(|setting| &setting.all_metrics);
        names.cloned().collect()
    };
    let known: BTreeSet<String> = of(ours).intersection(&of(theirs)).cloned().collect();
    if known.contains(metric) {
        return Ok(());
    }
    Err(ReportError::UnknownMetric {
        metric: metric.clone(),
        known: known.into_iter().collect(),
    })
}

fn side(name: &str, records: &[&RunRecord]) -> RecordSet {
    let trained = || records.iter().filter(|r| r.evaluation_of.is_none());
    let distinct = |of: &dyn Fn(&RunRecord) -> String| -> Vec<String> {
        let all: BTreeSet<String> = records.iter().map(|record| of(record)).collect();
        all.into_iter().collect()
    };
    let seeds: BTreeSet<u64> = trained().map(|record| record.seed).collect();
    RecordSet {
        name: words::printable(name),
        experiments: distinct(&|record| words::name(&record.experiment, 60)),
        runs: trained().count(),
        seeds: seeds.into_iter().collect(),
        commits: distinct(&|record| words::name(&record.environment.commit, 20)),
    }
}

fn ids<'a>(records: &[&'a RunRecord]) -> BTreeSet<&'a str> {
    let trained = records.iter().filter(|r| r.evaluation_of.is_none());
    trained.map(|record| record.run_id.as_str()).collect()
}
