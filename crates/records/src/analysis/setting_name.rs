//! Names of settings, and of their files and anchors.

use crate::record::{RunRecord, TaskFacts};
use crate::text::{self, short_hash};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Kind of task, leading metric, unit, corpus and training length.
pub(super) type Key<'a> = (&'a str, &'a str, &'a str, &'a str, usize);

/// What tells settings of one task, unit and training length apart.
pub(super) enum Differ<'a> {
    Nothing,
    /// The leading metric.
    Metric,
    /// The experiment, by this name: other corpora are in other experiments.
    Experiment(&'a str),
    /// The corpus.
    Corpus,
}

impl<'a> Differ<'a> {
    /// For the setting of `key`, one of `keys` with the experiments of each. `run` is of the
    /// setting.
    pub(super) fn of(
        key: &Key<'a>,
        keys: &[(Key<'a>, BTreeSet<&'a str>)],
        run: &'a RunRecord,
    ) -> Self {
        let is_alike = |other: &Key<'a>| (other.0, other.2, other.4) == (key.0, key.2, key.4);
        let alike: Vec<_> = keys.iter().filter(|(other, _)| is_alike(other)).collect();
        let corpora: BTreeSet<&str> = alike.iter().map(|(other, _)| other.3).collect();
        let experiments: BTreeSet<&&str> = alike.iter().flat_map(|(_, names)| names).collect();
        // As many names as settings, each with one: none is in two settings.
        let is_named =
            experiments.len() == alike.len() && alike.iter().all(|(_, of)| of.len() == 1);
        match (alike.len(), corpora.len()) {
            (1, _) => Self::Nothing,
            (_, 1) => Self::Metric,
            _ if is_named => Self::Experiment(&run.experiment),
            _ => Self::Corpus,
        }
    }

    /// `text 64`, or the experiment in place of the task.
    pub(super) fn slug(&self, task: &TaskFacts) -> String {
        let subject = match self {
            Self::Experiment(experiment) => experiment,
            _ => task.kind.as_str(),
        };
        format!("{} {}", text::name(subject, 40), task.train_len)
    }

    /// `text, trained at 64 bytes`, and what tells it apart from others of that name.
    pub(super) fn name(&self, task: &TaskFacts) -> String {
        let name = format!(
            "{}, trained at {} {}",
            text::name(&task.kind, 40),
            task.train_len,
            text::name(&task.unit, 40)
        );
        match (self, &task.corpus) {
            (Self::Nothing, _) => name,
            (Self::Experiment(experiment), _) => format!("{name} ({})", text::name(experiment, 60)),
            (Self::Corpus, Some(corpus)) => format!(
                "{name} ({}, {})",
                text::name(&source_in_words(&corpus.source), 80),
                text::name(short_hash(&corpus.blake3), 8)
            ),
            _ => format!("{name} ({})", text::name(&task.primary_metric, 80)),
        }
    }
}

/// `9 Rust crates` in place of the names and versions of all crates; other sources as they are.
fn source_in_words(source: &str) -> Cow<'_, str> {
    match source.strip_prefix("cargo: ") {
        Some(crates) => format!("{} Rust crates", crates.split(", ").count()).into(),
        None => source.into(),
    }
}
