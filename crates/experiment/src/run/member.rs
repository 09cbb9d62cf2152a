//! One run of a worker: where its training starts, what watches it, and what becomes of it.

use crate::plan::memory::{self, TaskSizes};
use crate::plan::together::shape;
use crate::run::carry::carry;
use crate::run::evaluate::{diverged_rows, evaluate};
use crate::run::model::{drawn_weights, initial_model};
use crate::run::parameters;
use crate::run::protocol::{Event, How};
use crate::run::record::{environment, spec_map, task_facts};
use crate::run::step_scores::{self, Scorer, restored};
use crate::run::train::{Trained, TrainingStart};
use crate::run::watcher::{WatchedTraining, Watcher, origin};
use crate::runs_on_disk::files::{
    DIVERGED_FILE, INITIAL_WEIGHTS_FILE, TIMINGS_FILE, WEIGHTS_FILE, tidy, write_record,
};
use crate::runs_on_disk::recorded::no_weights;
use crate::runs_on_disk::starts::start_weights;
use crate::runs_on_disk::timings::timings;
use crate::spec::{Job, RunSpec};
use burn::tensor::Device;
use records::record::{EvalRow, EvalStatus, ModelFacts, RunRecord, RunStatus, SCHEMA, TrainFacts};
use records::timings::{EvalTiming, Timings};
use rundir::checkpoint;
use rundir::steplog::StepLog;
use rundir::{Disk, Weights};
use serde::Serialize;
use std::borrow::Cow;
use std::path::Path;
use std::time::Instant;
use support::exit::{Exit, Failure};
use support::signals;
use tasks::{Batch, Task};

/// A run that this process holds: its directory, its job, and what it runs with.
#[derive(Clone, Copy)]
pub struct Run<'a> {
    /// Where it is written.
    pub disk: &'a dyn Disk,
    /// Its directory.
    pub directory: &'a Path,
    /// Its job.
    pub job: &'a Job,
    /// Its task.
    pub task: &'a dyn Task,
    /// The same on selection rows, for `train.stop`.
    pub stop_task: Option<&'a dyn Task>,
    /// The device.
    pub device: &'a Device,
    /// How to run it.
    pub how: &'a How,
    /// Receives progress.
    pub report: &'a dyn Fn(&Event),
}

/// What the training of all runs of a process took.
pub struct TrainingCost {
    /// How many they are.
    pub runs: usize,
    /// Seconds, without scores.
    pub secs: f64,
    /// Tokens of all runs.
    pub tokens: u64,
    /// Largest resident memory, if the system reports it.
    pub peak: Option<u64>,
}

/// A run that is ready to train.
pub struct ReadyRun<'a> {
    /// The run.
    pub run: Run<'a>,
    /// Where it starts, until its training takes it.
    pub start: Option<TrainingStart>,
    /// The step that it starts after.
    pub first: u64,
    /// Watches its training.
    pub watcher: Watcher<'a>,
    timings: Timings,
}

/// The failure of a run that a signal stopped, or kept from starting.
pub fn stopped(when: &str) -> Failure {
    let exit = signals::asked().unwrap_or(Exit::Interrupted);
    Failure::new(
        exit,
        format!("stopped {when}; the same command continues from there"),
    )
}

/// The failure of a run that a signal stopped after a step.
pub fn stopped_after(step: u64, spec: &RunSpec) -> Failure {
    stopped(&format!("after step {step} of {}", spec.train.steps))
}

impl<'a> Run<'a> {
    /// Finds where training starts, and opens the step log. `memory_bytes` is what the training of
    /// all runs of the process is expected to need.
    ///
    /// # Errors
    ///
    /// [`Exit::Input`] if the weights to start from are not there, [`Exit::Resources`] if the
    /// directory cannot be written.
    pub fn begin(self, memory_bytes: u64) -> Result<ReadyRun<'a>, Failure> {
        let mut timings = Timings {
            train_estimated_memory_bytes: memory_bytes,
            ..self.timings()
        };
        let initial = self.initial()?;
        if self.how.initial_weights {
            let path = self.directory.join(INITIAL_WEIGHTS_FILE);
            initial.save(self.disk, &path).map_err(Failure::resources)?;
        }
        // The program and the corpus are there once.
        let limit = self.how.memory_limit;
        let beside = memory::resident(limit.memory, &self.sizes());
        let needed = memory_bytes.saturating_sub(beside);
        let mut scorer = Scorer::new(
            &self.job.spec,
            (self.task, self.stop_task),
            self.device,
            limit,
            needed,
        );
        let (start, log) = self.start(&initial, &mut scorer, &mut timings.notes)?;
        let watched = WatchedTraining {
            disk: self.disk,
            directory: self.directory,
            job: self.job,
            task: self.task,
            how: self.how,
            report: self.report,
        };
        let first = start.as_ref().map_or(0, |start| start.step);
        Ok(ReadyRun {
            run: self,
            start,
            first,
            watcher: Watcher::new(watched, log, scorer, first),
            timings,
        })
    }

    /// The weights before the first step: drawn from the seed, or shared with the run or file to
    /// start from.
    fn initial(&self) -> Result<Weights, Failure> {
        let spec = &self.job.spec;
        let mut weights = parameters::of(&initial_model(spec, self.device)?);
        let Some(start) = &spec.train.start_from else {
            return Ok(weights);
        };
        let Some(theirs) = start_weights(self.job)? else {
            return Ok(weights);
        };
        let drawn = carry(&mut weights, theirs, start.pe);
        // Another kind of encoding keeps the parameters that were drawn for it.
        let missing = |path: &&String| start.pe || !parameters::is_of_encoding(path);
        match drawn.iter().find(missing) {
            None => Ok(weights),
            Some(path) => Err(Failure::input(format!(
                "the weights to start from have no {path} of this shape"
            ))),
        }
    }

    /// Where training starts: the newest usable checkpoint with its step log and scores, or
    /// `initial` if the job starts from another run, or else weights drawn from the seed.
    fn start(
        &self,
        initial: &Weights,
        scorer: &mut Scorer<'_>,
        notes: &mut Vec<String>,
    ) -> Result<(Option<TrainingStart>, StepLog<'a>), Failure> {
        let (disk, directory) = (self.disk, self.directory);
        let resume = |state: &checkpoint::State| {
            // The log last: it is cut only after every other check has passed.
            let scores = restored(&self.job.spec, state)?;
            Ok((StepLog::resume(disk, directory, state)?, scores))
        };
        let origin = origin(&self.how.device);
        let run_id = &self.job.run_id;
        let spec = &self.job.spec;
        // The parameters of a checkpoint are those of the encoding at its step.
        let model = |step: u64| match spec.encoding_after(step) {
            encoding if encoding == spec.encoding_at(0) => Ok(Cow::Borrowed(initial)),
            encoding => drawn_weights(spec, encoding, self.device).map(Cow::Owned),
        };
        let found = checkpoint::latest(disk, directory, run_id, &origin, model, resume);
        notes.extend(found.notes);
        if found.state.is_some() || !notes.is_empty() {
            (self.report)(&Event::Resumed {
                step: found.state.as_ref().map_or(0, |(state, _)| state.step),
                notes: notes.clone(),
            });
        }
        let Some((state, ((log, steps), scores))) = found.state else {
            let given = self
                .job
                .spec
                .train
                .start_from
                .as_ref()
                .map(|_| TrainingStart {
                    weights: initial.clone(),
                    ..TrainingStart::default()
                });
            let log = StepLog::create(disk, directory).map_err(Failure::resources)?;
            return Ok((given, log));
        };
        scorer.resume(scores);
        let start = TrainingStart {
            step: state.step,
            // Until the score of this step is known to be taken.
            learned: false,
            tokens: state.tokens,
            losses: steps.into_iter().map(|step| step.loss_nats).collect(),
            weights: state.weights,
            moments: state.moments,
        };
        Ok((Some(start), log))
    }

    /// Repeats the evaluations of a recorded run, with the lengths that did not fit into memory
    /// then.
    ///
    /// # Errors
    ///
    /// [`Exit::Input`] if its weights are not there, [`Exit::Resources`] if the directory cannot be
    /// written, those of a signal.
    pub fn evaluate_again(&self, mut record: RunRecord) -> Result<(), Failure> {
        let (model, path) = (&record.model, self.directory.join(WEIGHTS_FILE));
        let weights = Weights::load(&path, model.parameters, &model.weights_blake3)
            .map_err(|error| no_weights(self.directory, &error))?;
        let of = self.how.memory_limit.memory;
        let training = memory::training(of, &self.job.spec, model.parameters, &self.sizes());
        let mut timings = timings(self.directory).unwrap_or_else(|| Timings {
            train_estimated_memory_bytes: training,
            ..self.timings()
        });
        timings.evals.clear();
        let evals = self.evaluate(&weights, &mut timings)?;
        record.change(|record| {
            record.evals = evals;
            let train = &mut record.train;
            step_scores::end(
                &self.job.spec,
                train.steps,
                &mut train.scores,
                &record.evals,
            );
            // Training was not repeated.
            let together = record.environment.runs_together;
            record.environment = environment(&self.how.device);
            record.environment.runs_together = together;
        });
        self.write(TIMINGS_FILE, &timings)?;
        write_record(self.disk, self.directory, &record)
    }

    /// The most runs, this one included, that may be trained together, if it may. Not the number
    /// that was: it depends on what other workers did and on which of them were killed.
    fn together(&self) -> Option<usize> {
        let most = self.how.runs_per_worker;
        let may = most > 1 && !self.how.device.is_cpu() && shape(&self.job.spec).is_some();
        may.then_some(most)
    }

    fn sizes(&self) -> TaskSizes {
        TaskSizes::of(self.task, &self.job.spec.eval.test_lens).beside(self.stop_task)
    }

    /// Timings of a run that has not begun.
    fn timings(&self) -> Timings {
        Timings {
            device: self.how.device.to_string(),
            threads: support::limits::threads(),
            ..Timings::default()
        }
    }

    fn evaluate(&self, weights: &Weights, timings: &mut Timings) -> Result<Vec<EvalRow>, Failure> {
        // Asked while another run was evaluated.
        if signals::asked().is_some() {
            return Err(stopped("during evaluation"));
        }
        let spec = &self.job.spec;
        let started = Instant::now();
        let (mut done, total) = (0, spec.eval.variants.len() * spec.eval.test_lens.len());
        let rows = evaluate(
            spec,
            &spec.eval,
            self.task,
            weights,
            self.device,
            self.how.memory_limit,
            |row, cost| {
                done += 1;
                if row.status == EvalStatus::Ok {
                    timings.evals.push(EvalTiming {
                        variant: row.variant.clone(),
                        test_len: row.test_len,
                        secs: cost.secs,
                        peak_memory_bytes: memory::peak(self.how.memory_limit.memory, self.device),
                        estimated_memory_bytes: cost.memory_bytes,
                    });
                }
                (self.report)(&Event::Eval { done, total });
            },
        );
        timings.eval_secs = started.elapsed().as_secs_f64();
        rows.map_err(|error| Failure::bug(format!("{error:#}")))?
            .ok_or_else(|| stopped("during evaluation"))
    }

    fn write(&self, name: &str, value: &impl Serialize) -> Result<(), Failure> {
        let json = serde_json::to_vec_pretty(value).map_err(Failure::bug)?;
        self.disk
            .write_whole(&self.directory.join(name), &json)
            .map_err(Failure::resources)
    }
}

impl ReadyRun<'_> {
    /// Takes the scores of the step that training starts after, if a signal prevented it before;
    /// false if one does again.
    ///
    /// # Errors
    ///
    /// As [`Watcher::score`].
    pub fn score_start(&mut self) -> Result<bool, Failure> {
        let (step, watcher) = (self.first, &mut self.watcher);
        let Some(start) = &mut self.start else {
            return Ok(true);
        };
        if watcher.scorer.may_stop(step) && !watcher.score_stop(step, &start.weights)? {
            return Ok(false);
        }
        start.learned = watcher.scorer.has_learned();
        if !start.learned && watcher.scorer.is_due(step) {
            return watcher.score(step, &start.weights);
        }
        Ok(true)
    }

    /// Saves the weights, evaluates and records a run that was trained. `log_blake3` is the hash of
    /// its step log, `taken` what the training of all runs took.
    ///
    /// # Errors
    ///
    /// [`Exit::Resources`] if the directory cannot be written, those of a signal.
    pub fn finish(
        self,
        mut trained: Trained,
        log_blake3: String,
        taken: &TrainingCost,
    ) -> Result<(), Failure> {
        let Self {
            run,
            first,
            watcher,
            mut timings,
            ..
        } = self;
        let (spec, scorer) = (&run.job.spec, watcher.scorer);
        timings.score_secs = scorer.spent.as_secs_f64();
        timings.train_secs = taken.secs;
        timings.resumed_at_step = first;
        timings.train_tokens_per_sec = taken.tokens as f64 / taken.secs;
        timings.train_peak_memory_bytes = taken.peak;
        let together = Some(taken.runs).filter(|runs| *runs > 1);
        timings.runs_together = together.unwrap_or_default();
        trained.scores = scorer.into_taken();
        let weights = parameters::of(&trained.model);
        weights
            .save(run.disk, &run.directory.join(WEIGHTS_FILE))
            .map_err(Failure::resources)?;
        let evals = match &trained.diverged {
            Some((diverged, batch)) => {
                (run.report)(&Event::Diverged {
                    step: diverged.step,
                    what: diverged.what.clone(),
                });
                run.write(DIVERGED_FILE, &diverged_batch(diverged.step, batch))?;
                let reason = format!("training diverged at step {}", diverged.step);
                diverged_rows(&spec.eval, &reason)
            }
            None => run.evaluate(&weights, &mut timings)?,
        };
        if trained.diverged.is_none() {
            let scores = &mut trained.scores.scores;
            step_scores::end(spec, trained.steps, scores, &evals);
        }
        let mut record = record(&run, trained, &weights, evals)?;
        record.environment.runs_together = run.together();
        record.set_seal(log_blake3);
        run.write(TIMINGS_FILE, &timings)?;
        write_record(run.disk, run.directory, &record)?;
        // Checkpoints go last: without a record the next worker resumes from them.
        tidy(run.disk, run.directory, &record);
        Ok(())
    }
}

fn record(
    run: &Run<'_>,
    trained: Trained,
    weights: &Weights,
    evals: Vec<EvalRow>,
) -> Result<RunRecord, Failure> {
    let (job, spec) = (run.job, &run.job.spec);
    let diverged = trained.diverged.map(|(diverged, _)| diverged);
    Ok(RunRecord {
        schema: SCHEMA,
        run_id: job.run_id.clone(),
        experiment: job.experiment.clone(),
        labels: job.labels.clone(),
        seed: spec.seed,
        status: if diverged.is_some() {
            RunStatus::Diverged
        } else {
            RunStatus::Ok
        },
        diverged,
        task: task_facts(spec, run.task),
        model: ModelFacts {
            parameters: weights.count(""),
            encoding_parameters: weights.count("encoding."),
            weights_blake3: weights.digest(),
        },
        encoding_facts: spec.model.derived(spec.train.seq_len),
        train: TrainFacts {
            steps: trained.steps,
            tokens: trained.tokens,
            final_loss_nats: trained.final_loss_nats,
            loss_curve: trained.curve,
            scores: trained.scores.scores,
            stop_scores: trained.scores.stop_scores,
        },
        evals,
        environment: environment(&run.how.device),
        spec: spec_map(spec)?,
        started_from: job.started_from.clone(),
        evaluation_of: None,
        by_length: Default::default(),
        half_of: job.half_of.clone(),
        selected: job.selected.clone(),
        seal: None,
    })
}

/// The batch of the step that was not applied, for inspection.
fn diverged_batch(step: u64, batch: &Batch) -> serde_json::Value {
    let Batch {
        rows,
        seq_len,
        inputs,
        targets,
        counted,
    } = batch;
    serde_json::json!({
        "step": step,
        "rows": rows,
        "seq_len": seq_len,
        "inputs": inputs,
        "targets": targets,
        "counted": counted,
    })
}
