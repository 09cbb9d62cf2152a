//! The length that was trained on before an encoding was used.
//!
//! Unset lengths of scalings, such as `original_max_position_embeddings`, default to it: YaRN
//! adapts a model to more than the length it was trained on, not to the length of the adaptation.

use crate::spec::differences::{differences, shown};
use crate::spec::{Stage, TrainSpec};
use posenc::{EncodingConfig, Lengths, PositionsConfig};
use serde_json::Value;

/// The run that a training starts from, as far as defaults depend on it.
#[derive(Clone, Debug, PartialEq)]
pub struct StartingRun {
    /// Its longest training sequence, in tokens.
    pub seq_len: usize,
    /// The encoding that it ended with.
    pub pe: EncodingConfig,
}

/// The lengths of a training and of the run that it starts from.
pub(super) struct TrainedBefore<'a> {
    start: Option<&'a StartingRun>,
    /// Longest training sequence, in tokens.
    train_len: usize,
    /// The encoding of the stages that name none.
    written: &'a EncodingConfig,
    /// The stages as written.
    stages: Vec<Stage>,
}

impl<'a> TrainedBefore<'a> {
    /// `train` with the stages as written.
    pub(super) fn new(
        train: &TrainSpec,
        written: &'a EncodingConfig,
        start: Option<&'a StartingRun>,
    ) -> Self {
        Self {
            start,
            train_len: train.seq_len,
            written,
            stages: train.stages.clone(),
        }
    }

    fn first_with(&self, is_it: impl Fn(&Stage) -> bool) -> usize {
        self.stages.iter().position(is_it).unwrap_or(0)
    }

    fn first_of(&self, pe: &EncodingConfig) -> usize {
        self.first_with(|stage| stage.pe.as_ref().unwrap_or(self.written) == pe)
    }

    /// The longest length trained on before a stage. The first follows the run that the training
    /// starts from; without one, the whole training is meant.
    fn length(&self, first: usize) -> usize {
        let stages = self.stages[..first].iter().map(|stage| stage.seq_len);
        let start = self.start.map(|start| start.seq_len);
        stages.max().or(start).unwrap_or(self.train_len)
    }

    /// The length before an encoding as written, in tokens.
    pub(super) fn encoding(&self, pe: &EncodingConfig) -> usize {
        self.length(self.first_of(pe))
    }

    /// The length before positions as written, those of the whole model or of a stage.
    pub(super) fn positions(&self, positions: &PositionsConfig) -> usize {
        self.length(self.first_with(|stage| stage.positions.as_ref() == Some(positions)))
    }

    /// Notes on lengths that were left out and do not mean the training length, for each encoding.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut encodings = vec![self.written];
        let own = self.stages.iter().filter_map(|stage| stage.pe.as_ref());
        encodings.extend(own);
        let is_trained = |pe: &&EncodingConfig| {
            self.stages.is_empty()
                || self
                    .stages
                    .iter()
                    .any(|stage| stage.pe.as_ref().unwrap_or(self.written) == *pe)
        };
        let mut notes: Vec<String> = Vec::new();
        for pe in encodings.into_iter().filter(is_trained) {
            for note in [self.meaning(pe), self.changed(pe)].into_iter().flatten() {
                if !notes.contains(&note) {
                    notes.push(note);
                }
            }
        }
        notes
    }

    fn resolved(&self, pe: &EncodingConfig, trained_len: usize) -> EncodingConfig {
        let mut pe = pe.clone();
        pe.resolve(&Lengths {
            train_len: self.train_len,
            trained_len,
            test_len: self.train_len,
        });
        pe
    }

    /// A note if unset lengths default to another length than one may expect.
    fn meaning(&self, pe: &EncodingConfig) -> Option<String> {
        let first = self.first_of(pe);
        let before = self.length(first);
        let (others, whose) = match (first, self.start) {
            (0, Some(_)) => (
                vec![self.train_len],
                "trained on by the run that it starts from",
            ),
            (0, None) => (
                self.stages
                    .iter()
                    .take(1)
                    .map(|stage| stage.seq_len)
                    .collect(),
                "of the longest stage",
            ),
            _ => (vec![self.train_len], "trained on before its first stage"),
        };
        let other = others.into_iter().find(|other| {
            *other != before && self.resolved(pe, *other) != self.resolved(pe, before)
        })?;
        Some(format!(
            "`{}`: lengths that are not set, such as original_max_position_embeddings, default to \
             the {before} tokens {whose}, not {other}; set them to change that",
            pe.kind()
        ))
    }

    /// A note if unset lengths now differ from those of the starting run.
    fn changed(&self, pe: &EncodingConfig) -> Option<String> {
        let start = self.start?;
        if self.first_of(pe) > 0 || pe.kind() != start.pe.kind() {
            return None;
        }
        let json = |pe: &EncodingConfig| serde_json::to_value(pe).unwrap_or_default();
        let (written, here) = (json(pe), json(&self.resolved(pe, self.encoding(pe))));
        let there = json(&start.pe);
        let is_left_out = |key: &str| {
            let value = written.pointer(&format!("/{}", key.replace('.', "/")));
            value.is_none_or(Value::is_null) || value == Some(&Value::from("auto"))
        };
        let changed: Vec<String> = differences(&there, &here)
            .into_iter()
            .filter(|(key, theirs, ours)| theirs.is_some() && ours.is_some() && is_left_out(key))
            .map(|(key, theirs, ours)| {
                format!("{key} = {} there and {} here", shown(theirs), shown(ours))
            })
            .collect();
        (!changed.is_empty()).then(|| {
            format!(
                "`{}`: the run that it starts from was trained with other values of what is left \
                 out: {}; write them to choose",
                pe.kind(),
                changed.join(", ")
            )
        })
    }
}
