//! Notes on runs that another config or another build wrote, key by key. Such runs are neither
//! overwritten nor reused: a run's id is the hash of everything that determines its numbers.

use crate::plan::planner::Plan;
use crate::runs_on_disk::files::{RECORD_FILE, read_job};
use crate::runs_on_disk::walk::directories_with;
use crate::spec::JOB_FILE;
use crate::spec::differences::{differences, shown};
use records::RunRecord;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use support::units::{count, first_of};

/// Runs of other configs that are read.
const MAX_OTHERS: usize = 50;
/// Keys in a note.
const MAX_KEYS: usize = 8;

/// A note on runs of the same experiment that belong to another config, and the keys in which the
/// nearest differs.
pub fn other_runs(experiment: &Path, plan: &Plan) -> Option<String> {
    let ours: BTreeSet<&str> = plan.all_runs().map(|run| run.job.run_id.as_str()).collect();
    let mut others = directories_with(experiment, JOB_FILE);
    others.retain(|run| {
        let name = run.file_name().unwrap_or_default().to_string_lossy();
        !ours.contains(name.as_ref())
    });
    let unfinished = others
        .iter()
        .filter(|run| !run.join(RECORD_FILE).exists())
        .count();
    let specs: Vec<Value> = plan
        .runs
        .iter()
        .take(MAX_OTHERS)
        .filter_map(|run| serde_json::to_value(&run.job.spec).ok())
        .collect();
    let jobs: Vec<_> = others
        .iter()
        .take(MAX_OTHERS)
        .filter_map(|run| read_job(run).ok())
        .collect();
    let theirs: Vec<(&str, Value)> = jobs
        .iter()
        .filter_map(|job| Some((job.run_id.as_str(), serde_json::to_value(&job.spec).ok()?)))
        .collect();
    // Every pair is compared in full, which is why both lists are bounded.
    let pairs = theirs
        .iter()
        .flat_map(|theirs| specs.iter().map(move |ours| (theirs, ours)));
    let ((id, theirs), ours) =
        pairs.min_by_key(|((_, theirs), ours)| differences(theirs, ours).len())?;
    let differ = differences(theirs, ours);
    let differ: Vec<String> = differ
        .into_iter()
        .map(|(key, theirs, ours)| format!("{key} = {} (here {})", shown(theirs), shown(ours)))
        .collect();
    let unfinished = if unfinished > 0 {
        format!(", {unfinished} of them unfinished")
    } else {
        String::new()
    };
    Some(format!(
        "{} also holds {} of another config{unfinished}; they stay as they are. The nearest, \
         {id}, differs in {}",
        experiment.display(),
        count(others.len(), "run"),
        first_of(&differ, MAX_KEYS)
    ))
}

/// A note on records that another commit wrote, if there are any.
pub fn other_programs(records: &[RunRecord]) -> Option<String> {
    let ours = support::build::COMMIT;
    let others: Vec<&str> = records
        .iter()
        .map(|record| record.environment.commit.as_str())
        .filter(|commit| *commit != ours)
        .collect();
    let commits: BTreeSet<&str> = others.iter().copied().collect();
    (!others.is_empty()).then(|| {
        let commits: Vec<&str> = commits.into_iter().take(MAX_KEYS).collect();
        format!(
            "{} recorded by another commit ({}); this build is of {ours}",
            count(others.len(), "run"),
            commits.join(", ")
        )
    })
}
