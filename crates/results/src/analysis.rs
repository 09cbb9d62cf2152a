//! From records to settings, methods and cells: who is compared with whom, and what each cell of a table stands on.
//!
//! A *setting* is a task at one training length on one corpus: what is comparable. A *method* is one combination of labels under
//! one variant. Runs are pooled as seeds of a method only if their resolved model, task and training agree but for the seed.

use crate::metric;
use crate::order;
use crate::record::{EvalRow, EvalStatus, Label, RunRecord, RunStatus, TaskFacts};
use crate::report::ReportSpec;
use crate::stats::{self, Estimate};
use crate::table::list;
use crate::text;
use serde_json::Value;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Longest name of a method before its variant, in characters.
const LONGEST_NAME: usize = 120;
/// Test lengths a table has room for; real ones have a tenth of it.
const MOST_LENGTHS: usize = 200;
/// Metrics that get a table.
const MOST_METRICS: usize = 32;

/// Name of the variant that is the encoding as trained.
pub(crate) const TRAINED: &str = "trained";

pub(crate) struct Setting<'a> {
    pub task: &'a TaskFacts,
    /// `text, trained at 64 bytes`
    pub name: String,
    /// Prefix of file names and anchors; empty where there is one setting only.
    pub slug: String,
    pub groups: Vec<Group<'a>>,
    pub methods: Vec<Method>,
    /// What the methods' names are values of: `base`, or `positions, pe`.
    pub axes: String,
    /// Test lengths, ascending.
    pub lengths: Vec<usize>,
    /// Metrics with a table, the leading one first.
    pub metrics: Vec<String>,
    /// Every metric recorded or derived, for the long form.
    pub all_metrics: Vec<String>,
    /// The in-length score is taken here: the training length, or the longest test length below it.
    pub in_length: Option<usize>,
    pub notes: Vec<String>,
}

/// Runs that differ by seed alone.
pub(crate) struct Group<'a> {
    pub name: String,
    /// By seed, each once.
    pub runs: Vec<Run<'a>>,
}

/// A record and its evaluations by variant and length.
pub(crate) struct Run<'a> {
    record: &'a RunRecord,
    rows: HashMap<(&'a str, usize), &'a EvalRow>,
}

impl<'a> Run<'a> {
    fn new(record: &'a RunRecord) -> Self {
        // Of a row given twice, which no reader lets through, the first.
        let rows = record.evals.iter().rev().map(|row| ((row.variant.as_str(), row.test_len), row)).collect();
        Self { record, rows }
    }

    pub(crate) fn row(&self, variant: &str, test_len: usize) -> Option<&'a EvalRow> {
        self.rows.get(&(variant, test_len)).copied()
    }
}

impl std::ops::Deref for Run<'_> {
    type Target = RunRecord;

    fn deref(&self) -> &RunRecord {
        self.record
    }
}

pub(crate) struct Method {
    pub name: String,
    pub group: usize,
    pub variant: String,
}

/// Why a run has no number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Absent {
    Diverged,
    Unsupported,
    Skipped,
    /// There is a number, but it is none of extrapolation: the task was not learned in length.
    Unconverged,
    Missing,
}

impl Absent {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Absent::Diverged => "diverged",
            Absent::Unsupported => "unsupported",
            Absent::Skipped => "skipped",
            Absent::Unconverged => "not converged",
            Absent::Missing => "-",
        }
    }
}

/// One method at one test length.
pub(crate) struct Point {
    /// Seed and value, by seed.
    pub values: Vec<(u64, f64)>,
    pub estimate: Option<Estimate>,
    pub runs: usize,
    pub absent: BTreeSet<Absent>,
}

impl Point {
    pub(crate) fn is_whole(&self) -> bool {
        self.estimate.is_some() && self.values.len() == self.runs
    }
}

/// Whether a method has learned its task at the lengths it was trained on: only then is anything said about longer ones.
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
    /// Nothing longer was tested.
    pub is_longest: bool,
    /// Runs with an in-length score, and runs.
    pub seeds: (usize, usize),
}

impl Setting<'_> {
    pub(crate) fn lead(&self) -> &str {
        &self.metrics[0]
    }

    /// What a metric is; where runs of the setting define it differently, such as by how answers were decoded, each of them and for whom.
    pub(crate) fn definition(&self, metric: &str) -> String {
        let mut said: Vec<(String, Vec<String>)> = Vec::new();
        let runs = self.groups.iter().flat_map(|group| group.runs.iter().map(move |run| (group, run)));
        for (group, run) in runs.filter(|(_, run)| run.task.definitions.contains_key(metric)) {
            let text = metric::definition(&run.task, metric);
            match said.iter_mut().find(|(other, _)| *other == text) {
                Some((_, names)) if names.contains(&group.name) => {}
                Some((_, names)) => names.push(group.name.clone()),
                None => said.push((text, vec![group.name.clone()])),
            }
        }
        if let [] | [_] = said[..] {
            return said.pop().map_or_else(|| metric::definition(self.task, metric), |(text, _)| text);
        }
        let each = said.iter().map(|(text, names)| format!("for {}: {}", list(names, 6), text.trim_end_matches('.')));
        each.collect::<Vec<_>>().join("; ") + "."
    }

    pub(crate) fn longer(&self) -> impl Iterator<Item = usize> + '_ {
        self.lengths.iter().copied().filter(|&l| l > self.task.train_len)
    }

    pub(crate) fn times(&self, len: usize) -> String {
        times(len as f64 / self.task.train_len.max(1) as f64)
    }

    /// Layer and head of every recorded mean attention distance, with the metric's name, in order; at most as many as metrics with a table.
    pub(crate) fn heads(&self) -> Vec<((usize, usize), &str)> {
        let mut heads: Vec<_> = self.all_metrics.iter().filter_map(|name| Some((metric::head(name)?, name.as_str()))).collect();
        heads.sort_unstable();
        heads.truncate(MOST_METRICS);
        heads
    }

    pub(crate) fn point(&self, method: &Method, metric: &str, len: usize) -> Point {
        self.point_by(method, |run| value_at(run, &method.variant, metric, len))
    }

    /// Metric relative to the same run's in-length value.
    pub(crate) fn ratio(&self, method: &Method, metric: &str, len: usize) -> Point {
        self.extrapolated(method, len, |run| {
            let there = value_at(run, &method.variant, metric, len)?;
            metric::extrapolation_ratio(there, self.value_in_length(run, method, metric)?).ok_or(Absent::Missing)
        })
    }

    /// The share of its in-length score that a run keeps.
    pub(crate) fn kept_share(&self, method: &Method, metric: &str, len: usize) -> Point {
        self.extrapolated(method, len, |run| {
            let there = value_at(run, &method.variant, metric, len)?;
            metric::kept_share(metric, there, self.value_in_length(run, method, metric)?).ok_or(Absent::Missing)
        })
    }

    /// The longest test length at which a run still has [`metric::KEPT`] of its in-length score, of those that gave a number.
    pub(crate) fn kept_to(&self, method: &Method) -> Point {
        let metric = self.lead();
        self.extrapolated(method, usize::MAX, |run| {
            let here = Some(self.value_in_length(run, method, metric)?).filter(|&v| v > 0.0).ok_or(Absent::Missing)?;
            let is_kept = |len: &usize| value_at(run, &method.variant, metric, *len).is_ok_and(|v| metric::is_kept(metric, v, here));
            self.lengths_from_in_length().rev().find(is_kept).map(|len| len as f64).ok_or(Absent::Missing)
        })
    }

    /// Mean over log2 of the length, from the in-length one to the longest tested, of the share of the in-length score.
    pub(crate) fn kept_area(&self, method: &Method) -> Point {
        let metric = self.lead();
        self.extrapolated(method, usize::MAX, |run| {
            let here = self.value_in_length(run, method, metric)?;
            let shares: Result<Vec<(f64, f64)>, Absent> = self
                .lengths_from_in_length()
                .map(|len| {
                    let there = value_at(run, &method.variant, metric, len)?;
                    metric::kept_share(metric, there, here).map(|share| (len as f64, share)).ok_or(Absent::Missing)
                })
                .collect();
            stats::mean_over_log2(&shares?).ok_or(Absent::Missing)
        })
    }

    /// One method minus another, seed by seed, for the seeds that both have.
    pub(crate) fn difference(&self, method: &Method, other: &Method, metric: &str, len: usize) -> Point {
        self.paired(method, other, metric, len, |a, b| Some(a - b))
    }

    /// `of` the values of two methods for each seed that both have.
    pub(crate) fn paired(&self, method: &Method, other: &Method, metric: &str, len: usize, of: impl Fn(f64, f64) -> Option<f64>) -> Point {
        let others = &self.groups[other.group].runs;
        let mut point = self.extrapolated(method, len, |run| {
            let beside = others.iter().find(|r| r.seed == run.seed).ok_or(Absent::Missing)?;
            let there = value_at(run, &method.variant, metric, len)?;
            of(there, value_at(beside, &other.variant, metric, len)?).ok_or(Absent::Missing)
        });
        if self.is_extrapolation_of_unconverged(other, len) {
            point = self.point_by(method, |_| Err(Absent::Unconverged));
        }
        let seeds = |method: &Method| self.groups[method.group].runs.iter().map(|r| r.seed).collect::<BTreeSet<_>>();
        point.runs = seeds(method).intersection(&seeds(other)).count();
        point
    }

    /// A function of the score.
    pub(crate) fn score(&self, method: &Method, metric: &str, len: usize, of: impl Fn(f64) -> f64) -> Point {
        self.extrapolated(method, len, |run| value_at(run, &method.variant, metric, len).map(&of))
    }

    /// A run's score at one length minus that at another.
    pub(crate) fn step(&self, method: &Method, metric: &str, from: usize, to: usize) -> Point {
        self.extrapolated(method, to.max(from), |run| {
            Ok(value_at(run, &method.variant, metric, to)? - value_at(run, &method.variant, metric, from)?)
        })
    }

    /// The largest score of some methods over the smallest, for the seeds that all have.
    pub(crate) fn spread(&self, methods: &[&Method], metric: &str, len: usize) -> Point {
        let Some((first, others)) = methods.split_first() else {
            return Point { values: Vec::new(), estimate: None, runs: 0, absent: BTreeSet::new() };
        };
        if others.iter().any(|m| self.is_extrapolation_of_unconverged(m, len)) {
            return self.point_by(first, |_| Err(Absent::Unconverged));
        }
        self.extrapolated(first, len, |run| {
            let own = value_at(run, &first.variant, metric, len)?;
            let (mut low, mut high) = (own, own);
            for other in others {
                let beside = self.groups[other.group].runs.iter().find(|r| r.seed == run.seed).ok_or(Absent::Missing)?;
                let value = value_at(beside, &other.variant, metric, len)?;
                (low, high) = (low.min(value), high.max(value));
            }
            metric::extrapolation_ratio(high, low).ok_or(Absent::Missing)
        })
    }

    /// The in-length score's length and every longer one.
    pub(crate) fn lengths_from_in_length(&self) -> impl DoubleEndedIterator<Item = usize> + '_ {
        let from = self.in_length.unwrap_or(usize::MAX);
        self.lengths.iter().copied().filter(move |&l| l >= from)
    }

    fn value_in_length(&self, run: &Run<'_>, method: &Method, metric: &str) -> Result<f64, Absent> {
        self.in_length.map_or(Err(Absent::Missing), |len| value_at(run, &method.variant, metric, len))
    }

    /// A point about a length past training, which methods that have not converged do not have.
    fn extrapolated(&self, method: &Method, len: usize, value: impl Fn(&Run<'_>) -> Result<f64, Absent>) -> Point {
        if self.is_extrapolation_of_unconverged(method, len) {
            return self.point_by(method, |_| Err(Absent::Unconverged));
        }
        self.point_by(method, value)
    }

    pub(crate) fn is_extrapolation_of_unconverged(&self, method: &Method, len: usize) -> bool {
        len > self.task.train_len && matches!(self.converged(method), InLength::Unconverged(_))
    }

    /// Where answers are scored whole: the share of exact ones, the mean over seeds and over tested lengths up to the training
    /// length, is at least [`metric::LEARNED`]. Elsewhere: the leading metric's in-length mean is better than guessing.
    pub(crate) fn converged(&self, method: &Method) -> InLength {
        let lead = self.lead();
        let answers = self.task.primary_metric != metric::LOSS_NATS;
        let exact: Vec<f64> = self
            .lengths
            .iter()
            .filter(|&&len| answers && len <= self.task.train_len)
            .filter_map(|&len| Some(self.point(method, metric::EXACT_MATCH, len).estimate?.mean))
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
        let here = self.in_length.and_then(|len| Some((len, self.point(method, lead, len).estimate?.mean)));
        let Some((len, mean)) = here else { return InLength::Untested };
        let chance = metric::chance(self.task, lead);
        let is_better = chance.map_or(mean != 0.0, |c| better_first(lead, mean, c) == Ordering::Less);
        if is_better {
            return InLength::Converged;
        }
        let chance = chance.unwrap_or_default();
        let text = |value: f64| metric::number(value, metric::decimals(lead, value));
        InLength::Unconverged(format!("{lead} {} at {len}, no better than guessing ({})", text(mean), text(chance)))
    }

    fn point_by(&self, method: &Method, value: impl Fn(&Run<'_>) -> Result<f64, Absent>) -> Point {
        let runs = &self.groups[method.group].runs;
        let mut point = Point { values: Vec::new(), estimate: None, runs: runs.len(), absent: BTreeSet::new() };
        for run in runs {
            match value(run) {
                Ok(value) => point.values.push((run.seed, value)),
                Err(absent) => {
                    point.absent.insert(absent);
                }
            }
        }
        let values: Vec<f64> = point.values.iter().map(|&(_, value)| value).collect();
        point.estimate = Estimate::of(&values);
        point
    }

    /// None where there is no in-length score, or one that says the task was not learned.
    pub(crate) fn reach(&self, method: &Method) -> Option<Reach> {
        let metric = self.lead();
        let base = self.point(method, metric, self.in_length?);
        let in_length = base.estimate?;
        if self.converged(method) != InLength::Converged {
            return None;
        }
        let mut reach = Reach { test_len: None, is_longest: true, seeds: (base.values.len(), base.runs) };
        for len in self.longer() {
            let there = self.point(method, metric, len);
            let kept =
                there.values.len() == base.values.len() && there.estimate.is_some_and(|e| metric::is_kept(metric, e.mean, in_length.mean));
            if !kept {
                reach.is_longest = false;
                break;
            }
            reach.test_len = Some(len);
        }
        Some(reach)
    }

    /// The one method better than every other beyond its interval, if there is one.
    pub(crate) fn clear_best(&self, points: &[Point], metric: &str) -> Option<usize> {
        let numbered: Vec<(usize, &Point, Estimate)> = points.iter().enumerate().filter_map(|(i, p)| Some((i, p, p.estimate?))).collect();
        let best = numbered.iter().min_by(|a, b| better_first(metric, a.2.mean, b.2.mean))?;
        let rivals = numbered.iter().filter(|other| other.0 != best.0);
        let clear = numbered.len() > 1 && best.1.is_whole() && rivals.clone().all(|other| best.2.is_separated_from(&other.2));
        clear.then_some(best.0)
    }

    /// Fewest and most seeds of a method.
    pub(crate) fn seeds(&self) -> (usize, usize) {
        let counts = self.groups.iter().map(|g| g.runs.len());
        (counts.clone().min().unwrap_or(0), counts.max().unwrap_or(0))
    }

    pub(crate) fn unit_count(&self, len: usize) -> String {
        format!("{len} {}", self.task.unit)
    }
}

pub(crate) fn better_first(metric: &str, a: f64, b: f64) -> Ordering {
    if metric::lower_is_better(metric) { a.total_cmp(&b) } else { b.total_cmp(&a) }
}

/// `4x`, `1.5x`
pub(crate) fn times(ratio: f64) -> String {
    let text = format!("{ratio:.2}");
    format!("{}x", text.trim_end_matches('0').trim_end_matches('.'))
}

/// A run's value for a metric of a variant at a length, or why there is none.
fn value_at(run: &Run<'_>, variant: &str, metric: &str, len: usize) -> Result<f64, Absent> {
    let Some(row) = run.row(variant, len) else {
        return Err(if run.status == RunStatus::Diverged { Absent::Diverged } else { Absent::Missing });
    };
    match row.status {
        EvalStatus::Ok => match metric::value(&run.task, row, metric) {
            Some((value, _)) if value.is_finite() => Ok(value),
            Some(_) => Err(Absent::Diverged),
            None => Err(Absent::Missing),
        },
        EvalStatus::Diverged => Err(Absent::Diverged),
        EvalStatus::Unsupported => Err(Absent::Unsupported),
        EvalStatus::Skipped => Err(Absent::Skipped),
    }
}

/// Settings in order of task, corpus and training length. `records` are in canonical order, each run once.
pub(crate) fn settings<'a>(records: &[&'a RunRecord], spec: &ReportSpec) -> Vec<Setting<'a>> {
    type Key<'a> = (&'a str, &'a str, &'a str, &'a str, usize);
    let mut by_key: BTreeMap<Key<'a>, Vec<&'a RunRecord>> = BTreeMap::new();
    for run in records {
        let task = &run.task;
        let corpus = task.corpus.as_ref().map_or("", |c| c.blake3.as_str());
        by_key.entry((&task.kind, &task.primary_metric, &task.unit, corpus, task.train_len)).or_default().push(run);
    }
    let several = by_key.len() > 1;
    let mut slugs = text::Slugs::default();
    let mut names = BTreeSet::new();
    by_key
        .into_values()
        .map(|runs| {
            let task = &runs[0].task;
            let kind = text::name(&task.kind, 40);
            let slug = if several { slugs.take(&format!("{kind} {}", task.train_len)) } else { String::new() };
            let mut name = format!("{kind}, trained at {} {}", task.train_len, text::name(&task.unit, 40));
            if !names.insert(name.clone()) {
                // Same task and length, other corpus or leading metric.
                let what = task.corpus.as_ref().map_or(task.primary_metric.as_str(), |c| c.source.as_str());
                name = format!("{name} ({})", text::name(what, 80));
            }
            setting(runs, spec, name, slug)
        })
        .collect()
}

fn setting<'a>(runs: Vec<&'a RunRecord>, spec: &ReportSpec, name: String, slug: String) -> Setting<'a> {
    let task = &runs[0].task;
    let mut notes = Vec::new();
    let groups = groups(&runs, spec, &mut notes);
    let mut methods = Vec::new();
    let mut taken = BTreeSet::new();
    for (index, group) in groups.iter().enumerate() {
        for variant in variants(group, spec) {
            let full = if variant == TRAINED { group.name.clone() } else { format!("{} + {}", group.name, text::name(&variant, 60)) };
            // Names that differ only in what was cut from them are still two methods.
            let numbered = (2..).map(|n| format!("{full} #{n}"));
            let name = std::iter::once(full.clone()).chain(numbered).find(|name| !taken.contains(name)).unwrap_or_default();
            taken.insert(name.clone());
            methods.push(Method { name, group: index, variant });
        }
    }
    let rows = || runs.iter().flat_map(|run| &run.evals);
    let lengths = lengths(rows().map(|row| row.test_len), &name, &mut notes);
    let recorded: BTreeSet<&String> = rows().flat_map(|row| row.metrics.keys()).collect();
    let recorded: Vec<String> = recorded.into_iter().cloned().collect();
    let mut metrics = metric::shown(task, &recorded);
    let first: BTreeSet<String> = metrics.iter().cloned().collect();
    let mut all_metrics = metrics.clone();
    all_metrics.extend(recorded.into_iter().filter(|extra| !first.contains(extra)));
    if metrics.len() > MOST_METRICS {
        notes.push(format!("{name}: {} metrics; the first {MOST_METRICS} have a table, all are in results.csv.", metrics.len()));
        metrics.truncate(MOST_METRICS);
    }
    let in_length = lengths.iter().copied().filter(|&l| l <= task.train_len).max();
    let axes = axes(&runs);
    Setting { task, name, slug, groups, methods, axes, lengths, metrics, all_metrics, in_length, notes }
}

/// The lengths tested, ascending; of too many, those that the most evaluations share.
fn lengths(tested: impl Iterator<Item = usize>, setting: &str, notes: &mut Vec<String>) -> Vec<usize> {
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    tested.for_each(|len| *counts.entry(len).or_default() += 1);
    let mut lengths: Vec<usize> = counts.keys().copied().collect();
    if lengths.len() > MOST_LENGTHS {
        notes.push(format!("{setting}: {} test lengths; the {MOST_LENGTHS} most common are shown, all are in results.csv.", lengths.len()));
        lengths.sort_by_key(|len| (std::cmp::Reverse(counts[len]), *len));
        lengths.truncate(MOST_LENGTHS);
        lengths.sort_unstable();
    }
    lengths
}

fn groups<'a>(runs: &[&'a RunRecord], spec: &ReportSpec, notes: &mut Vec<String>) -> Vec<Group<'a>> {
    let mut pools: Vec<(Identity<'a>, Vec<&'a RunRecord>)> = Vec::new();
    let mut known: BTreeMap<Identity<'a>, usize> = BTreeMap::new();
    for &run in runs {
        let identity = Identity::of(run);
        match known.get(&identity) {
            Some(&at) => pools[at].1.push(run),
            None => {
                known.insert(identity.clone(), pools.len());
                pools.push((identity, vec![run]));
            }
        }
    }
    let rank = |text: &str| spec.order.iter().position(|o| o == text).unwrap_or(spec.order.len());
    pools.sort_by(|(a, x), (b, y)| {
        let ranks = |run: &RunRecord| run.labels.iter().map(|l| rank(&l.text)).collect::<Vec<_>>();
        a.experiment
            .cmp(b.experiment)
            .then_with(|| ranks(x[0]).cmp(&ranks(y[0])))
            .then_with(|| order::labels(&x[0].labels, &y[0].labels))
            .then_with(|| a.settings.cmp(&b.settings))
    });

    let shared = shared_task_labels(runs);
    let several_experiments = runs.iter().any(|run| run.experiment != runs[0].experiment);
    let mut names: Vec<String> = pools
        .iter()
        .map(|(_, pool)| {
            let name = label_name(pool[0], &shared);
            if several_experiments { format!("{}: {name}", text::name(&pool[0].experiment, 60)) } else { name }
        })
        .collect();
    tell_apart(&mut names, &pools, notes);

    let mut out = Vec::new();
    for ((_, pool), name) in pools.into_iter().zip(names) {
        let mut kept: Vec<&RunRecord> = Vec::new();
        for run in pool {
            match kept.iter().find(|other| other.seed == run.seed) {
                Some(other) => notes.push(format!(
                    "{name}: seed {} was run twice with the same model, task and training; {} is shown, {} is not.",
                    run.seed,
                    short(&other.run_id),
                    short(&run.run_id)
                )),
                None => kept.push(run),
            }
        }
        out.push(Group { name, runs: kept.into_iter().map(Run::new).collect() });
    }
    out
}

/// Labels of the task that all runs of the setting share: they name the setting, not the method.
fn shared_task_labels<'a>(runs: &[&'a RunRecord]) -> BTreeSet<(&'a str, &'a str)> {
    let of = |run: &'a RunRecord| run.labels.iter().filter(|l| l.key.starts_with("task.")).map(|l| (l.key.as_str(), l.text.as_str()));
    let mut shared: BTreeSet<_> = of(runs[0]).collect();
    for run in runs {
        let here: BTreeSet<_> = of(run).collect();
        shared.retain(|label| here.contains(label));
    }
    shared
}

/// The labels that name a run's method: those that do not name the setting, or all if there are no others.
fn naming<'r>(run: &'r RunRecord, shared: &BTreeSet<(&str, &str)>) -> Vec<&'r Label> {
    let own: Vec<&Label> = run.labels.iter().filter(|l| !shared.contains(&(l.key.as_str(), l.text.as_str()))).collect();
    if own.is_empty() { run.labels.iter().collect() } else { own }
}

/// The last parts of the keys of the labels that name the methods; `method` where these have different keys.
fn axes(runs: &[&RunRecord]) -> String {
    let shared = shared_task_labels(runs);
    let keys = |run: &RunRecord| -> Vec<String> {
        naming(run, &shared).iter().take(8).map(|l| text::name(l.key.rsplit('.').next().unwrap_or(&l.key), 20)).collect()
    };
    let first = keys(runs[0]);
    let is_all = !first.is_empty() && runs.iter().all(|run| keys(run) == first && run.experiment == runs[0].experiment);
    if is_all { first.join(", ") } else { "method".into() }
}

fn label_name(run: &RunRecord, shared: &BTreeSet<(&str, &str)>) -> String {
    let labels = naming(run, shared);
    if labels.is_empty() {
        return text::name(&run.experiment, 60);
    }
    let texts: Vec<String> = labels.iter().take(32).map(|l| text::name(&l.text, 80)).collect();
    text::shorten(&texts.join(", "), LONGEST_NAME)
}

/// Same labels, other settings: never pooled, and named by what differs.
fn tell_apart(names: &mut [String], pools: &[(Identity<'_>, Vec<&RunRecord>)], notes: &mut Vec<String>) {
    let mut by_name: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, name) in names.iter().enumerate() {
        by_name.entry(name.clone()).or_default().push(index);
    }
    for (name, members) in by_name.into_iter().filter(|(_, members)| members.len() > 1) {
        let settings: Vec<&BTreeMap<String, String>> = members.iter().map(|&m| &pools[m].0.settings).collect();
        let keys: BTreeSet<&String> = settings.iter().flat_map(|s| s.keys()).collect();
        let differing: Vec<&String> = keys.into_iter().filter(|k| settings.iter().any(|s| s.get(*k) != settings[0].get(*k))).collect();
        let mut taken = BTreeSet::new();
        for (count, &member) in members.iter().enumerate() {
            let parts: Vec<String> = differing
                .iter()
                .take(3)
                .map(|k| (text::name(k, 60), text::name(pools[member].0.settings.get(*k).map_or("unset", String::as_str), 60)))
                .map(|(key, value)| format!("{key} = {value}"))
                .collect();
            let mut full = format!("{name} [{}]", parts.join(", "));
            if parts.is_empty() || !taken.insert(full.clone()) {
                full = format!("{name} #{}", count + 1);
            }
            names[member] = full;
        }
        notes.push(format!("Runs labelled \"{name}\" differ in more than the seed and are shown apart."));
    }
}

pub(crate) fn short(run_id: &str) -> &str {
    run_id.get(..12).unwrap_or(run_id)
}

/// Trained first, then by the order asked for, then as evaluated.
fn variants(group: &Group<'_>, spec: &ReportSpec) -> Vec<String> {
    let mut seen: Vec<&str> = Vec::new();
    for row in group.runs.iter().flat_map(|run| &run.evals) {
        if !seen.contains(&row.variant.as_str()) {
            seen.push(&row.variant);
        }
    }
    if seen.is_empty() {
        seen.push(TRAINED);
    }
    let rank = |v: &str| spec.order.iter().position(|o| o == v).unwrap_or(spec.order.len());
    seen.sort_by_key(|v| (*v != TRAINED, rank(v)));
    seen.into_iter().map(String::from).collect()
}

/// What runs must share to count as seeds of one method.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Identity<'a> {
    experiment: &'a str,
    labels: Vec<(&'a str, &'a str)>,
    settings: BTreeMap<String, String>,
}

impl<'a> Identity<'a> {
    fn of(run: &'a RunRecord) -> Self {
        let mut settings = BTreeMap::new();
        for section in ["model", "task", "train"] {
            if let Some(value) = run.spec.get(section) {
                flatten(section, value, &mut settings);
            }
            settings.remove(&format!("{section}.seed"));
        }
        Self { experiment: &run.experiment, labels: run.labels.iter().map(|l| (l.key.as_str(), l.text.as_str())).collect(), settings }
    }
}

fn flatten(key: &str, value: &Value, out: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(k, v)| flatten(&format!("{key}.{k}"), v, out)),
        Value::String(text) => {
            out.insert(key.into(), text.clone());
        }
        other => {
            out.insert(key.into(), other.to_string());
        }
    }
}
