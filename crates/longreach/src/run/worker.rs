//! One run in one process: train, save the weights, evaluate, record. What a sweep spawns and a
//! cluster's array job would call.

use crate::device::{self, DeviceName};
use crate::exit::{Exit, Failure};
use crate::plan::memory::{self, MemoryLimit};
use crate::plan::planner::Surroundings;
use crate::plan::spec::{Job, RunSpec};
use crate::run::attention_distance::DEFINITION;
use crate::run::evaluate::{LAST_LOSS_NATS, diverged_rows, evaluate};
use crate::run::parameters;
use crate::run::train::{Start, Trained, initial_model, train};
use crate::signals;
use results::metric::ATTENTION_DISTANCE;
use results::record::{
    CorpusFacts, Environment, EvalStatus, ModelFacts, RunRecord, RunStatus, SCHEMA, TaskFacts,
    TrainFacts,
};
use rundir::checkpoint::{self, Origin};
use rundir::steplog::StepLog;
use rundir::{Disk, Weights, lock};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};
use tasks::{Batch, Scoring, Task};

/// The job a run directory belongs to.
pub const JOB_FILE: &str = "job.json";
/// The final weights.
pub const WEIGHTS_FILE: &str = "weights.safetensors";
/// How long everything took; the only file that differs between reruns.
pub const TIMINGS_FILE: &str = "timings.json";
/// The record.
pub const RECORD_FILE: &str = results::store::RECORD_FILE;
/// The batch at which a training stopped being finite.
pub const DIVERGED_FILE: &str = "diverged.json";
/// What a failed worker said.
pub const ERROR_FILE: &str = "error.txt";

/// How long after a signal a process may compute on.
pub const LEAVE_WITHIN: Duration = Duration::from_secs(8);
/// No job is larger.
const MAX_JOB_BYTES: u64 = 1 << 24;
/// No timings are larger.
const MAX_TIMINGS_BYTES: u64 = 1 << 20;

/// A line of a worker's output, read by the sweep that started it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// Steps trained so far.
    Train {
        /// Steps done.
        step: u64,
        /// Steps in all.
        steps: u64,
        /// Loss of the last step, nats per counted token.
        loss_nats: f64,
    },
    /// Goes on from a checkpoint, or could not.
    Resumed {
        /// Steps that need not be trained again.
        step: u64,
        /// What is worth saying.
        notes: Vec<String>,
    },
    /// Another process has the run; said by the sweep itself.
    Elsewhere {
        /// Which.
        who: String,
    },
    /// One evaluation done.
    Eval {
        /// Evaluations done.
        done: usize,
        /// Evaluations in all.
        total: usize,
    },
    /// Training stopped early.
    Diverged {
        /// The step that was not applied.
        step: u64,
        /// What was not finite.
        what: String,
    },
}

/// Wall-clock figures of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timings {
    /// Seconds of training.
    pub train_secs: f64,
    /// Tokens trained on per second.
    pub train_tokens_per_sec: f64,
    /// Seconds of evaluation.
    pub eval_secs: f64,
    /// Each evaluation.
    pub evals: Vec<EvalTiming>,
    /// Largest resident memory in training, where the system tells.
    pub train_peak_memory_bytes: Option<u64>,
    /// What was estimated for it.
    pub train_estimated_memory_bytes: u64,
    /// What changed on the way: a resume under another program, checkpoints that were skipped.
    pub notes: Vec<String>,
    /// The device, with its number.
    pub device: String,
    /// Threads of the CPU backend.
    pub threads: usize,
    /// The seal of the record: the BLAKE3 of the bytes of `record.json`. Two while a record is
    /// replaced; none in older runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub record_blake3: Vec<String>,
}

/// Wall-clock figures of one evaluation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EvalTiming {
    /// The variant.
    pub variant: String,
    /// The length, in the task's unit.
    pub test_len: usize,
    /// Seconds.
    pub secs: f64,
    /// Largest resident memory meanwhile, where the system tells.
    pub peak_memory_bytes: Option<u64>,
    /// What was estimated for it.
    pub estimated_memory_bytes: u64,
}

/// How to run: nothing here changes a run's numbers, but for the lengths that do not fit.
#[derive(Clone, Debug, PartialEq)]
pub struct How {
    /// The device.
    pub device: DeviceName,
    /// When checkpoints are written.
    pub checkpoint_every: CheckpointEvery,
    /// What lengths are left out.
    pub memory_limit: MemoryLimit,
}

/// When checkpoints are written. Never a part of a run's numbers.
#[derive(Clone, Debug, PartialEq)]
pub enum CheckpointEvery {
    /// After so many steps.
    Steps(u64),
    /// After so much time, between two steps.
    Time(Duration),
}

impl Default for CheckpointEvery {
    fn default() -> Self {
        Self::Time(Duration::from_secs(30))
    }
}

impl std::fmt::Display for CheckpointEvery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Steps(steps) => write!(f, "{steps}"),
            Self::Time(time) => write!(f, "{}s", time.as_secs()),
        }
    }
}

impl std::str::FromStr for CheckpointEvery {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (digits, seconds) = text
            .strip_suffix('s')
            .map_or((text, false), |digits| (digits, true));
        match digits.parse::<u64>() {
            Ok(n) if n > 0 && seconds => Ok(Self::Time(Duration::from_secs(n))),
            Ok(n) if n > 0 => Ok(Self::Steps(n)),
            _ => Err(format!(
                "`{text}` is neither a number of steps (500) nor of seconds (30s), of at least 1"
            )),
        }
    }
}

/// A run that this process has: its directory, what is to be done, and the means.
struct Run<'a> {
    disk: &'a dyn Disk,
    directory: &'a Path,
    job: &'a Job,
    task: &'a dyn Task,
    device: &'a burn::tensor::Device,
    how: &'a How,
    say: &'a dyn Fn(&Event),
}

fn resources(error: anyhow::Error) -> Failure {
    Failure::resources(format!("{error:#}"))
}

fn bug(error: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Bug, error.to_string())
}

fn stopped(what: &str) -> Failure {
    let exit = signals::asked().unwrap_or(Exit::Interrupted);
    Failure::new(
        exit,
        format!("stopped {what}; the same command goes on from there"),
    )
}

/// Runs a job in its directory, or what is left to do of it. A run that is recorded already is left
/// as it is, unless lengths were left out that fit now: those are evaluated without training again.
///
/// # Errors
///
/// [`Exit::Interrupted`], [`Exit::Terminated`] or [`Exit::TryAgain`] after saving, if a signal
/// asked for it; [`Exit::Busy`] if another process has it, [`Exit::Device`], [`Exit::Input`] for a
/// changed corpus, [`Exit::Resources`] if the directory cannot be written or the training does
/// not fit. A diverged run is a result, not an error.
pub fn run(directory: &Path, how: &How) -> Result<(), Failure> {
    run_telling(directory, how, &say)
}

/// The same without a word to a sweep.
///
/// # Errors
///
/// As [`run`].
pub fn run_silently(directory: &Path, how: &How) -> Result<(), Failure> {
    run_telling(directory, how, &|_| ())
}

fn run_telling(directory: &Path, how: &How, say: &dyn Fn(&Event)) -> Result<(), Failure> {
    signals::listen();
    signals::leave_within(LEAVE_WITHIN);
    let disk = rundir::system();
    let job: Job = read_job(directory)?;
    if job.spec.run_id().ok().as_deref() != Some(&job.run_id) {
        let help = "`longreach run` with its config writes it anew";
        return Err(Failure::input(format!(
            "{} was changed: its spec is not that of run {}\n  = help: {help}",
            directory.join(JOB_FILE).display(),
            job.run_id
        )));
    }
    let _lock = take(disk, directory)?;
    let task = build_task(&job, &job.spec.eval.test_lens)?;
    let recorded = recorded(directory, &job);
    let seq_lens: Vec<usize> = job
        .spec
        .eval
        .test_lens
        .iter()
        .map(|length| task.seq_len(*length))
        .collect();
    // Another sweep may have been faster.
    if recorded
        .as_ref()
        .is_some_and(|record| !grows(record, &job.spec, &seq_lens, how.memory_limit))
    {
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
        say,
    };
    match recorded {
        Some(record) => run.evaluate_again(record),
        None => run.train_and_evaluate(),
    }
}

/// The record of a job, if it is there, whole, and of this job.
pub fn recorded(directory: &Path, job: &Job) -> Option<RunRecord> {
    let record = results::read_record(&directory.join(RECORD_FILE)).ok()?;
    (record.run_id == job.run_id).then_some(record)
}

/// Whether a record lacks lengths that fit into this much memory; `seq_lens` are its test lengths
/// in tokens.
pub fn grows(record: &RunRecord, spec: &RunSpec, seq_lens: &[usize], limit: MemoryLimit) -> bool {
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
        let (encoding, seq_len) = (variant.pe.get(index)?, *seq_lens.get(index)?);
        let needed = memory::evaluation(
            spec,
            encoding,
            record.model.parameters,
            spec.eval.batch_tokens,
            seq_len,
        );
        Some(limit.excess(needed).is_none())
    };
    record.evals.iter().any(|row| {
        row.status == EvalStatus::Skipped && fits(&row.variant, row.test_len) == Some(true)
    })
}

impl Run<'_> {
    fn train_and_evaluate(&self) -> Result<(), Failure> {
        let Self {
            disk,
            directory,
            job,
            task,
            how,
            ..
        } = *self;
        let spec = &job.spec;
        let initial = self.initial()?;
        let mut timings = self.timings(initial.count(""));
        if let Some(excess) = how
            .memory_limit
            .excess(timings.train_estimated_memory_bytes)
        {
            let help = "a smaller batch_size, train_len or d_model needs less; --memory-limit \
                        sets the limit";
            return Err(Failure::resources(format!(
                "training {excess}\n  = help: {help}"
            )));
        }
        memory::forget_peak();
        let started = Instant::now();
        let trained = self.train(&initial, &mut timings.notes)?;
        if trained.stopped {
            return Err(stopped(&format!(
                "after step {} of {}",
                trained.steps, spec.train.steps
            )));
        }
        timings.train_secs = started.elapsed().as_secs_f64();
        timings.train_tokens_per_sec = trained.tokens as f64 / timings.train_secs;
        timings.train_peak_memory_bytes = memory::peak();
        let weights = parameters::of(&trained.model);
        weights
            .save(disk, &directory.join(WEIGHTS_FILE))
            .map_err(resources)?;
        let evals = match &trained.diverged {
            Some((diverged, batch)) => {
                (self.say)(&Event::Diverged {
                    step: diverged.step,
                    what: diverged.what.clone(),
                });
                self.write(DIVERGED_FILE, &diverged_batch(diverged.step, batch))?;
                diverged_rows(
                    &spec.eval,
                    &format!("training diverged at step {}", diverged.step),
                )
            }
            None => self.evaluate(&weights, &mut timings)?,
        };
        let diverged = trained.diverged.map(|(diverged, _)| diverged);
        let record = RunRecord {
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
            task: task_facts(spec, task),
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
            },
            evals,
            environment: environment(&how.device),
            spec: spec_map(spec)?,
            started_from: job.started_from.clone(),
            evaluation_of: None,
        };
        // The seal is written first: a record without a seal looks like one of an older version.
        let text = record_text(directory, &record)?;
        timings.record_blake3 = vec![seal(text.as_bytes())];
        self.write(TIMINGS_FILE, &timings)?;
        disk.write_whole(&directory.join(RECORD_FILE), text.as_bytes())
            .map_err(Failure::resources)?;
        tidy(disk, directory, &record);
        Ok(())
    }

    /// The evaluations of a recorded run anew, with lengths that were left out for want of memory.
    fn evaluate_again(&self, mut record: RunRecord) -> Result<(), Failure> {
        let (model, path) = (&record.model, self.directory.join(WEIGHTS_FILE));
        let weights = Weights::load(&path, model.parameters, &model.weights_blake3)
            .map_err(|error| Failure::input(format!("{error:#}")))?;
        let mut timings = timings(self.directory).unwrap_or_else(|| self.timings(model.parameters));
        timings.evals.clear();
        record.evals = self.evaluate(&weights, &mut timings)?;
        record.environment = environment(&self.how.device);
        replace_record(self.disk, self.directory, &record, Some(timings))
    }

    /// The weights before the first step: drawn, or those of another run as far as they are shared.
    fn initial(&self) -> Result<Weights, Failure> {
        let spec = &self.job.spec;
        let mut weights = parameters::of(&initial_model(spec, self.device));
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
        let mut theirs = theirs
            .map_err(|error| Failure::input(format!("the weights to start from: {error:#}")))?
            .0;
        for (path, tensor) in &mut weights.0 {
            if path.starts_with("encoding.") && !start.pe {
                continue;
            }
            match theirs
                .remove(path)
                .filter(|theirs| theirs.shape == tensor.shape)
            {
                Some(theirs) => *tensor = theirs,
                None => {
                    return Err(Failure::input(format!(
                        "the weights to start from, {}, have no such {path}",
                        run.display()
                    )));
                }
            }
        }
        Ok(weights)
    }

    fn timings(&self, parameters: u64) -> Timings {
        Timings {
            train_estimated_memory_bytes: memory::training(&self.job.spec, parameters),
            device: self.how.device.to_string(),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            ..Timings::default()
        }
    }

    fn evaluate(
        &self,
        weights: &Weights,
        timings: &mut Timings,
    ) -> Result<Vec<results::record::EvalRow>, Failure> {
        let Self {
            job,
            task,
            device,
            how,
            ..
        } = *self;
        let spec = &job.spec;
        let started = Instant::now();
        let (mut done, total) = (0, spec.eval.variants.len() * spec.eval.test_lens.len());
        let rows = evaluate(
            spec,
            &spec.eval,
            task,
            weights,
            device,
            how.memory_limit,
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
                (self.say)(&Event::Eval { done, total });
            },
        );
        timings.eval_secs = started.elapsed().as_secs_f64();
        rows.map_err(|error| bug(format!("{error:#}")))?
            .ok_or_else(|| stopped("during evaluation"))
    }

    /// Trains, from the newest checkpoint if there is one, and writes checkpoints and the step log
    /// on the way.
    fn train(&self, initial: &Weights, notes: &mut Vec<String>) -> Result<Trained, Failure> {
        let Self {
            disk,
            directory,
            job,
            task,
            device,
            how,
            ..
        } = *self;
        let (spec, origin) = (&job.spec, origin(&how.device));
        let found = checkpoint::latest(disk, directory, &job.run_id, &origin, initial, |state| {
            StepLog::resume(disk, directory, state)
        });
        notes.extend(found.notes);
        if found.state.is_some() || !notes.is_empty() {
            (self.say)(&Event::Resumed {
                step: found.state.as_ref().map_or(0, |(state, _)| state.step),
                notes: notes.clone(),
            });
        }
        let (start, mut log) = match found.state {
            Some((
                checkpoint::State {
                    step,
                    tokens,
                    weights,
                    moments,
                    ..
                },
                (log, steps),
            )) => {
                let losses = steps.into_iter().map(|step| step.loss_nats).collect();
                (
                    Some(Start {
                        step,
                        tokens,
                        losses,
                        weights,
                        moments,
                    }),
                    log,
                )
            }
            None => {
                let given = spec.train.start_from.as_ref().map(|_| Start {
                    weights: initial.clone(),
                    ..Start::default()
                });
                (given, StepLog::create(disk, directory).map_err(resources)?)
            }
        };
        let mut said = Instant::now() - Duration::from_secs(1);
        let (mut saved, mut saved_step) =
            (Instant::now(), start.as_ref().map_or(0, |start| start.step));
        let trained = train(spec, task, device, start, &mut |step, snapshot| {
            log.append(&step).map_err(resources)?;
            let last = step.step == spec.train.steps;
            if said.elapsed() >= Duration::from_millis(100) || last {
                said = Instant::now();
                (self.say)(&Event::Train {
                    step: step.step,
                    steps: spec.train.steps,
                    loss_nats: step.loss_nats,
                });
            }
            let stop = signals::asked().is_some();
            let due = match how.checkpoint_every {
                CheckpointEvery::Steps(steps) => step.step - saved_step >= steps,
                CheckpointEvery::Time(time) => saved.elapsed() >= time,
            };
            // The last step is saved too: a run that dies while it is evaluated need not be trained
            // again.
            if due || stop || last {
                let (weights, moments) = snapshot();
                let (log_bytes, log_blake3) = log.sync().map_err(resources)?;
                let state = checkpoint::State {
                    step: step.step,
                    tokens: step.tokens,
                    weights,
                    moments,
                    log_bytes,
                    log_blake3,
                };
                checkpoint::save(disk, directory, &job.run_id, &origin, &state)
                    .map_err(resources)?;
                (saved, saved_step) = (Instant::now(), step.step);
            }
            Ok(!stop)
        })?;
        // A training that diverged ends between two checkpoints.
        log.sync().map_err(resources)?;
        Ok(trained)
    }

    fn write(&self, name: &str, value: &impl Serialize) -> Result<(), Failure> {
        let json = serde_json::to_vec_pretty(value).map_err(bug)?;
        self.disk
            .write_whole(&self.directory.join(name), &json)
            .map_err(Failure::resources)
    }
}

/// What goes on to the same bits.
fn origin(device: &DeviceName) -> Origin {
    Origin {
        commit: env!("LONGREACH_COMMIT").to_owned(),
        machine: device::fingerprint(device),
    }
}

/// What is needed to look at the step that was not applied.
fn diverged_batch(step: u64, batch: &Batch) -> serde_json::Value {
    let Batch {
        rows,
        seq_len,
        inputs,
        targets,
        counted,
    } = batch;
    serde_json::json!({ "step": step, "rows": rows, "seq_len": seq_len, "inputs": inputs, "targets": targets, "counted": counted })
}

/// Replaces a record, whole or not at all, and its seal; `timings` replace those that are there. A
/// record that does not fit its seal gets no new one, so that [`seal_holds`] still says that it was
/// changed.
///
/// # Errors
///
/// [`Exit::Resources`] if the directory cannot be written.
pub fn replace_record(
    disk: &dyn Disk,
    directory: &Path,
    record: &RunRecord,
    timings: Option<Timings>,
) -> Result<(), Failure> {
    let write = |timings: &Timings| {
        let json = serde_json::to_vec_pretty(timings).map_err(bug)?;
        disk.write_whole(&directory.join(TIMINGS_FILE), &json)
            .map_err(Failure::resources)
    };
    let text = record_text(directory, record)?;
    let sealed = seal_holds(directory) == Some(true);
    let mut timings = if sealed {
        timings.or_else(|| self::timings(directory))
    } else {
        timings
    };
    if let Some(timings) = &mut timings {
        if sealed {
            // Both fit, so that no crash between the two files makes a whole record look changed.
            timings.record_blake3.push(seal(text.as_bytes()));
        }
        write(timings)?;
    }
    disk.write_whole(&directory.join(RECORD_FILE), text.as_bytes())
        .map_err(Failure::resources)?;
    if let Some(timings) = timings.as_mut().filter(|_| sealed) {
        timings.record_blake3 = vec![seal(text.as_bytes())];
        write(timings)?;
    }
    Ok(())
}

/// Whether the record in a run's directory is the one that was written there. `None` if there is no
/// record or no seal.
pub fn seal_holds(directory: &Path) -> Option<bool> {
    let seals = timings(directory)?.record_blake3;
    let record = rundir::read::bounded(
        &directory.join(RECORD_FILE),
        results::store::MAX_RECORD_BYTES,
    )
    .ok()?;
    (!seals.is_empty()).then(|| seals.contains(&seal(&record)))
}

fn seal(record: &[u8]) -> String {
    blake3::hash(record).to_hex().to_string()
}

fn record_text(directory: &Path, record: &RunRecord) -> Result<String, Failure> {
    results::store::record_text(&directory.join(RECORD_FILE), record).map_err(bug)
}

fn timings(directory: &Path) -> Option<Timings> {
    let bytes = rundir::read::bounded(&directory.join(TIMINGS_FILE), MAX_TIMINGS_BYTES).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// Removes what a recorded run does not need.
pub fn tidy(disk: &dyn Disk, directory: &Path, record: &RunRecord) {
    // The last good state of a run that diverged is worth looking at.
    if record.status == RunStatus::Ok {
        checkpoint::clear(disk, directory);
    }
    let _ = disk.remove_tree(&directory.join(ERROR_FILE));
}

/// Takes a run for this process, until the file is dropped or the process ends, however it ends;
/// removes what dead processes left half written.
///
/// # Errors
///
/// [`Exit::Busy`] if another process has it, [`Exit::Resources`] if it cannot be written,
/// [`Exit::Input`] if it is a link.
pub fn take(disk: &dyn Disk, directory: &Path) -> Result<File, Failure> {
    if directory.is_symlink() {
        let help = "a run lies in its own directory; name the place it leads to as --runs, or \
                    remove the link";
        return Err(Failure::input(format!(
            "{} is a link\n  = help: {help}",
            directory.display()
        )));
    }
    let file = lock::take(directory).map_err(|taken| match taken {
        lock::Taken::By(who) => Failure::new(
            Exit::Busy,
            format!("{} is being run by {who}", directory.display()),
        ),
        lock::Taken::Refused(error) => Failure::resources(format!(
            "cannot lock {}: {error}",
            directory.join(lock::LOCK_FILE).display()
        )),
    })?;
    disk.remove_scratch(directory);
    Ok(file)
}

/// Reads the job of a run directory.
///
/// # Errors
///
/// [`Exit::Input`] if there is none or it does not describe a run.
pub fn read_job(directory: &Path) -> Result<Job, Failure> {
    let path = directory.join(JOB_FILE);
    let bytes = rundir::read::bounded(&path, MAX_JOB_BYTES).map_err(|error| {
        Failure::input(format!(
            "{error:#}\n  = help: name the directory of a run, such as runs/EXPERIMENT/RUN_ID"
        ))
    })?;
    let job: Job = serde_json::from_slice(&bytes).map_err(|error| {
        Failure::input(format!(
            "{} does not describe a run of this version: {error}",
            path.display()
        ))
    })?;
    Ok(job)
}

/// Builds the task of a job for these test lengths and checks that it reads the text the job was
/// planned with.
///
/// # Errors
///
/// [`Exit::Input`] if a corpus is missing or another one, [`Exit::Config`] if a length cannot be
/// made.
pub fn build_task(job: &Job, test_lens: &[usize]) -> Result<Box<dyn Task>, Failure> {
    let spec = &job.spec;
    let built = Surroundings::of(&job.config_dir).build(
        &spec.task,
        spec.train.train_len,
        test_lens,
        spec.eval.seed,
    );
    let task = built.map_err(|error| {
        let exit = if matches!(error, tasks::TaskError::Input { .. }) {
            Exit::Input
        } else {
            Exit::Config
        };
        Failure::new(exit, error.to_string())
    })?;
    let found = task.corpus().map(|corpus| corpus.blake3.clone());
    if found != spec.corpus_blake3 {
        let [found, planned] = [found, spec.corpus_blake3.clone()]
            .map(|hash| hash.unwrap_or_else(|| "none".to_owned()));
        return Err(Failure::input(format!(
            "the corpus changed since the run was planned: hash {found} instead of {planned}"
        )));
    }
    Ok(task)
}

/// The resolved spec as a record holds it.
///
/// # Errors
///
/// Never for a spec that passed validation.
pub fn spec_map(spec: &RunSpec) -> Result<serde_json::Map<String, serde_json::Value>, Failure> {
    match serde_json::to_value(spec) {
        Ok(serde_json::Value::Object(map)) => Ok(map),
        other => Err(Failure::new(
            Exit::Bug,
            format!("a spec is not a JSON object: {other:?}"),
        )),
    }
}

/// The task's definitions of its metrics, and those of what the evaluation adds to them.
fn definitions(spec: &RunSpec, task: &dyn Task) -> BTreeMap<String, String> {
    let mut definitions = task.definitions();
    for score in ["exact_match", "token_accuracy"] {
        if let Some(text) = definitions
            .get_mut(score)
            .filter(|_| task.scoring() == Scoring::Answer)
        {
            *text = text.replace("teacher-forced", spec.eval.decode.in_words());
        }
    }
    if let Some(exact) = definitions.get("exact_match").cloned() {
        let group = |(name, what): (String, String)| {
            (
                format!("exact_match_{name}"),
                format!("over the {what}: {exact}"),
            )
        };
        definitions.extend(task.groups().into_iter().map(group));
    }
    if let Some((last, loss)) = spec
        .eval
        .last_tokens
        .zip(definitions.get("loss_nats").cloned())
    {
        definitions.insert(
            LAST_LOSS_NATS.to_owned(),
            format!(
                "over the last {last} predictions of every window, of those that are scored: \
                 {loss}"
            ),
        );
    }
    if spec.eval.attention_distance {
        definitions.insert(ATTENTION_DISTANCE.to_owned(), DEFINITION.to_owned());
    }
    definitions
}

/// The task as a record holds it, the definitions of its metrics being those of this evaluation.
pub fn task_facts(spec: &RunSpec, task: &dyn Task) -> TaskFacts {
    let corpus = task.corpus().map(|corpus| CorpusFacts {
        source: corpus.source.clone(),
        files: corpus.files,
        train_bytes: corpus.train_bytes,
        valid_bytes: corpus.valid_bytes,
        blake3: corpus.blake3.clone(),
    });
    TaskFacts {
        kind: task.kind().to_owned(),
        train_len: spec.train.train_len,
        unit: task.unit().to_owned(),
        primary_metric: task.primary_metric().to_owned(),
        definitions: definitions(spec, task),
        chance: task.chance(),
        bytes_per_token: task.bytes_per_token(),
        corpus,
    }
}

/// What produced a record.
pub fn environment(name: &DeviceName) -> Environment {
    Environment {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: env!("LONGREACH_COMMIT").to_owned(),
        device: name.kind.to_owned(),
        burn: "0.22.1".to_owned(),
    }
}

/// Tells the sweep. A sweep that is gone must not stop the run.
fn say(event: &Event) {
    if let Ok(line) = serde_json::to_string(event) {
        let mut stdout = std::io::stdout().lock();
        let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
    }
}
