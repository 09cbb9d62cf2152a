//! The files of a run's directory: their names, who may write them, and where runs lie.

use crate::exit::{Exit, Failure};
use crate::plan::spec::Job;
use crate::run_dir::hold::{Hold, Identity, LiveClaim, busy};
use crate::run_dir::walk::directories_in;
use results::RunRecord;
use results::record::RunStatus;
use rundir::{Disk, checkpoint, claim, lock};
use std::path::{Path, PathBuf};

/// The job of a run.
pub const JOB_FILE: &str = "job.json";

/// The final weights.
pub const WEIGHTS_FILE: &str = "weights.safetensors";

/// The weights before the first step, where they were asked for.
pub const INITIAL_WEIGHTS_FILE: &str = "initial_weights.safetensors";

/// Wall-clock times; the only file that differs between reruns.
pub const TIMINGS_FILE: &str = "timings.json";

/// The record.
pub const RECORD_FILE: &str = results::store::RECORD_FILE;

/// The batch at which a training stopped being finite.
pub const DIVERGED_FILE: &str = "diverged.json";

/// The message of a failed worker.
pub const ERROR_FILE: &str = "error.txt";

/// Largest job that is read, in bytes.
const MAX_JOB_BYTES: u64 = 1 << 24;

/// The directory of a planned run below the directory of all runs.
pub fn run_dir(runs: &Path, job: &Job) -> PathBuf {
    results::store::run_dir(runs, &job.experiment, &job.run_id)
}

/// The record of a job, if it exists, is readable, and belongs to this job.
pub fn recorded(directory: &Path, job: &Job) -> Option<RunRecord> {
    let record = results::read_record(&directory.join(RECORD_FILE)).ok()?;
    (record.run_id == job.run_id).then_some(record)
}

/// Removes files that a recorded run no longer needs.
pub fn tidy(disk: &dyn Disk, directory: &Path, record: &RunRecord) {
    // The checkpoint of a run that diverged is kept for inspection.
    if record.status == RunStatus::Ok {
        checkpoint::clear(disk, directory);
    }
    let _ = disk.remove_tree(&directory.join(ERROR_FILE));
}

/// Holds a run for this process until the result is dropped or the process ends, and removes files
/// that dead processes left half written. Where the file system has no locks, the run is claimed
/// instead, unless the sweep that started this process has done so.
///
/// # Errors
///
/// [`Exit::Busy`] if another process has it, [`Exit::Resources`] if it cannot be written,
/// [`Exit::Input`] if it is a link.
pub fn take(disk: &dyn Disk, directory: &Path) -> Result<Hold, Failure> {
    if directory.is_symlink() {
        let help = "a run needs a real directory; pass the target of the link as --runs, or \
                    remove the link";
        return Err(Failure::input(format!(
            "{} is a link\n  = help: {help}",
            directory.display()
        )));
    }
    if let Some(holder) = claim::held_elsewhere(directory) {
        return Err(busy(directory, &holder));
    }
    let lock = match lock::take(directory) {
        Ok(lock) => Some(lock),
        Err(lock::Taken::By(who)) => {
            return Err(Failure::new(
                Exit::Busy,
                format!("{} is being run by {who}", directory.display()),
            ));
        }
        Err(lock::Taken::Refused(error)) if lock::is_unsupported(&error) => None,
        Err(lock::Taken::Refused(error)) => {
            let path = directory.join(lock::LOCK_FILE);
            return Err(Failure::resources(format!(
                "cannot lock {}: {error}",
                path.display()
            )));
        }
    };
    let claim = match lock {
        None if !claim::is_ours(directory) => {
            let dead = claim::holder(directory);
            Some(LiveClaim::take(
                directory,
                &Identity::default(),
                dead.as_ref(),
            )?)
        }
        _ => None,
    };
    // While it is held, so that what is half written is not being written.
    disk.remove_scratch(directory);
    Ok(Hold::new(lock, claim))
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

/// Levels below a directory of all runs: experiments, then runs.
const DEPTH: usize = 3;

/// Directories with a job, no deeper than an experiment's runs; links are not followed.
///
/// # Errors
///
/// [`Exit::Input`] if a directory cannot be read.
pub fn jobs(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    jobs_within(directory, DEPTH)
}

fn jobs_within(directory: &Path, depth: usize) -> Result<Vec<PathBuf>, Failure> {
    if directory.join(JOB_FILE).is_file() {
        return Ok(vec![directory.to_owned()]);
    }
    let mut found = Vec::new();
    if depth > 0 {
        for inner in directories_in(directory).map_err(Failure::input)? {
            found.extend(jobs_within(&inner, depth - 1)?);
        }
    }
    Ok(found)
}
