//! What a sweep checks and writes before it starts a worker.

use crate::options::{Options, Retry};
use experiment::plan::memory::{self, MemoryLimit};
use experiment::plan::planner::{Plan, PlannedRun};
use experiment::runs_on_disk::files::{self, DIVERGED_FILE, ERROR_FILE, JOB_FILE, RECORD_FILE};
use experiment::runs_on_disk::recorded::has_lost_weights;
use experiment::runs_on_disk::starts::check_starts;
use rundir::{Disk, checkpoint};
use std::collections::{HashSet, VecDeque};
use std::path::Path;
use support::console;
use support::exit::{Exit, Failure};
use support::signals;
use support::units::{count, first_of};

/// Runs that a note names.
const MOST_NAMED: usize = 3;

/// Checks all that can be checked before any work, such as directories that cannot be written and
/// trainings that do not fit into memory; writes every job, and removes what dead processes left.
///
/// # Errors
///
/// [`Exit::Resources`] if a directory cannot be written or a training does not fit, [`Exit::Input`]
/// if a run's directory is a link, or the weights that a training starts from are missing or
/// changed.
pub fn prepare(plan: &Plan, todo: &VecDeque<usize>, options: &Options) -> Result<(), Failure> {
    let disk = rundir::system();
    // All of them before the first file changes: a retry discards records.
    for index in todo {
        check_memory(&plan.runs[*index], options.how.memory_limit)?;
    }
    check_starts(todo.iter().map(|index| &plan.runs[*index]))?;
    if !todo.is_empty() {
        disk.probe(&options.runs.join(&plan.name))?;
    }
    for index in todo {
        if signals::asked().is_some() {
            break;
        }
        write_job(disk, &plan.runs[*index], options)?;
    }
    let to_do: HashSet<usize> = todo.iter().copied().collect();
    let mut without_weights = Vec::new();
    for (index, run) in plan.runs.iter().enumerate() {
        if to_do.contains(&index) {
            continue;
        }
        tidy_recorded(disk, run, options);
        renew_job(disk, run, options);
        let directory = options.directory(run);
        if has_lost_weights(&directory) && files::recorded(&directory, &run.job).is_some() {
            without_weights.push(format!("{} ({})", run.job.name(), directory.display()));
        }
    }
    if !without_weights.is_empty() {
        console::notes(&[format!(
            "{} without weights, which `eval` and `export` need: {}; to train them again, remove \
             their directories",
            count(without_weights.len(), "recorded run"),
            first_of(&without_weights, MOST_NAMED)
        )]);
    }
    Ok(())
}

/// Refuses a training that does not fit into the memory.
///
/// # Errors
///
/// [`Exit::Resources`] if it does not.
pub fn check_memory(run: &PlannedRun, limit: MemoryLimit) -> Result<(), Failure> {
    let needed = memory::training(limit.memory, &run.job.spec, run.parameters, &run.sizes);
    if let Some(excess) = limit.excess(needed) {
        let help = "a smaller batch_size, train_len or d_model needs less; --memory-limit sets \
                    the limit, `run` with --jobs 1 leaves it all to one run";
        return Err(
            Failure::resources(format!("{}: training {excess}", run.job.name())).with_help(help),
        );
    }
    Ok(())
}

fn write_job(disk: &dyn Disk, run: &PlannedRun, options: &Options) -> Result<(), Failure> {
    let directory = options.directory(run);
    disk.create_dirs(&directory)?;
    let _lock = match files::take(disk, &directory) {
        Ok(lock) => lock,
        // The process that holds it wrote the same job.
        Err(failure) if failure.exit == Exit::Busy => return Ok(()),
        Err(failure) => return Err(failure),
    };
    if let Some(damaged) = files::check_record(&directory)? {
        let name = run.job.name();
        console::notes(&[format!("{name} is trained again: {damaged}")]);
    }
    // The checkpoints go too: training from them would diverge at the same step again.
    if options.retry == Some(Retry::Diverged) {
        for name in [RECORD_FILE, DIVERGED_FILE, checkpoint::CHECKPOINTS_DIR] {
            disk.remove_tree(&directory.join(name))?;
        }
    }
    let job = serde_json::to_vec_pretty(&run.job).map_err(Failure::bug)?;
    if !holds(&directory, &job) {
        let path = directory.join(JOB_FILE);
        disk.write_whole(&path, &job)?;
    }
    Ok(())
}

/// Writes the job of a recorded run anew where it is missing or names another place of its config:
/// `eval` and `verify` find the corpus there. What cannot be written stays as it is: the run is
/// recorded.
fn renew_job(disk: &dyn Disk, run: &PlannedRun, options: &Options) {
    let directory = options.directory(run);
    if let Ok(job) = serde_json::to_vec_pretty(&run.job)
        && !holds(&directory, &job)
        && files::recorded(&directory, &run.job).is_some()
        && let Ok(_lock) = files::take(disk, &directory)
    {
        let _ = disk.write_whole(&directory.join(JOB_FILE), &job);
    }
}

/// Writes the job of a run, if it is missing: the process that held the run while this sweep
/// prepared it may have been killed before it wrote the job.
///
/// # Errors
///
/// [`Exit::Busy`] if another process holds the run, [`Exit::Resources`] if it cannot be written.
pub fn ensure_job(run: &PlannedRun, options: &Options) -> Result<(), Failure> {
    let directory = options.directory(run);
    let job = serde_json::to_vec_pretty(&run.job).map_err(Failure::bug)?;
    if holds(&directory, &job) {
        return Ok(());
    }
    let disk = rundir::system();
    disk.create_dirs(&directory)?;
    let _lock = files::take(disk, &directory)?;
    let path = directory.join(JOB_FILE);
    Ok(disk.write_whole(&path, &job)?)
}

fn holds(directory: &Path, job: &[u8]) -> bool {
    let path = directory.join(JOB_FILE);
    rundir::read::bounded(&path, job.len() as u64).is_ok_and(|found| found == job)
}

/// Removes the checkpoints of a recorded run whose process died after it wrote the record.
fn tidy_recorded(disk: &dyn Disk, run: &PlannedRun, options: &Options) {
    let directory = options.directory(run);
    // Looked for without the lock, which only the few runs that need it take.
    let leftovers = directory.join(checkpoint::CHECKPOINTS_DIR).exists()
        || directory.join(ERROR_FILE).exists()
        || has_scratch(&directory);
    if leftovers
        && let Ok(_lock) = files::take(disk, &directory)
        && let Some(record) = files::recorded(&directory, &run.job)
    {
        files::tidy(disk, &directory, &record);
    }
}

/// Whether a directory holds a file that was written halfway.
fn has_scratch(directory: &Path) -> bool {
    let mut entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.any(|entry| entry.file_name().to_string_lossy().starts_with('.'))
}
