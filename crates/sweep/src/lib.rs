//! `longreach run`: runs every run of a plan in a separate process and skips recorded ones.
//!
//! Burn keeps its generator and device state per process, so two runs in one process would disturb
//! each other; a process that dies takes one run with it and no more. Runs that are trained
//! together share a process: there they are one model.
#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(not(test), warn(clippy::too_many_lines, clippy::print_stdout))]

pub mod cluster;
mod display;
pub mod journal;
mod leases;
pub mod live;
pub mod options;
pub mod prepare;
mod process;
mod queue;
pub mod selected;
mod stalls;

use crate::display::Display;
use crate::journal::{Journal, Unwritten};
use crate::options::{Options, Retry};
use crate::queue::FailedRun;
use experiment::device::matmul_note;
use experiment::plan::planner::{Plan, PlannedRun};
use experiment::plan::together::{self, Group};
use experiment::runs_on_disk::files::{self, RECORD_FILE};
use experiment::runs_on_disk::{changes, kept_configs};
use records::RunRecord;
use records::record::{EvalRow, EvalStatus, RunStatus};
use std::collections::{BTreeSet, VecDeque};
use std::io::IsTerminal;
use std::path::Path;
use support::console::{self, tell};
use support::exit::{Exit, Failure};
use support::signals;
use support::units::count;

/// The note on `--runs-per-worker` on a CPU.
pub const ONE_BY_ONE: &str =
    "--runs-per-worker is for GPUs: on a CPU a worker trains its runs one by one";

/// Outcome of a sweep.
pub struct Outcome {
    /// Records of all runs that have one, in the order of the plan.
    pub records: Vec<RunRecord>,
    /// Runs that failed.
    pub failed: Vec<FailedRun>,
    /// Runs that were never started.
    pub not_started: usize,
    /// Records of a sweep of `[select]` whose methods are not trained: none of them has a score.
    pub unscored: Vec<RunRecord>,
    /// Set if a signal ended the sweep; interrupted runs have saved.
    pub stopped: Option<Exit>,
}

impl Outcome {
    /// That of runs which are all recorded.
    pub fn of(records: Vec<RunRecord>) -> Self {
        Self {
            records,
            failed: Vec::new(),
            not_started: 0,
            unscored: Vec::new(),
            stopped: None,
        }
    }

    /// Whether a run failed or was never started.
    pub fn has_failed(&self) -> bool {
        !self.failed.is_empty() || self.not_started > 0
    }

    /// Adds what failed in the sweep that came before.
    pub fn add_failures(&mut self, sweep: Self) {
        self.failed.splice(0..0, sweep.failed);
        self.not_started += sweep.not_started;
        self.unscored.extend(sweep.unscored);
        self.stopped = self.stopped.or(sweep.stopped);
    }

    /// All records, and those of methods that are not trained.
    pub fn tried(&self) -> impl Iterator<Item = &RunRecord> {
        self.records.iter().chain(&self.unscored)
    }

    /// Exit code of the sweep.
    pub fn exit(&self) -> Exit {
        let mut exits = self.failed.iter().map(|(_, _, failure)| failure.exit);
        let general = exits.find(|exit| matches!(exit, Exit::Resources | Exit::Device));
        let is = |row: &EvalRow, status| row.status == status;
        // A last step can ruin the weights without a loss that shows it.
        let diverged = |record: &RunRecord| {
            let rows = &record.evals;
            record.status == RunStatus::Diverged
                || rows.iter().any(|row| is(row, EvalStatus::Diverged))
                    && !rows.iter().any(|row| is(row, EvalStatus::Ok))
        };
        // A request to stop comes before all failures, and a disk or device that all runs share
        // before those of single runs.
        if let Some(exit) = self.stopped.or(general) {
            exit
        } else if !self.failed.is_empty() {
            Exit::SomeFailed
        } else if self.tried().next().is_some() && self.tried().all(diverged) {
            Exit::Diverged
        } else if !self.unscored.is_empty() {
            Exit::SomeFailed
        } else {
            Exit::Done
        }
    }
}

/// Runs what is not recorded yet.
///
/// # Errors
///
/// [`Exit::Resources`] if the runs directory cannot be written or a training does not fit into the
/// memory, [`Exit::Input`] if a run's directory is a link; nothing has been trained then.
pub fn run(plan: &Plan, options: &Options) -> Result<Outcome, Failure> {
    signals::listen()?;
    signals::work_begins();
    let experiment = options.runs.join(&plan.name);
    console::notes(&copy_recorded(plan, options)?);
    let todo: VecDeque<usize> = (0..plan.runs.len())
        .filter(|index| options.is_to_do(&plan.runs[*index]))
        .collect();
    if todo.is_empty() {
        check_retry(plan, options)?;
    }
    prepare::prepare(plan, &todo, options)?;
    kept_configs::write(rundir::system(), &experiment, plan)?;
    print_header(plan, &todo, options);
    if let Some(first) = todo.front()
        && !leases::has_locks(&options.directory(&plan.runs[*first]))
    {
        let experiment = experiment.display();
        tell(&format!(
            "note: {experiment} has no file locks; runs are leased by hard links instead"
        ));
    }
    let notes = [
        changes::other_runs(&experiment, plan),
        changes::renamed_runs(&experiment),
        changes::other_programs(&records(plan, options)),
    ];
    console::notes(&notes.into_iter().flatten().collect::<Vec<_>>());
    Ok(work(plan, todo, options, &Unwritten))
}

/// Copies the records of files into the directories of their runs; returns notes.
fn copy_recorded(plan: &Plan, options: &Options) -> Result<Vec<String>, Failure> {
    let (disk, recorded) = (rundir::system(), &options.recorded);
    let mut notes = recorded.copy(disk, plan, &options.runs)?;
    let lacking = plan.runs.iter().filter(|run| options.stays_incomplete(run));
    let lacking = lacking.count();
    if lacking > 0 {
        notes.push(format!(
            "{} skipped lengths for lack of memory that would fit here, and their weights are not \
             here: they stay as recorded",
            count(lacking, "recorded run")
        ));
    }
    Ok(notes)
}

/// Runs the runs of a plan by index: the part of a sweep that tasks of a cluster share. `journal`
/// hears of every start and end.
pub fn work(
    plan: &Plan,
    mut todo: VecDeque<usize>,
    options: &Options,
    journal: &dyn Journal,
) -> Outcome {
    let mut display = Display::new(plan, &todo, std::io::stderr().is_terminal());
    if signals::asked().is_some() {
        display.not_started += todo.drain(..).count();
    }
    let started = todo.clone();
    let groups = groups(plan, &todo, options);
    let jobs = jobs(&groups, options);
    let (mut failed, not_started) = queue::work(plan, groups, jobs, options, journal, &mut display);
    display.finish();
    let stopped = signals::asked();
    if stopped.is_some() {
        failed.retain(|(.., failure)| !failure.exit.on_request());
    } else if failed.is_empty() && not_started == 0 {
        failed.extend(started.into_iter().filter_map(|index| {
            let run = &plan.runs[index];
            unreadable(&options.directory(run), run, options)
        }));
    }
    Outcome {
        failed,
        not_started,
        stopped,
        ..Outcome::of(records(plan, options))
    }
}

/// The runs of each worker.
fn groups(plan: &Plan, todo: &VecDeque<usize>, options: &Options) -> VecDeque<Group> {
    let limit = options.how.memory_limit;
    together::groups(&plan.runs, todo, options.how.runs_per_worker, limit)
}

/// More workers than there is work for would only divide the cores.
fn jobs(groups: &VecDeque<Group>, options: &Options) -> usize {
    options.jobs.clamp(1, groups.len().max(1))
}

/// Read from disk before and after a sweep: other processes may record runs too.
fn records(plan: &Plan, options: &Options) -> Vec<RunRecord> {
    let recorded = plan.runs.iter().filter_map(|run| options.recorded(run));
    recorded.collect()
}

/// Refuses a retry that selects none of these runs while some are not recorded: it would end as if
/// all were.
fn check_retry(plan: &Plan, options: &Options) -> Result<(), Failure> {
    let Some(retry) = options.retry else {
        return Ok(());
    };
    let missing = plan.runs.iter().filter(|run| {
        let directory = options.directory(run);
        files::recorded(&directory, &run.job).is_none()
    });
    let missing = missing.count();
    if missing == 0 {
        return Ok(());
    }
    let (flag, what) = match retry {
        Retry::Failed => ("failed", "has failed"),
        Retry::Diverged => ("diverged", "has diverged"),
    };
    Err(Failure::config(format!(
        "--retry {flag}: none of the {} {what}, and {missing} are not recorded yet",
        count(plan.runs.len(), "run")
    ))
    .with_help("leave --retry out to run them"))
}

/// The failure of a run that ended well and has no record that can be read.
fn unreadable(directory: &Path, run: &PlannedRun, options: &Options) -> Option<FailedRun> {
    if files::recorded(directory, &run.job).is_some() {
        return None;
    }
    let path = directory.join(RECORD_FILE);
    // Without one another process has the run, or a task of a cluster.
    if !path.exists() {
        return None;
    }
    let why = match records::read_record(&path) {
        Ok(record) => format!("its record belongs to run {}", record.run_id),
        Err(error) => error.to_string(),
    };
    let message = format!("its worker ended well, but it has no record that can be read: {why}");
    let failure = Failure::new(Exit::SomeFailed, message);
    Some((run.job.name(), options.directory(run), failure))
}

fn print_header(plan: &Plan, todo: &VecDeque<usize>, options: &Options) {
    let skipped = plan.runs.len() - todo.len();
    let jobs = jobs(&groups(plan, todo, options), options);
    tell(&format!(
        "{}: {}, {} to do on {} with {}{}",
        plan.name,
        count(plan.runs.len(), "run"),
        todo.len(),
        options.how.device,
        count(jobs, "worker"),
        match (options.retry, skipped) {
            (_, 0) => String::new(),
            (None, _) => format!(" ({skipped} recorded already)"),
            (Some(_), _) => format!(" (the other {skipped} are not selected by --retry)"),
        }
    ));
    let specs = todo.iter().map(|index| &plan.runs[*index].job.spec);
    let mut notes: BTreeSet<String> = specs
        .filter_map(|spec| matmul_note(&options.how.device, spec.model.transformer.matmul))
        .collect();
    if options.how.runs_per_worker > 1 && options.how.device.is_cpu() {
        notes.insert(ONE_BY_ONE.to_owned());
    }
    console::notes(&notes.into_iter().collect::<Vec<_>>());
}
