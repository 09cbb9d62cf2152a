//! How to run a sweep, and which of its runs are recorded already.

use experiment::plan::planner::PlannedRun;
use experiment::run::protocol::How;
use experiment::run::worker::skipped_fits;
use experiment::runs_on_disk::files::{self, ERROR_FILE, run_dir};
use experiment::runs_on_disk::hold::Identity;
use experiment::runs_on_disk::recorded::{Recorded, origin};
use records::RunRecord;
use records::record::RunStatus;
use std::path::{Path, PathBuf};

/// How to run.
pub struct Options {
    /// Directory of all experiments.
    pub runs: PathBuf,
    /// How every worker runs.
    pub how: How,
    /// Workers at a time.
    pub jobs: usize,
    /// Start no further run after the first failure.
    pub fail_fast: bool,
    /// Run only these, and anew.
    pub retry: Option<Retry>,
    /// Let workers finish their runs even if this process is killed.
    pub keep_workers: bool,
    /// Records whose runs count as done.
    pub recorded: Recorded,
    /// What a cluster gave to this sweep; nothing in a local sweep.
    pub share: Share,
}

/// What an engine gave to a sweep that is one task of many; a local sweep has the defaults.
#[derive(Clone, Debug, Default)]
pub struct Share {
    /// Cores, where the engine grants fewer than the process could use.
    pub cores: Option<usize>,
    /// The GPUs that workers are bound to, in turn.
    pub gpus: Option<Gpus>,
    /// Who this process is in leases. Runs are leased only if this is set, or where the file
    /// system has no locks.
    pub identity: Option<Identity>,
}

/// GPUs that an engine granted, by the variable that names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpus {
    /// `CUDA_VISIBLE_DEVICES` or its like.
    pub variable: &'static str,
    /// What stood in it, one for each GPU.
    pub names: Vec<String>,
}

impl Gpus {
    /// The GPU of the worker that runs in a slot.
    pub fn of(&self, slot: usize) -> &str {
        &self.names[slot % self.names.len()]
    }
}

/// Which runs to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Retry {
    /// Those whose last attempt ended with an error
    Failed,
    /// Those recorded as diverged; their records are discarded
    Diverged,
}

impl Options {
    /// The directory of a run.
    pub fn directory(&self, run: &PlannedRun) -> PathBuf {
        run_dir(&self.runs, &run.job)
    }

    /// The record of a run, if it exists, is readable, and skipped no length that fits now. It gets
    /// the labels of the plan, and what the plan says of the choice of its values: another config
    /// may name the same run otherwise.
    pub fn recorded(&self, run: &PlannedRun) -> Option<RunRecord> {
        let directory = self.directory(run);
        let mut record = self.complete(run, &directory)?;
        // If another process holds the run, it writes the record itself.
        if !run.job.describe(&mut record) {
            return Some(record);
        }
        let Ok(_held) = files::take(rundir::system(), &directory) else {
            return Some(record);
        };
        // Read again: since the first time a worker may have added lengths.
        let mut record = self.complete(run, &directory)?;
        if run.job.describe(&mut record) {
            files::write_record(rundir::system(), &directory, &record).ok()?;
        }
        Some(record)
    }

    /// The record of a run, unless it skipped a length that fits now. A record that was copied from
    /// a file has no weights to evaluate.
    fn complete(&self, run: &PlannedRun, directory: &Path) -> Option<RunRecord> {
        let record = files::recorded(directory, &run.job)?;
        (!self.lacks(run, &record) || origin(directory).is_some()).then_some(record)
    }

    /// Whether a record skipped a length that fits now.
    fn lacks(&self, run: &PlannedRun, record: &RunRecord) -> bool {
        let limit = self.how.memory_limit;
        skipped_fits(record, &run.job.spec, &run.sizes, limit)
    }

    /// Whether a record skipped a length that fits now, and there are no weights to evaluate it.
    pub fn stays_incomplete(&self, run: &PlannedRun) -> bool {
        let directory = self.directory(run);
        origin(&directory).is_some()
            && files::recorded(&directory, &run.job).is_some_and(|record| self.lacks(run, &record))
    }

    /// Whether there is work for a run.
    pub fn is_to_do(&self, run: &PlannedRun) -> bool {
        let Some(retry) = self.retry else {
            return self.recorded(run).is_none();
        };
        let directory = self.directory(run);
        let record = files::recorded(&directory, &run.job);
        match retry {
            Retry::Failed => record.is_none() && directory.join(ERROR_FILE).exists(),
            Retry::Diverged => record.is_some_and(|record| record.status == RunStatus::Diverged),
        }
    }
}
