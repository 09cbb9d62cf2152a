//! From records to settings, methods and cells: who is compared with whom, and what each cell of a
//! table stands on.
//!
//! A *setting* is a task at one training length on one corpus: what is comparable. A *method* is a
//! group of runs that differ only by seed (`groups.rs`), under one variant.

use crate::groups::{Group, Run, TRAINED, groups, later_note};
use crate::identity::MethodSpecs;
use crate::metric;
use crate::naming;
use crate::record::{EvalStatus, RunRecord, RunStatus, TaskFacts};
use crate::stats::{self, Estimate};
use crate::table::list;
use crate::text;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// Test lengths a table has room for; real ones have a tenth of it.
const MOST_LENGTHS: usize = 200;
/// Metrics that get a table.
const MOST_METRICS: usize = 32;

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
    /// The in-length score is taken here: the training length, or the longest test length below
    /// it.
    pub in_length: Option<usize>,
    pub notes: Vec<String>,
}

pub(crate) struct Method {
    pub name: String,
    /// The name without the keys of labels, as claims and baselines may write it.
    pub plain: String,
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

/// Whether a method has learned its task at the lengths it was trained on: only then is anything
/// said about longer ones.
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
    /// The method of that name; by its name without the keys of labels where only one has it.
    pub(crate) fn method(&self, name: &str) -> Option<&Method> {
        let mut plain = self.methods.iter().filter(|m| m.plain == name);
        let exact = self.methods.iter().find(|m| m.name == name);
        exact.or_else(|| plain.next().filter(|_| plain.next().is_none()))
    }

    pub(crate) fn lead(&self) -> &str {
        &self.metrics[0]
    }

    /// What a metric is; where runs of the setting define it differently, such as by how answers
    /// were decoded, each of them and for whom.
    pub(crate) fn definition(&self, metric: &str) -> String {
        let mut said: Vec<(String, Vec<String>)> = Vec::new();
        let runs = self
            .groups
            .iter()
            .flat_map(|group| group.runs.iter().map(move |run| (group, run)));
        for (group, run) in runs.filter(|(_, run)| run.task.definitions.contains_key(metric)) {
            let text = metric::definition(&run.task, metric);
            match said.iter_mut().find(|(other, _)| *other == text) {
                Some((_, names)) if names.contains(&group.name) => {}
                Some((_, names)) => names.push(group.name.clone()),
                None => said.push((text, vec![group.name.clone()])),
            }
        }
        if let [] | [_] = said[..] {
            return said
                .pop()
                .map_or_else(|| metric::definition(self.task, metric), |(text, _)| text);
        }
        let each = said
            .iter()
            .map(|(text, names)| format!("for {}: {}", list(names, 6), text.trim_end_matches('.')));
        each.collect::<Vec<_>>().join("; ") + "."
    }

    pub(crate) fn longer(&self) -> impl Iterator<Item = usize> + '_ {
        self.lengths
            .iter()
            .copied()
            .filter(|&l| l > self.task.train_len)
    }

    pub(crate) fn times(&self, len: usize) -> String {
        times(len as f64 / self.task.train_len.max(1) as f64)
    }

    /// Layer and head of every recorded mean attention distance, with the metric's name, in order;
    /// at most as many as metrics with a table.
    pub(crate) fn heads(&self) -> Vec<((usize, usize), &str)> {
        let mut heads: Vec<_> = self
            .all_metrics
            .iter()
            .filter_map(|name| Some((metric::head(name)?, name.as_str())))
            .collect();
        heads.sort_unstable();
        heads.truncate(MOST_METRICS);
        heads
    }

    pub(crate) fn point(&self, method: &Method, metric: &str, len: usize) -> Point {
        self.with_rows(
            self.point_by(method, |run| value_at(run, &method.variant, metric, len)),
            method,
            metric,
            len,
        )
    }

    /// Gives the mean of a share the interval over seeds and test rows.
    fn with_rows(&self, mut point: Point, method: &Method, metric: &str, len: usize) -> Point {
        if metric::is_share(metric) {
            let values: Vec<f64> = point.values.iter().map(|&(_, value)| value).collect();
            point.estimate = Estimate::of_share(&values, self.rows(method, metric, len));
        }
        point
    }

    /// Test rows behind a share: all seeds are tested on the same ones. Of records that differ, the
    /// fewest.
    fn rows(&self, method: &Method, metric: &str, len: usize) -> u64 {
        let runs = self.groups[method.group].runs.iter();
        runs.filter_map(|run| metric::rows(run.row(&method.variant, len)?, metric))
            .min()
            .unwrap_or(1)
    }

    /// Metric relative to the same run's in-length value.
    pub(crate) fn ratio(&self, method: &Method, metric: &str, len: usize) -> Point {
        self.extrapolated(method, len, |run| {
            let there = value_at(run, &method.variant, metric, len)?;
            metric::extrapolation_ratio(there, self.value_in_length(run, method, metric)?)
                .ok_or(Absent::Missing)
        })
    }

    /// The share of its in-length score that a run keeps.
    pub(crate) fn kept_share(&self, method: &Method, metric: &str, len: usize) -> Point {
        self.extrapolated(method, len, |run| {
            let there = value_at(run, &method.variant, metric, len)?;
            metric::kept_share(metric, there, self.value_in_length(run, method, metric)?)
                .ok_or(Absent::Missing)
        })
    }

    /// The longest test length at which a run still has [`metric::KEPT`] of its in-length score, of
    /// those that gave a number.
    pub(crate) fn kept_to(&self, method: &Method) -> Point {
        let metric = self.lead();
        self.extrapolated(method, usize::MAX, |run| {
            let here = Some(self.value_in_length(run, method, metric)?)
                .filter(|&v| v > 0.0)
                .ok_or(Absent::Missing)?;
            let is_kept = |len: &usize| {
                value_at(run, &method.variant, metric, *len)
                    .is_ok_and(|v| metric::is_kept(metric, v, here))
            };
            self.lengths_from_in_length()
                .rev()
                .find(is_kept)
                .map(|len| len as f64)
                .ok_or(Absent::Missing)
        })
    }

    /// Mean over log2 of the length, from the in-length one to the longest tested, of the share of
    /// the in-length score.
    pub(crate) fn kept_area(&self, method: &Method) -> Point {
        let metric = self.lead();
        self.extrapolated(method, usize::MAX, |run| {
            let here = self.value_in_length(run, method, metric)?;
            let shares: Result<Vec<(f64, f64)>, Absent> = self
                .lengths_from_in_length()
                .map(|len| {
                    let there = value_at(run, &method.variant, metric, len)?;
                    metric::kept_share(metric, there, here)
                        .map(|share| (len as f64, share))
                        .ok_or(Absent::Missing)
                })
                .collect();
            stats::mean_over_log2(&shares?).ok_or(Absent::Missing)
        })
    }

    /// One method minus another, seed by seed, for the seeds that both have.
    pub(crate) fn difference(
        &self,
        method: &Method,
        other: &Method,
        metric: &str,
        len: usize,
    ) -> Point {
        let point = self.paired(method, other, metric, len, |a, b| Some(a - b));
        self.with_difference(point, metric, (method, len), (other, len))
    }

    /// Gives the mean difference of two shares, each of a method at a length, the interval over
    /// seeds and test rows.
    fn with_difference(
        &self,
        mut point: Point,
        metric: &str,
        of: (&Method, usize),
        than: (&Method, usize),
    ) -> Point {
        if metric::is_share(metric) {
            let value = |seed: u64, (method, len): (&Method, usize)| {
                let run = self.groups[method.group]
                    .runs
                    .iter()
                    .find(|run| run.seed == seed)?;
                value_at(run, &method.variant, metric, len).ok()
            };
            let pairs: Vec<(f64, f64)> = point
                .values
                .iter()
                .filter_map(|&(seed, _)| Some((value(seed, of)?, value(seed, than)?)))
                .collect();
            let rows = (
                self.rows(of.0, metric, of.1),
                self.rows(than.0, metric, than.1),
            );
            point.estimate = Estimate::of_share_difference(&pairs, rows);
        }
        point
    }

    /// `of` the values of two methods for each seed that both have.
    pub(crate) fn paired(
        &self,
        method: &Method,
        other: &Method,
        metric: &str,
        len: usize,
        of: impl Fn(f64, f64) -> Option<f64>,
    ) -> Point {
        let others = &self.groups[other.group].runs;
        let mut point = self.extrapolated(method, len, |run| {
            let beside = others
                .iter()
                .find(|r| r.seed == run.seed)
                .ok_or(Absent::Missing)?;
            let there = value_at(run, &method.variant, metric, len)?;
            of(there, value_at(beside, &other.variant, metric, len)?).ok_or(Absent::Missing)
        });
        if self.is_extrapolation_of_unconverged(other, len) {
            point = self.point_by(method, |_| Err(Absent::Unconverged));
        }
        let seeds = |method: &Method| {
            self.groups[method.group]
                .runs
                .iter()
                .map(|r| r.seed)
                .collect::<BTreeSet<_>>()
        };
        point.runs = seeds(method).intersection(&seeds(other)).count();
        point
    }

    /// The score, which a method that has not converged does not have past the training length.
    pub(crate) fn score(&self, method: &Method, metric: &str, len: usize) -> Point {
        let point = self.extrapolated(method, len, |run| {
            value_at(run, &method.variant, metric, len)
        });
        self.with_rows(point, method, metric, len)
    }

    /// Distance of the score to a fixed value: of the mean for shares, of each run otherwise.
    pub(crate) fn distance(&self, method: &Method, metric: &str, len: usize, to: f64) -> Point {
        if !metric::is_share(metric) {
            return self.extrapolated(method, len, |run| {
                Ok((value_at(run, &method.variant, metric, len)? - to).abs())
            });
        }
        let mut point = self.score(method, metric, len);
        point.estimate = point.estimate.map(|estimate| estimate.distance_to(to));
        point
    }

    /// A run's score at one length minus that at another.
    pub(crate) fn step(&self, method: &Method, metric: &str, from: usize, to: usize) -> Point {
        let point = self.extrapolated(method, to.max(from), |run| {
            Ok(value_at(run, &method.variant, metric, to)?
                - value_at(run, &method.variant, metric, from)?)
        });
        self.with_difference(point, metric, (method, to), (method, from))
    }

    /// The largest score of some methods over the smallest, for the seeds that all have.
    pub(crate) fn spread(&self, methods: &[&Method], metric: &str, len: usize) -> Point {
        let Some((first, others)) = methods.split_first() else {
            return Point {
                values: Vec::new(),
                estimate: None,
                runs: 0,
                absent: BTreeSet::new(),
            };
        };
        if others
            .iter()
            .any(|m| self.is_extrapolation_of_unconverged(m, len))
        {
            return self.point_by(first, |_| Err(Absent::Unconverged));
        }
        self.extrapolated(first, len, |run| {
            let own = value_at(run, &first.variant, metric, len)?;
            let (mut low, mut high) = (own, own);
            for other in others {
                let beside = self.groups[other.group]
                    .runs
                    .iter()
                    .find(|r| r.seed == run.seed)
                    .ok_or(Absent::Missing)?;
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
        self.in_length.map_or(Err(Absent::Missing), |len| {
            value_at(run, &method.variant, metric, len)
        })
    }

    /// A point about a length past training, which methods that have not converged do not have.
    fn extrapolated(
        &self,
        method: &Method,
        len: usize,
        value: impl Fn(&Run<'_>) -> Result<f64, Absent>,
    ) -> Point {
        if self.is_extrapolation_of_unconverged(method, len) {
            return self.point_by(method, |_| Err(Absent::Unconverged));
        }
        self.point_by(method, value)
    }

    pub(crate) fn is_extrapolation_of_unconverged(&self, method: &Method, len: usize) -> bool {
        len > self.task.train_len && matches!(self.converged(method), InLength::Unconverged(_))
    }

    /// Where answers are scored whole: the share of exact ones, the mean over seeds and over tested
    /// lengths up to the training length, is at least [`metric::LEARNED`]. Elsewhere: the
    /// leading metric's in-length mean is better than guessing.
    pub(crate) fn converged(&self, method: &Method) -> InLength {
        let lead = self.lead();
        let answers = self.task.primary_metric != metric::LOSS_NATS;
        // Only means are needed here, so no interval is computed.
        let exact_at =
            |len| move |run: &Run<'_>| value_at(run, &method.variant, metric::EXACT_MATCH, len);
        let exact: Vec<f64> = self
            .lengths
            .iter()
            .filter(|&&len| answers && len <= self.task.train_len)
            .filter_map(|&len| Some(self.point_by(method, exact_at(len)).estimate?.mean))
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
        let here = self
            .in_length
            .and_then(|len| Some((len, self.point(method, lead, len).estimate?.mean)));
        let Some((len, mean)) = here else {
            return InLength::Untested;
        };
        let chance = metric::chance(self.task, lead);
        let is_better = chance.map_or(mean != 0.0, |c| {
            better_first(lead, mean, c) == Ordering::Less
        });
        if is_better {
            return InLength::Converged;
        }
        let chance = chance.unwrap_or_default();
        let text = |value: f64| metric::number(value, metric::decimals(lead, value));
        InLength::Unconverged(format!(
            "{lead} {} at {len}, no better than guessing ({})",
            text(mean),
            text(chance)
        ))
    }

    fn point_by(&self, method: &Method, value: impl Fn(&Run<'_>) -> Result<f64, Absent>) -> Point {
        let runs = &self.groups[method.group].runs;
        let mut point = Point {
            values: Vec::new(),
            estimate: None,
            runs: runs.len(),
            absent: BTreeSet::new(),
        };
        for run in runs {
            match value(run) {
                Ok(value) => point.values.push((run.seed, value)),
                Err(absent) => {
                    point.absent.insert(absent);
                }
            }
        }
        let values: Vec<f64> = point.values.iter().map(|&(_, value)| value).collect();
        point.estimate = Estimate::of_mean(&values);
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
        let mut reach = Reach {
            test_len: None,
            is_longest: true,
            seeds: (base.values.len(), base.runs),
        };
        for len in self.longer() {
            let there = self.point(method, metric, len);
            let kept = there.values.len() == base.values.len()
                && there
                    .estimate
                    .is_some_and(|e| metric::is_kept(metric, e.mean, in_length.mean));
            if !kept {
                reach.is_longest = false;
                break;
            }
            reach.test_len = Some(len);
        }
        Some(reach)
    }

    /// The one method that is better than chance and than every other, by intervals that share no
    /// point, if there is one.
    pub(crate) fn clear_best(&self, points: &[Point], metric: &str) -> Option<usize> {
        let numbered: Vec<(usize, &Point, Estimate)> = points
            .iter()
            .enumerate()
            .filter_map(|(i, p)| Some((i, p, p.estimate?)))
            .collect();
        let best = numbered
            .iter()
            .min_by(|a, b| better_first(metric, a.2.mean, b.2.mean))?;
        let rivals = numbered.iter().filter(|other| other.0 != best.0);
        let clear = numbered.len() > 1
            && best.1.is_whole()
            && !self.is_at_chance(metric, &best.2)
            && rivals
                .clone()
                .all(|other| best.2.is_separated_from(&other.2));
        clear.then_some(best.0)
    }

    /// Whether a score is no better than guessing as far as its interval tells; where guessing has
    /// no score, whether a share is 0.
    pub(crate) fn is_at_chance(&self, metric: &str, estimate: &Estimate) -> bool {
        let Some(chance) = metric::chance(self.task, metric) else {
            return metric::is_share(metric) && estimate.mean == 0.0;
        };
        let (low, high) = estimate.interval.unwrap_or((estimate.mean, estimate.mean));
        let worst = if metric::lower_is_better(metric) {
            high
        } else {
            low
        };
        better_first(metric, worst, chance) != Ordering::Less
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
    if metric::lower_is_better(metric) {
        a.total_cmp(&b)
    } else {
        b.total_cmp(&a)
    }
}

/// `4x`, `1.5x`
pub(crate) fn times(ratio: f64) -> String {
    let text = format!("{ratio:.2}");
    format!("{}x", text.trim_end_matches('0').trim_end_matches('.'))
}

/// A run's value for a metric of a variant at a length, or why there is none.
fn value_at(run: &Run<'_>, variant: &str, metric: &str, len: usize) -> Result<f64, Absent> {
    let Some(row) = run.row(variant, len) else {
        return Err(if run.status == RunStatus::Diverged {
            Absent::Diverged
        } else {
            Absent::Missing
        });
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

/// Settings in order of task, corpus and training length. `records` are in canonical order, each
/// run once; `order` is the order of labels and variants asked for.
pub(crate) fn settings<'a>(
    records: &[&'a RunRecord],
    order: &[String],
    specs: &MethodSpecs<'_>,
) -> Vec<Setting<'a>> {
    type Key<'a> = (&'a str, &'a str, &'a str, &'a str, usize);
    let mut by_key: BTreeMap<Key<'a>, Vec<&'a RunRecord>> = BTreeMap::new();
    for run in records {
        let task = &run.task;
        let corpus = task.corpus.as_ref().map_or("", |c| c.blake3.as_str());
        by_key
            .entry((
                &task.kind,
                &task.primary_metric,
                &task.unit,
                corpus,
                task.train_len,
            ))
            .or_default()
            .push(run);
    }
    let several = by_key.len() > 1;
    let keys: Vec<Key<'a>> = by_key.keys().copied().collect();
    let mut slugs = text::Slugs::default();
    by_key
        .into_iter()
        .map(|(key, runs)| {
            let kind = text::name(&runs[0].task.kind, 40);
            let slug = if several {
                slugs.take(&format!("{kind} {}", runs[0].task.train_len))
            } else {
                String::new()
            };
            let alike = |other: &&Key<'a>| (other.0, other.2, other.4) == (key.0, key.2, key.4);
            let corpora: Vec<&str> = keys.iter().filter(alike).map(|k| k.3).collect();
            let name = setting_name(&runs[0].task, &corpora);
            setting(&runs, specs, order, name, slug)
        })
        .collect()
}

/// `text, trained at 64 bytes`; with the corpus where several corpora share that name, or the
/// leading metric where that is all that differs. `corpora`: hashes of the settings of that name,
/// this one's among them.
fn setting_name(task: &TaskFacts, corpora: &[&str]) -> String {
    let name = format!(
        "{}, trained at {} {}",
        text::name(&task.kind, 40),
        task.train_len,
        text::name(&task.unit, 40)
    );
    let is_several = corpora.iter().collect::<BTreeSet<_>>().len() > 1;
    match &task.corpus {
        _ if corpora.len() < 2 => name,
        Some(corpus) if is_several => {
            format!(
                "{name} ({}, {})",
                text::name(&corpus.source, 80),
                text::name(naming::short(&corpus.blake3), 8)
            )
        }
        _ => format!("{name} ({})", text::name(&task.primary_metric, 80)),
    }
}

fn setting<'a>(
    runs: &[&'a RunRecord],
    specs: &MethodSpecs<'_>,
    order: &[String],
    name: String,
    slug: String,
) -> Setting<'a> {
    let task = &runs[0].task;
    let mut notes = Vec::new();
    let groups = groups(runs, specs, order, &mut notes);
    let mut methods = Vec::new();
    let mut taken = BTreeSet::new();
    for (index, group) in groups.iter().enumerate() {
        for variant in &group.variants {
            let named = |name: &str| {
                if variant.name == TRAINED {
                    name.to_owned()
                } else {
                    format!("{name} + {}", text::name(&variant.name, 60))
                }
            };
            let (mut name, plain) = (named(&group.name), named(&group.plain));
            // Names that differ only in what was cut from them are still two methods.
            while !taken.insert(name.clone()) {
                name = format!(
                    "{name} [run {}]",
                    group
                        .runs
                        .first()
                        .map_or("", |run| naming::short(&run.run_id))
                );
            }
            methods.push(Method {
                name,
                plain,
                group: index,
                variant: variant.name.clone(),
            });
        }
    }
    let rows = || {
        groups
            .iter()
            .flat_map(|group| &group.runs)
            .flat_map(|run| run.rows())
            .map(|(_, row)| row)
    };
    let lengths = lengths(rows().map(|row| row.test_len), &name, &mut notes);
    let recorded: BTreeSet<&String> = rows().flat_map(|row| row.metrics.keys()).collect();
    let recorded: Vec<String> = recorded.into_iter().cloned().collect();
    let mut metrics = metric::shown(task, &recorded);
    let first: BTreeSet<String> = metrics.iter().cloned().collect();
    let mut all_metrics = metrics.clone();
    all_metrics.extend(recorded.into_iter().filter(|extra| !first.contains(extra)));
    if metrics.len() > MOST_METRICS {
        notes.push(format!(
            "{name}: {} metrics; the first {MOST_METRICS} have a table, all are in results.csv.",
            metrics.len()
        ));
        metrics.truncate(MOST_METRICS);
    }
    let in_length = lengths
        .iter()
        .copied()
        .filter(|&l| l <= task.train_len)
        .max();
    let axes = naming::axes(runs);
    notes.extend(later_note(&groups, &name));
    Setting {
        task,
        name,
        slug,
        groups,
        methods,
        axes,
        lengths,
        metrics,
        all_metrics,
        in_length,
        notes,
    }
}

/// The lengths tested, ascending; of too many, those that the most evaluations share.
fn lengths(
    tested: impl Iterator<Item = usize>,
    setting: &str,
    notes: &mut Vec<String>,
) -> Vec<usize> {
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    tested.for_each(|len| *counts.entry(len).or_default() += 1);
    let mut lengths: Vec<usize> = counts.keys().copied().collect();
    if lengths.len() > MOST_LENGTHS {
        notes.push(format!(
            "{setting}: {} test lengths; the {MOST_LENGTHS} most common are shown, all are in \
             results.csv.",
            lengths.len()
        ));
        lengths.sort_by_key(|len| (std::cmp::Reverse(counts[len]), *len));
        lengths.truncate(MOST_LENGTHS);
        lengths.sort_unstable();
    }
    lengths
}
