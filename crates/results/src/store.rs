//! Reading and writing records. One bad file never hides the others: it is listed with the reason
//! and left out.

use crate::compare::{disagreement, fuller_first};
use crate::order;
use crate::record::{RunRecord, SCHEMA};
use crate::text::shown;
use fs_err as fs;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::FileType;
use std::io::{self, BufRead, Read, Write};
use std::path::{Path, PathBuf};

/// Name of the record inside a run's directory.
pub const RECORD_FILE: &str = "record.json";
/// Name of a file of many records, one per line.
pub const JSONL_FILE: &str = "results.jsonl";

/// Largest record read, in bytes: eighty times the largest of ours.
pub const MAX_RECORD_BYTES: u64 = 16 << 20;
/// Largest file of many records read, in bytes.
pub const MAX_JSONL_BYTES: u64 = 1 << 30;

/// Directory inside a run's directory with the records of later evaluations, one file each.
pub const EVALS_DIR: &str = "evals";

/// Directories below a root that are searched: enough for any layout of ours, and a bound against
/// loops.
pub const MAX_DEPTH: usize = 6;
/// Entries of one directory that are looked at.
const MAX_ENTRIES: usize = 100_000;
/// Lines of one file that are listed as no records; of a file of another kind every line is.
const MAX_BAD_LINES: usize = 100;

/// What can go wrong with the store as a whole.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file system refused; the message names the path.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A record cannot be stored, or what was read is not one.
    #[error("{}: {reason}", shown(&path.to_string_lossy()))]
    Invalid {
        /// Where.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Records of one run that disagree: nothing is said of either.
    #[error("{}", twins_text(.0))]
    Twins(Vec<Twins>),
}

/// Two records with one run id and other numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Twins {
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
        write!(f, "{}", shown(&self.path.to_string_lossy()))?;
        self.line.map_or(Ok(()), |line| write!(f, ":{line}"))
    }
}

/// Pairs of records that are listed in an error.
const MOST_TWINS: usize = 5;

fn twins_text(twins: &[Twins]) -> String {
    let each = |t: &Twins| {
        let [first, second] = &t.places;
        format!(
            "run {} is recorded twice with other numbers: {first} and {second} differ in {}",
            t.run_id, t.what
        )
    };
    let mut lines: Vec<String> = twins.iter().take(MOST_TWINS).map(each).collect();
    if twins.len() > MOST_TWINS {
        lines.push(format!(
            "{} more runs are recorded twice with other numbers",
            twins.len() - MOST_TWINS
        ));
    }
    lines.push(
        "  = allowed: any number of records of a run, if their weights and scores are equal".into(),
    );
    lines.push(
        "  = help: name one of the two places only; `longreach verify` checks a run's directory, \
         `longreach compare` shows what differs"
            .into(),
    );
    lines.join("\n")
}

/// What a search gave: the records, and what looked like one and is not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// Records in canonical order: each run once in each experiment that it is part of, and each
    /// of its later evaluations.
    pub records: Vec<RunRecord>,
    /// For each of the records, the directory of the run it was read in; none for a line of a file
    /// of many.
    pub directories: Vec<Option<PathBuf>>,
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

/// Writes `record.json` into `run_dir`, creating the directory: the old file or the whole new one,
/// never a part.
///
/// # Errors
///
/// When the record does not survive JSON or the file cannot be written.
pub fn write_record(run_dir: &Path, record: &RunRecord) -> Result<PathBuf, StoreError> {
    let path = run_dir.join(RECORD_FILE);
    let text = record_text(&path, record)?;
    fs::create_dir_all(run_dir)?;
    write_atomically(&path, text.as_bytes())?;
    Ok(path)
}

/// What [`write_record`] writes to `path`, for callers with a way of writing of their own.
///
/// # Errors
///
/// When the record does not survive JSON.
pub fn record_text(path: &Path, record: &RunRecord) -> Result<String, StoreError> {
    let mut text = serde_json::to_string_pretty(record).map_err(|e| invalid(path, e))?;
    text.push('\n');
    check_round_trip(path, &text, record)?;
    Ok(text)
}

/// Reads one `record.json`: a regular file of at most [`MAX_RECORD_BYTES`].
///
/// # Errors
///
/// When the file cannot be read, is too large, or holds no record of this schema.
pub fn read_record(path: &Path) -> Result<RunRecord, StoreError> {
    let mut bytes = Vec::new();
    open(path, MAX_RECORD_BYTES)?.read_to_end(&mut bytes)?;
    parse(&bytes).map_err(|reason| invalid(path, reason))
}

/// Reads a file of one record per line, as [`write_jsonl`] writes it: at most [`MAX_JSONL_BYTES`],
/// lines of at most [`MAX_RECORD_BYTES`]. A line that is no record hides no other: it is in
/// [`Found::excluded`].
///
/// # Errors
///
/// When the file cannot be read or is too large, or holds a run twice with other numbers.
pub fn read_jsonl(path: &Path) -> Result<Found, StoreError> {
    let mut search = Search::default();
    search.lines(path)?;
    search.finish()
}

/// Gathers the records under `roots` into one file, one per line; of `loss_by_position` at most
/// `most_bins` bins are kept, if given
/// ([`EvalRow::thin_positions`](crate::record::EvalRow::thin_positions)). Returns what was found,
/// thinned as written. The same records give the same bytes, wherever they lie; a run that is
/// already in the file with fewer bins is taken from its own directory.
///
/// # Errors
///
/// A root that cannot be searched, a run that is recorded twice with other numbers, no record at
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
    Ok(write_atomically(path, text.as_bytes())?)
}

/// Finds records under `roots`, each of which may be a directory of runs, of an experiment or of a
/// run, a `record.json`, or a file of one record per line. Symbolic links below a root are not
/// followed, hidden directories not entered. How deep, how wide and how much is read has a bound;
/// what is beyond it is listed. Beside the record of a run, those of its later evaluations are read
/// ([`EVALS_DIR`]).
///
/// # Errors
///
/// A root that does not exist or cannot be listed; a run that is recorded twice with other numbers
/// ([`StoreError::Twins`]). Anything else wrong below a root is in [`Found::excluded`].
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

/// Replaces `path` by `bytes` as one step: written beside it, synced, renamed, and the directory
/// synced. A link at `path` is replaced and what it points at is left alone.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace(path, bytes)?;
    sync_directory(parent(path))
}

fn parent(path: &Path) -> &Path {
    path.parent()
        .filter(|dir| !dir.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
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
    StoreError::Invalid {
        path: path.into(),
        reason: reason.to_string(),
    }
}

/// JSON has no NaN: serde writes null, which reads back as something else or not at all.
fn check_round_trip(path: &Path, text: &str, record: &RunRecord) -> Result<(), StoreError> {
    match parse(text.as_bytes()) {
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

/// Opens a regular file for reading no more than `most` bytes, so that neither a device nor a file
/// that grows fills the memory.
fn open(path: &Path, most: u64) -> Result<io::Take<fs::File>, StoreError> {
    // Looked at before it is opened: opening a pipe waits for its writer.
    let meta = fs::metadata(path)?;
    if !meta.is_file() {
        return Err(invalid(path, "not a regular file"));
    }
    if meta.len() > most {
        return Err(invalid(
            path,
            format!("has {} bytes; at most {most} are read", meta.len()),
        ));
    }
    Ok(fs::File::open(path)?.take(most))
}

fn parse(bytes: &[u8]) -> Result<RunRecord, String> {
    #[derive(serde::Deserialize)]
    struct Version {
        schema: u32,
    }
    // The version first: a newer layout should say so rather than complain of an unknown field.
    let version: Version =
        serde_json::from_slice(bytes).map_err(|e| format!("not a record: {e}"))?;
    let wrong = |e: &dyn std::fmt::Display| format!("not a record of schema {SCHEMA}: {e}");
    match version.schema {
        SCHEMA => {}
        newer if newer > SCHEMA => {
            return Err(format!(
                "schema {newer} is newer than this binary's {SCHEMA}"
            ));
        }
        other => {
            return Err(format!(
                "schema {other} is unknown; this binary reads {SCHEMA}"
            ));
        }
    }
    let record: RunRecord = serde_json::from_slice(bytes).map_err(|e| wrong(&e))?;
    serde_json::from_slice::<NoTwins>(bytes).map_err(|e| wrong(&e))?;
    record.check().map_err(|e| wrong(&e))?;
    Ok(record)
}

/// Any JSON in which no object has a key twice. Maps would keep the last value without a word.
struct NoTwins;

impl<'de> Deserialize<'de> for NoTwins {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NoTwins)
    }
}

impl<'de> Visitor<'de> for NoTwins {
    type Value = Self;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }
    fn visit_unit<E>(self) -> Result<Self, E> {
        Ok(self)
    }
    fn visit_bool<E>(self, _: bool) -> Result<Self, E> {
        Ok(self)
    }
    fn visit_i64<E>(self, _: i64) -> Result<Self, E> {
        Ok(self)
    }
    fn visit_u64<E>(self, _: u64) -> Result<Self, E> {
        Ok(self)
    }
    fn visit_f64<E>(self, _: f64) -> Result<Self, E> {
        Ok(self)
    }
    fn visit_str<E>(self, _: &str) -> Result<Self, E> {
        Ok(self)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self, A::Error> {
        while seq.next_element::<NoTwins>()?.is_some() {}
        Ok(self)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self, A::Error> {
        let mut keys = BTreeSet::new();
        while let Some(key) = map.next_key::<String>()? {
            if keys.contains(&key) {
                return Err(serde::de::Error::custom(format_args!(
                    "duplicate key {key:?}"
                )));
            }
            keys.insert(key);
            map.next_value::<NoTwins>()?;
        }
        Ok(self)
    }
}

/// Names and kinds of what is in a directory, sorted. All or nothing: which entries come first is
/// up to the file system.
fn entries(dir: &Path, most: usize) -> io::Result<Vec<(OsString, FileType)>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if names.len() == most {
            return Err(io::Error::other(format!(
                "has more than {most} entries, and is not searched"
            )));
        }
        // What is gone since it was listed, as scratch files are, has no kind and is no record.
        names.extend(entry.file_type().ok().map(|kind| (entry.file_name(), kind)));
    }
    names.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(names)
}

#[derive(Default)]
struct Search {
    /// By run id: one record for each experiment and each evaluated run.
    found: BTreeMap<String, Vec<(Place, RunRecord)>>,
    twins: Vec<Twins>,
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
                self.exclude(
                    &dir.join(name),
                    None,
                    "not a regular file; links are not followed here, name it to read it".into(),
                );
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
            if name.to_string_lossy().starts_with('.')
                || path.extension().is_none_or(|e| e != "json")
            {
                continue;
            }
            if kind.is_file() {
                self.file(&path);
            } else {
                self.exclude(
                    &path,
                    None,
                    "not a regular file; links are not followed here, name it to read it".into(),
                );
            }
        }
    }

    /// Takes the record of a run, or of a later evaluation in the run's directory.
    fn take_one(&mut self, path: &Path, mut record: RunRecord) {
        if let Some(run) = path
            .parent()
            .filter(|dir| dir.ends_with(EVALS_DIR))
            .map(parent)
        {
            let own = read_record(&run.join(RECORD_FILE)).ok();
            if own.as_ref().is_some_and(|own| own.model != record.model) {
                return self.exclude(
                    path,
                    None,
                    "evaluates other weights than those of the run's record".into(),
                );
            }
            // Versions before `evaluation_of` was kept did not write whose weights these are.
            record.evaluation_of = record.evaluation_of.or_else(|| Some(own?.run_id));
            if record.evaluation_of.is_none() {
                return self.exclude(
                    path,
                    None,
                    "the run it evaluates has no readable record".into(),
                );
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
            Err(StoreError::Invalid { reason, .. }) => self.exclude(path, None, reason),
            Err(error @ StoreError::Twins(_)) => self.exclude(path, None, error.to_string()),
        }
    }

    fn lines(&mut self, path: &Path) -> Result<(), StoreError> {
        let mut reader = io::BufReader::new(open(path, MAX_JSONL_BYTES)?);
        let mut line = Vec::new();
        let mut bad = 0;
        for number in 1.. {
            line.clear();
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
                Err(format!("the line has more than {MAX_RECORD_BYTES} bytes"))
            } else if line.trim_ascii().is_empty() {
                continue;
            } else {
                parse(&line)
            };
            match record {
                Ok(record) => self.take(path, Some(number), record),
                Err(reason) => {
                    bad += 1;
                    if bad <= MAX_BAD_LINES {
                        self.exclude(path, Some(number), reason);
                    }
                }
            }
        }
        if bad > MAX_BAD_LINES {
            self.exclude(
                path,
                None,
                format!("{} more lines are no records", bad - MAX_BAD_LINES),
            );
        }
        Ok(())
    }

    /// The same run may lie in its directory and, thinned, in a file of many: the one that says
    /// most is taken. It may be part of several experiments, and is kept in each.
    fn take(&mut self, path: &Path, line: Option<usize>, record: RunRecord) {
        let place = Place {
            path: path.into(),
            line,
        };
        for (known_place, known) in self.found.get(&record.run_id).into_iter().flatten() {
            if known.evaluation_of == record.evaluation_of
                && let Some(what) = disagreement(known, &record)
            {
                let mut places = [known_place.clone(), place];
                places.sort();
                self.twins.push(Twins {
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
                let rank = |place: &Place| (!place.is_of_run(), place.path.clone(), place.line);
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

    fn finish(mut self) -> Result<Found, StoreError> {
        if !self.twins.is_empty() {
            self.twins
                .sort_by(|a, b| (&a.run_id, &a.places).cmp(&(&b.run_id, &b.places)));
            return Err(StoreError::Twins(self.twins));
        }
        let mut found: Vec<(Place, RunRecord)> = self.found.into_values().flatten().collect();
        found.sort_by(|a, b| order::canonical(&a.1, &b.1));
        self.excluded.sort();
        self.excluded.dedup();
        let directory = |place: &Place| place.is_of_run().then(|| parent(&place.path).to_owned());
        let directories = found.iter().map(|(place, _)| directory(place)).collect();
        Ok(Found {
            records: found.into_iter().map(|(_, record)| record).collect(),
            directories,
            excluded: self.excluded,
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
