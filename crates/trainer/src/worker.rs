//! One run in one process: train, save the weights, evaluate, record. What a sweep spawns and a cluster's array job would call.

use crate::checkpoint;
use crate::config::experiment::Surroundings;
use crate::device::{self, DeviceName};
use crate::evaluate::{diverged_rows, evaluate};
use crate::exit::{Exit, Failure};
use crate::signals;
use crate::spec::{Job, RunSpec};
use crate::steplog::StepLog;
use crate::train::{Start, Trained, initial_model, train};
use crate::weights::Weights;
use results::record::{CorpusFacts, Environment, ModelFacts, RunRecord, RunStatus, SCHEMA, TaskFacts, TrainFacts};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};
use tasks::Task;

/// The job a run directory belongs to.
pub const JOB_FILE: &str = "job.json";
/// The final weights.
pub const WEIGHTS_FILE: &str = "weights.safetensors";
/// How long everything took; the only file that differs between reruns.
pub const TIMINGS_FILE: &str = "timings.json";
/// Held, by the operating system's means, by the process that trains; says who that is.
pub const LOCK_FILE: &str = "lock";
/// What a failed worker said.
pub const ERROR_FILE: &str = "error.txt";

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
    /// Variant, test length and seconds of each evaluation.
    pub evals: Vec<(String, usize, f64)>,
    /// Largest resident memory of the process so far, where the system tells.
    pub peak_memory_bytes: Option<u64>,
    /// The device, with its number.
    pub device: String,
    /// Threads of the CPU backend.
    pub threads: usize,
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
        let (digits, seconds) = text.strip_suffix('s').map_or((text, false), |digits| (digits, true));
        match digits.parse::<u64>() {
            Ok(n) if n > 0 && seconds => Ok(Self::Time(Duration::from_secs(n))),
            Ok(n) if n > 0 => Ok(Self::Steps(n)),
            _ => Err(format!("`{text}` is neither a number of steps (500) nor of seconds (30s), of at least 1")),
        }
    }
}

/// Trains, from the newest checkpoint if there is one, and writes checkpoints and the step log on the way.
fn train_with_checkpoints(
    directory: &Path,
    job: &Job,
    task: &dyn Task,
    device: &burn::tensor::Device,
    every: &CheckpointEvery,
) -> Result<Trained, Failure> {
    let spec = &job.spec;
    let resources = |error: anyhow::Error| Failure::resources(format!("{error:#}"));
    let found = checkpoint::latest(directory, &job.run_id, &Weights::of(&initial_model(spec, device)));
    let mut notes = found.notes;
    let resumed = found.state.and_then(|state| match StepLog::resume(directory, state.step, state.log_bytes, &state.log_blake3) {
        Ok((log, losses)) => Some((state, log, losses)),
        Err(error) => {
            notes.push(format!("passed over the checkpoint at step {}: {error:#}", state.step));
            None
        }
    });
    let (start, mut log) = match resumed {
        Some((state, log, losses)) => {
            let checkpoint::State { step, tokens, weights, moments, .. } = state;
            say(&Event::Resumed { step, notes });
            (Some(Start { step, tokens, losses, weights, moments }), log)
        }
        None => {
            if !notes.is_empty() {
                say(&Event::Resumed { step: 0, notes });
            }
            (None, StepLog::create(directory).map_err(resources)?)
        }
    };
    let mut said = Instant::now() - Duration::from_secs(1);
    let (mut saved, mut saved_step) = (Instant::now(), start.as_ref().map_or(0, |start| start.step));
    train(spec, task, device, start, &mut |step, snapshot| {
        log.append(&step).map_err(resources)?;
        let last = step.step == spec.train.steps;
        if said.elapsed() >= Duration::from_millis(100) || last {
            said = Instant::now();
            say(&Event::Train { step: step.step, steps: spec.train.steps, loss_nats: step.loss_nats });
        }
        let stop = signals::asked().is_some();
        let due = match every {
            CheckpointEvery::Steps(steps) => step.step - saved_step >= *steps,
            CheckpointEvery::Time(time) => saved.elapsed() >= *time,
        };
        // The last step is saved too: a run that dies while it is evaluated need not be trained again.
        if due || stop || last {
            let (weights, moments) = snapshot();
            let (log_bytes, log_blake3) = log.sync().map_err(resources)?;
            let state = checkpoint::State { step: step.step, tokens: step.tokens, weights, moments, log_bytes, log_blake3 };
            checkpoint::save(directory, &job.run_id, &state).map_err(resources)?;
            (saved, saved_step) = (Instant::now(), step.step);
        }
        Ok(!stop)
    })
}

/// Runs a job in its directory.
///
/// # Errors
///
/// [`Exit::Interrupted`], [`Exit::Terminated`] or [`Exit::TryAgain`] after saving, if a signal asked for it; [`Exit::Busy`] if another process has it, [`Exit::Device`], [`Exit::Input`] for a changed corpus, [`Exit::Resources`] if the
/// directory cannot be written. A diverged run is a result, not an error.
pub fn run(directory: &Path, name: &DeviceName, every: &CheckpointEvery) -> Result<(), Failure> {
    signals::listen();
    let job: Job = read_job(directory)?;
    let _lock = lock(directory)?;
    let device = device::open(name)?;
    let spec = &job.spec;
    let task = build_task(&job, &spec.eval.test_lens)?;
    let started = Instant::now();
    let trained = train_with_checkpoints(directory, &job, task.as_ref(), &device, every)?;
    let stopped = |what: String| {
        let exit = signals::asked().unwrap_or(Exit::Interrupted);
        Failure::new(exit, format!("stopped {what}; the same command goes on from there"))
    };
    if trained.stopped {
        return Err(stopped(format!("after step {} of {}", trained.steps, spec.train.steps)));
    }
    let train_secs = started.elapsed().as_secs_f64();
    let weights = Weights::of(&trained.model);
    weights.save(&directory.join(WEIGHTS_FILE)).map_err(|error| Failure::resources(format!("{error:#}")))?;

    let started = Instant::now();
    let mut seconds = Vec::new();
    let total = spec.eval.variants.len() * spec.eval.test_lens.len();
    let evals = match &trained.diverged {
        Some(diverged) => {
            say(&Event::Diverged { step: diverged.step, what: diverged.what.clone() });
            diverged_rows(&spec.eval, &format!("training diverged at step {}", diverged.step))
        }
        None => evaluate(spec, &spec.eval, task.as_ref(), &weights, &device, |row, secs| {
            seconds.push((row.variant.clone(), row.test_len, secs));
            say(&Event::Eval { done: seconds.len(), total });
        })
        .map_err(|error| Failure::new(Exit::Bug, format!("{error:#}")))?
        .ok_or_else(|| stopped("during evaluation".to_owned()))?,
    };
    let timings = Timings {
        train_secs,
        train_tokens_per_sec: trained.tokens as f64 / train_secs,
        eval_secs: started.elapsed().as_secs_f64(),
        evals: seconds,
        peak_memory_bytes: peak_memory_bytes(),
        device: name.to_string(),
        threads: std::thread::available_parallelism().map_or(1, usize::from),
    };
    let json = serde_json::to_vec_pretty(&timings).map_err(|error| Failure::new(Exit::Bug, error.to_string()))?;
    results::store::write_atomically(&directory.join(TIMINGS_FILE), &json).map_err(Failure::resources)?;

    let record = RunRecord {
        schema: SCHEMA,
        run_id: job.run_id.clone(),
        experiment: job.experiment.clone(),
        labels: job.labels.clone(),
        seed: spec.seed,
        status: if trained.diverged.is_some() { RunStatus::Diverged } else { RunStatus::Ok },
        diverged: trained.diverged,
        task: task_facts(spec, task.as_ref()),
        model: ModelFacts {
            parameters: weights.count(""),
            encoding_parameters: weights.count("encoding."),
            weights_blake3: weights.digest(),
        },
        train: TrainFacts {
            steps: trained.steps,
            tokens: trained.tokens,
            final_loss_nats: trained.final_loss_nats,
            loss_curve: trained.curve,
        },
        evals,
        environment: environment(name),
        spec: spec_map(spec)?,
    };
    results::write_record(directory, &record).map_err(Failure::resources)?;
    // The last good state of a run that diverged is worth looking at.
    if record.status == RunStatus::Ok {
        checkpoint::clear(directory);
    }
    Ok(())
}

/// Takes a run for this process, until the file is dropped or the process ends, however it ends.
fn lock(directory: &Path) -> Result<std::fs::File, Failure> {
    let path = directory.join(LOCK_FILE);
    let options = || fs_err::OpenOptions::new().create(true).truncate(false).write(true).read(true).open(&path);
    let mut file = options().map_err(Failure::resources)?.into_parts().0;
    // Who only looks holds it for an instant.
    let taken = (0..5).any(|attempt| {
        if attempt > 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        file.try_lock().is_ok()
    });
    if !taken {
        let who = holder(&path).unwrap_or_else(|| "another process".to_owned());
        return Err(Failure::new(Exit::Busy, format!("{} is being run by {who}", directory.display())));
    }
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = if host.trim().is_empty() { String::new() } else { format!(" on {}", host.trim()) };
    // The text is for people; what counts is the lock.
    let _ = file.set_len(0).and_then(|()| write!(file, "another process, {}{host}", std::process::id()));
    Ok(file)
}

/// Who holds a lock file, if anybody does.
pub fn holder(path: &Path) -> Option<String> {
    let file = std::fs::File::open(path).ok()?;
    if file.try_lock_shared().is_ok() {
        return None;
    }
    let said = std::fs::read_to_string(path).unwrap_or_default();
    Some(if said.is_empty() { "another process".to_owned() } else { said })
}

/// Reads the job of a run directory.
///
/// # Errors
///
/// [`Exit::Input`] if there is none or it does not describe a run.
pub fn read_job(directory: &Path) -> Result<Job, Failure> {
    let path = directory.join(JOB_FILE);
    let text = fs_err::read_to_string(&path)
        .map_err(|error| Failure::input(format!("{error}\n  = help: name the directory of a run, such as runs/EXPERIMENT/RUN_ID")))?;
    serde_json::from_str(&text)
        .map_err(|error| Failure::input(format!("{} does not describe a run of this version: {error}", path.display())))
}

/// Builds the task of a job for these test lengths and checks that it reads the text the job was planned with.
///
/// # Errors
///
/// [`Exit::Input`] if a corpus is missing or another one, [`Exit::Config`] if a length cannot be made.
pub fn build_task(job: &Job, test_lens: &[usize]) -> Result<Box<dyn Task>, Failure> {
    let spec = &job.spec;
    let built = Surroundings::of(&job.config_dir).build(&spec.task, spec.train.train_len, test_lens, spec.eval.seed);
    let task = built.map_err(|error| {
        let exit = if matches!(error, tasks::TaskError::Input { .. }) { Exit::Input } else { Exit::Config };
        Failure::new(exit, error.to_string())
    })?;
    let found = task.corpus().map(|corpus| corpus.blake3.clone());
    if found != spec.corpus_blake3 {
        let [found, planned] = [found, spec.corpus_blake3.clone()].map(|hash| hash.unwrap_or_else(|| "none".to_owned()));
        return Err(Failure::input(format!("the corpus changed since the run was planned: hash {found} instead of {planned}")));
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
        other => Err(Failure::new(Exit::Bug, format!("a spec is not a JSON object: {other:?}"))),
    }
}

fn task_facts(spec: &RunSpec, task: &dyn Task) -> TaskFacts {
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
        definitions: task.definitions(),
        chance: task.chance(),
        bytes_per_token: (task.unit() == "bytes").then_some(1.0),
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

/// Peak resident memory from Linux's process table.
pub fn peak_memory_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}
