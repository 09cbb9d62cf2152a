//! The runs of an experiment and what its report needs to know.

use super::memory::TaskSizes;
use super::spec::Job;
use results::Claims;
use std::path::PathBuf;
use toml::Table;

/// A run, resolved and checked.
pub struct PlannedRun {
    /// What a worker is given.
    pub job: Job,
    /// Trainable numbers.
    pub parameters: u64,
    /// Tokens trained on.
    pub train_tokens: u64,
    /// Tokens read in evaluation, over all variants and lengths: scored, read again to decode
    /// answers, and to watch the weights.
    pub eval_tokens: u64,
    /// What estimates of memory need to know of its task.
    pub sizes: TaskSizes,
}

/// Every run of an experiment.
#[derive(Default)]
pub struct Plan {
    /// The experiment's name.
    pub name: String,
    /// Headline of the report.
    pub title: String,
    /// Label texts of every axis, in the order of the file: the order of lines and rows.
    pub order: Vec<String>,
    /// Names of the variants, in the order of the file.
    pub variants: Vec<String>,
    /// Claims of a source to hold the records against.
    pub claims: Claims,
    /// Whether to hold them against what a correct suite must show.
    pub assertions: bool,
    /// The runs, seed varying fastest.
    pub runs: Vec<PlannedRun>,
    /// What its author may not expect, a sentence each.
    pub notes: Vec<String>,
    /// The config file as it was named.
    pub path: PathBuf,
    /// The directory that relative paths of the config start from.
    pub directory: PathBuf,
    /// The config with the overrides applied, axes kept.
    pub table: Table,
}
