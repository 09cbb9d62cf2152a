//! Settings: the comparable runs among the records, and their methods.

use super::comparable::{Part, comparable};
use super::groups::{Group, Run, TRAINED, groups, later_note};
use super::identity::MethodSpecs;
use super::naming;
use super::roles::Roles;
use super::setting_name::{Differ, Key};
use super::varied;
use crate::metric;
use crate::record::{EvalRow, RunRecord, RunStatus, TaskFacts, TestLength};
use crate::text::{self, list, short_hash, times};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Test lengths a table has room for; real ones have a tenth of it.
const MOST_LENGTHS: usize = 200;
/// Metrics that get a table.
const MOST_METRICS: usize = 32;

/// Runs of one task, corpus and training length: what one table compares.
pub struct Setting<'a> {
    /// Facts of the task that its runs share.
    pub task: &'a TaskFacts,
    /// `text, trained at 64 bytes`
    pub name: String,
    /// Prefix of file names and anchors; empty where there is one setting only.
    pub slug: String,
    /// Runs that differ in the seed alone.
    pub groups: Vec<Group<'a>>,
    /// The rows of its tables.
    pub methods: Vec<Method>,
    /// What the methods' names are values of: `base`, or `positions, pe`.
    pub axes: String,
    /// Test lengths, ascending; of a range its upper end.
    pub lengths: Vec<usize>,
    /// The lower ends of ranges, by their upper ends.
    pub ranges: BTreeMap<usize, usize>,
    /// Metrics with a table, the leading one first.
    pub metrics: Vec<String>,
    /// Every metric recorded or derived, for the long form.
    pub all_metrics: Vec<String>,
    /// The in-length score is taken here: the training length, or the longest test length below
    /// it.
    pub in_length: Option<usize>,
    /// Notes on runs that were left out.
    pub notes: Vec<String>,
}

/// A row: runs of one group, tested under one variant.
pub struct Method {
    /// Its name in files for programs.
    pub name: String,
    /// The name without the keys of labels, as claims and baselines may write it.
    pub plain: String,
    /// Its name for people, in tables and figures.
    pub title: String,
    /// What its row says of the training after the name: ` [lr = 0.003]`, or nothing.
    pub training: String,
    /// Place in [`Setting::groups`].
    pub group: usize,
    /// Name of the variant.
    pub variant: String,
}

impl Setting<'_> {
    /// Whether all runs are of one experiment.
    pub fn is_of_one_experiment(&self) -> bool {
        let mut runs = self.groups.iter().flat_map(|group| &group.runs);
        let first = runs.next().map(|run| &run.experiment);
        runs.all(|run| Some(&run.experiment) == first)
    }

    /// The method of that name or title; by its name without the keys of labels where only one has
    /// it.
    pub fn method(&self, name: &str) -> Option<&Method> {
        let mut plain = self.methods.iter().filter(|m| m.plain == name);
        let exact = self.methods.iter().find(|m| m.name == name);
        let exact = exact.or_else(|| self.methods.iter().find(|m| m.title == name));
        exact.or_else(|| plain.next().filter(|_| plain.next().is_none()))
    }

    /// The method whose score in length is the reference for all that is tested of the same
    /// weights: the trained encoding. The method itself where that was not evaluated.
    pub fn trained<'m>(&'m self, method: &'m Method) -> &'m Method {
        let is_it = |other: &&Method| other.group == method.group && other.variant == TRAINED;
        self.methods.iter().find(is_it).unwrap_or(method)
    }

    /// Whether a method is trained weights under another encoding.
    pub fn is_variant(&self, method: &Method) -> bool {
        self.trained(method).variant != method.variant
    }

    /// Whether all are later evaluations whose runs are not here.
    pub fn is_later(&self) -> bool {
        let mut runs = self.groups.iter().flat_map(|group| &group.runs);
        runs.all(|run| run.evaluation_of.is_some())
    }

    /// [`is_variant`](Self::is_variant) of any method.
    pub fn has_variants(&self) -> bool {
        self.methods.iter().any(|method| self.is_variant(method))
    }

    /// The metric that leads its tables.
    pub fn lead(&self) -> &str {
        &self.metrics[0]
    }

    /// How many tokens of text the losses are over: one number where every length of every run was
    /// tested on the same text. None where the setting does not lead with a loss on text.
    pub fn texts(&self) -> BTreeSet<u64> {
        let is_text = self.task.corpus.is_some() && !metric::is_share(self.lead());
        let runs = self.groups.iter().flat_map(|group| &group.runs);
        let rows = runs.filter(|_| is_text).flat_map(|run| run.rows());
        rows.filter_map(|(_, row)| Some(row.metrics.get(metric::LOSS_NATS)?.n))
            .collect()
    }

    fn texts_note(&self) -> Option<String> {
        let texts = self.texts();
        let (least, most) = (texts.first()?, texts.last()?);
        (least < most).then(|| {
            format!(
                "{}: scores are over {} to {} tokens, which are not the same text: differences, \
                 ratios and reach between them are in part those of the text. One config with all \
                 the lengths in `eval.test_lens` scores one text.",
                self.name,
                text::thousands(*least),
                text::thousands(*most)
            )
        })
    }

    /// The score of guessing for a method.
    pub fn chance_of(&self, method: &Method, metric: &str) -> Option<f64> {
        metric::chance(&self.groups[method.group].runs[0].task, metric)
    }

    /// The score of guessing, where it is the same for all methods.
    pub fn chance(&self, metric: &str) -> Option<f64> {
        let mut all = self.methods.iter().map(|m| self.chance_of(m, metric));
        let first = all.next()?;
        first.filter(|_| all.all(|other| other == first))
    }

    /// Test lengths past the training length.
    pub fn longer(&self) -> impl Iterator<Item = usize> + '_ {
        self.lengths
            .iter()
            .copied()
            .filter(|&l| l > self.task.train_len)
    }

    /// A test length as a multiple of the training length: `4x`.
    pub fn times(&self, len: usize) -> String {
        times(len as f64 / self.task.train_len.max(1) as f64)
    }

    /// Layer and head of every recorded `name`, one of [`metric::OF_HEADS`], with the name of the
    /// metric, in order; at most as many as metrics with a table.
    pub fn heads(&self, name: &str) -> Vec<((usize, usize), &str)> {
        let mut heads: Vec<_> = self
            .all_metrics
            .iter()
            .filter_map(|metric| Some((metric::head_of(name, metric)?, metric.as_str())))
            .collect();
        heads.sort_unstable();
        heads.truncate(MOST_METRICS);
        heads
    }

    /// The test lengths at which `name`, one of [`metric::OF_HEADS`], was recorded.
    pub fn lengths_of_heads(&self, name: &str) -> BTreeSet<usize> {
        let runs = self.groups.iter().flat_map(|group| &group.runs);
        let rows = runs.flat_map(|run| run.rows()).map(|(_, row)| row);
        let has = |row: &&EvalRow| {
            let mut metrics = row.metrics.keys();
            metrics.any(|metric| metric::head_of(name, metric).is_some())
        };
        rows.filter(has).map(|row| row.test_len).collect()
    }

    /// Fewest and most seeds of a method.
    pub fn seeds(&self) -> (usize, usize) {
        let counts = self.groups.iter().map(|g| g.runs.len());
        (counts.clone().min().unwrap_or(0), counts.max().unwrap_or(0))
    }

    /// A test length or the range that ends there.
    pub fn test_length(&self, to: usize) -> TestLength {
        let from = self.ranges.get(&to).copied();
        TestLength { to, from }
    }

    /// A test length as tables head it: `100`, or `51..100`.
    pub fn length(&self, len: usize) -> String {
        self.test_length(len).to_string()
    }

    /// All test lengths as tables head them.
    pub fn headings(&self) -> impl Iterator<Item = String> + '_ {
        self.lengths.iter().map(|len| self.length(*len))
    }

    /// Whether runs were tested at this length, or over this range of lengths.
    pub fn is_tested_at(&self, length: TestLength) -> bool {
        self.lengths.contains(&length.to) && self.test_length(length.to) == length
    }

    /// A test length with its unit: `64 bytes`.
    pub fn unit_count(&self, len: usize) -> String {
        format!("{} {}", self.length(len), self.task.unit)
    }

    /// The training length with its unit, `64 bytes`, also where a range of test lengths ends at
    /// it.
    pub fn trained_at(&self) -> String {
        format!("{} {}", self.task.train_len, self.task.unit)
    }
}

/// Settings in order of task, corpus and training length. `records` are in canonical order, each
/// run once; `order` is the order of labels and variants asked for. Records that are not results
/// ([`Roles`]) are not runs of a setting.
pub fn settings<'a>(
    records: &[&'a RunRecord],
    order: &[String],
    specs: &MethodSpecs<'_>,
) -> Vec<Setting<'a>> {
    let roles = Roles::of(records.iter().copied());
    let mut by_key: BTreeMap<Key<'a>, Vec<&'a RunRecord>> = BTreeMap::new();
    for run in roles.results {
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
    let of_key = by_key.iter().map(|(key, runs)| {
        let experiments = runs.iter().map(|run| run.experiment.as_str());
        (*key, experiments.collect())
    });
    let keys: Vec<(Key<'a>, BTreeSet<&str>)> = of_key.collect();
    let parts = by_key.into_iter().flat_map(|(key, runs)| {
        let parts = comparable(&runs).into_iter().flat_map(by_ranges);
        parts.map(move |part| (key, part))
    });
    let parts: Vec<(Key<'a>, Part<'a>)> = parts.collect();
    let several = parts.len() > 1;
    let mut slugs = text::Slugs::default();
    let settings = parts.into_iter().map(|(key, Part { label, runs })| {
        let differ = Differ::of(&key, &keys, runs[0]);
        let slug = if several {
            slugs.take(&format!("{} {label}", differ.slug(&runs[0].task)))
        } else {
            String::new()
        };
        let mut name = differ.name(&runs[0].task);
        if !label.is_empty() {
            name = format!("{name}, {label}");
        }
        setting(&runs, specs, order, name, slug)
    });
    let mut settings: Vec<Setting<'a>> = settings.collect();
    attach_halves(&mut settings, &roles.halves);
    settings
}

/// Gives each run its record with half the steps.
fn attach_halves<'a>(settings: &mut [Setting<'a>], halves: &[&'a RunRecord]) {
    let of =
        |half: &&'a RunRecord| Some(((half.experiment.as_str(), half.half_of.as_deref()?), *half));
    let by_run: HashMap<(&str, &str), &'a RunRecord> = halves.iter().filter_map(of).collect();
    let groups = settings.iter_mut().flat_map(|setting| &mut setting.groups);
    for run in groups.flat_map(|group| &mut group.runs) {
        run.half = by_run.get(&(&*run.experiment, &*run.run_id)).copied();
    }
}

/// The runs of a part by what they were tested on where that differs at an upper end: a column
/// of a table is one test.
fn by_ranges(part: Part<'_>) -> Vec<Part<'_>> {
    let mut at: BTreeMap<usize, BTreeSet<Option<usize>>> = BTreeMap::new();
    let rows = part.runs.iter().flat_map(|run| &run.evals);
    rows.for_each(|row| {
        at.entry(row.test_len).or_default().insert(row.from_len);
    });
    at.retain(|_, ranges| ranges.len() > 1);
    if at.is_empty() {
        return vec![part];
    }
    let tested = |run: &RunRecord| -> BTreeSet<(usize, String)> {
        let rows = run.evals.iter();
        let rows = rows.filter(|row| at.contains_key(&row.test_len));
        rows.map(|row| (row.test_len, row.length())).collect()
    };
    let mut parts: BTreeMap<BTreeSet<(usize, String)>, Vec<&RunRecord>> = BTreeMap::new();
    for run in &part.runs {
        // A run that was not tested there goes with its own training, or with other seeds.
        let belongs = |other: &&&RunRecord| match run.evaluation_of.as_deref() {
            Some(of) => other.run_id == of && other.experiment == run.experiment,
            None => other.experiment == run.experiment && other.labels == run.labels,
        };
        let with = Some(tested(run)).filter(|tested| !tested.is_empty());
        let with = with.or_else(|| {
            let others = part.runs.iter().filter(belongs);
            others
                .map(|other| tested(other))
                .find(|tested| !tested.is_empty())
        });
        parts.entry(with.unwrap_or_default()).or_default().push(run);
    }
    let parts = parts.into_iter().map(|(tested, runs)| {
        let tested: Vec<String> = tested.into_iter().map(|(_, length)| length).collect();
        let tested = match tested.as_slice() {
            [] => "not tested there".to_owned(),
            // All of them: parts have different names.
            all => format!("tested at {}", list(all, all.len())),
        };
        let label = match part.label.as_str() {
            "" => tested,
            label => format!("{label}, {tested}"),
        };
        Part { label, runs }
    });
    parts.collect()
}

#[expect(
    clippy::too_many_lines,
    reason = "one setting, assembled field by field"
)]
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
    let trainings = varied::suffixes(&groups);
    notes.extend(varied::tried_notes(&groups, &name));
    notes.extend(varied::tokens_note(&groups, &name));
    let mut methods = Vec::new();
    let (mut taken, mut titles) = (BTreeSet::new(), BTreeSet::new());
    for (index, group) in groups.iter().enumerate() {
        for variant in &group.variants {
            let named = |name: &str, variant_name: &str| match variant.name.as_str() {
                TRAINED => name.to_owned(),
                _ => format!("{name} + {}", text::name(variant_name, 60)),
            };
            let (name, plain) = (&group.named.name, &group.named.plain);
            let (name, plain) = (named(name, &variant.name), named(plain, &variant.name));
            let title = named(&group.named.title, &specs.names.variant(&variant.name));
            // Names that differ only in what was cut from them are still two methods.
            let alone = |mut name: String, taken: &mut BTreeSet<String>| {
                while !taken.insert(name.clone()) {
                    let run = group.runs.first();
                    let run = run.map_or("", |run| short_hash(&run.run_id));
                    name = format!("{name} [run {run}]");
                }
                name
            };
            let name = alone(name, &mut taken);
            let title = alone(title, &mut titles);
            methods.push(Method {
                name,
                plain,
                title,
                training: trainings[index].clone(),
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
    let ranges = rows().filter_map(|row| Some((row.test_len, row.from_len?)));
    let ranges = ranges.collect();
    let recorded: BTreeSet<&String> = rows().flat_map(|row| row.metrics.keys()).collect();
    let recorded: Vec<String> = recorded.into_iter().cloned().collect();
    let mut metrics = metric::shown(task, &recorded);
    let first: BTreeSet<String> = metrics.iter().cloned().collect();
    let mut all_metrics = metrics.clone();
    all_metrics.extend(recorded.into_iter().filter(|extra| !first.contains(extra)));
    let lead = metrics[0].clone();
    metrics.retain(|metric| *metric == lead || !metric::is_repetition(metric, &lead));
    if metrics.len() > MOST_METRICS {
        notes.push(format!(
            "{name}: {} metrics; the first {MOST_METRICS} have a table, all are in results.csv.",
            metrics.len()
        ));
        metrics.truncate(MOST_METRICS);
    }
    let in_length = in_length(&groups, &lengths, task.train_len);
    let axes = naming::axes(runs);
    notes.extend(later_note(&groups, &name));
    let mut setting = Setting {
        task,
        name,
        slug,
        groups,
        methods,
        axes,
        lengths,
        ranges,
        metrics,
        all_metrics,
        in_length,
        notes,
    };
    setting.notes.extend(setting.texts_note());
    setting
}

/// The longest test length up to the training length that every run has; where they have none in
/// common, the longest of any. Later evaluations without their runs count only if alone.
fn in_length(groups: &[Group<'_>], lengths: &[usize], train_len: usize) -> Option<usize> {
    let has = |group: &Group<'_>, len| {
        let trained = |run: &Run<'_>| run.row(TRAINED, len).is_some();
        // A run that diverged in training has no rows.
        let mut runs = group.runs.iter();
        runs.all(|run| run.status == RunStatus::Diverged || trained(run))
    };
    let is_later = |group: &Group<'_>| group.runs.iter().all(|run| run.evaluation_of.is_some());
    let are_all_later = groups.iter().all(is_later);
    let all_have = |len: &&usize| {
        let mut counted = groups
            .iter()
            .filter(|group| are_all_later || !is_later(group));
        counted.all(|group| has(group, **len))
    };
    let in_length = || lengths.iter().filter(|&&len| len <= train_len);
    in_length()
        .filter(all_have)
        .max()
        .or(in_length().max())
        .copied()
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
        // The most common first, of equally common ones the shorter.
        lengths.sort_by_key(|len| (std::cmp::Reverse(counts[len]), *len));
        lengths.truncate(MOST_LENGTHS);
        lengths.sort_unstable();
    }
    lengths
}
