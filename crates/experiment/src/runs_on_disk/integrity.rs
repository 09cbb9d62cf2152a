//! Notes on records that were edited after the run. A run id is a hash of its spec, so an edited
//! spec no longer matches its id.

use crate::runs_on_disk::files::{RECORD_FILE, is_of_pytorch};
use crate::spec::RunSpec;
use records::RunRecord;
use schema::text::excerpt;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use support::units::count;

/// Runs that a note names; the others are counted.
const MOST_NAMED: usize = 5;

/// Notes on records that contradict themselves (a spec of another version, a spec that does not
/// hash to the run id, a seed other than the spec's), on those that do not match their seal, and on
/// those that another program wrote.
pub fn integrity_notes(records: &[RunRecord]) -> Vec<String> {
    let ours = records.iter().filter(|record| !is_of_pytorch(record));
    let found = ours.filter_map(|record| Some((record.run_id.clone(), contradiction(record)?)));
    let contradictions = note(
        "records edited by hand or by another version",
        &found.collect::<Vec<_>>(),
    );
    let broken = records
        .iter()
        .filter(|record| record.seal_holds() == Some(false))
        .map(|record| {
            (
                record.run_id.clone(),
                "it does not match its seal".to_owned(),
            )
        });
    let broken = note(
        "records that were changed after they were written",
        &broken.collect::<Vec<_>>(),
    );
    let foreign = records
        .iter()
        .filter(|record| is_of_pytorch(record))
        .count();
    let foreign = (foreign > 0).then(|| {
        format!(
            "{foreign} of {} trained in PyTorch by longreach.bench: they have no seal that would \
             show an edit",
            count(records.len(), "record")
        )
    });
    let notes = contradictions.into_iter().chain(broken);
    notes.chain(foreign).collect()
}

/// A note on records without a seal: how many of how many. Another one tells of those that have
/// none because PyTorch trained them.
pub fn unsealed_note(records: &[RunRecord]) -> Option<String> {
    let unsealed = records
        .iter()
        .filter(|record| record.seal.is_none() && !is_of_pytorch(record))
        .count();
    (unsealed > 0).then(|| {
        format!(
            "{unsealed} of {} without a seal: they are of a version before seals, or the seal was \
             removed; an edit would not show",
            count(records.len(), "record")
        )
    })
}

/// The contradiction in a record.
pub fn contradiction(record: &RunRecord) -> Option<String> {
    let spec: RunSpec = match serde_json::from_value(serde_json::Value::Object(record.spec.clone()))
    {
        Ok(spec) => spec,
        Err(error) => return Some(format!("its spec is not one of this version: {error}")),
    };
    match spec.run_id() {
        Ok(id) if id == record.run_id => {}
        Ok(id) => return Some(format!("its spec is that of run {id}")),
        Err(error) => return Some(format!("its spec has no run id: {error}")),
    }
    (record.seed != spec.seed)
        .then(|| format!("it names seed {}, its spec seed {}", record.seed, spec.seed))
}

/// A note that names the run directories that are not named after their run. Directories without a
/// readable record are skipped.
pub fn directory_notes(runs: impl Iterator<Item = PathBuf>) -> Option<String> {
    let mut renamed = Vec::new();
    for run in runs.collect::<BTreeSet<_>>() {
        if let Ok(record) = records::read_record(&run.join(RECORD_FILE))
            // A path such as `.` has no file name.
            && run.canonicalize().is_ok_and(|run| {
                run.file_name()
                    .is_some_and(|name| name.to_string_lossy() != record.run_id)
            })
        {
            renamed.push((
                tail(&run),
                format!("its record belongs to run {}", record.run_id),
            ));
        }
    }
    note("directories that are not named after their run", &renamed)
}

/// The note on a directory that is not named after the run of its job.
pub fn renamed(run: &Path, run_id: &str) -> Option<String> {
    let name = run.file_name()?.to_string_lossy();
    (name != run_id).then(|| format!("the directory is not named after its run, {run_id}"))
}

/// The last two directories of a path, so that a report names no path of the machine.
fn tail(run: &Path) -> String {
    let parts: Vec<_> = run
        .components()
        .map(|part| part.as_os_str().to_string_lossy())
        .collect();
    excerpt(&parts[parts.len().saturating_sub(2)..].join("/"))
}

/// One note with a heading; `None` if nothing was found.
fn note(heading: &str, found: &[(String, String)]) -> Option<String> {
    let named: Vec<String> = found
        .iter()
        .take(MOST_NAMED)
        .map(|(run, why)| format!("{run} ({why})"))
        .collect();
    let more = found.len().saturating_sub(MOST_NAMED);
    let more = if more > 0 {
        format!(", and {more} more")
    } else {
        String::new()
    };
    (!found.is_empty()).then(|| format!("{heading}: {}{more}", named.join(", ")))
}
