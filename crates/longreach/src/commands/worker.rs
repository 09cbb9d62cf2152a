//! `longreach worker`: one prepared job, as `longreach run` starts it for each run.

use crate::device::DeviceName;
use crate::exit::{Exit, Failure};
use crate::plan::memory::MemoryLimit;
use crate::run::protocol::{CheckpointEvery, Event, How, report};
use crate::{console, run, signals};
use std::path::PathBuf;

/// Run one prepared job; `longreach run` starts one worker for each run
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Directory of the run, with its job.json
    directory: PathBuf,
    /// The device
    #[arg(long, default_value = "cpu")]
    device: DeviceName,
    /// Steps (500) or seconds (30s) between checkpoints
    #[arg(long, default_value_t = CheckpointEvery::default())]
    checkpoint_every: CheckpointEvery,
    /// Bytes, or `none`
    #[arg(long, default_value_t = MemoryLimit::NONE)]
    memory_limit: MemoryLimit,
    /// Print events as lines of JSON, for the sweep that started this process
    #[arg(long, hide = true)]
    events: bool,
    /// Save and leave when standard input ends, as it does when the sweep that started this
    /// process ends
    #[arg(long, hide = true)]
    stop_with_parent: bool,
}

impl Args {
    /// The failure after a panic on a device other than a CPU: drivers that lose their device
    /// panic, and a process in which that happened cannot continue.
    pub fn device_failure(&self) -> Option<Failure> {
        let help = "the last checkpoint is whole; the same command continues from it";
        (!self.device.is_cpu()).then(|| {
            let message = format!("{} failed (see above)\n  = help: {help}", self.device);
            Failure::new(Exit::Device, message)
        })
    }

    /// Sends a failure to the sweep, or prints it if no sweep listens.
    pub fn report_failure(&self, failure: &Failure) {
        if self.events {
            report(&Event::Failed {
                message: failure.message.clone(),
            });
        } else {
            console::error(failure);
        }
    }
}

/// Runs the job.
///
/// # Errors
///
/// Those of [`run::worker::run`].
pub fn run(arguments: &Args) -> Result<Exit, Failure> {
    if arguments.stop_with_parent {
        signals::stop_with_parent();
    }
    let how = How {
        device: arguments.device.clone(),
        checkpoint_every: arguments.checkpoint_every.clone(),
        memory_limit: arguments.memory_limit,
    };
    let job = || {
        if arguments.events {
            run::worker::run(&arguments.directory, &how)
        } else {
            run::worker::run_silently(&arguments.directory, &how)
        }
    };
    kernels::on_threads(job).map(|()| Exit::Done)
}
