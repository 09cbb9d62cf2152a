//! One run, resolved: no default left. With the commit and the kind of device it determines the
//! numbers.

pub use super::coordinates::Coordinates;
pub use super::stop::StopSpec;
pub use super::test_lens::{TestLen, TestLens};
use crate::run::optimizer::AdamWConfig;
use posenc::{EncodingConfig, Facts, ModelShape, Positions, PositionsConfig};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use tasks::{Rows, Stream, TaskConfig};
use tiny_transformer::TransformerConfig;

/// Name of the rows evaluated under the encoding as trained.
pub const TRAINED: &str = "trained";

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

/// How to train.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainSpec {
    /// Longest length, in the task's unit.
    pub train_len: usize,
    /// The same in tokens.
    pub seq_len: usize,
    /// Optimizer steps.
    pub steps: u64,
    /// Rows per batch.
    pub batch_size: usize,
    /// The run whose weights training starts from; drawn weights unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_from: Option<WarmStart>,
    /// Which lengths the batches have.
    pub length: LengthCurriculum,
    /// Shortest length of `length = "uniform"` and `"mixed"`, in the task's unit.
    pub min_len: usize,
    /// The stages of `length = "staged"`, one after the other; together all the steps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<Stage>,
    /// What ends the training before its last step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<StopSpec>,
    /// Highest learning rate.
    pub lr: f64,
    /// Steps of linear warm-up.
    pub warmup_steps: u64,
    /// How the rate falls after the warm-up.
    #[serde(default, skip_serializing_if = "schema::is_default")]
    pub schedule: Schedule,
    /// What the rate ends at, as a fraction of `lr`.
    pub final_lr: f64,
    /// Largest global norm of the gradient; 0 turns clipping off.
    pub grad_clip: f64,
    /// The optimizer's constants.
    pub adamw: AdamWConfig,
}

/// Which lengths training rows have. All rows of a batch have one length, but where they are mixed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LengthCurriculum {
    /// Always `train_len`.
    #[default]
    Fixed,
    /// Uniform from `min_len` to `train_len`, drawn per batch.
    Uniform,
    /// Uniform from `min_len` to `train_len`, drawn per row. Shorter rows are padded at their end
    /// to `train_len`, and nothing there is counted. Encodings that read the length, and positions
    /// that are drawn for one, get that of the padded row.
    Mixed,
    /// As `stages` say: other lengths and batches for stretches of steps, as RoFormer was trained
    /// (Su et al. 2021, section 4.3.2).
    Staged,
}

/// How the learning rate falls from `lr` to `final_lr * lr` after the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// As half a cosine.
    #[default]
    Cosine,
    /// By the same amount every step.
    Linear,
}

/// A stretch of the training with its own length, batch, positions and encoding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    /// Its steps.
    pub steps: u64,
    /// Length of every row, in the task's unit.
    pub train_len: usize,
    /// The same in tokens.
    pub seq_len: usize,
    /// Rows per batch.
    pub batch_size: usize,
    /// Where it puts its tokens; as the model unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub positions: Option<PositionsConfig>,
    /// Its encoding; that of the model, which is the last stage's, unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pe: Option<EncodingConfig>,
}

/// The weights a training starts from, instead of drawn ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WarmStart {
    /// The run they are of.
    pub run_id: String,
    /// Digest of its final weights.
    pub weights_blake3: String,
    /// Numbers they hold.
    pub parameters: u64,
    /// Whether the parameters of its encoding are kept too: it is of the same kind.
    pub pe: bool,
}

/// What to evaluate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvalSpec {
    /// Test lengths, in the task's unit.
    pub test_lens: TestLens,
    /// Names the test sets.
    pub seed: u64,
    /// Which rows are scored.
    #[serde(default, skip_serializing_if = "is_default")]
    pub rows: Rows,
    /// Tokens per batch of evaluation; a longer sequence is a batch by itself.
    pub batch_tokens: usize,
    /// How answers are read off the model.
    #[serde(default, skip_serializing_if = "is_default")]
    pub decode: Decode,
    /// How many predictions at the end of every test window of text are also scored on their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_tokens: Option<usize>,
    /// Whether the mean attention distance of every head is recorded.
    #[serde(default, skip_serializing_if = "is_default")]
    pub attention_distance: bool,
    /// Steps of the training from one scoring to the next; only the end is scored unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub every: Option<u64>,
    /// The test lengths scored while training; none without `every`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub during: TestLens,
    /// The encodings to evaluate under; the first is the trained one, named [`TRAINED`].
    pub variants: Vec<VariantSpec>,
}

impl EvalSpec {
    /// What is evaluated while training: the encoding as trained, at the lengths of `during`. None
    /// without `every`.
    pub fn while_training(&self) -> Option<Self> {
        self.every?;
        let trained = self.variants.first()?;
        let places = self.during.iter().filter_map(|length| {
            let mut lengths = self.test_lens.iter();
            lengths.position(|known| known == length)
        });
        let places: Vec<usize> = places.collect();
        let pe = places.iter().filter_map(|at| trained.pe.get(*at)).cloned();
        // Empty where positions are those of the training.
        let positions = places.iter().filter_map(|at| trained.positions.get(*at));
        Some(Self {
            test_lens: self.during.clone(),
            variants: vec![VariantSpec {
                name: trained.name.clone(),
                pe: pe.collect(),
                positions: positions.cloned().collect(),
            }],
            ..self.clone()
        })
    }
}

/// How answers are read off a model. For whole answers the first two are the same wherever a
/// token's logits are those of the tokens up to it: unless the encoding reads the length, or
/// positions are drawn for every length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Decode {
    /// Every token given the right ones before it.
    #[default]
    TeacherForced,
    /// Every token given the model's own before it.
    Greedy,
    /// Greedy where it is not the same, else teacher-forced.
    Auto,
}

impl Decode {
    /// Whether answers are decoded under this encoding and at these positions.
    pub fn is_greedy(self, encoding: &Facts, positions: &PositionsConfig) -> bool {
        match self {
            Self::TeacherForced => false,
            Self::Greedy => true,
            Self::Auto => changes_with_length(encoding, positions),
        }
    }

    /// How scores of answers are computed, for their definitions.
    pub fn in_words(self) -> &'static str {
        match self {
            Self::TeacherForced => "teacher-forced",
            Self::Greedy => {
                "decoded greedily, every token given the model's own before it: with a cache of \
                 keys and values, or from the whole prefix where the encoding reads the length or \
                 positions are drawn at random"
            }
            Self::Auto => {
                "teacher-forced, but decoded greedily, every token from the whole prefix with the \
                 model's own before it, where the encoding reads the length or positions are drawn \
                 at random"
            }
        }
    }
}

/// Whether a token's logits depend on how many tokens come after it: through an encoding that reads
/// the length, or positions that are drawn for a length.
pub fn changes_with_length(encoding: &Facts, positions: &PositionsConfig) -> bool {
    use PositionsConfig::{Contiguous, Grid, Interpolated, Pose};
    let fixed = matches!(
        positions,
        Contiguous(_) | Grid(_) | Interpolated(_) | Pose(_)
    );
    encoding.reads_length || !fixed
}

/// The trained weights under one encoding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VariantSpec {
    /// Name in tables and plots.
    pub name: String,
    /// The encoding at each test length, where `factor = "auto"` has become a number.
    pub pe: Vec<EncodingConfig>,
    /// Where tokens stand at each test length; as in training, unless given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub positions: Vec<PositionsConfig>,
}

/// The path that a parameter of a variant's encoding has in the trained one. They differ where the
/// variant is a stack of the trained encoding and others: its parameters are those of a part then.
pub fn trained_path<'a>(
    trained: &EncodingConfig,
    variant: &EncodingConfig,
    path: &'a str,
) -> &'a str {
    let Some(parts) = variant.stacked_parts() else {
        return path;
    };
    // A stack that is extended keeps its parts in front, so their paths stay.
    if trained.stacked_parts().is_some() {
        return path;
    }
    let part = parts.iter().position(|part| part.kind() == trained.kind());
    part.and_then(|part| path.strip_prefix(&format!("parts.{part}.")))
        .unwrap_or(path)
}

/// Path and shape of the parameters that a variant needs and training did not give.
pub fn untrained(
    trained: &EncodingConfig,
    variant: &EncodingConfig,
    shape: &ModelShape,
) -> Vec<(String, Vec<usize>)> {
    let given = trained.facts(shape).parameters;
    let is_given = |path: &str, shape: &Vec<usize>| {
        let path = trained_path(trained, variant, path);
        given
            .iter()
            .any(|(name, other)| name == path && other == shape)
    };
    variant
        .facts(shape)
        .parameters
        .into_iter()
        .filter(|(path, shape)| !is_given(path, shape))
        .collect()
}

/// Left out of a specification, so that an option added later changes no identity of older runs.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
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
    pub labels: Vec<results::record::Label>,
    /// Directory relative paths of the task are resolved against.
    pub config_dir: PathBuf,
    /// Directory of the run to start from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_dir: Option<PathBuf>,
    /// The method of that run, for the record:
    /// [`RunRecord::method_spec`](results::RunRecord::method_spec).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_from: Option<serde_json::Map<String, serde_json::Value>>,
    /// The run that this one repeats with half its steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_of: Option<String>,
    /// How values of the run were chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selected: Option<results::record::Selected>,
    /// The numbers' definition.
    pub spec: RunSpec,
}

impl Job {
    /// The run as people name it: `rope seed 0`.
    pub fn name(&self) -> String {
        let labels: Vec<&str> = self
            .labels
            .iter()
            .map(|label| label.text.as_str())
            .collect();
        let half = if self.half_of.is_some() {
            ", half steps"
        } else {
            ""
        };
        format!("{} seed {}{half}", labels.join(", "), self.spec.seed)
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

impl TrainSpec {
    /// The stage of a step counted from 0.
    pub fn stage(&self, step: u64) -> Option<&Stage> {
        let ends = self.stages.iter().scan(0, |end, stage| {
            *end += stage.steps;
            Some((*end, stage))
        });
        ends.into_iter()
            .find(|(end, _)| step < *end)
            .map(|(_, stage)| stage)
    }

    /// Tokens of all steps; an upper bound where lengths are drawn.
    pub fn tokens(&self) -> u64 {
        if self.stages.is_empty() {
            return self
                .steps
                .saturating_mul((self.batch_size * self.seq_len) as u64);
        }
        self.stages
            .iter()
            .map(|stage| {
                stage
                    .steps
                    .saturating_mul((stage.batch_size * stage.seq_len) as u64)
            })
            .sum()
    }

    /// Learning rate of a step counted from 0: linear warm-up, then down to `final_lr * lr` as the
    /// schedule says.
    pub fn lr_at(&self, step: u64) -> f64 {
        if step < self.warmup_steps {
            // From one: with a rate of 0 the first step would be lost.
            return self.lr * (step + 1) as f64 / self.warmup_steps as f64;
        }
        let span = (self.steps - self.warmup_steps).max(1) as f64;
        let progress = (step - self.warmup_steps) as f64 / span;
        let left = match self.schedule {
            Schedule::Cosine => 0.5 * (1.0 + libm::cos(std::f64::consts::PI * progress)),
            Schedule::Linear => 1.0 - progress,
        };
        self.lr * (self.final_lr + (1.0 - self.final_lr) * left)
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
