//! What happens after every step of a training: the step log, progress, scores and checkpoints.

use crate::device::{self, DeviceName};
use crate::run::protocol::{CheckpointEvery, Event, How};
use crate::run::record::task_facts;
use crate::run::step_scores::Scorer;
use crate::run::train::Snapshot;
use crate::spec::Job;
use records::metric;
use records::record::{StepScores, TaskFacts};
use rundir::checkpoint::{self, Origin};
use rundir::steplog::{Step, StepLog};
use rundir::{Disk, Weights};
use std::path::Path;
use std::time::{Duration, Instant};
use support::exit::Failure;
use support::signals;
use tasks::Task;

/// Time between two progress events.
const REPORT_EVERY: Duration = Duration::from_millis(100);

/// A training to watch.
pub struct WatchedTraining<'a> {
    /// Where the run is written.
    pub disk: &'a dyn Disk,
    /// Its directory.
    pub directory: &'a Path,
    /// Its job.
    pub job: &'a Job,
    /// Its task.
    pub task: &'a dyn Task,
    /// When to write checkpoints, on which device.
    pub how: &'a How,
    /// Receives progress.
    pub report: &'a dyn Fn(&Event),
}

/// Logs every step of a training, reports progress, takes scores and writes checkpoints.
pub struct Watcher<'a> {
    run: WatchedTraining<'a>,
    log: StepLog<'a>,
    /// Takes the scores.
    pub scorer: Scorer<'a>,
    /// The task as a record holds it, to derive what progress shows.
    facts: TaskFacts,
    origin: Origin,
    /// Time of the last progress event.
    reported: Instant,
    /// Time and step of the last checkpoint.
    saved: Instant,
    saved_step: u64,
}

impl<'a> Watcher<'a> {
    /// A watcher of a training that goes on after step `first`.
    pub fn new(run: WatchedTraining<'a>, log: StepLog<'a>, scorer: Scorer<'a>, first: u64) -> Self {
        Self {
            facts: task_facts(&run.job.spec, run.task),
            origin: origin(&run.how.device),
            run,
            log,
            scorer,
            // The first step is reported at once.
            reported: Instant::now() - REPORT_EVERY,
            saved: Instant::now(),
            saved_step: first,
        }
    }

    /// Handles one step; false if a signal asked to stop, or if `train.stop` ends the training.
    ///
    /// # Errors
    ///
    /// [`Exit::Resources`](support::exit::Exit::Resources) if the directory cannot be written.
    pub fn step(&mut self, step: Step, snapshot: &Snapshot<'_>) -> Result<bool, Failure> {
        let steps = self.run.job.spec.train.steps;
        self.log.append(&step).map_err(Failure::resources)?;
        let last = step.step == steps;
        if last || self.reported.elapsed() >= REPORT_EVERY {
            self.reported = Instant::now();
            (self.run.report)(&Event::Train {
                step: step.step,
                steps,
                loss_nats: step.loss_nats,
            });
        }
        if self.scorer.may_stop(step.step) {
            self.score_stop(step.step, &snapshot.weights())?;
        }
        let learned = self.scorer.has_learned();
        // A last step has the scores of the evaluation.
        if !learned && self.scorer.is_due(step.step) {
            self.score(step.step, &snapshot.weights())?;
        }
        let stop = signals::asked().is_some();
        let due = match self.run.how.checkpoint_every {
            CheckpointEvery::Steps(steps) => step.step - self.saved_step >= steps,
            CheckpointEvery::Time(time) => self.saved.elapsed() >= time,
        };
        // The last step is saved too: a run that dies during evaluation need not train again.
        if due || stop || last || learned {
            self.save(&step, snapshot)?;
        }
        Ok(!stop && !learned)
    }

    /// Takes the score of `train.stop` after a step; false if a signal asked to stop first.
    ///
    /// # Errors
    ///
    /// As [`Scorer::take_stop`].
    pub fn score_stop(&mut self, step: u64, weights: &Weights) -> Result<bool, Failure> {
        let Some(score) = self.scorer.take_stop(step, weights)? else {
            return Ok(false);
        };
        let train = &self.run.job.spec.train;
        if let Some(stop) = &train.stop {
            (self.run.report)(&Event::Scored {
                step,
                metric: stop.metric.clone(),
                values: vec![(train.train_len, score.value)],
            });
        }
        Ok(true)
    }

    /// Takes the scores after a step; false if a signal asked to stop first.
    ///
    /// # Errors
    ///
    /// As [`Scorer::take`].
    pub fn score(&mut self, step: u64, weights: &Weights) -> Result<bool, Failure> {
        let Some(taken) = self.scorer.take(step, weights)? else {
            return Ok(false);
        };
        (self.run.report)(&scored(&self.facts, taken));
        Ok(true)
    }

    /// Writes the step log to its end.
    ///
    /// # Errors
    ///
    /// As [`Watcher::step`].
    pub fn sync(&mut self) -> Result<String, Failure> {
        let (_, blake3) = self.log.sync().map_err(Failure::resources)?;
        Ok(blake3)
    }

    fn save(&mut self, step: &Step, snapshot: &Snapshot<'_>) -> Result<(), Failure> {
        // The log is on disk before the checkpoint that names its length and hash.
        let (log_bytes, log_blake3) = self.log.sync().map_err(Failure::resources)?;
        let state = checkpoint::State {
            step: step.step,
            tokens: step.tokens,
            weights: snapshot.weights(),
            moments: snapshot.moments(),
            log_bytes,
            log_blake3,
            scores: self.scorer.to_bytes().map_err(Failure::bug)?,
        };
        let WatchedTraining {
            disk,
            directory,
            job,
            ..
        } = self.run;
        checkpoint::save(disk, directory, &job.run_id, &self.origin, &state)
            .map_err(Failure::resources)?;
        (self.saved, self.saved_step) = (Instant::now(), step.step);
        Ok(())
    }
}

/// Scores as progress: the metric that the report leads with, where there are numbers.
fn scored(facts: &TaskFacts, taken: &StepScores) -> Event {
    let value = |row| metric::value(facts, row, &facts.primary_metric).map(|(value, _)| value);
    let rows = taken.rows.iter();
    Event::Scored {
        step: taken.step,
        metric: facts.primary_metric.clone(),
        values: rows.map(|row| (row.test_len, value(row))).collect(),
    }
}

/// Build and machine that write a checkpoint. Resuming elsewhere may differ in the last bits, and
/// is noted.
pub fn origin(device: &DeviceName) -> Origin {
    Origin {
        commit: support::build::COMMIT.to_owned(),
        machine: device::fingerprint(device),
    }
}
