//! The tables of a configuration as written, read strictly. Values are checked against each other
//! later, by the module of their section. `[model]` is read in `model.rs`, where its keys become
//! those of the transformer.

use super::model::ModelSection;
use crate::spec::AdamWConfig;
use crate::spec::{Decode, LengthCurriculum, Schedule, StopSpec, TestLens};
use posenc::{EncodingConfig, PositionsConfig};
use serde::Deserialize;
use std::path::PathBuf;
use tasks::{Rows, TaskConfig};
use toml::{Table, Value};

/// One cell of an experiment as written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Experiment {
    pub(super) name: String,
    #[serde(default)]
    pub(super) title: Option<String>,
    #[serde(default = "one_seed")]
    pub(super) seeds: Vec<u64>,
    #[serde(default)]
    pub(super) half_seeds: Vec<u64>,
    #[serde(default)]
    pub(super) select: Option<SelectSection>,
    pub(super) task: TaskConfig,
    pub(super) model: ModelSection,
    pub(super) train: TrainSection,
    pub(super) eval: EvalSection,
    #[serde(default)]
    pub(super) report: ReportSection,
}

/// `[select]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SelectSection {
    /// Read with the axes.
    #[expect(dead_code, reason = "the key must be known and there")]
    over: Table,
    #[serde(default)]
    pub(super) by: Option<String>,
    #[serde(default = "default_select_seeds")]
    pub(super) seeds: Vec<u64>,
    #[serde(default = "default_select_steps")]
    pub(super) steps: f64,
}

pub(super) fn default_select_seeds() -> Vec<u64> {
    vec![100, 101]
}
fn default_select_steps() -> f64 {
    1.0 / 3.0
}

/// `[report]`: what the report holds the records against. No part of a run's identity.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReportSection {
    #[serde(default)]
    pub(super) claims: Option<PathBuf>,
    #[serde(default)]
    pub(super) assertions: bool,
}

fn one_seed() -> Vec<u64> {
    vec![0]
}

/// `[train]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TrainSection {
    pub(super) train_len: usize,
    pub(super) steps: u64,
    #[serde(default = "default_batch_size")]
    pub(super) batch_size: usize,
    #[serde(default)]
    pub(super) length: LengthCurriculum,
    #[serde(default = "default_min_len")]
    pub(super) min_len: usize,
    #[serde(default)]
    pub(super) stages: Vec<StageSection>,
    #[serde(default)]
    pub(super) start_from: Option<PathBuf>,
    #[serde(default)]
    pub(super) stop: Option<StopSpec>,
    #[serde(default = "default_lr")]
    pub(super) lr: f64,
    #[serde(default)]
    pub(super) warmup_steps: Option<u64>,
    #[serde(default)]
    pub(super) schedule: Schedule,
    #[serde(default = "default_final_lr")]
    pub(super) final_lr: f64,
    #[serde(default = "default_grad_clip")]
    pub(super) grad_clip: f64,
    #[serde(default)]
    pub(super) adamw: AdamWConfig,
}

/// An element of `train.stages`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StageSection {
    pub(super) steps: u64,
    pub(super) train_len: usize,
    #[serde(default)]
    pub(super) batch_size: Option<usize>,
    #[serde(default)]
    pub(super) positions: Option<PositionsConfig>,
    #[serde(default)]
    pub(super) pe: Option<EncodingConfig>,
}

fn default_batch_size() -> usize {
    32
}
fn default_min_len() -> usize {
    1
}
fn default_lr() -> f64 {
    1e-3
}
fn default_final_lr() -> f64 {
    0.1
}
fn default_grad_clip() -> f64 {
    1.0
}

/// `[eval]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EvalSection {
    pub(super) test_lens: TestLens,
    #[serde(default)]
    pub(super) seed: u64,
    #[serde(default)]
    pub(super) rows: Rows,
    #[serde(default = "default_batch_tokens")]
    pub(super) batch_tokens: usize,
    #[serde(default)]
    pub(super) decode: Decode,
    #[serde(default)]
    pub(super) last_tokens: Option<usize>,
    #[serde(default)]
    pub(super) attention_distance: bool,
    #[serde(default)]
    pub(super) every: Option<u64>,
    #[serde(default)]
    pub(super) during: Option<TestLens>,
    #[serde(default)]
    pub(super) variants: Vec<VariantSection>,
}

fn default_batch_tokens() -> usize {
    4096
}

/// `[[eval.variants]]`: the trained weights under a changed encoding.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VariantSection {
    /// Name in tables and plots.
    pub name: String,
    /// Keys and values the trained encoding must have for the variant to apply; all encodings
    /// unless given.
    #[serde(default)]
    pub when: Table,
    /// Keys to change in the trained encoding's table; with `kind`, a whole new encoding.
    #[serde(default)]
    pub set: Table,
    /// What to stack on the trained encoding, after `set`: an encoding's table, or a list of them.
    #[serde(default)]
    pub add: Option<Value>,
    /// Where tokens stand; as in training unless given.
    #[serde(default)]
    pub positions: Option<PositionsConfig>,
}
