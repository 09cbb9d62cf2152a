//! `longreach worker`: one prepared job, or several that are trained together, as `longreach run`
//! starts it; or one task of a submitted sweep, as schedulers start it.

use experiment::device::DeviceName;
use experiment::plan::memory::MemoryLimit;
use experiment::run;
use experiment::run::protocol::{CheckpointEvery, Event, How, report};
use std::path::PathBuf;
use support::exit::{Exit, Failure};
use support::{console, limits, signals};
use sweep::cluster::array_task;

/// Run one task of a submitted sweep; schedulers call this, see `longreach submit`
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The manifest that `longreach submit --out DIR` wrote
    #[arg(
        long,
        value_name = "DIR/manifest.jsonl",
        required_unless_present = "directories"
    )]
    manifest: Option<PathBuf>,
    /// The index of the task [default: HQ_TASK_ID, PARALLEL_SEQ - 1, JOB_COMPLETION_INDEX or
    /// SLURM_ARRAY_TASK_ID]
    #[arg(long, value_name = "I", conflicts_with = "directories")]
    task: Option<usize>,
    /// The tasks of the Nth `longreach submit --again`
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        conflicts_with = "directories"
    )]
    again: usize,
    /// Directories of runs that are trained together, each with its job.json, as `longreach run`
    /// starts it
    #[arg(hide = true, conflicts_with = "manifest")]
    directories: Vec<PathBuf>,
    /// The device
    #[arg(long, hide = true, default_value = "cpu", conflicts_with = "manifest")]
    device: DeviceName,
    /// Steps (500) or seconds (30s) between checkpoints
    #[arg(long, hide = true, default_value_t = CheckpointEvery::default())]
    checkpoint_every: CheckpointEvery,
    /// Bytes, or `none`
    #[arg(long, hide = true, default_value_t = MemoryLimit::NONE)]
    memory_limit: MemoryLimit,
    /// Save the weights before the first step too
    #[arg(long, hide = true)]
    initial_weights: bool,
    /// The most runs that a sweep gives to a worker, for the records
    #[arg(long, hide = true, default_value_t = 1, value_name = "N")]
    runs_per_worker: usize,
    /// Print events as lines of JSON, for the sweep that started this process
    #[arg(long, hide = true)]
    events: bool,
    /// Save and leave when standard input ends, as it does when the sweep that started this
    /// process ends
    #[arg(long, hide = true)]
    stop_with_parent: bool,
    /// A lease of the sweep that started this process, under which a run is
    #[arg(long, hide = true, value_name = "NONCE")]
    leased: Vec<String>,
}

const EXAMPLES: &str = r#"Examples:
  longreach worker --manifest sweep/manifest.jsonl --task 0
  SLURM_ARRAY_TASK_ID=0 longreach worker --manifest sweep/manifest.jsonl

A task trains its runs as `longreach run` does, and exits with 0 when each of them is recorded or
failed for good, 75 when it was stopped or ran out of time and is to be started again, 7 when the
device is missing or was lost."#;

impl Args {
    /// Sends a failure to the sweep, or prints it if no sweep listens.
    pub fn report_failure(&self, failure: &Failure) {
        if self.events {
            let message = failure.message.clone();
            report(0, &Event::Failed { message });
        } else {
            console::error(failure);
        }
    }
}

/// Runs the job.
///
/// # Errors
///
/// Those of [`run::worker::run`] and of [`array_task::run`].
pub fn run(arguments: &Args) -> Result<Exit, Failure> {
    if let Some(manifest) = &arguments.manifest {
        return array_task::run(&array_task::Request {
            manifest: manifest.clone(),
            task: arguments.task,
            generation: arguments.again,
        });
    }
    let directories = &arguments.directories;
    if arguments.stop_with_parent {
        signals::stop_with_parent()?;
    }
    for nonce in &arguments.leased {
        rundir::lease::adopt(nonce);
    }
    let how = How {
        device: arguments.device.clone(),
        checkpoint_every: arguments.checkpoint_every.clone(),
        memory_limit: arguments.memory_limit.of(arguments.device.memory()),
        initial_weights: arguments.initial_weights,
        runs_per_worker: arguments.runs_per_worker,
    };
    let job = || {
        if arguments.events {
            run::worker::run(directories, &how)
        } else {
            run::worker::run_silently(directories, &how)
        }
    };
    let refused = |error| limits::refused("the threads that compute", &error);
    kernels::on_threads(job)
        .map_err(refused)?
        .map(|()| Exit::Done)
}
