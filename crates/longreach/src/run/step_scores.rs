//! Scores while training: the test sets of `eval.during`, every `eval.every` steps.
//!
//! A score is a function of the weights after its step. It is taken after the step, or from the
//! checkpoint of that step where the run was stopped before. Nothing of the training depends on it.

use crate::exit::Failure;
use crate::plan::memory::{self, MemoryLimit};
use crate::plan::spec::{EvalSpec, RunSpec, TRAINED};
use crate::run::evaluate::evaluate;
use anyhow::{Context, Result, ensure};
use burn::tensor::Device;
use results::record::{EvalRow, StepScores};
use rundir::Weights;
use rundir::checkpoint::State;
use std::time::{Duration, Instant};
use tasks::Task;

/// Takes the scores of a training.
pub struct Scorer<'a> {
    spec: &'a RunSpec,
    task: &'a dyn Task,
    device: &'a Device,
    /// What is left for an evaluation beside the training.
    limit: MemoryLimit,
    taken: Vec<StepScores>,
    /// Time that the scores of this process took.
    pub spent: Duration,
    /// Largest resident memory of the training up to the latest scores.
    pub peak: Option<u64>,
}

impl<'a> Scorer<'a> {
    /// `limit` is that of the process, `training` the estimate of what training needs of it.
    pub fn new(
        spec: &'a RunSpec,
        task: &'a dyn Task,
        device: &'a Device,
        limit: MemoryLimit,
        training: u64,
    ) -> Self {
        Self {
            spec,
            task,
            device,
            limit: limit.beside(training),
            taken: Vec::new(),
            spent: Duration::ZERO,
            peak: None,
        }
    }

    /// Goes on after these scores, which [`restored`] read.
    pub fn resume(&mut self, taken: Vec<StepScores>) {
        self.taken = taken;
    }

    /// Whether scores are to be taken after this step and have not been.
    pub fn is_due(&self, step: u64) -> bool {
        let steps = self.spec.train.steps;
        is_scored(&self.spec.eval, step)
            && step < steps
            && self.taken.last().is_none_or(|last| last.step < step)
    }

    /// Scores the weights after a step; `None` if a signal asked to stop first.
    ///
    /// # Errors
    ///
    /// [`Exit::Bug`](crate::exit::Exit::Bug) if a parameter is missing.
    pub fn take(&mut self, step: u64, weights: &Weights) -> Result<Option<&StepScores>, Failure> {
        // The weights have the encoding of their stage.
        let spec = self.spec.after(step);
        let Some(eval) = spec.eval.while_training() else {
            return Ok(None);
        };
        let started = Instant::now();
        // An evaluation measures its own peak, which forgets that of the training.
        self.peak = self.peak.max(memory::peak(self.limit.memory, self.device));
        let rows = evaluate(
            &spec,
            &eval,
            self.task,
            weights,
            self.device,
            self.limit,
            |_, _| (),
        );
        self.peak = self.peak.max(memory::peak(self.limit.memory, self.device));
        self.spent += started.elapsed();
        let Some(rows) = rows.map_err(|error| Failure::bug(format!("{error:#}")))? else {
            return Ok(None);
        };
        let rows = rows.into_iter().map(without_positions).collect();
        self.taken.push(StepScores { step, rows });
        Ok(self.taken.last())
    }

    /// The scores so far as a checkpoint holds them; no bytes where none are taken.
    ///
    /// # Errors
    ///
    /// Never for scores that were taken.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        match self.spec.eval.every {
            None => Ok(Vec::new()),
            Some(_) => Ok(serde_json::to_vec(&self.taken)?),
        }
    }

    /// The scores of the training, its last step aside.
    pub fn into_taken(self) -> Vec<StepScores> {
        self.taken
    }
}

/// Whether `eval.every` names this step.
fn is_scored(eval: &EvalSpec, step: u64) -> bool {
    eval.every.is_some_and(|every| step.is_multiple_of(every))
}

/// The scores in a checkpoint.
///
/// # Errors
///
/// If they are not those of every step to be scored up to the checkpoint; its own step may be
/// missing.
pub fn restored(spec: &RunSpec, state: &State) -> Result<Vec<StepScores>> {
    if spec.eval.every.is_none() {
        ensure!(state.scores.is_empty(), "it has scores, and none are taken");
        return Ok(Vec::new());
    }
    let taken: Vec<StepScores> =
        serde_json::from_slice(&state.scores).context("its scores cannot be read")?;
    let last = state.step.min(spec.train.steps - 1);
    let due = (1..=last).filter(|step| is_scored(&spec.eval, *step));
    let found = taken.iter().map(|at| at.step);
    let before = |step: &u64| *step < state.step;
    ensure!(
        found.clone().eq(due.clone()) || found.eq(due.filter(before)),
        "its scores are not those of every {} steps up to {}",
        spec.eval.every.unwrap_or_default(),
        state.step
    );
    Ok(taken)
}

/// Ends the scores of a training with those of its last step, which are the final evaluation's.
pub fn end(spec: &RunSpec, scores: &mut Vec<StepScores>, evals: &[EvalRow]) {
    let steps = spec.train.steps;
    scores.retain(|at| at.step < steps);
    let of_length = |length: &usize| {
        let rows = evals.iter();
        rows.clone()
            .find(|row| row.variant == TRAINED && row.test_len == *length)
            .cloned()
            .map(without_positions)
    };
    let rows: Vec<EvalRow> = spec.eval.during.iter().filter_map(of_length).collect();
    if !rows.is_empty() {
        scores.push(StepScores { step: steps, rows });
    }
}

fn without_positions(mut row: EvalRow) -> EvalRow {
    row.loss_by_position.clear();
    row
}
