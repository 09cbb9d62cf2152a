//! Reading and writing records. One bad file never hides the others: it is left out and listed with
//! the reason.
//!
//! ```text
//! read.rs    one record from bytes of unknown origin
//! search.rs  the records below directories
//! ```

mod read;
mod search;

use crate::order;
use crate::record::RunRecord;
use crate::text::printable;
use fs_err as fs;
use rundir::disk::Refused;
use std::io;
use std::path::{Path, PathBuf};

pub use read::read_record;
use search::Search;

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

/// Levels of directories searched below a root: enough for every layout, and a bound against
/// loops.
pub const MAX_DEPTH: usize = 6;
/// Largest number of entries of a directory that is searched.
const MAX_ENTRIES: usize = 100_000;
/// Invalid lines of one file that are listed. In a file of another kind every line is invalid.
const MAX_BAD_LINES: usize = 100;

/// What can go wrong with the store as a whole.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file or directory cannot be read; the message names the path.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A file cannot be written; the message names the path.
    #[error(transparent)]
    Write(#[from] Refused),
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
    pub places: [Place; 2],
    /// What differs, in a few words.
    pub what: String,
}

/// Where a record was read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The file.
    pub path: PathBuf,
    /// The line, counted from 1, in a file of many records.
    pub line: Option<usize>,
}

impl Place {
    /// Whether this is the record in a run's own directory.
    fn is_of_run(&self) -> bool {
        self.path
            .file_name()
            .is_some_and(|name| name == RECORD_FILE)
    }
}

impl std::fmt::Display for Place {
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
    lines.push(
        "  = help: name only one of the two places; `longreach verify` checks a run's directory, \
         `longreach compare` shows what differs"
            .into(),
    );
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

/// Where a record belongs under a directory of runs: `<root>/<experiment>/<run_id>`.
pub fn run_dir(root: &Path, experiment: &str, run_id: &str) -> PathBuf {
    root.join(experiment).join(run_id)
}

/// The text of a `record.json` that is going to be written to `path`.
///
/// # Errors
///
/// When the record does not survive JSON: a number is not finite.
pub fn record_text(path: &Path, record: &RunRecord) -> Result<String, StoreError> {
    let mut text = serde_json::to_string_pretty(record).map_err(|e| invalid(path, e))?;
    text.push('\n');
    check_round_trip(path, &text, record)?;
    Ok(text)
}

/// Reads a file of one record per line, as [`write_jsonl`] writes it: at most [`MAX_JSONL_BYTES`],
/// lines of at most [`MAX_RECORD_BYTES`]. An invalid line hides no other: it is in
/// [`Found::excluded`].
///
/// # Errors
///
/// When the file cannot be read or is too large, or holds a run twice with different numbers.
pub fn read_jsonl(path: &Path) -> Result<Found, StoreError> {
    let mut search = Search::default();
    search.lines(path)?;
    search.finish()
}

/// Gathers the records under `roots` into one file, one per line; of `loss_by_position` at most
/// `most_bins` bins are kept, if given
/// ([`EvalRow::thin_positions`](crate::record::EvalRow::thin_positions)). Returns what was found,
/// thinned as written. The same records give the same bytes, wherever they lie. Of a run that is
/// also in the file, with fewer bins, the record in its own directory is taken.
///
/// # Errors
///
/// A root that cannot be searched, a run that is recorded twice with different numbers, no record at
/// all, or a file that cannot be written.
pub fn gather_jsonl(
    roots: &[PathBuf],
    path: &Path,
    most_bins: Option<usize>,
) -> Result<Found, StoreError> {
    gather_found(find_records(roots)?, path, most_bins)
}

/// Writes what a search found into one file, as [`gather_jsonl`] does.
///
/// # Errors
///
/// No record at all, or a file that cannot be written.
pub fn gather_found(
    mut found: Found,
    path: &Path,
    most_bins: Option<usize>,
) -> Result<Found, StoreError> {
    if found.records.is_empty() {
        return Err(invalid(path, "not written: there are no records to gather"));
    }
    if let Some(most) = most_bins {
        found
            .records
            .iter_mut()
            .flat_map(|record| &mut record.evals)
            .for_each(|row| row.thin_positions(most));
    }
    write_jsonl(path, &found.records)?;
    Ok(found)
}

/// Writes records in canonical order, one per line: the same records give the same bytes.
///
/// # Errors
///
/// When a record does not survive JSON or the file cannot be written; nothing is written then.
pub fn write_jsonl(path: &Path, records: &[RunRecord]) -> Result<(), StoreError> {
    let mut sorted: Vec<&RunRecord> = records.iter().collect();
    sorted.sort_by(|a, b| order::canonical(a, b));
    let mut text = String::new();
    for record in sorted {
        let line = serde_json::to_string(record).map_err(|e| invalid(path, e))?;
        check_round_trip(path, &line, record)?;
        text.push_str(&line);
        text.push('\n');
    }
    if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        fs::create_dir_all(dir)?;
    }
    Ok(rundir::system().write_whole(path, text.as_bytes())?)
}

/// Finds records under `roots`, each of which may be a directory of runs, of an experiment or of a
/// run, a `record.json`, or a file of one record per line. Symbolic links below a root are not
/// followed and hidden directories not entered. Depth, width and sizes have bounds; whatever exceeds
/// one is listed. With the record of a run, those of its later evaluations are read
/// ([`EVALS_DIR`]).
///
/// # Errors
///
/// A root that does not exist or cannot be listed; a run that is recorded twice with different
/// numbers ([`StoreError::Conflicts`]). Any other problem below a root is in [`Found::excluded`].
pub fn find_records(roots: &[PathBuf]) -> Result<Found, StoreError> {
    find_records_within(roots, MAX_DEPTH)
}

/// [`find_records`] in at most `depth` levels of directories below each root.
///
/// # Errors
///
/// As [`find_records`].
pub fn find_records_within(roots: &[PathBuf], depth: usize) -> Result<Found, StoreError> {
    let mut search = Search::default();
    for root in roots {
        if fs::metadata(root)?.is_dir() {
            fs::read_dir(root)?;
            if root.ends_with(EVALS_DIR) && parent(root).join(RECORD_FILE).is_file() {
                search.evaluations(root);
                continue;
            }
            search.directory(root, depth.min(MAX_DEPTH));
        } else {
            search.file(root);
        }
    }
    search.finish()
}

fn invalid(path: &Path, reason: impl ToString) -> StoreError {
    StoreError::Invalid {
        path: path.into(),
        reason: reason.to_string(),
    }
}

/// JSON has no NaN: serde writes null, which reads back as something else or not at all.
fn check_round_trip(path: &Path, text: &str, record: &RunRecord) -> Result<(), StoreError> {
    match read::parse(text.as_bytes()) {
        Ok(back) if back == *record => Ok(()),
        Ok(_) => Err(invalid(
            path,
            "the record does not survive JSON: a number is not finite",
        )),
        Err(reason) => Err(invalid(
            path,
            format!("the record does not survive JSON (a number that is not finite?): {reason}"),
        )),
    }
}

fn parent(path: &Path) -> &Path {
    path.parent()
        .filter(|dir| !dir.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}
