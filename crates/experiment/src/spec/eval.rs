//! What to evaluate, resolved.

use super::TestLens;
use posenc::{EncodingConfig, Facts, ModelShape, PositionsConfig};
use schema::is_default;
use serde::{Deserialize, Serialize};
use tasks::Rows;

/// Name of the rows evaluated under the encoding as trained.
pub const TRAINED: &str = "trained";

/// What to evaluate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvalSpec {
    /// Test lengths, in the task's unit.
    pub test_lens: TestLens,
    /// Seed of the test sets.
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
    /// Whether the mean attention distance of every head is recorded, with the others of
    /// [`OF_HEADS`](records::metric::OF_HEADS).
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
