//! One run, resolved: no default left. With the commit and the kind of device it determines the
//! numbers.
//!
//! ```text
//! mod.rs         the whole run, its identity, and the job that a worker gets
//! train.rs       how to train
//! eval.rs        what to evaluate
//! test_lens.rs   test lengths: single ones and ranges
//! coordinates.rs where the coordinates of tokens come from
//! scores.rs      the rows and metrics that an evaluation has, and the lengths that have none
//! blocks.rs      losses of the blocks of a text
//! differences.rs in which keys two documents differ
//! ```

pub mod blocks;
pub mod coordinates;
pub mod differences;
pub mod eval;
pub mod scores;
pub mod test_lens;
pub mod train;

pub use coordinates::Coordinates;
pub use eval::{
    Decode, EvalSpec, TRAINED, VariantSpec, changes_with_length, trained_path, untrained,
};
use posenc::{EncodingConfig, Positions, PositionsConfig, RopeScaling};
use records::RunRecord;
use records::names::Names;
use records::record::{EvalRow, Label, TaskFacts};
use schema::is_default;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use tasks::{Stream, TaskConfig};
pub use test_lens::{TestLen, TestLens};
use tiny_transformer::TransformerConfig;
pub use train::{AdamWConfig, LengthCurriculum, Schedule, Stage, StopSpec, TrainSpec, WarmStart};

/// File of a run's directory that holds its [`Job`].
pub const JOB_FILE: &str = "job.json";

/// Names of encodings and scalings for people.
pub const NAMES: Names = Names(&[EncodingConfig::NAMES, RopeScaling::NAMES]);

/// A run's values on the axes as people name them: `RoPE, lr = 0.001`.
pub fn method(labels: &[Label]) -> String {
    records::analysis::in_words(labels, NAMES)
}

/// The name of a run, which says whether it has half the steps of another one: `RoPE, half steps`.
pub fn with_half(name: &str, half_of: Option<&str>) -> String {
    let half = half_of.map_or("", |_| ", half steps");
    format!("{name}{half}")
}

/// Longest length that may be asked for, in the task's unit: a row of a task has at most four
/// tokens for each, and positions are exact in f32 up to 2^24.
pub const LONGEST: u64 = 1 << 22;

/// Attention logits held at once, in numbers: 16 MiB for each of the few tensors of a block.
pub const MAX_LOGITS: usize = 1 << 22;

/// Everything that determines the numbers of a run, under the keys of a configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunSpec {
    /// The task; a corpus is named here and identified by `corpus_blake3`.
    pub task: TaskConfig,
    /// Hash of the text read, so that another text is another run.
    pub corpus_blake3: Option<String>,
    /// The model with its encoding.
    pub model: ModelSpec,
    /// The training.
    pub train: TrainSpec,
    /// The evaluation.
    pub eval: EvalSpec,
    /// Seed of weights, batches, lengths, positions and dropout.
    pub seed: u64,
}

/// The model: the transformer's own keys beside those of its encoding, in one table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSpec {
    /// Sizes and variants of the transformer.
    #[serde(flatten)]
    pub transformer: TransformerConfig,
    /// Where training puts its tokens.
    #[serde(default, skip_serializing_if = "is_default")]
    pub positions: PositionsConfig,
    /// Where the coordinates of encodings of several axes come from.
    #[serde(default, skip_serializing_if = "is_default")]
    pub coordinates: Coordinates,
    /// How far training may move the task's coordinates.
    #[serde(default, skip_serializing_if = "is_default")]
    pub coordinate_shift: usize,
    /// The encoding trained with; in stages that change it, the last one.
    pub pe: EncodingConfig,
}

impl ModelSpec {
    /// Numbers that follow from the encoding and a training length in tokens, by name; see
    /// [`EncodingConfig::derived`].
    pub fn derived(&self, train_len: usize) -> BTreeMap<String, f64> {
        self.pe.derived(&self.transformer.shape(), train_len)
    }
}

/// What a worker is given: the spec, and what names and places it without changing the numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Hash of the spec.
    pub run_id: String,
    /// The experiment's name.
    pub experiment: String,
    /// This run's values on the axes.
    pub labels: Vec<Label>,
    /// Directory relative paths of the task are resolved against.
    pub config_dir: PathBuf,
    /// Directory of the run to start from, or the file of weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_dir: Option<PathBuf>,
    /// The method of that run, for the record:
    /// [`RunRecord::method_spec`](records::RunRecord::method_spec).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_from: Option<serde_json::Map<String, serde_json::Value>>,
    /// The run that this one repeats with half its steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_of: Option<String>,
    /// How values of the run were chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selected: Option<records::record::Selected>,
    /// The numbers' definition.
    pub spec: RunSpec,
}

impl Job {
    /// Gives a record what the plan says of its run: the labels, of which run it is half, and how
    /// its values were chosen. Whether that changed the record.
    pub fn describe(&self, record: &mut RunRecord) -> bool {
        // An evaluation has the values of its run, and nothing is chosen by it.
        let selected = match record.evaluation_of {
            None => &self.selected,
            Some(_) => &record.selected.clone(),
        };
        let is_described = (&record.labels, &record.half_of, &record.selected)
            == (&self.labels, &self.half_of, selected);
        if !is_described {
            record.change(|record| {
                record.labels.clone_from(&self.labels);
                record.half_of.clone_from(&self.half_of);
                record.selected.clone_from(selected);
            });
        }
        !is_described
    }

    /// The run as people name it: `RoPE, seed 0`.
    pub fn name(&self) -> String {
        let name = format!("{}, seed {}", method(&self.labels), self.spec.seed);
        with_half(&name, self.half_of.as_deref())
    }

    /// A record without results: what names and looks of methods depend on.
    pub fn unscored(&self) -> RunRecord {
        let spec = serde_json::to_value(&self.spec).unwrap_or_default();
        let eval = &self.spec.eval;
        let rows = eval.variants.iter().flat_map(|variant| {
            let lengths = eval.test_lens.iter().enumerate();
            lengths.map(|(at, test_len)| EvalRow {
                variant: variant.name.clone(),
                test_len: *test_len,
                from_len: eval.test_lens.from(at),
                ..EvalRow::default()
            })
        });
        let unit = &spec["task"]["level"];
        RunRecord {
            run_id: self.run_id.clone(),
            experiment: self.experiment.clone(),
            labels: self.labels.clone(),
            seed: self.spec.seed,
            task: TaskFacts {
                kind: self.spec.task.kind().to_owned(),
                train_len: self.spec.train.train_len,
                // Where one corpus is read by bytes and by tokens, these are two settings.
                unit: unit.as_str().unwrap_or_default().to_owned(),
                ..TaskFacts::default()
            },
            evals: rows.collect(),
            spec: spec.as_object().cloned().unwrap_or_default(),
            started_from: self.started_from.clone(),
            half_of: self.half_of.clone(),
            selected: self.selected.clone(),
            ..RunRecord::default()
        }
    }
}

impl RunSpec {
    /// Positions of the batch of a step.
    pub fn train_positions(&self, seq_len: usize, step: u64) -> Positions {
        let mut stream = Stream::new(self.seed, "positions", step);
        let stage = self.train.stage(step);
        stage
            .and_then(|stage| stage.positions.as_ref())
            .unwrap_or(&self.model.positions)
            .sample(seq_len, &mut |bound| stream.below(bound))
    }

    /// Positions of a step whose rows have these lengths in tokens and are padded to `seq_len`.
    /// Each row has its own draw for its own length, unless the encoding cannot see the draw.
    pub fn padded_positions(&self, lengths: &[usize], seq_len: usize, step: u64) -> Positions {
        let model = &self.model;
        let facts = model.pe.facts(&model.transformer.shape());
        if !model.positions.varies(&facts) {
            return self.train_positions(seq_len, step);
        }
        let mut stream = Stream::new(self.seed, "positions", step);
        let row = |length: &usize| {
            let row = model
                .positions
                .sample(*length, &mut |bound| stream.below(bound));
            row.padded(seq_len)
        };
        Positions::of_rows(lengths.iter().map(row).collect())
    }

    /// How far the task's coordinates are moved at a step.
    pub fn coordinate_shift(&self, step: u64) -> u64 {
        match self.model.coordinate_shift as u64 {
            0 => 0,
            most => Stream::new(self.seed, "coordinate-shift", step).below(most + 1),
        }
    }

    /// Identity of the run: the first 16 hex digits of the BLAKE3 of the spec as compact JSON.
    ///
    /// # Errors
    ///
    /// If the spec holds a number JSON cannot, which validation rules out.
    pub fn run_id(&self) -> serde_json::Result<String> {
        Ok(blake3::hash(&serde_json::to_vec(self)?).to_hex()[..16].to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_spec_is_one_strict_table() {
        let table = serde_json::json!({
            "vocab_size": 12, "d_model": 16, "n_layers": 1, "n_heads": 2, "head_dim": 8,
            "d_ff": 64, "norm": "rms_norm", "activation": "gelu", "tied_head": false,
            "dropout": 0.1, "embedding_std": 0.02, "positions": { "kind": "interpolated" },
            "coordinates": "task", "pe": { "kind": "nope" },
        });
        let read = |table: &serde_json::Value| serde_json::from_value::<ModelSpec>(table.clone());
        let spec = read(&table).unwrap();
        let keys = |value: &serde_json::Value| {
            value
                .as_object()
                .unwrap()
                .keys()
                .cloned()
                .collect::<Vec<_>>()
        };
        assert_eq!(keys(&serde_json::to_value(&spec).unwrap()), keys(&table));
        for key in ["encoding", "d_modell", "kind"] {
            let mut other = table.clone();
            other[key] = serde_json::json!(1);
            let error = read(&other).unwrap_err().to_string();
            assert!(error.contains(key), "{key}: {error}");
        }
        for key in ["pe", "d_model"] {
            let mut other = table.clone();
            other.as_object_mut().unwrap().remove(key);
            let error = read(&other).unwrap_err().to_string();
            assert!(error.contains(key), "{key}: {error}");
        }
    }
}
