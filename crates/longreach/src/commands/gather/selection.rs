//! Selection runs in `longreach gather`: those beside its inputs, and those that stay beside its
//! output.

use crate::commands::replace::check_replaced;
use records::compare::disagreement;
use records::store::{JSONL_FILE, SELECTION_FILE};
use records::{RunRecord, read_jsonl};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use support::exit::Failure;

/// The places that are named, and the selection runs beside files of records: results are chosen by
/// them.
pub fn places(named: &[PathBuf]) -> Vec<PathBuf> {
    let mut places = named.to_vec();
    for place in named {
        let beside = match place.is_dir() {
            true if place.join(JSONL_FILE).is_file() => place.join(SELECTION_FILE),
            true => continue,
            false => place.with_file_name(SELECTION_FILE),
        };
        if beside.is_file() && !places.contains(&beside) {
            places.push(beside);
        }
    }
    places
}

/// The records of the selection file beside `out` that stay when `swept` are written: those of
/// other experiments, and those that a result is chosen by, in `results` or in another file there.
///
/// # Errors
///
/// [`Exit::Config`](support::exit::Exit::Config) if the file holds anything but selection runs,
/// [`Exit::Input`](support::exit::Exit::Input) if it has a run of `swept` with other numbers.
pub fn kept_beside(
    out: &Path,
    swept: &[RunRecord],
    results: &[RunRecord],
) -> Result<Vec<RunRecord>, Failure> {
    let path = out.with_file_name(SELECTION_FILE);
    if swept.is_empty() || !path.is_file() {
        return Ok(Vec::new());
    }
    let there = read_jsonl(&path).map_err(Failure::input)?;
    let is_swept = there.records.iter().all(RunRecord::is_of_sweep);
    check_replaced(&path, |_| there.excluded.is_empty() && is_swept)?;
    let others = others_beside(out);
    let used = candidates(results.iter().chain(&others));
    let written: BTreeSet<&String> = swept.iter().map(|new| &new.experiment).collect();
    let mut kept = Vec::new();
    for record in there.records {
        let same = |new: &&RunRecord| {
            (&new.run_id, &new.evaluation_of) == (&record.run_id, &record.evaluation_of)
        };
        let mut again = swept.iter().filter(same);
        if let Some(what) = again.clone().find_map(|new| disagreement(new, &record)) {
            return Err(Failure::input(format!(
                "{}: run {} is there with other numbers: they differ in {what}",
                path.display(),
                record.run_id
            ))
            .with_help("give --out in another directory, or move that file"));
        }
        let is_new = again.any(|new| new.experiment == record.experiment);
        let run = record.evaluation_of.as_ref().unwrap_or(&record.run_id);
        if !is_new && (!written.contains(&record.experiment) || used.contains(run)) {
            kept.push(record);
        }
    }
    Ok(kept)
}

/// The runs that results were chosen among.
fn candidates<'r>(results: impl Iterator<Item = &'r RunRecord>) -> BTreeSet<&'r String> {
    let chosen = results.filter_map(|run| run.selected.as_ref());
    let candidates = chosen.flat_map(|selected| &selected.candidates);
    candidates.flat_map(|candidate| &candidate.runs).collect()
}

/// The records of the other files of the directory that `out` is in.
fn others_beside(out: &Path) -> Vec<RunRecord> {
    let directory = rundir::directory_of(out);
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    let is_other = |path: &PathBuf| {
        path.extension().is_some_and(|ending| ending == "jsonl")
            && path.file_name() != out.file_name()
            && path.file_name() != Some(SELECTION_FILE.as_ref())
    };
    let files = entries.flatten().map(|entry| entry.path()).filter(is_other);
    files
        .filter_map(|file| read_jsonl(&file).ok())
        .flat_map(|there| there.records)
        .collect()
}
