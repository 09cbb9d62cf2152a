//! Scores while training: the test sets of `eval.during`, every `eval.every` steps, and the score
//! of `train.stop`.
//!
//! A score is a function of the weights after its step. It is taken after the step, or from the
//! checkpoint of that step where the run was stopped before. `eval.every` does not change the
//! training; `train.stop` may end it.

use crate::plan::memory::{self, MemoryLimit};
use crate::run::evaluate::evaluate;
use crate::run::record::task_facts;
use crate::spec::{EvalSpec, RunSpec, TRAINED};
use anyhow::{Context, Result, ensure};
use burn::tensor::Device;
use records::metric;
use records::record::{EvalRow, StepScores, StopScore, TaskFacts};
use rundir::Weights;
use rundir::checkpoint::State;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};
use support::exit::Failure;
use tasks::Task;

/// The scores of a training before its last step.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainingScores {
    /// Those of `eval.every`.
    pub scores: Vec<StepScores>,
    /// Those of `train.stop`.
    pub stop_scores: Vec<StopScore>,
}

/// The task of `train.stop`, on selection rows, and how a record describes it.
struct StopTask<'a> {
    task: &'a dyn Task,
    facts: TaskFacts,
}

/// Takes the scores of a training.
pub struct Scorer<'a> {
    spec: &'a RunSpec,
    task: &'a dyn Task,
    stop: Option<StopTask<'a>>,
    device: &'a Device,
    /// What is left for an evaluation beside the training.
    limit: MemoryLimit,
    taken: TrainingScores,
    /// Time that the scores of this process took.
    pub spent: Duration,
    /// Largest resident memory of the training up to the latest scores.
    pub peak: Option<u64>,
}

impl<'a> Scorer<'a> {
    /// `limit` is that of the process, `training` the estimate of what training needs of it;
    /// `stop` is the task of `train.stop`.
    pub fn new(
        spec: &'a RunSpec,
        (task, stop): (&'a dyn Task, Option<&'a dyn Task>),
        device: &'a Device,
        limit: MemoryLimit,
        training: u64,
    ) -> Self {
        Self {
            spec,
            task,
            stop: stop.map(|task| StopTask {
                task,
                facts: task_facts(spec, task),
            }),
            device,
            limit: limit.beside(training),
            taken: TrainingScores::default(),
            spent: Duration::ZERO,
            peak: None,
        }
    }

    /// Goes on after these scores, which [`restored`] read.
    pub fn resume(&mut self, taken: TrainingScores) {
        self.taken = taken;
    }

    /// Whether scores are to be taken after this step and have not been.
    pub fn is_due(&self, step: u64) -> bool {
        let (steps, last) = (self.spec.train.steps, self.taken.scores.last());
        is_scored(&self.spec.eval, step) && step < steps && last.is_none_or(|last| last.step < step)
    }

    /// Whether the score of `train.stop` is to be taken after this step and has not been.
    pub fn may_stop(&self, step: u64) -> bool {
        let last = self.taken.stop_scores.last();
        self.spec.may_stop_after(step) && last.is_none_or(|last| last.step < step)
    }

    /// Whether the last score of `train.stop` ends the training.
    pub fn has_learned(&self) -> bool {
        let (stop, last) = (&self.spec.train.stop, self.taken.stop_scores.last());
        let both = stop.as_ref().zip(last);
        both.is_some_and(|(stop, last)| stop.is_met(last.value))
    }

    /// Scores the weights after a step; `None` if a signal asked to stop first.
    ///
    /// # Errors
    ///
    /// [`Exit::Bug`](support::exit::Exit::Bug) if a parameter is missing.
    pub fn take(&mut self, step: u64, weights: &Weights) -> Result<Option<&StepScores>, Failure> {
        let Some(eval) = self.spec.after(step).eval.while_training() else {
            return Ok(None);
        };
        let Some(rows) = self.evaluated(step, weights, &eval, (self.task, self.limit))? else {
            return Ok(None);
        };
        let rows = rows.into_iter().map(without_positions).collect();
        self.taken.scores.push(StepScores { step, rows });
        Ok(self.taken.scores.last())
    }

    /// Takes the score of `train.stop` after a step; `None` if a signal asked to stop first.
    ///
    /// # Errors
    ///
    /// As [`take`](Self::take).
    pub fn take_stop(
        &mut self,
        step: u64,
        weights: &Weights,
    ) -> Result<Option<StopScore>, Failure> {
        let spec = self.spec;
        let (Some(stop), Some(eval)) = (&spec.train.stop, spec.stop_eval()) else {
            return Ok(None);
        };
        let task = self.stop.as_ref().map(|stop| stop.task);
        let task = task.ok_or_else(|| Failure::bug("train.stop without its task"))?;
        // What it needs is part of the training, which was admitted with it: a score that is left
        // out on a small machine would be another training.
        let limit = MemoryLimit::NONE.of(self.limit.memory);
        let Some(rows) = self.evaluated(step, weights, &eval, (task, limit))? else {
            return Ok(None);
        };
        let scored = rows.first().zip(self.stop.as_ref());
        let value = scored.and_then(|(row, of)| metric::value(&of.facts, row, &stop.metric));
        let value = value
            .map(|(value, _)| value)
            .filter(|value| value.is_finite());
        let score = StopScore { step, value };
        self.taken.stop_scores.push(score);
        Ok(Some(score))
    }

    /// The rows of an evaluation after a step; `None` if a signal asked to stop first.
    fn evaluated(
        &mut self,
        step: u64,
        weights: &Weights,
        eval: &EvalSpec,
        (task, limit): (&dyn Task, MemoryLimit),
    ) -> Result<Option<Vec<EvalRow>>, Failure> {
        let started = Instant::now();
        // The weights have the encoding of their stage.
        let spec = self.spec.after(step);
        // An evaluation measures its own peak, which forgets that of the training.
        self.peak = self.peak.max(memory::peak(limit.memory, self.device));
        let rows = evaluate(&spec, eval, task, weights, self.device, limit, |_, _| ());
        self.peak = self.peak.max(memory::peak(limit.memory, self.device));
        self.spent += started.elapsed();
        rows.map_err(|error| Failure::bug(format!("{error:#}")))
    }

    /// The scores so far as a checkpoint holds them; no bytes where none are taken.
    ///
    /// # Errors
    ///
    /// Never for scores that were taken.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        match (&self.spec.train.stop, self.spec.eval.every) {
            (Some(_), _) => Ok(serde_json::to_vec(&self.taken)?),
            (None, Some(_)) => Ok(serde_json::to_vec(&self.taken.scores)?),
            (None, None) => Ok(Vec::new()),
        }
    }

    /// The scores of the training before its last step.
    pub fn into_taken(self) -> TrainingScores {
        self.taken
    }
}

/// Whether `eval.every` names this step. Weights that a training starts from are not scored.
fn is_scored(eval: &EvalSpec, step: u64) -> bool {
    step > 0 && eval.every.is_some_and(|every| step.is_multiple_of(every))
}

/// The scores in a checkpoint.
///
/// # Errors
///
/// If they are not those of every step to be scored up to the checkpoint; its own step may be
/// missing.
pub fn restored(spec: &RunSpec, state: &State) -> Result<TrainingScores> {
    let unreadable = "its scores cannot be read";
    let taken = match (&spec.train.stop, spec.eval.every) {
        (Some(_), _) => serde_json::from_slice(&state.scores).context(unreadable)?,
        (None, Some(_)) => TrainingScores {
            scores: serde_json::from_slice(&state.scores).context(unreadable)?,
            ..TrainingScores::default()
        },
        (None, None) => {
            ensure!(state.scores.is_empty(), "it has scores, and none are taken");
            return Ok(TrainingScores::default());
        }
    };
    let last = state.step.min(spec.train.steps - 1);
    let scored: Vec<u64> = taken.scores.iter().map(|at| at.step).collect();
    let due = (1..=last).filter(|step| is_scored(&spec.eval, *step));
    ensure!(
        are_due(&scored, due, state.step),
        "its scores are not those of every {} steps up to {}",
        spec.eval.every.unwrap_or_default(),
        state.step
    );
    check_stop_scores(spec, &taken.stop_scores, state.step)?;
    Ok(taken)
}

/// Refuses scores of `train.stop` that are not those of a training of this many steps, whose last
/// score may be missing.
///
/// # Errors
///
/// If steps are missing or not to be scored, or if an earlier score would have ended the training.
pub fn check_stop_scores(spec: &RunSpec, scores: &[StopScore], step: u64) -> Result<()> {
    let last = step.min(spec.train.steps - 1);
    let scored: Vec<u64> = scores.iter().map(|at| at.step).collect();
    let due = (1..=last).filter(|step| spec.may_stop_after(*step));
    ensure!(
        are_due(&scored, due, step),
        "the scores of train.stop are of other steps than planned"
    );
    let mut before = scores.iter().filter(|at| at.step < step);
    let ends = |at: &&StopScore| {
        let stop = spec.train.stop.as_ref();
        stop.is_some_and(|stop| stop.is_met(at.value))
    };
    let early = before.find(ends);
    ensure!(
        early.is_none(),
        "train.stop would have ended the training at step {}",
        early.map_or(0, |at| at.step)
    );
    Ok(())
}

/// Whether steps are all that are due; the last, `end`, may be missing.
fn are_due(steps: &[u64], due: impl Iterator<Item = u64> + Clone, end: u64) -> bool {
    let steps = steps.iter().copied();
    steps.clone().eq(due.clone()) || steps.eq(due.filter(|step| *step < end))
}

/// Ends the scores of a training of this many steps with those of its last step, which are the
/// final evaluation's.
pub fn end(spec: &RunSpec, steps: u64, scores: &mut Vec<StepScores>, evals: &[EvalRow]) {
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
    row.loss_by_block.clear();
    row
}
