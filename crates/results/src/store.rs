//! Reading and writing records. One bad file never hides the others: it is listed with the reason and left out.

use crate::order;
use crate::record::{RunRecord, SCHEMA};
use fs_err as fs;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};

/// Name of the record inside a run's directory.
pub const RECORD_FILE: &str = "record.json";
/// Name of a file of many records, one per line.
pub const JSONL_FILE: &str = "results.jsonl";

/// Directories below a root that are searched: enough for any layout of ours, and a bound against loops.
const MAX_DEPTH: usize = 6;

/// What can go wrong with the store as a whole.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file system refused; the message names the path.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A record cannot be stored, or what was read is not one.
    #[error("{}: {reason}", path.display())]
    Invalid {
        /// Where.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// What a search gave: the records, and what looked like one and is not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// Records in canonical order, each run once.
    pub records: Vec<RunRecord>,
    /// What was left out, by path and line.
    pub excluded: Vec<Excluded>,
}

/// Something left out, and why.
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

/// Writes `record.json` into `run_dir`, creating the directory: the old file or the whole new one, never a part.
pub fn write_record(run_dir: &Path, record: &RunRecord) -> Result<PathBuf, StoreError> {
    let path = run_dir.join(RECORD_FILE);
    let mut text = serde_json::to_string_pretty(record).map_err(|e| invalid(&path, e))?;
    text.push('\n');
    check_round_trip(&path, &text, record)?;
    fs::create_dir_all(run_dir)?;
    write_atomically(&path, text.as_bytes())?;
    Ok(path)
}

/// Reads one `record.json`.
pub fn read_record(path: &Path) -> Result<RunRecord, StoreError> {
    let bytes = fs::read(path)?;
    parse(&bytes).map_err(|reason| StoreError::Invalid { path: path.into(), reason })
}

/// Writes records in canonical order, one per line.
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
    Ok(write_atomically(path, text.as_bytes())?)
}

/// Finds records under `roots`, each of which may be a directory of runs, of an experiment or of a run, a `record.json`, or a
/// file of one record per line. Symbolic links below a root are not followed, hidden directories not entered.
///
/// # Errors
///
/// A root that does not exist or cannot be listed. Anything wrong below a root is in [`Found::excluded`].
pub fn find_records(roots: &[PathBuf]) -> Result<Found, StoreError> {
    let mut search = Search::default();
    for root in roots {
        if fs::metadata(root)?.is_dir() {
            fs::read_dir(root)?;
            search.directory(root, 0);
        } else {
            search.file(root);
        }
    }
    Ok(search.finish())
}

/// Replaces `path` by `bytes` as one step: written beside it, synced, renamed, and the directory synced. A link at `path` is
/// replaced and what it points at is left alone.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace(path, bytes)?;
    sync_directory(parent(path))
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// [`write_atomically`] without the last sync, for many files in one directory.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".tmp-");
    #[cfg(unix)]
    {
        // A temporary file is private by default; results are shared. The umask still applies.
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    let mut file = builder.tempfile_in(parent(path)).map_err(named)?;
    file.write_all(bytes).map_err(named)?;
    file.as_file().sync_all().map_err(named)?;
    file.persist(path).map_err(|e| named(e.error))?;
    Ok(())
}

/// A renamed file is only safe from a power cut once its directory is.
pub(crate) fn sync_directory(dir: &Path) -> io::Result<()> {
    #[cfg(unix)]
    fs::File::open(dir)?.sync_all()?;
    Ok(())
}

fn invalid(path: &Path, reason: impl ToString) -> StoreError {
    StoreError::Invalid { path: path.into(), reason: reason.to_string() }
}

/// JSON has no NaN: serde writes null, which reads back as something else or not at all.
fn check_round_trip(path: &Path, text: &str, record: &RunRecord) -> Result<(), StoreError> {
    match parse(text.as_bytes()) {
        Ok(back) if back == *record => Ok(()),
        Ok(_) => Err(invalid(path, "the record does not survive JSON: a number is not finite")),
        Err(reason) => Err(invalid(path, format!("the record does not survive JSON (a number that is not finite?): {reason}"))),
    }
}

fn parse(bytes: &[u8]) -> Result<RunRecord, String> {
    #[derive(Deserialize)]
    struct Version {
        schema: u32,
    }
    // The version first: a newer layout should say so rather than complain of an unknown field.
    let version: Version = serde_json::from_slice(bytes).map_err(|e| format!("not a record: {e}"))?;
    match version.schema {
        SCHEMA => serde_json::from_slice(bytes).map_err(|e| format!("not a record of schema {SCHEMA}: {e}")),
        newer if newer > SCHEMA => Err(format!("schema {newer} is newer than this binary's {SCHEMA}")),
        other => Err(format!("schema {other} is unknown; this binary reads {SCHEMA}")),
    }
}

#[derive(Default)]
struct Search {
    found: BTreeMap<String, (PathBuf, RunRecord)>,
    excluded: Vec<Excluded>,
}

impl Search {
    fn directory(&mut self, dir: &Path, depth: usize) {
        let entries = match fs::read_dir(dir).and_then(|entries| entries.collect::<io::Result<Vec<_>>>()) {
            Ok(entries) => entries,
            Err(e) => return self.exclude(dir, None, e.to_string()),
        };
        let mut names: Vec<_> = entries.iter().filter_map(|e| Some((e.file_name(), e.file_type().ok()?))).collect();
        names.sort_by(|a, b| a.0.cmp(&b.0));
        for (name, _) in names.iter().filter(|(_, kind)| kind.is_file()) {
            if name == RECORD_FILE || name == JSONL_FILE {
                self.file(&dir.join(name));
            }
        }
        // Below a run there are checkpoints and logs, no other runs.
        let is_run = names.iter().any(|(name, kind)| kind.is_file() && name == RECORD_FILE);
        if is_run || depth == MAX_DEPTH {
            return;
        }
        for (name, _) in names.iter().filter(|(name, kind)| kind.is_dir() && !name.to_string_lossy().starts_with('.')) {
            self.directory(&dir.join(name), depth + 1);
        }
    }

    fn file(&mut self, path: &Path) {
        if path.extension().is_none_or(|e| e != "jsonl") {
            match fs::read(path) {
                Ok(bytes) => self.take(path, None, &bytes),
                Err(e) => self.exclude(path, None, e.to_string()),
            }
            return;
        }
        let mut reader = match fs::File::open(path) {
            Ok(file) => io::BufReader::new(file),
            Err(e) => return self.exclude(path, None, e.to_string()),
        };
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            match reader.read_until(b'\n', &mut line) {
                Ok(0) => return,
                Ok(_) if line.trim_ascii().is_empty() => {}
                Ok(_) => self.take(path, Some(number), &line),
                Err(e) => return self.exclude(path, Some(number), e.to_string()),
            }
        }
    }

    fn take(&mut self, path: &Path, line: Option<usize>, bytes: &[u8]) {
        match parse(bytes) {
            Err(reason) => self.exclude(path, line, reason),
            Ok(record) => match self.found.get(&record.run_id) {
                None => {
                    self.found.insert(record.run_id.clone(), (path.into(), record));
                }
                Some((_, known)) if *known == record => {}
                Some((first, _)) => {
                    let reason = format!("run {} differs from the one already read from {}", record.run_id, first.display());
                    self.exclude(path, line, reason);
                }
            },
        }
    }

    fn exclude(&mut self, path: &Path, line: Option<usize>, reason: String) {
        self.excluded.push(Excluded { path: path.into(), line, reason });
    }

    fn finish(mut self) -> Found {
        let mut records: Vec<RunRecord> = self.found.into_values().map(|(_, record)| record).collect();
        records.sort_by(order::canonical);
        self.excluded.sort();
        self.excluded.dedup();
        Found { records, excluded: self.excluded }
    }
}
