//! The states of all runs of a submitted sweep, from its files alone: no scheduler is asked, so the
//! answer is the same with its controller down. The one place that `status`, `logs` and `submit
//! --again` read them from.
//!
//! Every run has one state, decided in an order that no moment contradicts: a worker writes the
//! record before it gives up its lease, and the end of a run is written as an event before that. So
//! whoever finds no lease looks for both again.

use crate::cluster::directory::Submission;
use crate::cluster::events::{self, Last, What};
use crate::cluster::manifest::{Brief, briefs};
use experiment::runs_on_disk::files::RECORD_FILE;
use experiment::runs_on_disk::state::{Counts, RunState, counts, failure, last_step, of_record};
use experiment::spec;
use records::StoreError;
use rundir::lease::{self, Holder};
use rundir::steplog::LOG_FILE;
use rundir::{checkpoint, lock, scratch};
use serde::Serialize;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, SystemTime};
use support::exit::Failure;

/// A run of a submitted sweep.
#[derive(Clone, Debug, Serialize)]
pub struct RunLine {
    /// The run.
    pub run_id: String,
    /// Its values on the axes.
    pub method: String,
    /// The same in words, for people.
    #[serde(skip)]
    pub name: String,
    /// Its seed.
    pub seed: u64,
    /// Its state.
    pub state: RunState,
    /// The last step that is known of.
    pub step: u64,
    /// Steps in all.
    pub steps: u64,
    /// Expected seconds of the whole run.
    pub expected_secs: f64,
    /// Who runs it, or why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The states of a submitted sweep.
#[derive(Debug, Serialize)]
pub struct States {
    /// The experiment.
    pub experiment: String,
    /// Every run of the manifest, in its order.
    pub runs: Vec<RunLine>,
    /// Runs by state.
    pub counts: Counts,
}

/// What is read of the record of a run that ended well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Its last bytes, which show an empty file and one that was cut: fast for thousands of runs.
    End,
    /// All of it, which shows any damage.
    Whole,
}

/// Reads the states of all runs.
///
/// # Errors
///
/// [`Exit::Input`](support::exit::Exit::Input) if the manifest is missing or damaged.
pub fn gather(directory: &Path, submission: &Submission, records: Look) -> Result<States, Failure> {
    let manifest = briefs(directory)?;
    let experiment = submission.experiment(directory);
    let processes = events::read(directory, None);
    let last = events::last_by_run(&processes);
    // Listed once: of runs that were never started there is nothing to look for.
    let started = names_in(&experiment);
    let look = Survey {
        experiment: &experiment,
        records,
        now: scratch::time_there(directory),
    };
    let mut found: Vec<Option<Found>> = manifest
        .iter()
        .map(|brief| match last.get(brief.run_id.as_str()) {
            last if !started.contains(&brief.run_id) => Some(never_begun(last)),
            last => look.state(brief, last),
        })
        .collect();
    // Runs that nobody holds: what ended them was written before they were given up, perhaps after
    // the first reading.
    if found.iter().any(Option::is_none) {
        let processes = events::read(directory, None);
        let last = events::last_by_run(&processes);
        for (brief, found) in manifest.iter().zip(&mut found) {
            found.get_or_insert_with(|| look.left(brief, last.get(brief.run_id.as_str())));
        }
    }
    let line = |(brief, found): (&Brief, Option<Found>)| {
        let (state, step, note) = found.unwrap_or((RunState::Planned, 0, None));
        RunLine {
            run_id: brief.run_id.clone(),
            method: brief.method(),
            name: spec::method(&brief.job.labels),
            seed: brief.job.spec.seed,
            state,
            step,
            steps: brief.job.spec.train.steps,
            expected_secs: brief.expected_secs,
            note,
        }
    };
    let runs: Vec<RunLine> = manifest.iter().zip(found).map(line).collect();
    Ok(States {
        experiment: submission.experiment.clone(),
        counts: counts(runs.iter().map(|run| run.state)),
        runs,
    })
}

type Found = (RunState, u64, Option<String>);

/// A run without a directory: nothing was begun, or its directory could not be made.
fn never_begun(last: Option<&Last>) -> Found {
    match last.map(|last| &last.what) {
        Some(What::Failed { message, .. }) => (RunState::Failed, 0, Some(message.clone())),
        _ => (RunState::Planned, 0, None),
    }
}

struct Survey<'a> {
    experiment: &'a Path,
    records: Look,
    /// The time by the clock of the file system.
    now: SystemTime,
}

impl Survey<'_> {
    /// The state of a run that is recorded or at work.
    fn state(&self, brief: &Brief, last: Option<&Last>) -> Option<Found> {
        let run = self.experiment.join(&brief.run_id);
        if let Some(found) = self.recorded(&run, brief, last) {
            return Some(found);
        }
        let who = self.runner(&run)?;
        let step = last_step(&run.join(LOG_FILE)).unwrap_or(0);
        Some((RunState::Running, step, Some(who)))
    }

    /// The state of a recorded run.
    fn recorded(&self, run: &Path, brief: &Brief, last: Option<&Last>) -> Option<Found> {
        let (path, steps) = (run.join(RECORD_FILE), brief.job.spec.train.steps);
        // Thousands of records need not be read where an event says what is in them.
        if let Some(Last {
            what: What::Done {
                diverged: false, ..
            },
            ..
        }) = last
            && self.records == Look::End
            && ends_whole(&path)
        {
            return Some((RunState::Done, steps, None));
        }
        let record = records::read_record(&path).ok()?;
        (record.run_id == brief.run_id).then(|| of_record(&record))
    }

    /// The state of a run that nobody held when it was looked at.
    fn left(&self, brief: &Brief, last: Option<&Last>) -> Found {
        let run = self.experiment.join(&brief.run_id);
        if let Some(found) = self.recorded(&run, brief, last) {
            return found;
        }
        let newest = checkpoint::newest_step(&run);
        let failed = match last.map(|last| &last.what) {
            Some(What::Failed { message, .. }) => Some(message.clone()),
            // No task of this sweep began it: the directory is all that is known.
            None => failure(&run),
            _ => None,
        };
        if let Some(message) = failed {
            return (RunState::Failed, newest.unwrap_or(0), Some(message));
        }
        // Of one that goes on, a worker writes the record anew.
        if matches!(last.map(|last| &last.what), None | Some(What::Done { .. }))
            && let Some(damage) = damage(&run.join(RECORD_FILE))
        {
            return (RunState::Unreadable, 0, Some(damage));
        }
        let note = match last.map(|last| &last.what) {
            Some(What::Stopped { message, .. }) => Some(message.clone()),
            Some(What::Start { .. } | What::Resumed { .. }) => {
                Some("its process ended unexpectedly".to_owned())
            }
            _ => None,
        };
        match newest {
            None if note.is_none() => (RunState::Planned, 0, None),
            newest => (RunState::Stopped, newest.unwrap_or(0), note),
        }
    }

    /// Who runs it: by a lease whose heart beats, or by a lock on this machine.
    fn runner(&self, run: &Path) -> Option<String> {
        match lease::holder(run) {
            Some(holder) if self.beats(run, &holder) => Some(holder.who()),
            _ => lock::holder(run).map(|holder| holder.to_string()),
        }
    }

    /// Whether a lease is alive as far as one look can tell. Its process decides where it can be
    /// seen; elsewhere the age of its file, by the clock of the file system.
    fn beats(&self, run: &Path, holder: &Holder) -> bool {
        if lease::has_ended(holder) {
            return false;
        }
        if lease::is_visible(holder) {
            return true;
        }
        let written = run
            .join(lease::LEASE_FILE)
            .metadata()
            .and_then(|found| found.modified());
        let patience = Duration::from_millis(holder.interval_ms) * lease::PATIENCE;
        written.is_ok_and(|written| {
            self.now
                .duration_since(written)
                .is_ok_and(|age| age <= patience)
                || written > self.now
        })
    }
}

/// Whether a file ends as a record does.
fn ends_whole(path: &Path) -> bool {
    rundir::read::end(path, 16).is_ok_and(|end| end.trim_ascii_end().ends_with(b"}"))
}

/// Why a record that is there cannot be read.
fn damage(path: &Path) -> Option<String> {
    match records::read_record(path) {
        Err(StoreError::Io(error)) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => Some(error.to_string()),
        Ok(_) => None,
    }
}

/// The names in a directory; none if it is not there.
fn names_in(directory: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}
