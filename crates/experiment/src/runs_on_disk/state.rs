//! The state of a run, read from its directory alone. `status` reads it here, for runs of one
//! machine; `cluster/states.rs` adds the events of tasks.

use crate::runs_on_disk::files::{ERROR_FILE, RECORD_FILE};
use crate::runs_on_disk::integrity::renamed;
use crate::runs_on_disk::recorded::{has_lost_weights, origin};
use crate::spec::Job;
use records::record::{Divergence, RunStatus};
use records::{RunRecord, StoreError};
use rundir::steplog::LOG_FILE;
use rundir::{checkpoint, lease, lock};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::io::ErrorKind;
use std::path::Path;

/// State of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Written by a sweep, not started yet.
    Planned,
    /// A process holds its lock.
    Running,
    /// No process holds it; it resumes from its checkpoint.
    Stopped,
    /// Recorded.
    Done,
    /// Recorded; its loss or a gradient became non-finite.
    Diverged,
    /// Its worker ended with an error.
    Failed,
    /// Its job is missing, of another version, or was edited: `longreach run` writes it anew.
    Stale,
    /// Its directory or its record cannot be read: no permission, damaged, or of a newer version.
    Unreadable,
}

impl RunState {
    /// Whether no process will change it.
    pub fn has_ended(self) -> bool {
        !matches!(self, Self::Planned | Self::Running | Self::Stopped)
    }

    /// Whether it ended without a result.
    pub fn is_failure(self) -> bool {
        matches!(self, Self::Failed | Self::Stale | Self::Unreadable)
    }
}

impl fmt::Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Planned => "planned",
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Done => "done",
            Self::Diverged => "diverged",
            Self::Failed => "failed",
            Self::Stale => "stale",
            Self::Unreadable => "unreadable",
        })
    }
}

/// Runs by state.
pub type Counts = BTreeMap<RunState, usize>;

/// Counts runs by state.
pub fn counts(states: impl Iterator<Item = RunState>) -> Counts {
    let mut counts = Counts::new();
    for state in states {
        *counts.entry(state).or_insert(0) += 1;
    }
    counts
}

/// `3 running, 17 done`.
pub fn counts_text(counts: &Counts) -> String {
    let each = counts.iter().map(|(state, n)| format!("{n} {state}"));
    each.collect::<Vec<_>>().join(", ")
}

/// The state of a run, its last known step, and a note.
pub fn state(run: &Path, job: &Job) -> (RunState, u64, Option<String>) {
    if job.spec.run_id().ok().as_deref() != Some(&job.run_id) {
        let note = "the spec in job.json does not have this run_id".to_owned();
        return (RunState::Stale, 0, Some(note));
    }
    let found = records::read_record(&run.join(RECORD_FILE));
    if let Ok(record) = &found {
        let (state, steps, note) = of_record(record);
        let no_weights = || match origin(run) {
            Some(place) => Some(format!("recorded in {place}; no weights here")),
            None => has_lost_weights(run).then(|| "its weights are missing".to_owned()),
        };
        let seal = match record.seal_holds() {
            Some(true) => None,
            None => Some("its record has no seal".to_owned()),
            Some(false) => Some("its record does not match its seal".to_owned()),
        };
        let note = renamed(run, &job.run_id).or(seal).or(note);
        return (state, steps, note.or_else(no_weights));
    }
    // A run that is held is running, whatever an earlier process left behind.
    let leased = lease::held_elsewhere(run).map(|holder| holder.who());
    if let Some(holder) = lock::holder(run)
        .map(|holder| holder.to_string())
        .or(leased)
    {
        let step = last_step(&run.join(LOG_FILE)).unwrap_or(0);
        return (RunState::Running, step, Some(holder));
    }
    match found {
        Err(StoreError::Io(error)) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return (RunState::Unreadable, 0, Some(error.to_string())),
        Ok(_) => {}
    }
    let newest = checkpoint::newest_step(run);
    if let Some(message) = failure(run) {
        return (RunState::Failed, newest.unwrap_or(0), Some(message));
    }
    match newest {
        Some(step) => (RunState::Stopped, step, None),
        None => (RunState::Planned, 0, None),
    }
}

/// The state that a record is of, its last step, and a note on a divergence.
pub fn of_record(record: &RunRecord) -> (RunState, u64, Option<String>) {
    let note = |Divergence { step, what, .. }: &Divergence| {
        format!("the {what} was not finite at step {step}")
    };
    let state = match record.status {
        RunStatus::Ok => RunState::Done,
        RunStatus::Diverged => RunState::Diverged,
    };
    let note = record.diverged.as_ref().map(note);
    (state, record.train.steps, note)
}

/// The message of a failed worker, if it left one.
pub fn failure(run: &Path) -> Option<String> {
    let message = rundir::read::start(&run.join(ERROR_FILE), 1 << 16).ok()?;
    Some(String::from_utf8_lossy(&message).into_owned())
}

/// The step of the last whole line of a log.
pub fn last_step(log: &Path) -> Option<u64> {
    // Lines are shorter than this; the log of a long run is not read as a whole.
    let tail = String::from_utf8(rundir::read::end(log, 1024).ok()?).ok()?;
    // The last line may be half written.
    let whole = &tail[..tail.rfind('\n')?];
    let line: serde_json::Value = serde_json::from_str(whole.rsplit('\n').next()?).ok()?;
    line.get("step")?.as_u64()
}
