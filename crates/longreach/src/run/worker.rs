//! One run in one process: train, save the weights, evaluate, record. What a sweep spawns and a
//! cluster's array job would call.

use crate::device;
use crate::exit::{Exit, Failure};
use crate::plan::memory::{self, MemoryLimit, TaskSizes};
use crate::plan::spec::{Job, RunSpec};
use crate::run::carry::{carry, is_of_encoding};
use crate::run::evaluate::{diverged_rows, evaluate};
use crate::run::model::{drawn_weights, initial_model};
use crate::run::parameters;
use crate::run::protocol::{Event, How, report};
use crate::run::record::{environment, spec_map, task_facts};
use crate::run::step_scores::{self, Scorer, restored};
use crate::run::task::build_task;
use crate::run::train::{Member, Snapshot, Start, Trained, train_together};
use crate::run::watcher::{Watched, Watcher, origin};
use crate::run_dir::files::{
    DIVERGED_FILE, INITIAL_WEIGHTS_FILE, TIMINGS_FILE, WEIGHTS_FILE, check_record, read_own_job,
    recorded, take, tidy, write_record,
};
use crate::run_dir::timings::{EvalTiming, Timings, timings};
use crate::signals;
use results::record::{EvalRow, EvalStatus, ModelFacts, RunRecord, RunStatus, SCHEMA, TrainFacts};
use rundir::checkpoint;
use rundir::steplog::StepLog;
use rundir::{Disk, Weights};
use serde::Serialize;
use std::borrow::Cow;
use std::path::Path;
use std::time::{Duration, Instant};
use tasks::{Batch, Task};

/// How long a process may go on computing after a request to stop.
pub const LEAVE_WITHIN: Duration = Duration::from_secs(8);

/// A run that this process holds: its directory, its job, and what it runs with.
struct Run<'a> {
    disk: &'a dyn Disk,
    directory: &'a Path,
    job: &'a Job,
    task: &'a dyn Task,
    device: &'a burn::tensor::Device,
    how: &'a How,
    /// Receives progress.
    report: &'a dyn Fn(&Event),
}

fn resources(error: anyhow::Error) -> Failure {
    Failure::resources(format!("{error:#}"))
}

fn stopped(when: &str) -> Failure {
    let exit = signals::asked().unwrap_or(Exit::Interrupted);
    Failure::new(
        exit,
        format!("stopped {when}; the same command continues from there"),
    )
}

fn stopped_after(step: u64, spec: &RunSpec) -> Failure {
    stopped(&format!("after step {step} of {}", spec.train.steps))
}

/// Runs a job in its directory, or what is left of it, and prints events for the sweep. A recorded
/// run is left as it is, unless it skipped lengths that fit now: those are evaluated without
/// training again.
///
/// # Errors
///
/// [`Exit::Interrupted`], [`Exit::Terminated`] or [`Exit::TryAgain`] after saving, if a signal
/// asked to stop; [`Exit::Busy`] if another process holds the run, [`Exit::Device`],
/// [`Exit::Input`] for a changed corpus, [`Exit::Resources`] if the directory cannot be written or
/// the training does not fit into memory. A diverged run is a result, not an error.
pub fn run(directory: &Path, how: &How) -> Result<(), Failure> {
    run_reporting(directory, how, &report)
}

/// The same without events.
///
/// # Errors
///
/// As [`run`].
pub fn run_silently(directory: &Path, how: &How) -> Result<(), Failure> {
    run_reporting(directory, how, &|_| ())
}

fn run_reporting(directory: &Path, how: &How, report: &dyn Fn(&Event)) -> Result<(), Failure> {
    signals::listen()?;
    signals::leave_within(LEAVE_WITHIN)?;
    let disk = rundir::system();
    let job = read_own_job(directory)?;
    let _lock = take(disk, directory)?;
    check_record(directory)?;
    let task = build_task(&job, &job.spec.eval.test_lens)?;
    let recorded = recorded(directory, &job);
    let sizes = TaskSizes::of(task.as_ref(), &job.spec.eval.test_lens);
    // Another sweep may have recorded it since this worker was started.
    let complete = |record: &RunRecord| !skipped_fits(record, &job.spec, &sizes, how.memory_limit);
    if recorded.as_ref().is_some_and(complete) {
        return Ok(());
    }
    let device = device::open(&how.device)?;
    let run = Run {
        disk,
        directory,
        job: &job,
        task: task.as_ref(),
        device: &device,
        how,
        report,
    };
    match recorded {
        Some(record) => run.evaluate_again(record),
        None => run.train_and_evaluate(),
    }
}

/// Whether a record skipped a length that fits into `limit`.
pub fn skipped_fits(
    record: &RunRecord,
    spec: &RunSpec,
    sizes: &TaskSizes,
    limit: MemoryLimit,
) -> bool {
    let fits = |variant: &str, test_len: usize| {
        let variant = spec
            .eval
            .variants
            .iter()
            .find(|known| known.name == variant)?;
        let index = spec
            .eval
            .test_lens
            .iter()
            .position(|known| *known == test_len)?;
        let parameters = record.model.parameters;
        let needed = memory::evaluation(spec, &spec.eval, variant, index, parameters, sizes);
        Some(limit.excess(needed).is_none())
    };
    record.evals.iter().any(|row| {
        row.status == EvalStatus::Skipped && fits(&row.variant, row.test_len) == Some(true)
    })
}

impl Run<'_> {
    fn train_and_evaluate(&self) -> Result<(), Failure> {
        let spec = &self.job.spec;
        // Counted, not drawn: what does not fit is refused before it is there.
        let facts = spec.model.pe.facts(&spec.model.transformer.shape());
        let mut timings = self.timings(spec.model.transformer.num_params(&facts));
        let needed = timings.train_estimated_memory_bytes;
        if let Some(excess) = self.how.memory_limit.excess(needed) {
            let help = "a smaller batch_size, train_len or d_model needs less; --memory-limit \
                        sets the limit";
            return Err(Failure::resources(format!(
                "training {excess}\n  = help: {help}"
            )));
        }
        let initial = self.initial()?;
        if self.how.initial_weights {
            let path = self.directory.join(INITIAL_WEIGHTS_FILE);
            initial.save(self.disk, &path).map_err(resources)?;
        }
        let (mut trained, log_blake3) = self.train(&initial, &mut timings)?;
        let weights = parameters::of(&trained.model);
        weights
            .save(self.disk, &self.directory.join(WEIGHTS_FILE))
            .map_err(resources)?;
        let evals = match &trained.diverged {
            Some((diverged, batch)) => {
                (self.report)(&Event::Diverged {
                    step: diverged.step,
                    what: diverged.what.clone(),
                });
                self.write(DIVERGED_FILE, &diverged_batch(diverged.step, batch))?;
                let reason = format!("training diverged at step {}", diverged.step);
                diverged_rows(&spec.eval, &reason)
            }
            None => self.evaluate(&weights, &mut timings)?,
        };
        if trained.diverged.is_none() {
            step_scores::end(spec, &mut trained.scores, &evals);
        }
        let mut record = self.record(trained, &weights, evals)?;
        record.set_seal(log_blake3);
        self.write(TIMINGS_FILE, &timings)?;
        write_record(self.disk, self.directory, &record)?;
        // Checkpoints go last: without a record the next worker resumes from them.
        tidy(self.disk, self.directory, &record);
        Ok(())
    }

    fn record(
        &self,
        trained: Trained,
        weights: &Weights,
        evals: Vec<EvalRow>,
    ) -> Result<RunRecord, Failure> {
        let (job, spec) = (self.job, &self.job.spec);
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
            task: task_facts(spec, self.task),
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
                scores: trained.scores,
            },
            evals,
            environment: environment(&self.how.device),
            spec: spec_map(spec)?,
            started_from: job.started_from.clone(),
            evaluation_of: None,
            seal: None,
        })
    }

    /// Repeats the evaluations of a recorded run, with the lengths that did not fit into memory
    /// then.
    fn evaluate_again(&self, mut record: RunRecord) -> Result<(), Failure> {
        let (model, path) = (&record.model, self.directory.join(WEIGHTS_FILE));
        let weights = Weights::load(&path, model.parameters, &model.weights_blake3)
            .map_err(|error| Failure::input(format!("{error:#}")))?;
        let mut timings = timings(self.directory).unwrap_or_else(|| self.timings(model.parameters));
        timings.evals.clear();
        let evals = self.evaluate(&weights, &mut timings)?;
        record.change(|record| {
            record.evals = evals;
            step_scores::end(&self.job.spec, &mut record.train.scores, &record.evals);
            record.environment = environment(&self.how.device);
        });
        self.write(TIMINGS_FILE, &timings)?;
        write_record(self.disk, self.directory, &record)
    }

    /// The weights before the first step: drawn from the seed, or shared with the run to start
    /// from.
    fn initial(&self) -> Result<Weights, Failure> {
        let spec = &self.job.spec;
        let mut weights = parameters::of(&initial_model(spec, self.device)?);
        let Some(start) = &spec.train.start_from else {
            return Ok(weights);
        };
        let run = self
            .job
            .start_dir
            .as_deref()
            .ok_or_else(|| Failure::input("the job names no run to start from"))?;
        let theirs = Weights::load(
            &run.join(WEIGHTS_FILE),
            start.parameters,
            &start.weights_blake3,
        );
        let theirs = theirs
            .map_err(|error| Failure::input(format!("the weights to start from: {error:#}")))?;
        let drawn = carry(&mut weights, theirs, start.pe);
        // Another kind of encoding keeps the parameters that were drawn for it.
        let missing = |path: &&String| start.pe || !is_of_encoding(path);
        match drawn.iter().find(missing) {
            None => Ok(weights),
            Some(path) => Err(Failure::input(format!(
                "the weights to start from, {}, have no {path} of this shape",
                run.display()
            ))),
        }
    }

    fn sizes(&self) -> TaskSizes {
        TaskSizes::of(self.task, &self.job.spec.eval.test_lens)
    }

    fn timings(&self, parameters: u64) -> Timings {
        let sizes = self.sizes();
        Timings {
            train_estimated_memory_bytes: memory::training(&self.job.spec, parameters, &sizes),
            device: self.how.device.to_string(),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            ..Timings::default()
        }
    }

    fn evaluate(&self, weights: &Weights, timings: &mut Timings) -> Result<Vec<EvalRow>, Failure> {
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
                        peak_memory_bytes: memory::peak(),
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

    /// Trains, from the newest checkpoint if there is one, and writes checkpoints and the step log
    /// on the way. Returns the hash of the log too.
    fn train(
        &self,
        initial: &Weights,
        timings: &mut Timings,
    ) -> Result<(Trained, String), Failure> {
        let spec = &self.job.spec;
        // The program and the corpus are there once.
        let beside = memory::resident(&self.sizes());
        let needed = timings.train_estimated_memory_bytes.saturating_sub(beside);
        let limit = self.how.memory_limit;
        let mut scorer = Scorer::new(spec, self.task, self.device, limit, needed);
        let (start, log) = self.start(initial, &mut scorer, &mut timings.notes)?;
        let watched = Watched {
            disk: self.disk,
            directory: self.directory,
            job: self.job,
            task: self.task,
            how: self.how,
            report: self.report,
        };
        let first = start.as_ref().map_or(0, |start| start.step);
        let mut watcher = Watcher::new(watched, log, scorer, first);
        memory::forget_peak();
        let started = Instant::now();
        // A signal may have come between the step and its scores.
        if let Some(start) = start.as_ref().filter(|_| watcher.scorer.is_due(first))
            && !watcher.score(first, &start.weights)?
        {
            return Err(stopped_after(first, spec));
        }
        let member = Member {
            spec,
            task: self.task,
            start,
            watch: Box::new(|step, snapshot: &Snapshot<'_>| watcher.step(step, snapshot)),
        };
        let mut trained = train_together(vec![member], self.device)?;
        let trained = trained
            .pop()
            .ok_or_else(|| Failure::bug("a training without a result"))?;
        // A training that diverged ends between two checkpoints.
        let log_blake3 = watcher.sync()?;
        if trained.stopped {
            return Err(stopped_after(trained.steps, spec));
        }
        let scorer = watcher.scorer;
        timings.score_secs = scorer.spent.as_secs_f64();
        timings.train_secs = started.elapsed().as_secs_f64() - timings.score_secs;
        timings.train_tokens_per_sec = trained.tokens as f64 / timings.train_secs;
        timings.train_peak_memory_bytes = scorer.peak.max(memory::peak());
        let scores = scorer.into_taken();
        Ok((Trained { scores, ..trained }, log_blake3))
    }

    /// Where training starts: the newest usable checkpoint with its step log and scores, or
    /// `initial` if the job starts from another run, or else weights drawn from the seed.
    fn start(
        &self,
        initial: &Weights,
        scorer: &mut Scorer<'_>,
        notes: &mut Vec<String>,
    ) -> Result<(Option<Start>, StepLog<'_>), Failure> {
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
            let given = self.job.spec.train.start_from.as_ref().map(|_| Start {
                weights: initial.clone(),
                ..Start::default()
            });
            let log = StepLog::create(disk, directory).map_err(resources)?;
            return Ok((given, log));
        };
        scorer.resume(scores);
        let start = Start {
            step: state.step,
            tokens: state.tokens,
            losses: steps.into_iter().map(|step| step.loss_nats).collect(),
            weights: state.weights,
            moments: state.moments,
        };
        Ok((Some(start), log))
    }

    fn write(&self, name: &str, value: &impl Serialize) -> Result<(), Failure> {
        let json = serde_json::to_vec_pretty(value).map_err(Failure::bug)?;
        self.disk
            .write_whole(&self.directory.join(name), &json)
            .map_err(Failure::resources)
    }
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
