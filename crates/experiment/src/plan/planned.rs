//! The runs of an experiment and what its report needs to know.

use super::memory::TaskSizes;
use crate::spec::Job;
use records::Claims;
use records::record::Label;
use std::path::PathBuf;
use toml::Table;

/// A run, resolved and checked.
#[derive(Clone)]
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

/// The runs of a sweep, and what each method chooses from.
#[derive(Clone)]
pub struct Selection {
    /// The runs of the sweep, of all methods.
    pub runs: Vec<PlannedRun>,
    /// One for each cell of the axes; none once they have chosen.
    pub methods: Vec<Method>,
}

/// One method.
#[derive(Clone)]
pub struct Method {
    /// The metric that chooses.
    pub by: String,
    /// What it chooses from.
    pub tried: Vec<Tried>,
}

/// One combination of values.
#[derive(Clone)]
pub struct Tried {
    /// Its values, one for each key of `select.over`.
    pub values: Vec<Label>,
    /// Its runs of the sweep, by index into [`Selection::runs`].
    pub sweep: Vec<usize>,
    /// The runs of the result under these values.
    pub runs: Vec<PlannedRun>,
}

/// Every run of an experiment.
#[derive(Clone, Default)]
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
    /// Whether to check the records against expectations from the literature.
    pub assertions: bool,
    /// The runs, seed varying fastest. Under `[select]`, until values are chosen, the runs of the
    /// first combination, which stand for those of the chosen one in estimates.
    pub runs: Vec<PlannedRun>,
    /// The sweep of `[select]`.
    pub selection: Option<Selection>,
    /// What its author may not expect, a sentence each.
    pub notes: Vec<String>,
    /// The config file as it was named.
    pub path: PathBuf,
    /// The directory that relative paths of the config start from.
    pub directory: PathBuf,
    /// The config with the overrides applied, axes kept.
    pub table: Table,
}

impl Plan {
    /// Every run that the plan may ask for: the sweep of `[select]`, and the runs of the result,
    /// under every combination of values until they are chosen.
    pub fn all_runs(&self) -> impl Iterator<Item = &PlannedRun> {
        let methods = self.selection.iter().flat_map(|found| &found.methods);
        let tried = methods.flat_map(|method| &method.tried);
        let is_chosen = tried.clone().next().is_none();
        let result = self.runs.iter().filter(move |_| is_chosen);
        let sweep = self.selection.iter().flat_map(|found| &found.runs);
        sweep
            .chain(result)
            .chain(tried.flat_map(|tried| &tried.runs))
    }
}
