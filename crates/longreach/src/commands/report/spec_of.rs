//! What the report of kept configs should contain.

use super::Args;
use crate::commands::records::by_experiment;
use experiment::runs_on_disk::kept_configs::{self, Config};
use records::{Claims, RunRecord};
use report::ReportSpec;
use std::collections::BTreeSet;
use std::path::Path;

/// How `run` writes the report of a config.
pub fn spec_of(config: &Config) -> ReportSpec {
    let (title, order, claims, assertions) = config.reads();
    ReportSpec {
        title: title.to_owned(),
        order,
        claims: claims.clone(),
        assertions,
        names: experiment::spec::NAMES,
        width: support::console::width(),
        colors: support::console::has_colors(),
        ..ReportSpec::default()
    }
}

/// Experiments that a heading names one by one.
const MOST_IN_HEADING: usize = 4;

/// The heading of a report on some experiments.
fn heading(experiments: &[&str]) -> String {
    match experiments.len() {
        0..=MOST_IN_HEADING => experiments.join(", "),
        n => format!("{n} experiments"),
    }
}

/// The options of a report with those of the config that its records belong to; arguments win. The
/// records get the labels of that config.
pub fn titled(
    request: &Args,
    spec: ReportSpec,
    config: Option<&Config>,
    records: &mut [RunRecord],
) -> ReportSpec {
    let title = request.title.clone();
    let Some(config) = config else {
        let experiments = || by_experiment(records).into_keys().collect::<Vec<_>>();
        return ReportSpec {
            title: title.unwrap_or_else(|| heading(&experiments())),
            ..spec
        };
    };
    config.label(records);
    let own = spec_of(config);
    ReportSpec {
        title: title.unwrap_or(own.title),
        claims: if spec.claims == Claims::default() {
            own.claims
        } else {
            spec.claims
        },
        assertions: spec.assertions || own.assertions,
        order: if spec.order.is_empty() {
            own.order
        } else {
            spec.order
        },
        ..spec
    }
}

/// The order of lines and rows of the experiments of these runs: that of the config of each, as far
/// as an experiment's directory has one.
pub fn orders<'r>(runs: impl Iterator<Item = &'r Path>) -> Vec<String> {
    let mut read = BTreeSet::new();
    let experiments = runs.filter_map(Path::parent).filter(|at| read.insert(*at));
    let texts = experiments.flat_map(kept_configs::order);
    let mut seen = BTreeSet::new();
    texts.filter(|text| seen.insert(text.clone())).collect()
}
