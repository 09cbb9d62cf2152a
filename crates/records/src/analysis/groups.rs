//! Pools runs as seeds of methods, and attaches later evaluations to the runs they belong to.
//!
//! Runs are pooled if their identities are equal (`identity.rs`). A later evaluation adds rows to
//! its run if only its test lengths and variants differ from the run's, or what it measures beside
//! the score. An evaluation with another `eval.decode` or `eval.seed` is a separate method.

use super::identity::MethodSpecs;
use super::naming;
use super::variant;
pub use super::variant::Variant;
use crate::order;
use crate::record::{EvalRow, EvalStatus, RunRecord};
use crate::spec::{Definition, Spec, canonical_text, definitions};
use crate::text::{self, short_hash};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Keys of `eval` that leave the scores of a row as they are.
const ADDING: [&str; 4] = ["test_lens", "variants", "last_tokens", "attention_distance"];

/// Name of the variant that is the encoding as trained.
pub const TRAINED: &str = "trained";

/// Runs that differ only by seed.
pub struct Group<'a> {
    /// Its names.
    pub named: naming::Named,
    /// By seed, each once.
    pub runs: Vec<Run<'a>>,
    /// What every variant evaluates, the trained encoding first.
    pub variants: Vec<Variant<'a>>,
    /// The identity.
    pub spec: Spec,
    /// The place of the run of each seed.
    by_seed: HashMap<u64, usize>,
}

impl<'a> Group<'a> {
    /// The run of a seed.
    pub fn run_of(&self, seed: u64) -> Option<&Run<'a>> {
        Some(&self.runs[*self.by_seed.get(&seed)?])
    }
}

/// A record and its evaluations by variant and length, later ones included.
pub struct Run<'a> {
    record: &'a RunRecord,
    rows: HashMap<usize, Vec<(String, &'a EvalRow)>>,
    /// Later evaluations that rows are from.
    pub later: Vec<&'a RunRecord>,
    /// The same run with half the steps.
    pub half: Option<&'a RunRecord>,
}

impl<'a> Run<'a> {
    fn new(record: &'a RunRecord) -> Self {
        let mut run = Self {
            record,
            rows: HashMap::new(),
            later: Vec::new(),
            half: None,
        };
        // No reader lets a row through twice; of a record made otherwise the first counts.
        record
            .evals
            .iter()
            .for_each(|row| run.add(&row.variant, row));
        run
    }

    fn add(&mut self, variant: &str, row: &'a EvalRow) {
        let rows = self.rows.entry(row.test_len).or_default();
        match rows.iter_mut().find(|(name, _)| name == variant) {
            None => rows.push((variant.into(), row)),
            // What was left out for lack of memory may have been evaluated since, and a later
            // evaluation may have measured more.
            Some((_, known)) if known.status == EvalStatus::Skipped || adds_to(row, known) => {
                *known = row;
            }
            Some(_) => {}
        }
    }

    /// The row of a variant at a test length, if the run has it.
    pub fn row(&self, variant: &str, test_len: usize) -> Option<&'a EvalRow> {
        self.rows
            .get(&test_len)?
            .iter()
            .find(|(name, _)| name == variant)
            .map(|(_, row)| *row)
    }

    /// Rows with the name of their variant in the report: those of the record in its order, then
    /// later ones by variant and length.
    pub fn rows(&self) -> Vec<(&str, &'a EvalRow)> {
        let place = |row: &EvalRow| {
            self.record
                .evals
                .iter()
                .position(|own| std::ptr::eq(own, row))
        };
        let mut all: Vec<(&str, &'a EvalRow)> = self
            .rows
            .values()
            .flatten()
            .map(|(name, row)| (name.as_str(), *row))
            .collect();
        all.sort_by_key(|(name, row)| (place(row).unwrap_or(usize::MAX), *name, row.test_len));
        all
    }
}

impl std::ops::Deref for Run<'_> {
    type Target = RunRecord;

    fn deref(&self) -> &RunRecord {
        self.record
    }
}

/// Groups of a setting in the order of the report. `runs` are in canonical order, each once.
pub fn groups<'a>(
    runs: &[&'a RunRecord],
    specs: &MethodSpecs<'_>,
    order: &[String],
    notes: &mut Vec<String>,
) -> Vec<Group<'a>> {
    let (attached, runs) = attach(runs, notes);
    let mut by_identity: BTreeMap<(&'a str, String), Vec<&'a RunRecord>> = BTreeMap::new();
    for &run in &runs {
        let identity = (run.experiment.as_str(), canonical_text(&specs.of(run)));
        by_identity.entry(identity).or_default().push(run);
    }
    let pools = by_identity.into_iter();
    let mut pools: Vec<_> = pools
        .map(|(of, pool)| (of, most_told(&pool), pool))
        .collect();
    let rank = |text: &str| order.iter().position(|o| o == text).unwrap_or(order.len());
    // By experiment, by the order asked for, by label; the identity makes the order total.
    pools.sort_by(|(a, x, _), (b, y, _)| {
        let ranks = |run: &RunRecord| run.labels.iter().map(|l| rank(&l.text)).collect::<Vec<_>>();
        a.0.cmp(b.0)
            .then_with(|| ranks(x).cmp(&ranks(y)))
            .then_with(|| order::shown(&x.labels, &y.labels))
            .then_with(|| a.1.cmp(&b.1))
    });
    if let Some(run) = runs.iter().find(|run| specs.lacks_start(run)) {
        notes.push(format!(
            "{}: trainings started from the weights of runs that are not among the records. Only \
             whether a start kept the encoding's parameters distinguishes them here.",
            text::name(&run.experiment, 60)
        ));
    }
    let named: Vec<&RunRecord> = pools.iter().map(|(_, named, _)| *named).collect();
    let method_specs: Vec<Spec> = named.iter().map(|run| specs.of(run)).collect();
    let names = naming::groups(&named, &method_specs, specs.names, notes);
    let pools = pools.into_iter().map(|(_, _, pool)| pool);
    pools
        .zip(names)
        .zip(method_specs)
        .map(|((pool, named), spec)| group(&pool, named, spec, &attached, order, notes))
        .collect()
}

/// The first run with the longest labels ([`RunRecord::label_chars`]), which names the method.
fn most_told<'a>(pool: &[&'a RunRecord]) -> &'a RunRecord {
    // Of equal ones `max_by_key` takes the last.
    let most = pool.iter().rev().max_by_key(|run| run.label_chars());
    most.copied().unwrap_or(pool[0])
}

type Attached<'a> = HashMap<(&'a str, &'a str), Vec<&'a RunRecord>>;

/// Later evaluations by experiment and run id of the run they extend, and all other records.
fn attach<'a>(
    runs: &[&'a RunRecord],
    notes: &mut Vec<String>,
) -> (Attached<'a>, Vec<&'a RunRecord>) {
    let trained: HashMap<(&str, &str), &RunRecord> = runs
        .iter()
        .filter(|run| run.evaluation_of.is_none())
        .map(|run| ((run.experiment.as_str(), run.run_id.as_str()), *run))
        .collect();
    let expected = expected_last_tokens(runs, &trained);
    let (mut attached, mut alone): (Attached<'a>, Vec<&'a RunRecord>) = Default::default();
    for &run in runs {
        let Some(of) = run.evaluation_of.as_deref() else {
            alone.push(run);
            continue;
        };
        let key = (run.experiment.as_str(), of);
        match trained.get(&key) {
            Some(parent) if extends(parent, expected.get(key.0).copied(), run) => {
                attached.entry(key).or_default().push(run);
            }
            Some(parent) if parent.model != run.model => notes.push(format!(
                "A later evaluation of run {} is of other weights than the run has now, and is \
                 left out.",
                short_hash(&parent.run_id)
            )),
            // Scored in another way, or of a run that is not among the records: a method of its
            // own.
            _ => alone.push(run),
        }
    }
    (attached, alone)
}

/// By experiment, the number of last tokens that later evaluations add to runs without a number of
/// their own: that of most evaluations, of equally many the smallest. Scores over different numbers
/// are no curve, and the same number for every seed makes no methods of seeds.
fn expected_last_tokens<'a>(
    runs: &[&'a RunRecord],
    trained: &HashMap<(&str, &str), &RunRecord>,
) -> HashMap<&'a str, u64> {
    let mut counts: BTreeMap<&str, BTreeMap<u64, usize>> = BTreeMap::new();
    for run in runs {
        let experiment = run.experiment.as_str();
        let of = run.evaluation_of.as_deref().map(|of| (experiment, of));
        if let Some(parent) = of.and_then(|of| trained.get(&of))
            && last_tokens(parent).is_none()
            && let Some(count) = last_tokens(run)
            && scores_alike(parent, run)
        {
            *counts
                .entry(experiment)
                .or_default()
                .entry(count)
                .or_default() += 1;
        }
    }
    let most = |counts: BTreeMap<u64, usize>| {
        let counts = counts.into_iter().rev();
        counts.max_by_key(|(_, n)| *n).map(|(count, _)| count)
    };
    let found = counts.into_iter();
    found
        .filter_map(|(of, counts)| Some((of, most(counts)?)))
        .collect()
}

/// Whether two rows have the same value of every metric that both have.
fn agree(row: &EvalRow, other: &EvalRow) -> bool {
    let mut metrics = row.metrics.iter();
    metrics.all(|(name, value)| other.metrics.get(name).is_none_or(|theirs| theirs == value))
}

/// Whether a row has all metrics of another one with the same values, and more.
fn adds_to(row: &EvalRow, known: &EvalRow) -> bool {
    let has = |name: &String| row.metrics.contains_key(name);
    agree(row, known) && known.metrics.keys().all(has) && row.metrics.len() > known.metrics.len()
}

/// Whether a later evaluation extends a run. `expected`: the last tokens to score where the run has
/// no number.
fn extends(run: &RunRecord, expected: Option<u64>, later: &RunRecord) -> bool {
    let expected = last_tokens(run).or(expected);
    scores_alike(run, later) && last_tokens(later).is_none_or(|count| Some(count) == expected)
}

/// Whether a later evaluation scored the run's weights as the run did, except for lengths, variants
/// and what it measured more.
fn scores_alike(run: &RunRecord, later: &RunRecord) -> bool {
    let rest = |record: &RunRecord| {
        let mut spec = record.spec.clone();
        if let Some(Value::Object(eval)) = spec.get_mut("eval") {
            eval.retain(|key, _| !ADDING.contains(&key.as_str()));
        }
        canonical_text(&spec)
    };
    run.model == later.model && rest(run) == rest(later)
}

/// How many last tokens of each window a record scores, if not all.
fn last_tokens(record: &RunRecord) -> Option<u64> {
    eval_of(record)?.get("last_tokens")?.as_u64()
}

fn eval_of(record: &RunRecord) -> Option<&Map<String, Value>> {
    record.spec.get("eval")?.as_object()
}

fn group<'a>(
    pool: &[&'a RunRecord],
    named: naming::Named,
    spec: Spec,
    attached: &Attached<'a>,
    order: &[String],
    notes: &mut Vec<String>,
) -> Group<'a> {
    let mut variants: Vec<Variant<'a>> = Vec::new();
    for definition in pool
        .first()
        .and_then(|run| eval_of(run))
        .map(definitions)
        .unwrap_or_default()
    {
        variant::define(&mut variants, definition.variant, definition, false);
    }
    let mut runs: Vec<Run<'a>> = Vec::new();
    let mut by_seed = HashMap::new();
    for &record in pool {
        // Two run ids of one spec and one seed: `report` refuses them if their numbers differ.
        if *by_seed.entry(record.seed).or_insert(runs.len()) < runs.len() {
            continue;
        }
        let mut run = Run::new(record);
        for row in &record.evals {
            variant::add(&mut variants, &row.variant, false);
        }
        for &later in attached
            .get(&(record.experiment.as_str(), record.run_id.as_str()))
            .into_iter()
            .flatten()
        {
            extend(&mut run, later, &mut variants, notes);
        }
        runs.push(run);
    }
    let tested: BTreeSet<&str> = runs
        .iter()
        .flat_map(|run| run.rows.values().flatten())
        .map(|(name, _)| name.as_str())
        .collect();
    // A diverged run has no rows, but its method has a line in every table.
    variants.retain(|v| tested.contains(v.name.as_str()) || tested.is_empty() && v.name == TRAINED);
    if variants.is_empty() {
        variant::add(&mut variants, TRAINED, false);
    }
    let rank = |v: &str| order.iter().position(|o| o == v).unwrap_or(order.len());
    // The sort is stable: variants without a rank stay in the order of their definition.
    variants.sort_by_key(|v| (v.name != TRAINED, rank(&v.name)));
    Group {
        named,
        runs,
        variants,
        spec,
        by_seed,
    }
}

/// Adds the rows of a later evaluation to a run.
fn extend<'a>(
    run: &mut Run<'a>,
    later: &'a RunRecord,
    variants: &mut Vec<Variant<'a>>,
    notes: &mut Vec<String>,
) {
    let mut defined: BTreeMap<&str, Vec<Definition<'a>>> = BTreeMap::new();
    for definition in eval_of(later).map(definitions).unwrap_or_default() {
        defined
            .entry(definition.variant)
            .or_default()
            .push(definition);
    }
    run.later.push(later);
    let mut names: BTreeMap<&str, String> = BTreeMap::new();
    for (variant, definitions) in &defined {
        let follows = later.by_length.get(*variant).map_or(&[][..], Vec::as_slice);
        let name = variant::continued(variants, variant, definitions, follows, run.task.train_len);
        names.insert(variant, name);
    }
    for row in &later.evals {
        let name = names
            .get(row.variant.as_str())
            .cloned()
            .unwrap_or_else(|| row.variant.clone());
        variant::add(variants, &name, true);
        let known = run
            .row(&name, row.test_len)
            .filter(|known| known.status != EvalStatus::Skipped);
        if known.is_some_and(|known| !agree(known, row)) {
            notes.push(format!(
                "Run {}: {} at {} was evaluated again with other numbers, on {} at commit {}; the \
                 first are shown.",
                short_hash(&run.run_id),
                text::name(&name, 60),
                row.test_len,
                text::name(&later.environment.device, 20),
                text::name(&later.environment.commit, 20)
            ));
        }
        run.add(&name, row);
    }
}

/// A note on how many later evaluations added rows, if any did.
pub fn later_note(groups: &[Group<'_>], setting: &str) -> Option<String> {
    let count: usize = groups
        .iter()
        .flat_map(|g| &g.runs)
        .map(|run| run.later.len())
        .sum();
    (count > 0).then(|| {
        let evaluations = if count == 1 {
            "1 later evaluation".to_owned()
        } else {
            format!("{count} later evaluations")
        };
        format!(
            "{setting}: {evaluations} of trained weights (`longreach eval`) added rows to their \
             runs."
        )
    })
}
