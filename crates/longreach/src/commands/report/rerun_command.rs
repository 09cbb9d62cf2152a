//! Which config trains each run of a report again: one that `run` kept beside the runs, or
//! `experiment.toml` beside a file of records. Each is planned, so that only a config that has the
//! run is named.

use experiment::plan;
use experiment::runs_on_disk::kept_configs;
use records::RunRecord;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Name of the config beside a file of records.
const EXPERIMENT_FILE: &str = "experiment.toml";
/// Configs that are planned: a heap of them would take long.
const MOST_CONFIGS: usize = 64;

/// Paths of configs by experiment and run id, from the directory of the report, `out`, so that they
/// do not depend on where it is made from. `chosen`: the id of the config that the report is on,
/// which is named wherever it plans the run; `directories`: of runs; `roots`: what the report is on.
pub fn configs<'r>(
    out: &Path,
    chosen: Option<&str>,
    records: &[RunRecord],
    directories: impl Iterator<Item = &'r Path>,
    roots: &[PathBuf],
) -> BTreeMap<(String, String), String> {
    let experiments: BTreeSet<&Path> = directories.filter_map(Path::parent).collect();
    let kept = experiments.into_iter().flat_map(|experiment| {
        let mut configs = kept_configs::read(experiment).0;
        configs.sort_by_key(|config| chosen != Some(config.id.as_str()));
        let configs = configs.into_iter();
        configs.map(|config| kept_configs::path(experiment, &config.id))
    });
    let files = roots.iter().filter(|root| root.is_file());
    let beside = files.filter_map(|root| Some(root.parent()?.join(EXPERIMENT_FILE)));
    let beside = beside.filter(|path| path.is_file());
    let known: BTreeSet<(&str, &str)> = records
        .iter()
        .map(|record| (record.experiment.as_str(), record.run_id.as_str()))
        .collect();
    let mut found = BTreeMap::new();
    for path in kept.chain(beside).take(MOST_CONFIGS) {
        let (Some(text), Ok(plan)) = (super::links::relative(out, &path), plan(&path, &[])) else {
            continue;
        };
        for run in &plan.runs {
            let id = run.job.run_id.as_str();
            if known.contains(&(plan.name.as_str(), id)) {
                let key = (plan.name.clone(), id.to_owned());
                found.entry(key).or_insert_with(|| text.clone());
            }
        }
    }
    found
}
