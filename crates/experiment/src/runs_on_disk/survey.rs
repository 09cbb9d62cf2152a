//! Counts the runs and experiments below a directory before any record is read, so that a report
//! over more than one level of experiments has to be asked for.

use crate::runs_on_disk::walk::{directories_in, directories_with};
use records::store::{JSONL_FILE, MAX_DEPTH, RECORD_FILE};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use support::exit::Failure;
use support::units::count;

/// Levels of directories below a root that are searched without `--recursive`: experiments and
/// their runs.
pub const PLAIN_DEPTH: usize = 2;

/// Directories that are read to find records that lie too deep.
const MAX_VISITED: usize = 20_000;
/// Experiments that a refusal lists.
const MAX_LISTED: usize = 10;

/// A directory with records: runs, or a file of them.
struct RecordSource {
    directory: PathBuf,
    /// Directories of recorded runs in it.
    runs: usize,
    /// Levels below the root.
    depth: usize,
}

/// How many levels below the roots to read. More than a run, an experiment or a directory of
/// experiments needs `recursive`.
///
/// # Errors
///
/// [`Exit::Config`](support::exit::Exit::Config) if records lie further below and `recursive` is
/// not given; the message lists where.
pub fn depth(roots: &[PathBuf], recursive: bool) -> Result<usize, Failure> {
    if recursive {
        return Ok(MAX_DEPTH);
    }
    for root in roots.iter().filter(|root| root.is_dir()) {
        let (places, complete) = places(root);
        if places.iter().all(|place| place.depth < PLAIN_DEPTH) {
            continue;
        }
        let mut lines: Vec<String> = places
            .iter()
            .take(MAX_LISTED)
            .map(|place| {
                let what = if place.runs == 0 {
                    JSONL_FILE.to_owned()
                } else {
                    count(place.runs, "run")
                };
                format!("\n    {}: {what}", place.directory.display())
            })
            .collect();
        if places.len() > MAX_LISTED {
            lines.push(format!("\n    and {} more", places.len() - MAX_LISTED));
        }
        let seen = if complete { "" } else { "at least " };
        return Err(Failure::config(format!(
            "{} holds experiments more than one level below it: {seen}{} would be read{}",
            root.display(),
            count(places.len(), "experiment"),
            lines.concat()
        ))
        .with_allowed(
            "a run's directory, an experiment's, a directory of experiments, or a file of records",
        )
        .with_help("name the ones you mean, or give --recursive"));
    }
    Ok(PLAIN_DEPTH)
}

/// Whether a directory holds the directories of recorded runs, and is not one itself.
pub fn is_experiment(directory: &Path) -> bool {
    directory.is_dir()
        && !directory.join(RECORD_FILE).is_file()
        && !directories_with(directory, RECORD_FILE).is_empty()
}

/// Directories with records below a root, the nearest first, and whether all were visited.
/// Links, hidden directories and the directories of runs are not entered.
fn places(root: &Path) -> (Vec<RecordSource>, bool) {
    let (mut found, mut visited): (Vec<RecordSource>, usize) = (Vec::new(), 0);
    let mut queue = VecDeque::from([(root.to_owned(), 0)]);
    // A run itself: nothing lies deeper.
    if root.join(RECORD_FILE).is_file() {
        return (found, true);
    }
    while let Some((directory, depth)) = queue.pop_front() {
        visited += 1;
        // Either the tree is too large to count, or enough is known to refuse and the list is full.
        if visited > MAX_VISITED || (depth > PLAIN_DEPTH && found.len() > MAX_LISTED) {
            return (found, false);
        }
        let below = directories_in(&directory).unwrap_or_default();
        let (runs, others): (Vec<PathBuf>, Vec<PathBuf>) = below
            .into_iter()
            .partition(|path| path.join(RECORD_FILE).is_file());
        if !runs.is_empty() || directory.join(JSONL_FILE).is_file() {
            found.push(RecordSource {
                directory,
                runs: runs.len(),
                depth,
            });
        }
        if depth < MAX_DEPTH - 1 {
            queue.extend(others.into_iter().map(|path| (path, depth + 1)));
        }
    }
    (found, true)
}
