//! Do records still say what was run? A run id is a hash of its spec, so a spec that was edited no
//! longer fits its id.

use crate::plan::spec::RunSpec;
use crate::run_dir::files::RECORD_FILE;
use crate::run_dir::seal::seal_holds;
use results::RunRecord;
use schema::text::excerpt;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Runs that are named one by one; the others are counted.
const MOST_NAMED: usize = 5;

/// A note that names the records that do not fit themselves: a spec of another version, a spec that
/// is not that of the run id, a seed that is not that of the spec.
pub fn integrity_notes(records: &[RunRecord]) -> Vec<String> {
    let found = records
        .iter()
        .filter_map(|record| Some((record.run_id.clone(), misfit(record)?)));
    note(
        "records edited by hand or by another version",
        &found.collect::<Vec<_>>(),
    )
    .into_iter()
    .collect()
}

/// What does not fit in a record.
fn misfit(record: &RunRecord) -> Option<String> {
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

/// Notes that name the run directories whose record was changed after it was written, and those
/// that are not named after their run. Directories without a record are none of a run.
pub fn directory_notes(runs: impl Iterator<Item = PathBuf>) -> Vec<String> {
    let (mut changed, mut renamed) = (Vec::new(), Vec::new());
    for run in runs.collect::<BTreeSet<_>>() {
        if seal_holds(&run) == Some(false) {
            changed.push((
                tail(&run),
                format!("{RECORD_FILE} does not fit the hash in timings.json"),
            ));
        }
        if let Ok(record) = results::read_record(&run.join(RECORD_FILE))
            && run.canonicalize().is_ok_and(|run| {
                run.file_name()
                    .is_some_and(|name| name.to_string_lossy() != record.run_id)
            })
        {
            renamed.push((
                tail(&run),
                format!("its record is of run {}", record.run_id),
            ));
        }
    }
    let changed = note(
        "records that were changed after they were written",
        &changed,
    );
    changed
        .into_iter()
        .chain(note(
            "directories that are not named after their run",
            &renamed,
        ))
        .collect()
}

/// The experiment's and the run's directory: enough to find it, and nothing of the machine.
fn tail(run: &Path) -> String {
    let parts: Vec<_> = run
        .components()
        .map(|part| part.as_os_str().to_string_lossy())
        .collect();
    excerpt(&parts[parts.len().saturating_sub(2)..].join("/"))
}

/// One note of what was found under a heading, if anything was.
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
