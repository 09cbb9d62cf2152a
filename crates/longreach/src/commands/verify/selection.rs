//! The records that the values of an experiment were chosen by, in the file beside its runs.

use super::Findings;
use experiment::runs_on_disk::files::{RECORD_FILE, is_of_pytorch};
use experiment::runs_on_disk::integrity::contradiction;
use records::compare::disagreement;
use records::store::{SELECTION_FILE, read_files};
use records::{RunRecord, read_record};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use support::units::count;

/// The files of the experiments that some runs are of, below the directories that were asked for.
pub(super) fn files(directories: &[PathBuf], runs: &[PathBuf]) -> BTreeSet<PathBuf> {
    let experiments = runs.iter().filter_map(|run| run.parent());
    let asked = experiments.filter(|place| directories.iter().any(|of| place.starts_with(of)));
    let files = asked.map(|place| place.join(SELECTION_FILE));
    files.filter(|file| file.exists()).collect()
}

/// Checks every line, and every record against that of its run, if it is still there.
pub(super) fn check(file: &Path) -> Findings {
    let (found, excluded) = match read_files(&[file.to_owned()]) {
        Ok(read) => read,
        Err(error) => return Findings::wrong(error.to_string()),
    };
    let mut findings = Findings::default();
    let wrong = excluded.iter().map(|bad| (bad.line, bad.reason.clone()));
    let problems = found
        .iter()
        .filter_map(|(place, record)| Some((place.line, problem(file, record)?)));
    let said = |(line, problem): (Option<usize>, String)| match line {
        Some(line) => format!("line {line}: {problem}"),
        None => problem,
    };
    let wrong = wrong.chain(problems).map(said).collect();
    findings.add(&count(found.len(), "record"), wrong);
    findings
}

fn problem(file: &Path, record: &RunRecord) -> Option<String> {
    let id = &record.run_id;
    if record.seal_holds() == Some(false) {
        return Some(format!(
            "the record of run {id} was changed after it was written: it does not match its seal"
        ));
    }
    if let Some(why) = contradiction(record).filter(|_| !is_of_pytorch(record)) {
        return Some(format!("the record of run {id}: {why}"));
    }
    let own = read_record(&file.with_file_name(id).join(RECORD_FILE)).ok()?;
    let what = disagreement(&own, record)?;
    Some(format!(
        "the record of run {id} is not that of its directory: they differ in {what}"
    ))
}
