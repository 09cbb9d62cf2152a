//! One run in one process: train, save the weights, evaluate, record. What a sweep spawns and a cluster's array job would call.

use crate::config::experiment::Surroundings;
use crate::device::{self, DeviceName};
use crate::evaluate::{diverged_rows, evaluate};
use crate::exit::{Exit, Failure};
use crate::spec::{Job, RunSpec};
use crate::train::train;
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

/// Runs a job in its directory.
///
/// # Errors
///
/// [`Exit::Busy`] if another process has it, [`Exit::Device`], [`Exit::Input`] for a changed corpus, [`Exit::Resources`] if the
/// directory cannot be written. A diverged run is a result, not an error.
pub fn run(directory: &Path, name: &DeviceName) -> Result<(), Failure> {
    let job: Job = read_job(directory)?;
    let lock =
        fs_err::OpenOptions::new().create(true).truncate(false).write(true).open(directory.join("lock")).map_err(Failure::resources)?;
    if lock.file().try_lock().is_err() {
        return Err(Failure::new(Exit::Busy, format!("{} is being run by another process", directory.display())));
    }
    let device = device::open(name)?;
    let spec = &job.spec;
    let task = build_task(&job, &spec.eval.test_lens)?;
    let started = Instant::now();
    let mut said = Instant::now() - Duration::from_secs(1);
    let trained = train(spec, task.as_ref(), &device, |step, loss_nats| {
        if said.elapsed() >= Duration::from_millis(100) || step == spec.train.steps {
            said = Instant::now();
            say(&Event::Train { step, steps: spec.train.steps, loss_nats });
        }
    });
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
        .map_err(|error| Failure::new(Exit::Bug, format!("{error:#}")))?,
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
    Ok(())
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
