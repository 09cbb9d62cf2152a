//! The search for records below directories and in files of many.

use super::found::{
    Conflict, EVALS_DIR, Excluded, Found, JSONL_FILE, MAX_BAD_LINES, MAX_DEPTH, MAX_ENTRIES,
    MAX_JSONL_BYTES, MAX_RECORD_BYTES, Placed, RECORD_FILE, RecordLocation, StoreError,
};
use super::read::{open, parse, read_record};
use crate::compare::{disagreement, fuller_first};
use crate::order;
use crate::record::RunRecord;
use fs_err as fs;
use rundir::directory_of;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::FileType;
use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};

/// Why the runs behind a link are left out.
pub const LINK: &str =
    "a link, which is not followed; move the runs here, or name them at their place";
/// Why a file that is a link is not read.
const NOT_REGULAR: &str = "not a regular file; links are not followed here, name it to read it";
const UNREADABLE: &str = "the run it evaluates has no readable record";

/// Reads a file of one record per line, as [`write_jsonl`](super::write_jsonl) writes it: at most [`MAX_JSONL_BYTES`],
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

/// Reads files as [`read_jsonl`] does, or as one `record.json` each: every record with its place,
/// and what is not a record. If several files hold a run, the record with the most detail.
///
/// # Errors
///
/// When a file cannot be read or is too large, or a run is there twice with different numbers.
pub fn read_files(paths: &[PathBuf]) -> Result<Placed, StoreError> {
    let mut search = Search::default();
    for path in paths {
        if path.extension().is_some_and(|ending| ending == "json") {
            search.take_one(path, read_record(path)?);
        } else {
            search.lines(path)?;
        }
    }
    let excluded = search.excluded.clone();
    Ok((search.placed()?, excluded))
}

/// Finds records under `roots`, each of which may be a directory of runs, of an experiment or of a
/// run, a `record.json`, or a file of one record per line.
///
/// Symbolic links below a root are not followed and hidden directories not entered. Depth, width
/// and sizes are bounded; whatever exceeds a bound is listed. With the record of a run, those of
/// its later evaluations are read ([`EVALS_DIR`]).
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
            // A root that cannot be listed is an error, a directory below it only left out.
            fs::read_dir(root)?;
            // The later evaluations of a run, named without the run.
            if root.ends_with(EVALS_DIR) && directory_of(root).join(RECORD_FILE).is_file() {
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

/// Names and kinds of a directory's entries, sorted. An error if there are more than `most`: which
/// ones come first depends on the file system.
fn entries(dir: &Path, most: usize) -> io::Result<Vec<(OsString, FileType)>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if names.len() == most {
            return Err(io::Error::other(format!(
                "has more than {most} entries, and is not searched"
            )));
        }
        // An entry that is gone since it was listed, as scratch files are, has no kind.
        names.extend(entry.file_type().ok().map(|kind| (entry.file_name(), kind)));
    }
    names.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(names)
}

/// Links in a directory that lead to a run or to the runs of an experiment. No search follows them.
pub fn linked_runs(dir: &Path) -> Vec<PathBuf> {
    let names = |dir: &Path| entries(dir, MAX_ENTRIES).unwrap_or_default();
    let is_run = |dir: &Path| dir.join(RECORD_FILE).is_file();
    let links = names(dir).into_iter().filter(|(_, kind)| kind.is_symlink());
    let links = links.map(|(name, _)| dir.join(name));
    links
        .filter(|link| {
            let runs = || names(link).iter().any(|(name, _)| is_run(&link.join(name)));
            is_run(link) || (link.is_dir() && runs())
        })
        .collect()
}

/// Whether a file of [`EVALS_DIR`] has the name of a record.
pub fn is_evaluation(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    !name.starts_with('.') && path.extension().is_some_and(|ending| ending == "json")
}

/// A search in progress.
#[derive(Default)]
struct Search {
    /// By run id: one record for each experiment and each evaluated run.
    found: BTreeMap<String, Vec<(RecordLocation, RunRecord)>>,
    conflicts: Vec<Conflict>,
    excluded: Vec<Excluded>,
}

impl Search {
    /// Searches a directory and at most `depth` levels below it.
    fn directory(&mut self, dir: &Path, depth: usize) {
        let names = match entries(dir, MAX_ENTRIES) {
            Ok(names) => names,
            Err(e) => return self.exclude(dir, None, e.to_string()),
        };
        for (name, kind) in names
            .iter()
            .filter(|(name, kind)| !kind.is_dir() && (name == RECORD_FILE || name == JSONL_FILE))
        {
            if kind.is_file() {
                self.file(&dir.join(name));
            } else {
                self.exclude(&dir.join(name), None, NOT_REGULAR.into());
            }
        }
        // Below a run there are checkpoints and logs, no other runs.
        let is_run = names
            .iter()
            .any(|(name, kind)| kind.is_file() && name == RECORD_FILE);
        if is_run
            && names
                .iter()
                .any(|(name, kind)| kind.is_dir() && name == EVALS_DIR)
        {
            self.evaluations(&dir.join(EVALS_DIR));
        }
        if is_run || depth == 0 {
            return;
        }
        for link in linked_runs(dir) {
            self.exclude(&link, None, LINK.into());
        }
        for (name, _) in names
            .iter()
            .filter(|(name, kind)| kind.is_dir() && !name.to_string_lossy().starts_with('.'))
        {
            self.directory(&dir.join(name), depth - 1);
        }
    }

    /// Reads the later evaluations in the directory `dir` of a run.
    fn evaluations(&mut self, dir: &Path) {
        let names = match entries(dir, MAX_ENTRIES) {
            Ok(names) => names,
            Err(e) => return self.exclude(dir, None, e.to_string()),
        };
        for (name, kind) in names {
            let path = dir.join(&name);
            if !is_evaluation(&path) {
                continue;
            }
            if kind.is_file() {
                self.file(&path);
            } else {
                self.exclude(&path, None, NOT_REGULAR.into());
            }
        }
    }

    /// Takes the record of a run, or of a later evaluation in the run's directory.
    fn take_one(&mut self, path: &Path, mut record: RunRecord) {
        if let Some(run) = path
            .parent()
            .filter(|dir| dir.ends_with(EVALS_DIR))
            .map(directory_of)
        {
            let own_path = run.join(RECORD_FILE);
            let own = read_record(&own_path).ok();
            // Without it the evaluations of one run would be as many methods.
            if own.is_none() && own_path.exists() {
                return self.exclude(path, None, UNREADABLE.into());
            }
            if own.as_ref().is_some_and(|own| own.model != record.model) {
                return self.exclude(
                    path,
                    None,
                    "evaluates other weights than those of the run's record".into(),
                );
            }
            // Versions before `evaluation_of` existed did not write whose weights these are.
            record.evaluation_of = record.evaluation_of.or_else(|| Some(own?.run_id));
            if record.evaluation_of.is_none() {
                return self.exclude(path, None, UNREADABLE.into());
            }
        }
        if record.evaluation_of.as_ref() == Some(&record.run_id) {
            return self.exclude(
                path,
                None,
                "evaluates what the run's own record holds".into(),
            );
        }
        self.take(path, None, record);
    }

    fn file(&mut self, path: &Path) {
        let read = if path.extension().is_some_and(|e| e == "jsonl") {
            self.lines(path)
        } else {
            read_record(path).map(|record| self.take_one(path, record))
        };
        match read {
            Ok(()) => {}
            Err(StoreError::Io(e)) => self.exclude(path, None, e.to_string()),
            Err(StoreError::Invalid { reason, .. } | StoreError::Newer { reason, .. }) => {
                self.exclude(path, None, reason)
            }
            Err(error) => self.exclude(path, None, error.to_string()),
        }
    }

    fn lines(&mut self, path: &Path) -> Result<(), StoreError> {
        let mut reader = io::BufReader::new(open(path, MAX_JSONL_BYTES)?);
        let mut line = Vec::new();
        let mut bad = 0;
        for number in 1.. {
            line.clear();
            // The byte above the limit is for the line feed of a line of the largest size.
            if reader
                .by_ref()
                .take(MAX_RECORD_BYTES + 1)
                .read_until(b'\n', &mut line)?
                == 0
            {
                break;
            }
            let record = if line.len() as u64 > MAX_RECORD_BYTES && !line.ends_with(b"\n") {
                reader.skip_until(b'\n')?;
                Err(format!("the line has more than {MAX_RECORD_BYTES} bytes").into())
            } else if line.trim_ascii().is_empty() {
                continue;
            } else {
                parse(line.trim_ascii_end())
            };
            match record {
                Ok(record) => self.take(path, Some(number), record),
                Err(reason) => {
                    bad += 1;
                    if bad <= MAX_BAD_LINES {
                        self.exclude(path, Some(number), reason.to_string());
                    }
                }
            }
        }
        if bad > MAX_BAD_LINES {
            self.exclude(
                path,
                None,
                format!("{} more lines are not records", bad - MAX_BAD_LINES),
            );
        }
        Ok(())
    }

    /// Adds a record. The same run may lie in its directory and, thinned, in a file of many: the
    /// record with the most detail is taken. A run of several experiments is kept in each.
    fn take(&mut self, path: &Path, line: Option<usize>, record: RunRecord) {
        let place = RecordLocation {
            path: path.into(),
            line,
        };
        // Records of all experiments are compared: one run has the same numbers in each.
        for (known_place, known) in self.found.get(&record.run_id).into_iter().flatten() {
            if known.evaluation_of == record.evaluation_of
                && let Some(what) = disagreement(known, &record)
            {
                let mut places = [known_place.clone(), place];
                places.sort();
                self.conflicts.push(Conflict {
                    run_id: record.run_id.clone(),
                    places,
                    what,
                });
                return;
            }
        }
        let known = self.found.entry(record.run_id.clone()).or_default();
        let same = known.iter_mut().find(|(_, known)| {
            known.experiment == record.experiment && known.evaluation_of == record.evaluation_of
        });
        match same {
            None => known.push((place, record)),
            Some(same) => {
                // Of equal records the one in its run's directory, so that the order of reading
                // does not matter.
                let rank =
                    |place: &RecordLocation| (!place.is_of_run(), place.path.clone(), place.line);
                if fuller_first(&record, &same.1)
                    .then_with(|| rank(&place).cmp(&rank(&same.0)))
                    .is_lt()
                {
                    *same = (place, record);
                }
            }
        }
    }

    fn exclude(&mut self, path: &Path, line: Option<usize>, reason: String) {
        self.excluded.push(Excluded {
            path: path.into(),
            line,
            reason,
        });
    }

    /// The records in canonical order.
    fn placed(mut self) -> Result<Vec<(RecordLocation, RunRecord)>, StoreError> {
        if !self.conflicts.is_empty() {
            self.conflicts
                .sort_by(|a, b| (&a.run_id, &a.places).cmp(&(&b.run_id, &b.places)));
            return Err(StoreError::Conflicts(self.conflicts));
        }
        let mut found: Vec<(RecordLocation, RunRecord)> =
            self.found.into_values().flatten().collect();
        found.sort_by(|a, b| order::canonical(&a.1, &b.1));
        Ok(found)
    }

    fn finish(mut self) -> Result<Found, StoreError> {
        let mut excluded = std::mem::take(&mut self.excluded);
        excluded.sort();
        // Roots may overlap, and a file is left out once.
        excluded.dedup();
        let found = self.placed()?;
        let directory = |place: &RecordLocation| {
            place
                .is_of_run()
                .then(|| directory_of(&place.path).to_owned())
        };
        let directories = found.iter().map(|(place, _)| directory(place)).collect();
        Ok(Found {
            records: found.into_iter().map(|(_, record)| record).collect(),
            directories,
            excluded,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_directories_have_a_bound() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["c", "a", "b"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let names: Vec<OsString> = entries(dir.path(), 3)
            .unwrap()
            .into_iter()
            .map(|entry| entry.0)
            .collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert_eq!(
            entries(dir.path(), 2).unwrap_err().to_string(),
            "has more than 2 entries, and is not searched"
        );
    }
}
