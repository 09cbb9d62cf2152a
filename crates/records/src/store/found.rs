//! Types of the store: where records were read, what was left out, what can go wrong.

use crate::record::RunRecord;
use crate::text::printable;
use rundir::disk::Refused;
use std::io;
use std::path::{Path, PathBuf};

/// Name of the record inside a run's directory.
pub const RECORD_FILE: &str = "record.json";
/// Name of a file of many records, one per line.
pub const JSONL_FILE: &str = "results.jsonl";

/// Largest record read, in bytes. Real records stay below an eightieth of it.
pub const MAX_RECORD_BYTES: u64 = 16 << 20;
/// Largest file of many records read, in bytes.
pub const MAX_JSONL_BYTES: u64 = 1 << 30;

/// Directory inside a run's directory with the records of later evaluations, one file each.
pub const EVALS_DIR: &str = "evals";

/// File beside the runs of an experiment, and beside gathered results: the records of the sweep
/// that values were chosen by.
pub const SELECTION_FILE: &str = "selection.jsonl";

/// Levels of directories searched below a root: enough for every layout, and a bound against
/// loops.
pub const MAX_DEPTH: usize = 6;
/// Largest number of entries of a directory that is searched.
pub(super) const MAX_ENTRIES: usize = 100_000;
/// Invalid lines of one file that are listed. In a file of another kind every line is invalid.
pub(super) const MAX_BAD_LINES: usize = 100;

/// What can go wrong with the store as a whole.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file or directory cannot be read; the message names the path.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A file cannot be written; the message names the path.
    #[error(transparent)]
    Write(#[from] Refused),
    /// A record of a newer version, which this one neither reads nor replaces.
    #[error("{}: {reason}", printable(&path.to_string_lossy()))]
    Newer {
        /// Where.
        path: PathBuf,
        /// Its version and the one that is read.
        reason: String,
    },
    /// A record cannot be stored, or a file holds none.
    #[error("{}: {reason}", printable(&path.to_string_lossy()))]
    Invalid {
        /// Where.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Records of one run that disagree. No report is made of either.
    #[error("{}", conflicts_text(.0))]
    Conflicts(Vec<Conflict>),
}

/// Two records with one run id and different numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Their run.
    pub run_id: String,
    /// Where they were read.
    pub places: [RecordLocation; 2],
    /// What differs, in a few words.
    pub what: String,
}

/// Where a record was read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordLocation {
    /// The file.
    pub path: PathBuf,
    /// The line, counted from 1, in a file of many records.
    pub line: Option<usize>,
}

impl RecordLocation {
    /// Whether this is the record in a run's own directory.
    pub(super) fn is_of_run(&self) -> bool {
        self.path
            .file_name()
            .is_some_and(|name| name == RECORD_FILE)
    }
}

impl std::fmt::Display for RecordLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", printable(&self.path.to_string_lossy()))?;
        self.line.map_or(Ok(()), |line| write!(f, ":{line}"))
    }
}

/// Conflicts that an error lists.
const MOST_CONFLICTS: usize = 5;

fn conflicts_text(conflicts: &[Conflict]) -> String {
    let each = |conflict: &Conflict| {
        let [first, second] = &conflict.places;
        format!(
            "run {} is recorded twice with different numbers: {first} and {second} differ in {}",
            conflict.run_id, conflict.what
        )
    };
    let mut lines: Vec<String> = conflicts.iter().take(MOST_CONFLICTS).map(each).collect();
    if conflicts.len() > MOST_CONFLICTS {
        lines.push(format!(
            "{} more runs are recorded twice with different numbers",
            conflicts.len() - MOST_CONFLICTS
        ));
    }
    lines.push(
        "  = allowed: any number of records of a run, if their weights and scores are equal".into(),
    );
    let is_one_file = |conflict: &Conflict| conflict.places[0].path == conflict.places[1].path;
    lines.push(match conflicts.iter().all(is_one_file) {
        true => "  = help: keep one of the two lines in a copy of the file".into(),
        false => "  = help: name only one of the two places; `longreach verify` checks a run's \
                  directory, `longreach compare` shows what differs"
            .into(),
    });
    lines.join("\n")
}

/// The result of a search: the records, and the files and lines that are none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// Records in canonical order: each run once in each experiment that it is part of, and each
    /// of its later evaluations.
    pub records: Vec<RunRecord>,
    /// For each record, the run's directory that it was read from; none for a line of a file of
    /// many.
    pub directories: Vec<Option<PathBuf>>,
    /// Files and lines that were left out, by path and line.
    pub excluded: Vec<Excluded>,
}

/// Records with their places, and the lines that are none.
pub type Placed = (Vec<(RecordLocation, RunRecord)>, Vec<Excluded>);

/// A file or line that was left out, and why.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Excluded {
    /// The file.
    pub path: PathBuf,
    /// The line, counted from 1, in a file of many records.
    pub line: Option<usize>,
    /// Why.
    pub reason: String,
}

pub(super) fn invalid(path: &Path, reason: impl ToString) -> StoreError {
    StoreError::Invalid {
        path: path.into(),
        reason: reason.to_string(),
    }
}
