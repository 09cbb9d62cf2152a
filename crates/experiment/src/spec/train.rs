//! How to train: `[train]` as written, and resolved.

use super::LONGEST;
use posenc::{EncodingConfig, PositionsConfig};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

config::options! {
/// `[train]` as written.
["train."] pub struct TrainSection {
    train_len: usize
        => Whole(1, LONGEST), "64", "Longest length trained on, in the task's unit: bytes, symbols.", "the longest length to train on, in the task's unit";
    steps: u64
        => Whole(1, 100_000_000), "2000", "Optimizer steps.", "a training takes one step or more, such as 2000";
    batch_size: usize = 32
        => Whole(1, 1 << 16), "16", "Rows per batch.";
    length: LengthCurriculum = unset(r#""fixed""#)
        => Name(&["fixed", "uniform", "mixed", "staged"]), r#""uniform""#, "Which lengths rows have: `train_len`, drawn from `min_len` to `train_len` per batch (`uniform`) or per row, padded at the end to `train_len` (`mixed`), or as `stages` say.";
    min_len: usize = 1
        => Whole(1, LONGEST), "8", "Shortest length of `length = \"uniform\"` and `\"mixed\"`; at most `train_len`.";
    start_from: Option<PathBuf> = or("drawn weights")
        => Text, r#""../runs/base""#, "Directory with one recorded run of every seed, whose weights training starts from; or a safetensors file with the weights that all seeds start from.";
    lr: f64 = 0.001
        => Number(1e-12, 1e9), "3e-4", "Highest learning rate.";
    warmup_steps: Option<u64> = or("steps / 20")
        => Whole(0, 100_000_000), "100", "Steps of linear warm-up; at most `steps`.";
    schedule: Schedule = unset(r#""cosine""#)
        => Name(&["cosine", "linear"]), r#""linear""#, "How the learning rate falls from `lr` to `final_lr * lr` after the warm-up.";
    final_lr: f64 = 0.1
        => Number(0.0, 1.0), "0", "Where the learning rate ends, as a fraction of `lr`.", "it is a fraction of train.lr; the default is 0.1";
    grad_clip: f64 = 1.0
        => Number(0.0, 1e9), "0.5", "Largest global norm of the gradient; 0 turns clipping off.", "the default is 1; 0 turns clipping off";
}
tables {
    stages: Vec<StageSection>;
    stop: Option<StopSpec>;
    adamw: AdamWConfig;
}
}

impl TrainSection {
    /// The training with what follows from other tables: `seq_len` is the longest length in tokens.
    /// The run that it starts from is found for each seed.
    pub fn resolved(&self, seq_len: usize, warmup_steps: u64, stages: Vec<Stage>) -> TrainSpec {
        TrainSpec {
            train_len: self.train_len,
            seq_len,
            steps: self.steps,
            batch_size: self.batch_size,
            start_from: None,
            length: self.length,
            min_len: self.min_len,
            stages,
            stop: self.stop.clone(),
            lr: self.lr,
            warmup_steps,
            schedule: self.schedule,
            final_lr: self.final_lr,
            grad_clip: self.grad_clip,
            adamw: self.adamw.clone(),
        }
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
    /// The run or file whose weights training starts from; drawn weights unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_from: Option<WarmStart>,
    /// Which lengths the batches have.
    pub length: LengthCurriculum,
    /// Shortest length of `length = "uniform"` and `"mixed"`, in the task's unit.
    pub min_len: usize,
    /// The stages of `length = "staged"`, one after the other; the steps add up to `steps`.
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
    /// to `train_len`, and nothing there is counted. Positions are drawn for every row and its own
    /// length, which encodings that read the length get too; where nothing is drawn they get that
    /// of the padded row.
    Mixed,
    /// As `stages` say: other lengths and batches for stretches of steps, as RoFormer was trained
    /// (Su et al. 2021, section 4.5.2).
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

config::options! {
/// An element of `train.stages` as written.
["train.stages.N."] pub struct StageSection {
    steps: u64
        => Whole(1, 100_000_000), "900", "Steps of a stage of `length = \"staged\"`; the stages add up to `train.steps`.";
    train_len: usize
        => Whole(1, LONGEST), "32", "Length of every row of a stage; the longest is `train.train_len`.";
    batch_size: Option<usize> = or("train.batch_size")
        => Whole(1, 1 << 16), "8", "Rows per batch of a stage.";
    positions: Option<PositionsConfig> = or("model.positions")
        => Positions, r#"{ kind = "randomized" }"#, "Where a stage puts its tokens.";
    pe: Option<EncodingConfig> = or("model.pe")
        => Encoding, r#"{ kind = "nope" }"#, "The encoding of a stage; that of the last stage is evaluated.";
}
}

/// The weights a training starts from, instead of drawn ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WarmStart {
    /// The run they are of; absent if they come from a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// Digest of the weights.
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

config::options! {
/// Ends a training once a score at the training length, or at lengths up to it, on selection rows
/// and under the trained encoding, reaches a bound. The learning rate follows the schedule of all
/// steps.
#[derive(Serialize)]
["train.stop."] pub struct StopSpec {
    metric: String = needed("none")
        => Text, r#""exact_match""#, "A score that ends the training once it is good enough, at `train_len` on selection rows.";
    #[serde(default, skip_serializing_if = "Option::is_none")]
    min_len: Option<usize> = or("`train_len`")
        => Whole(1, 100_000), "1", "Shortest rows that the score is taken on: every row draws its length from here to `train_len`.";
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at_least: Option<f64> = or("none")
        => Number(0.0, 1e9), "1.0", "Ends the training from this score on, for scores where more is better.";
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at_most: Option<f64> = or("none")
        => Number(0.0, 1e9), "0.5", "Ends the training up to this score, for losses.";
    every: u64 = needed("none")
        => Whole(1, 100_000_000), "500", "Steps between two of these scores; at most `train.steps`.";
}
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

config::options! {
/// `[train.adamw]`: Loshchilov and Hutter 2017 (arXiv 1711.05101), with PyTorch's defaults.
#[derive(Serialize)]
["train.adamw."] pub struct AdamWConfig {
    beta1: f64 = 0.9
        => Number(0.0, 0.999_999), "0.95", "AdamW's decay of the first moment.", "PyTorch's default is 0.9";
    beta2: f64 = 0.999
        => Number(0.0, 0.999_999_9), "0.98", "AdamW's decay of the second moment.", "PyTorch's default is 0.999";
    eps: f64 = 1e-8
        => Number(1e-16, 1.0), "1e-6", "Added to the root of AdamW's second moment.", "PyTorch's default is 1e-8";
    weight_decay: f64 = 0.01
        => Number(0.0, 1e3), "0.1", "AdamW's decoupled weight decay, times the learning rate of the step.", "PyTorch's default is 0.01";
    #[serde(skip_serializing_if = "schema::is_default")]
    decay: Decay = unset(r#""all""#)
        => Name(&["all", "matrices"]), r#""matrices""#, "Which parameters decay: `all`, as in PyTorch, or `matrices` alone, which leaves out norms and numbers per head.";
}
}

impl Default for AdamWConfig {
    fn default() -> Self {
        config::options::defaults()
    }
}

/// Which parameters AdamW decays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decay {
    /// Every parameter.
    #[default]
    All,
    /// Parameters of two dimensions or more, as the trainer of Hugging Face leaves out norms.
    Matrices,
}
