//! `longreach submit --again`: the unfinished runs of a submitted sweep, as a sparse array over the
//! same tasks.

use crate::cluster::directory::{AGAIN_DIR, Submission, hash_of};
use crate::cluster::manifest::{self, Task};
use crate::cluster::states::{Look, gather};
use experiment::runs_on_disk::hold::LiveLease;
use experiment::runs_on_disk::state::RunState;
use std::collections::BTreeSet;
use std::path::Path;
use support::exit::{Exit, Failure};
use support::units::count;

/// Which runs to submit again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Only {
    /// Those that ended with an error, and those whose record cannot be read
    Failed,
    /// Those that saved and exited, and those whose process died
    Stopped,
    /// Those that were never started
    Planned,
}

impl Only {
    /// The states that are submitted again.
    pub fn states(only: Option<Self>) -> &'static [RunState] {
        match only {
            Some(Self::Failed) => &[RunState::Failed, RunState::Unreadable],
            Some(Self::Stopped) => &[RunState::Stopped],
            Some(Self::Planned) => &[RunState::Planned],
            None => &[
                RunState::Failed,
                RunState::Unreadable,
                RunState::Stopped,
                RunState::Planned,
            ],
        }
    }
}

/// What was written.
#[derive(Debug)]
pub struct Again {
    /// The number of this submission; the original one is 0.
    pub generation: usize,
    /// Its tasks.
    pub tasks: Vec<Task>,
    /// Runs in them.
    pub runs: usize,
}

/// Writes the tasks and the script of another submission; none if no run is in the state asked for.
///
/// # Errors
///
/// [`Exit::Input`] if the directory is damaged, or the config has changed since it was submitted
/// and `as_submitted` is not given; [`Exit::Busy`] if another `submit` writes to it.
pub fn again(
    directory: &Path,
    submission: &Submission,
    only: Option<Only>,
    as_submitted: bool,
) -> Result<Option<Again>, Failure> {
    if !as_submitted {
        check_config(submission)?;
    }
    let _lease = LiveLease::for_a_moment(directory)?;
    let states = gather(directory, submission, Look::Whole)?;
    let selected: BTreeSet<&str> = states
        .runs
        .iter()
        .filter(|run| Only::states(only).contains(&run.state))
        .map(|run| run.run_id.as_str())
        .collect();
    let mut tasks = manifest::tasks(&manifest::tasks_file(directory, 0))?;
    for task in &mut tasks {
        let all = task.runs.len().max(1) as f64;
        task.runs
            .retain(|place| selected.contains(place.run.as_str()));
        task.expected_secs *= task.runs.len() as f64 / all;
    }
    tasks.retain(|task| !task.runs.is_empty());
    let runs = tasks.iter().map(|task| task.runs.len()).sum();
    refuse_without_task(selected.len() - runs)?;

    if tasks.is_empty() {
        return Ok(None);
    }
    let disk = rundir::system();
    let place = directory.join(AGAIN_DIR);
    disk.create_dirs(&place)?;
    let generation = next_generation(directory);

    // The script first: the file of tasks makes the submission, and its number is taken.
    for (name, text) in submission
        .scheduler
        .files(submission, &tasks, generation, only.is_some())
    {
        disk.write_whole(&directory.join(name), text.as_bytes())?;
    }
    let path = manifest::tasks_file(directory, generation);
    disk.write_whole(&path, &manifest::text(&tasks)?.0)?;
    Ok(Some(Again {
        generation,
        tasks,
        runs,
    }))
}

/// Runs that were recorded when the sweep was submitted are in no task.
fn refuse_without_task(runs: usize) -> Result<(), Failure> {
    if runs == 0 {
        return Ok(());
    }
    Err(Failure::input(format!(
        "{} of --recorded lost {} record and {} in no task",
        count(runs, "run"),
        if runs == 1 { "its" } else { "their" },
        if runs == 1 { "is" } else { "are" }
    ))
    .with_help("`longreach submit --recorded` with the same file, into another directory"))
}

fn next_generation(directory: &Path) -> usize {
    (1..)
        .find(|n| !manifest::tasks_file(directory, *n).exists())
        .unwrap_or(usize::MAX)
}

/// Refuses a config that was changed after the submission: the manifest holds the runs as they were
/// submitted.
fn check_config(submission: &Submission) -> Result<(), Failure> {
    let config = &submission.config;
    // The manifest needs no config: one that is gone says nothing else.
    if !config.exists() || hash_of(config)? == submission.config_blake3 {
        return Ok(());
    }
    Err(Failure::new(
        Exit::Input,
        format!("{} has changed since it was submitted", config.display()),
    )
    .with_help(
        "--as-submitted continues the runs of the manifest as they are; to run the new config, \
         submit it into another directory",
    ))
}
