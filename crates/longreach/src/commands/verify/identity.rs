//! Whether directory, job, spec and record of a run agree on which run it is.

use super::Subject;
use experiment::run::record::spec_map;
use experiment::runs_on_disk::files::{JOB_FILE, RECORD_FILE};
use experiment::spec::differences::differences;
use schema::text::excerpt;

/// Directory, job, spec and record agree on the run.
#[expect(clippy::too_many_lines, reason = "one rule after the other")]
pub(super) fn check(run: &Subject<'_>) -> Vec<String> {
    let Subject {
        directory,
        job,
        record,
    } = run;
    let mut wrong = Vec::new();
    let id = job.spec.run_id().unwrap_or_default();
    if id != job.run_id {
        wrong.push(format!(
            "{JOB_FILE} was changed: its spec is that of run {id}, not of {}",
            job.run_id
        ));
    }
    if directory
        .file_name()
        .is_some_and(|name| name.to_string_lossy() != job.run_id)
    {
        wrong.push(format!(
            "the directory is not named after its run, {}",
            job.run_id
        ));
    }
    if record.seal_holds() == Some(false) {
        wrong.push(format!(
            "{RECORD_FILE} was changed after it was written: it does not match its seal"
        ));
    }
    if record.experiment != job.experiment {
        wrong.push(format!(
            "{RECORD_FILE} belongs to experiment {}, {JOB_FILE} to {}",
            excerpt(&record.experiment),
            excerpt(&job.experiment)
        ));
    }
    if record.evaluation_of.is_some() || record.started_from != job.started_from {
        wrong.push(format!(
            "{RECORD_FILE} is not that of the training of {JOB_FILE}"
        ));
    }
    if record.seed != job.spec.seed {
        wrong.push(format!(
            "{RECORD_FILE} names seed {}, {JOB_FILE} seed {}",
            record.seed, job.spec.seed
        ));
    }
    if record.run_id != job.run_id {
        wrong.push(format!("{RECORD_FILE} belongs to run {}", record.run_id));
    }
    let spec = spec_map(&job.spec)
        .map(serde_json::Value::Object)
        .unwrap_or_default();
    let theirs = serde_json::Value::Object(record.spec.clone());
    let differ: Vec<String> = differences(&theirs, &spec)
        .into_iter()
        .map(|(key, ..)| key)
        .collect();
    if !differ.is_empty() {
        wrong.push(format!(
            "the spec in {RECORD_FILE} is not that of {JOB_FILE}: {}",
            differ.join(", ")
        ));
    }
    wrong
}
