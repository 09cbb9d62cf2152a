//! Positions and encodings of the stages of a training: defaults filled in, checked against the
//! model, and which encoding a step trains.

use super::before::TrainedBefore;
use super::coordinates::{check_coordinates, check_shift};
use super::model::{check_parameters, check_positions, check_reach, lengths, longest_test};
use super::ranges::refused;
use super::sections::Experiment;
use crate::spec::{ModelSpec, RunSpec, Stage, TrainSpec};
use config::axes::Cell;
use config::diagnostic::Diagnostic;
use config::key_path::KeyPath;
use posenc::{EncodingConfig, ModelShape, PositionsConfig};
use std::borrow::Cow;
use std::collections::BTreeMap;
use tasks::Task;
use toml::{Table, Value};

/// The key of the encoding that a training ends with.
pub fn last_encoding_key(table: &Table) -> KeyPath {
    let stages = KeyPath::new(["train", "stages"]);
    let written = stages.find(table).and_then(Value::as_array);
    let count = written.map_or(0, Vec::len);
    let own = stages
        .child(count.saturating_sub(1).to_string())
        .child("pe");
    match own.find(table) {
        Some(_) => own,
        None => KeyPath::new(["model", "pe"]),
    }
}

/// Key and value of the encoding that a training ends with: it is the model's from here on, for
/// everything that reads a trained model.
pub(super) fn last_encoding(cell: &Cell, written: &Experiment) -> (String, EncodingConfig) {
    let last = written.train.stages.last();
    let own = last.and_then(|stage| stage.pe.as_ref());
    let key = last_encoding_key(&cell.table).to_string();
    (key, own.unwrap_or(&written.model.pe).clone())
}

/// Resolves the positions and encodings of stages. Stages that name no encoding have the one of
/// `written`; `model` has that of the last stage.
///
/// # Errors
///
/// The first that does not fit the model, the task, or a stage, at its key.
pub(super) fn resolve(
    cell: &Cell,
    (train, before): (&mut TrainSpec, &TrainedBefore<'_>),
    written: &Experiment,
    model: &ModelSpec,
    task: &dyn Task,
) -> Result<(), Diagnostic> {
    let of_training = lengths(train, task, train.train_len, train.seq_len);
    let lengths = |before: usize| posenc::Lengths {
        trained_len: before,
        ..of_training
    };
    let longest = longest_test(task, &written.eval.test_lens);
    let mut end = 0;
    for (index, stage) in train.stages.iter_mut().enumerate() {
        let begin = end;
        end += stage.steps;
        // A score is taken after a step, also after the last of a stage.
        let is_scored = written
            .eval
            .every
            .is_some_and(|every| end / every > begin / every);
        let (key, mut pe) = match stage.pe.take() {
            Some(pe) => (format!("train.stages.{index}.pe"), pe),
            None => ("model.pe".to_owned(), written.model.pe.clone()),
        };
        pe.resolve(&lengths(before.encoding(&pe)));
        let of_stage = ModelSpec {
            pe,
            ..model.clone()
        };
        // One form for each training: only encodings that differ from the last one are named.
        if of_stage.pe != model.pe {
            check_encoding(cell, &key, &of_stage, task, train.train_len)?;
            stage.pe = Some(of_stage.pe.clone());
        }
        if let Some(positions) = &mut stage.positions {
            let since = before.positions(positions);
            positions.resolve(&lengths(since), longest);
        }
        if stage.pe.is_some() || stage.positions.is_some() {
            check_stage(cell, (index, &key), stage, is_scored, &of_stage, task)?;
        }
    }
    Ok(())
}

/// Refuses an encoding of a stage that the model or the task cannot have.
fn check_encoding(
    cell: &Cell,
    key: &str,
    model: &ModelSpec,
    task: &dyn Task,
    train_len: usize,
) -> Result<(), Diagnostic> {
    let shape = model.transformer.shape();
    let checked = model.pe.check(&shape);
    checked.map_err(|error| refused(cell, key, &error))?;
    let facts = model.pe.facts(&shape);
    let fits = model.transformer.check_encoding(&facts);
    let note = || format!("the encoding is that of {key}");
    fits.map_err(|error| refused(cell, "model", &error).with_note(note()))?;
    check_parameters(cell, model)?;
    let (coordinates, shift) = (model.coordinates, model.coordinate_shift);
    check_shift(cell, coordinates, shift, (key, &facts), task, train_len)
}

/// Refuses positions of a stage that its encoding cannot read, or that do not reach its end; those
/// of the model too where the stage is scored, because scores while training have these.
fn check_stage(
    cell: &Cell,
    (index, pe_key): (usize, &str),
    stage: &Stage,
    is_scored: bool,
    model: &ModelSpec,
    task: &dyn Task,
) -> Result<(), Diagnostic> {
    let facts = model.pe.facts(&model.transformer.shape());
    let check = |key: &str, positions: &PositionsConfig, scored: &str| {
        let note = format!("the encoding is that of {pe_key}{scored}");
        check_positions(positions, &facts, &model.transformer, stage.seq_len)
            .map_err(|error| refused(cell, key, &error).with_note(&note))?;
        check_coordinates(model.coordinates, positions, &facts, task)
            .map_err(|error| refused(cell, "model", &error).with_note(&note))
    };
    let positions = stage.positions.as_ref().unwrap_or(&model.positions);
    if let Some(own) = &stage.positions {
        check(&format!("train.stages.{index}.positions"), own, "")?;
    }
    if stage.positions.is_none() {
        check("model.positions", &model.positions, "")?;
    } else if is_scored {
        let scored = ", and eval.every scores it at model.positions";
        check("model.positions", &model.positions, scored)?;
    }
    let rows = positions.rows(stage.seq_len);
    check_reach(cell, pe_key, &facts, rows, stage.seq_len)
}

/// Paths of the parameters that a change of encoding draws anew, as those of a whole model. The
/// others are carried over: their name and shape are the same in an encoding of the same kind.
fn drawn_anew(from: &EncodingConfig, to: &EncodingConfig, shape: &ModelShape) -> Vec<String> {
    let known = match from.kind() == to.kind() {
        true => from.facts(shape).parameters,
        false => Vec::new(),
    };
    let parameters = to.facts(shape).parameters.into_iter();
    let anew = parameters.filter(|parameter| !known.contains(parameter));
    anew.map(|(path, _)| format!("encoding.{path}")).collect()
}

impl RunSpec {
    /// The encoding that a step counted from 0 trains.
    pub fn encoding_at(&self, step: u64) -> &EncodingConfig {
        let stage = self.train.stage(step);
        let own = stage.and_then(|stage| stage.pe.as_ref());
        own.unwrap_or(&self.model.pe)
    }

    /// The encoding of the weights after `steps` steps.
    pub fn encoding_after(&self, steps: u64) -> &EncodingConfig {
        self.encoding_at(steps.saturating_sub(1))
    }

    /// The spec with the encoding of the weights after `steps` steps as that of the model.
    pub fn after(&self, steps: u64) -> Cow<'_, Self> {
        let encoding = self.encoding_after(steps);
        if *encoding == self.model.pe {
            return Cow::Borrowed(self);
        }
        let mut spec = self.clone();
        spec.model.pe = encoding.clone();
        // The first variant is the trained encoding.
        if let Some(trained) = spec.eval.variants.first_mut() {
            trained.pe.fill(encoding.clone());
        }
        Cow::Owned(spec)
    }

    /// For the parameters after `steps` steps, by path: the step after which each was drawn,
    /// without those drawn before the first.
    pub fn drawn_later(&self, steps: u64) -> BTreeMap<String, u64> {
        let shape = self.model.transformer.shape();
        let mut drawn = BTreeMap::new();
        let mut first = 0;
        for stage in &self.train.stages {
            if first > 0 && first < steps {
                let (from, to) = (self.encoding_after(first), self.encoding_at(first));
                if from != to {
                    let names = to.facts(&shape).parameters.into_iter();
                    let there: Vec<String> =
                        names.map(|(path, _)| format!("encoding.{path}")).collect();
                    drawn.retain(|path, _| there.contains(path));
                    let anew = drawn_anew(from, to, &shape);
                    drawn.extend(anew.into_iter().map(|path| (path, first)));
                }
            }
            first += stage.steps;
        }
        drawn
    }
}
