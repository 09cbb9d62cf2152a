//! How to train, resolved.

use posenc::{EncodingConfig, PositionsConfig};
use serde::{Deserialize, Serialize};

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

/// Loshchilov and Hutter 2017 (arXiv 1711.05101), with PyTorch's defaults. As in PyTorch, the
/// decay applies to every parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdamWConfig {
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the square root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay, times the learning rate of the step.
    pub weight_decay: f64,
}

impl Default for AdamWConfig {
    fn default() -> Self {
        Self {
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            weight_decay: 0.01,
        }
    }
}

/// Ends a training once a score at the training length, on selection rows and under the trained
/// encoding, reaches a bound. The learning rate follows the schedule of all steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StopSpec {
    /// The score, stored or derived.
    pub metric: String,
    /// It ends the training from this value on, where more is better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
    /// It ends the training up to this value, where less is better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
    /// Steps from one score to the next.
    pub every: u64,
}

impl StopSpec {
    /// Whether a score ends the training; one that is not finite never does.
    pub fn is_met(&self, score: Option<f64>) -> bool {
        score.is_some_and(|score| {
            self.at_least.is_none_or(|bound| score >= bound)
                && self.at_most.is_none_or(|bound| score <= bound)
        })
    }
}
