//! The directory of a submitted sweep, and `submit.json`: what was submitted.

use experiment::device::DeviceName;
use experiment::plan::memory::MemoryLimit;
use experiment::run::protocol::CheckpointEvery;
use schema::is_default;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use support::exit::Failure;
use support::program::running_program;

/// What was submitted; the last file that `submit` writes.
pub const SUBMIT_FILE: &str = "submit.json";
/// A line for each run.
pub const MANIFEST_FILE: &str = "manifest.jsonl";
/// A line for each task.
pub const TASKS_FILE: &str = "tasks.jsonl";
/// The copy of the program.
pub const PROGRAM_FILE: &str = "longreach";
/// Its BLAKE3 hash.
pub const HASH_FILE: &str = "longreach.hash";
/// Events of the tasks.
pub const EVENTS_DIR: &str = "events";
/// Tasks of later submissions.
pub const AGAIN_DIR: &str = "again";
/// What the scheduler keeps of the output of tasks.
pub const LOGS_DIR: &str = "logs";
/// The runs of all experiments.
pub const RUNS_DIR: &str = "runs";

/// Version of these files.
pub const LAYOUT: u32 = 1;
/// Largest `submit.json` that is read, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// A scheduler that starts tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Scheduler {
    /// An array of jobs
    Slurm,
    /// HyperQueue: thousands of short tasks inside one allocation
    Hq,
    /// GNU parallel: one machine
    Parallel,
}

/// What was submitted, and how its tasks run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Submission {
    /// Version of the files of the directory.
    pub layout: u32,
    /// Version of the program.
    pub version: String,
    /// Commit of the program.
    pub commit: String,
    /// BLAKE3 hash of the program.
    pub program_blake3: String,
    /// The experiment's name.
    pub experiment: String,
    /// The config, as an absolute path.
    pub config: PathBuf,
    /// BLAKE3 hash of its bytes.
    pub config_blake3: String,
    /// Values that replaced those of the config.
    pub overrides: Vec<String>,
    /// The scheduler that the script is for.
    pub scheduler: Scheduler,
    /// Runs in the manifest.
    pub runs: usize,
    /// Tasks in `tasks.jsonl`.
    pub tasks: usize,
    /// When, in seconds since 1970.
    pub submitted: u64,
    /// Whether the runs are the sweep of `[select]`, which has no report.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_sweep: bool,
    /// How tasks run.
    pub how: TaskHow,
}

/// How every task runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskHow {
    /// The device.
    pub device: String,
    /// Steps or seconds between checkpoints.
    pub checkpoint_every: String,
    /// The memory limit of a run, if one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<String>,
    /// CPUs of a task.
    pub cpus_per_task: usize,
    /// MiB of memory of a task.
    pub task_mib: u64,
    /// GPUs of a task.
    pub gpus_per_task: usize,
    /// Runs at a time on each of them.
    pub runs_per_gpu: usize,
    /// Most runs of one shape that a worker trains together.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub runs_per_worker: usize,
    /// Tasks at a time, if that is limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_parallel: Option<usize>,
    /// Seconds that a task may run; 0 is no limit, which Slurm does not have.
    pub time_secs: u64,
    /// Seconds before the end of that time at which the scheduler asks a task to stop.
    pub lead_secs: u64,
    /// Milliseconds between two heartbeats of a lease.
    pub heartbeat_ms: u64,
    /// Options for the scheduler, as they were given.
    pub scheduler_options: Vec<String>,
}

// Left out where runs are trained alone, as before there was such a key.
fn one() -> usize {
    1
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_one(value: &usize) -> bool {
    *value == 1
}

impl TaskHow {
    /// Workers at a time in a task.
    pub fn workers_at_once(&self) -> usize {
        if self.gpus_per_task > 0 {
            self.gpus_per_task * self.runs_per_gpu
        } else {
            self.cpus_per_task
        }
    }

    fn parsed<T: FromStr<Err = String>>(key: &str, text: &str) -> Result<T, Failure> {
        text.parse()
            .map_err(|error| Failure::input(format!("{SUBMIT_FILE}: {key}: {error}")))
    }

    /// The device.
    ///
    /// # Errors
    ///
    /// [`Exit::Input`](support::exit::Exit::Input) if the file was changed to something that is none.
    pub fn device(&self) -> Result<DeviceName, Failure> {
        Self::parsed("device", &self.device)
    }

    /// When to write checkpoints.
    ///
    /// # Errors
    ///
    /// As [`TaskHow::device`].
    pub fn checkpoint_every(&self) -> Result<CheckpointEvery, Failure> {
        Self::parsed("checkpoint_every", &self.checkpoint_every)
    }

    /// The memory limit that was given, if one was.
    ///
    /// # Errors
    ///
    /// As [`TaskHow::device`].
    pub fn memory_limit(&self) -> Result<Option<MemoryLimit>, Failure> {
        let limit = self.memory_limit.as_deref();
        limit
            .map(|text| Self::parsed("memory_limit", text))
            .transpose()
    }
}

impl Submission {
    /// Reads `DIR/submit.json`.
    ///
    /// # Errors
    ///
    /// [`Exit::Input`](support::exit::Exit::Input) if there is none, or it is of another layout.
    pub fn read(directory: &Path) -> Result<Self, Failure> {
        let path = directory.join(SUBMIT_FILE);
        let bytes = rundir::read::bounded(&path, MAX_BYTES).map_err(|error| {
            Failure::input(format!("{error:#}"))
                .with_help("name a directory that `longreach submit --out DIR` wrote")
        })?;
        let value: serde_json::Value = serde_json::from_slice(&bytes)
            .map_err(|error| Failure::input(format!("{}: {error}", path.display())))?;
        if value.get("layout").and_then(serde_json::Value::as_u64) != Some(u64::from(LAYOUT)) {
            return Err(Failure::input(format!(
                "{}: layout = {}, which this version does not know",
                path.display(),
                value.get("layout").unwrap_or(&serde_json::Value::Null)
            ))
            .with_allowed(LAYOUT)
            .with_help(format!(
                "use the program beside it: {}",
                directory.join(PROGRAM_FILE).display()
            )));
        }
        serde_json::from_value(value)
            .map_err(|error| Failure::input(format!("{}: {error}", path.display())))
    }

    /// Checks that this process runs the program that was submitted.
    ///
    /// # Errors
    ///
    /// [`Exit::Input`](support::exit::Exit::Input) if it is another one.
    pub fn check_program(&self, directory: &Path) -> Result<(), Failure> {
        let ours = (support::build::VERSION, support::build::COMMIT);
        let theirs = (self.version.as_str(), self.commit.as_str());
        let copy = directory.join(PROGRAM_FILE);
        let is_replaced = hash_of(&copy).is_ok_and(|hash| hash != self.program_blake3);
        let copy = copy.display();
        let help = match is_replaced {
            true => format!("{copy} was replaced: put the program back that submitted the sweep"),
            false => format!("run {copy} instead"),
        };
        let refuse = |what: String| {
            Err(
                Failure::input(format!("{} was submitted by {what}", directory.display()))
                    .with_help(help),
            )
        };
        if ours != theirs {
            let [ours, theirs] =
                [ours, theirs].map(|(version, commit)| format!("longreach {version} ({commit})"));
            return refuse(format!("{theirs}; this is {ours}"));
        }
        let hash = hash_of_this_program()?;
        if hash != self.program_blake3 {
            return refuse(format!(
                "another build of this version: its hash is {}, that of this program {}",
                short(&self.program_blake3),
                short(&hash)
            ));
        }
        Ok(())
    }

    /// The directory of the experiment.
    pub fn experiment(&self, directory: &Path) -> PathBuf {
        directory.join(RUNS_DIR).join(&self.experiment)
    }
}

fn short(hash: &str) -> &str {
    hash.get(..12).unwrap_or(hash)
}

/// Whether a directory is that of a submitted sweep.
pub fn is_cluster(directory: &Path) -> bool {
    directory.join(SUBMIT_FILE).is_file()
}

/// The experiment of a submitted sweep, or the directory itself if it is none.
pub fn experiment_of(directory: &Path) -> PathBuf {
    match Submission::read(directory) {
        Ok(submission) => submission.experiment(directory),
        Err(_) => directory.to_owned(),
    }
}

/// BLAKE3 hash of this process's program.
///
/// # Errors
///
/// [`Exit::Input`](support::exit::Exit::Input) if it cannot be read.
fn hash_of_this_program() -> Result<String, Failure> {
    hash_of(&running_program()?)
}

/// BLAKE3 hash of a file.
///
/// # Errors
///
/// [`Exit::Input`](support::exit::Exit::Input) if it cannot be read.
pub fn hash_of(path: &Path) -> Result<String, Failure> {
    let file = fs_err::File::open(path).map_err(Failure::input)?;
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(file).map_err(Failure::input)?;
    Ok(hasher.finalize().to_hex().to_string())
}
