//! The record of one run: a single JSON document, written whole or not at all.
//!
//! A record holds what the numbers depend on (the resolved spec, the corpus, the commit, the kind
//! of device) and the numbers, in nats and counts. Nothing in it depends on the clock, the
//! machine's speed or the number of threads: the same binary and spec give the same bytes. Timings
//! are kept in a separate file.

mod length;
mod train;

pub use crate::denominators::Denominators;
pub use crate::task_facts::{CorpusFacts, ScoredText, TaskFacts};
use crate::text;
pub use length::{TestLength, length_range, length_text};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
pub use train::{CurvePoint, MOST_SCORES, StepScores, StopScore, TrainFacts};

/// Version of the record's layout; readers refuse a newer one.
pub const SCHEMA: u32 = 1;

/// One training run and its evaluations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunRecord {
    /// Layout version, [`SCHEMA`] when written by this crate.
    pub schema: u32,
    /// Hash of the resolved spec in canonical form, lower-case hex.
    pub run_id: String,
    /// The experiment's name.
    pub experiment: String,
    /// The values on the axes that distinguish this run, in the order of the axes; the seed is
    /// not one of them.
    pub labels: Vec<Label>,
    /// Seed of weights, batches and positions.
    pub seed: u64,
    /// Whether training reached its end.
    pub status: RunStatus,
    /// First sign of divergence; only with [`RunStatus::Diverged`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diverged: Option<Divergence>,
    /// The task, in its own unit of length.
    pub task: TaskFacts,
    /// Size of the model.
    pub model: ModelFacts,
    /// Numbers that follow from the encoding's configuration and the training length, by the names
    /// in [`encoding_fact`]; empty for encodings without any, and in records of versions before
    /// they were kept.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub encoding_facts: BTreeMap<String, f64>,
    /// How the training went.
    pub train: TrainFacts,
    /// One row per variant and test length, in the order they were evaluated.
    pub evals: Vec<EvalRow>,
    /// Build and device that produced the numbers.
    pub environment: Environment,
    /// The resolved spec: every default is filled in.
    pub spec: Map<String, Value>,
    /// The method ([`RunRecord::method_spec`]) of the run whose weights the training started from;
    /// absent where weights were drawn, and in records of versions before it was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_from: Option<Map<String, Value>>,
    /// Run id of the run whose weights were evaluated again, in a record that `longreach eval`
    /// wrote; absent in the record of a training.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evaluation_of: Option<String>,
    /// In a later evaluation, the dotted keys of each variant's encoding that were computed for
    /// every test length, by variant; absent where there are none, and in records of versions
    /// before they were kept.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_length: BTreeMap<String, Vec<String>>,
    /// Run id of the run that this one repeats with half its steps and their schedule, to show
    /// whether the in-length score still moves; absent in other records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_of: Option<String>,
    /// How values of this run were chosen, where `[select]` chose them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selected: Option<Selected>,
    /// Hashes that show whether this record or its step log was changed; absent in records of
    /// versions before they were kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<Seal>,
}

/// Hashes of a record and of the step log it was made with, lower-case hex.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seal {
    /// BLAKE3 of the record as compact JSON with sorted keys, without this hash.
    pub record_blake3: String,
    /// BLAKE3 of `steps.jsonl`.
    pub steps_blake3: String,
}

/// A choice among values of some keys, made by the scores of runs that no result uses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Selected {
    /// The metric that chose, such as `loss_nats`.
    pub by: String,
    /// Length at which it was taken, in the task's unit: the training length.
    pub test_len: usize,
    /// Steps of each run of the sweep.
    pub steps: u64,
    /// Seeds of the sweep, none of which is a seed of the result.
    pub seeds: Vec<u64>,
    /// What was tried, in the order of the config.
    pub candidates: Vec<Candidate>,
    /// Index of the chosen candidate.
    pub chosen: usize,
}

/// One combination of values that was tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Candidate {
    /// Its values, one for each key of `select.over`.
    pub values: Vec<Label>,
    /// Run id of its run with each seed.
    pub runs: Vec<String>,
    /// The score of each of these runs; none for a run that diverged.
    pub scores: Vec<Option<f64>>,
}

/// Keys of [`RunRecord::encoding_facts`] that reports use.
pub mod encoding_fact {
    /// Wavelength of the slowest rotary pair before any scaling, in tokens.
    pub const LONGEST_WAVELENGTH: &str = "longest_wavelength";
    /// Number of rotary pairs of a head.
    pub const ROTARY_PAIRS: &str = "rotary_pairs";
    /// Number of rotary pairs whose wavelength before any scaling exceeds the training length in
    /// tokens.
    pub const PAIRS_BEYOND_TRAINING: &str = "pairs_beyond_training";
}

/// Bounds on the evaluations of one record, the metrics of one evaluation and the facts of one
/// encoding. Real records stay far below them.
pub const MOST_EVALS: usize = 10_000;
/// Most metrics of one evaluation.
pub const MOST_METRICS: usize = 4_000;
const MOST_FACTS: usize = 1_000;

fn must(holds: bool, what: &dyn Fn() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

/// Checks evaluations under different variants or at different lengths.
fn check_rows(rows: &[EvalRow]) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for row in rows {
        let at = || format!("{} at {}", text::name(&row.variant, 40), row.test_len);
        must(seen.insert((&row.variant, row.test_len)), &|| {
            format!("{} appears twice", at())
        })?;
        must(row.test_len > 0, &|| format!("{}: a length of 0", at()))?;
        let rises = |from: usize| from > 0 && from < row.test_len;
        must(row.from_len.is_none_or(rises), &|| {
            format!("{}: a range that does not rise to it", at())
        })?;
        let has_numbers = !row.metrics.is_empty() || row.denominators.is_some();
        must(row.status == EvalStatus::Ok || !has_numbers, &|| {
            format!("{}: numbers, but the status is not ok", at())
        })?;
        let most = row.metrics.values().map(|metric| metric.n).max();
        let fewer = |distinct: u64| distinct > 0 && most.is_some_and(|rows| distinct < rows);
        must(row.distinct_rows.is_none_or(fewer), &|| {
            format!("{}: impossible distinct_rows", at())
        })?;
        let counted = row.denominators.is_none_or(|counted| counted.is_possible());
        must(counted, &|| {
            format!("{}: impossible counts of denominators", at())
        })?;
        must(row.metrics.len() <= MOST_METRICS, &|| {
            format!("{}: more than {MOST_METRICS} metrics", at())
        })?;
        let bins = &row.loss_by_position;
        let ascend =
            bins.iter().all(|b| b.from < b.to) && bins.windows(2).all(|b| b[0].to <= b[1].from);
        must(ascend, &|| {
            format!("{}: the bins of loss_by_position do not ascend", at())
        })?;
    }
    Ok(())
}

impl RunRecord {
    /// Checks what the types do not: every rule in the fields' documentation that a damaged or
    /// made-up record could break.
    pub fn check(&self) -> Result<(), String> {
        let is_id = |text: &str| {
            !text.is_empty()
                && text.len() <= 128
                && text
                    .bytes()
                    .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
        };
        must(is_id(&self.run_id), &|| {
            format!(
                "run_id {:?} is not lower-case hex",
                text::name(&self.run_id, 40)
            )
        })?;
        must(
            self.diverged.is_none() || self.status == RunStatus::Diverged,
            &|| "`diverged` is given, but the status is ok".into(),
        )?;
        must(self.evaluation_of.as_deref().is_none_or(is_id), &|| {
            "evaluation_of is not lower-case hex".into()
        })?;
        must(self.task.train_len > 0, &|| "task.train_len is 0".into())?;
        let bytes = self.task.bytes_per_token;
        must(bytes.is_none_or(|b| b > 0.0), &|| {
            format!(
                "task.bytes_per_token is {}, not above 0",
                bytes.unwrap_or_default()
            )
        })?;
        must(self.task.definitions.len() <= MOST_METRICS, &|| {
            format!("more than {MOST_METRICS} definitions")
        })?;
        must(
            self.model.encoding_parameters <= self.model.parameters,
            &|| "the encoding has more parameters than the model".into(),
        )?;
        must(self.encoding_facts.len() <= MOST_FACTS, &|| {
            format!("more than {MOST_FACTS} encoding_facts")
        })?;
        must(
            self.train
                .loss_curve
                .windows(2)
                .all(|p| p[0].step < p[1].step),
            &|| "train.loss_curve: the steps do not ascend".into(),
        )?;
        let is_half = |half: &str| is_id(half) && half != self.run_id;
        must(self.half_of.as_deref().is_none_or(is_half), &|| {
            "half_of is not the id of another run".into()
        })?;
        self.selected.as_ref().map_or(Ok(()), Selected::check)?;
        self.train.check_scores()?;
        self.check_ranges()?;
        must(self.evals.len() <= MOST_EVALS, &|| {
            format!("{} evaluations; at most {MOST_EVALS}", self.evals.len())
        })?;
        check_rows(&self.evals).map_err(|wrong| format!("evals: {wrong}"))
    }

    /// The spec of the method that this run is one seed of: the resolved spec without the seed, and
    /// without what differs between seeds by construction. A warm start is named by the method
    /// of the run it started from, `train.start_from.from`, instead of that run's id and weights;
    /// all seeds start from the same file, whose weights name it.
    pub fn method_spec(&self) -> Map<String, Value> {
        let mut spec = self.spec.clone();
        spec.shift_remove("seed");
        if let Some(start) = crate::spec::warm_start_mut(&mut spec) {
            // Every seed starts from another run; the method is what those runs have in common.
            if start.shift_remove("run_id").is_some() {
                start.shift_remove("weights_blake3");
            }
            if let Some(from) = &self.started_from {
                start.insert("from".into(), Value::Object(from.clone()));
            }
        }
        spec
    }

    /// Whether `train.stop` ended the training before its last step.
    pub fn is_ended_early(&self) -> bool {
        let train = self.spec.get("train");
        let steps = train.and_then(|train| train.get("steps")?.as_u64());
        let has_stop = train.is_some_and(|train| train.get("stop").is_some());
        let is_less = steps.is_some_and(|steps| self.train.steps < steps);
        has_stop && is_less && self.status != RunStatus::Diverged
    }

    /// Characters of all labels. An axis of fewer values, such as that of a sweep with more seeds
    /// of some methods, has shorter labels for them, which other methods may share.
    pub fn label_chars(&self) -> usize {
        self.labels.iter().map(|l| l.text.chars().count()).sum()
    }

    /// Experiment, labels, seed and id in one line; of a later evaluation also the id of its run.
    pub fn title(&self) -> String {
        let labels: Vec<String> = self
            .labels
            .iter()
            .map(|label| text::name(&label.text, 40))
            .collect();
        format!(
            "{}: {}, seed {}{} ({})",
            text::name(&self.experiment, 40),
            labels.join(", "),
            self.seed,
            match &self.half_of {
                _ if self.is_of_sweep() => ", selection",
                Some(_) => ", half of the steps",
                None => "",
            },
            match &self.evaluation_of {
                None => text::name(&self.run_id, 40),
                Some(run) => format!(
                    "{}, later evaluation of {}",
                    text::name(&self.run_id, 40),
                    text::name(run, 40)
                ),
            }
        )
    }

    /// Number of bins of the loss by position in all evaluations.
    pub fn bins(&self) -> usize {
        self.evals
            .iter()
            .map(|row| row.loss_by_position.len())
            .sum()
    }
}

/// One axis of the experiment and this run's value on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Label {
    /// Dotted key, such as `model.pe` or `model.pe.base`.
    pub key: String,
    /// The value as shown to people, such as `rope` or `10000`.
    pub text: String,
    /// The value itself.
    pub value: Value,
}

/// The texts of labels: `rope`, `0.01`.
pub fn label_texts(labels: &[Label]) -> Vec<&str> {
    labels.iter().map(|label| label.text.as_str()).collect()
}

/// Outcome of training.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// Trained without diverging.
    #[default]
    Ok,
    /// The loss or a gradient stopped being finite.
    Diverged,
}

/// The first sign of divergence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Divergence {
    /// Step whose update was not applied, counted from 0.
    pub step: u64,
    /// The first tensor that was not finite, in the order they are computed: `output of blocks.0`,
    /// `loss`, `gradient of head`.
    pub what: String,
    /// BLAKE3 of the batch of that step, which `diverged.json` of its run holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<String>,
}

/// Size of the model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelFacts {
    /// Trainable numbers in all.
    pub parameters: u64,
    /// Of these, the encoding's own.
    pub encoding_parameters: u64,
    /// BLAKE3 of the final weights by sorted parameter path, lower-case hex.
    pub weights_blake3: String,
}

/// One variant at one test length.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvalRow {
    /// `trained` for the encoding as trained, otherwise the variant's name.
    pub variant: String,
    /// Test length in the task's unit; of a range of lengths its upper end.
    pub test_len: usize,
    /// The lower end of a range: each row drew its length evenly from there up to `test_len`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_len: Option<usize>,
    /// Whether there are numbers.
    pub status: EvalStatus,
    /// Why there are no numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Metric name to value, with the count it is a mean over.
    pub metrics: BTreeMap<String, Metric>,
    /// Mean loss by position in the window, nats: bins of equal width, first to last; empty where
    /// it has no meaning.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loss_by_position: Vec<PositionBin>,
    /// Mean loss of consecutive, equally long stretches of the scored text, nats, for a bootstrap
    /// over the text; recorded where a whole validation split is scored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loss_by_block: Vec<f64>,
    /// Number of distinct rows of the test set, where some appear more than once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distinct_rows: Option<u64>,
    /// What linear attention divided by, where that may be negative or 0; absent in records of
    /// versions before it was counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denominators: Option<Denominators>,
}

impl EvalRow {
    /// Merges neighbouring bins of [`loss_by_position`](Self::loss_by_position) until there are at
    /// most `most` (at least 1), all but the last of the same number of bins. A merged bin spans
    /// its parts and holds their mean weighted by width.
    pub fn thin_positions(&mut self, most: usize) {
        let each = self.loss_by_position.len().div_ceil(most.max(1));
        if each <= 1 {
            return;
        }
        let merge = |bins: &[PositionBin]| {
            let width = |bin: &PositionBin| bin.to.saturating_sub(bin.from) as f64;
            let total: f64 = bins.iter().map(width).sum();
            // Weighted by width, because bins need not be equally wide.
            let loss_nats = bins
                .iter()
                .map(|bin| bin.loss_nats * (width(bin) / total))
                .sum();
            PositionBin {
                from: bins[0].from,
                to: bins[bins.len() - 1].to,
                loss_nats,
            }
        };
        self.loss_by_position = self.loss_by_position.chunks(each).map(merge).collect();
    }
}

/// Whether an evaluation gave numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvalStatus {
    /// Numbers are there.
    Ok,
    /// The run diverged, or the evaluation gave a number that is not finite.
    Diverged,
    /// The encoding has no value at this length, such as a learned table past its end.
    Unsupported,
    /// Left out by a limit of the config or the machine.
    #[default]
    Skipped,
}

/// A mean and what it is a mean over.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metric {
    /// The mean.
    pub value: f64,
    /// Number of items (tokens, sequences) it is taken over.
    pub n: u64,
}

/// Mean loss over the positions `from..to` of a window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PositionBin {
    /// First position of the bin.
    pub from: usize,
    /// One past the last.
    pub to: usize,
    /// Mean loss, nats.
    pub loss_nats: f64,
}

/// Build and device that produced the numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Environment {
    /// Version of the binary.
    pub version: String,
    /// Commit it was built from, with `-dirty` if the tree was changed; `unknown` outside a
    /// checkout.
    pub commit: String,
    /// Kind of device: `cpu`, `wgpu`, `cuda`, ... (no index).
    pub device: String,
    /// Version of the tensor library.
    pub burn: String,
    /// The most runs that were trained as one batched model, on a device other than a CPU. Last
    /// bits may differ from those of a run alone, as kernels may be chosen for other shapes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs_together: Option<usize>,
}
