//! A page for each experiment beside the page over all: what that one leaves out for want of room,
//! and the runs and the config of the experiment.

use super::assemble::document;
use super::document::Document;
use super::pages::{ExperimentPage, links};
use super::spec::{Format, ReportSpec};
use rayon::prelude::*;
use records::analysis::identity::MethodSpecs;
use records::analysis::roles::Roles;
use records::analysis::setting::{Setting, settings};
use records::order;
use records::record::RunRecord;
use records::text::{self, Slugs};
use std::collections::BTreeSet;

/// Experiments with a page: a heap of unrelated records must not cost thousands of files.
const MOST_PAGES: usize = 100;

/// A page for each experiment, where there are several and pages are asked for. `records`: in
/// canonical order; `specs`: of all of them.
pub(super) fn pages(
    records: &[&RunRecord],
    specs: &MethodSpecs<'_>,
    spec: &ReportSpec,
) -> Vec<ExperimentPage> {
    let results = Roles::of(records.iter().copied()).results;
    let experiments: BTreeSet<&str> = results.iter().map(|r| r.experiment.as_str()).collect();
    let mut experiments: Vec<&str> = experiments.into_iter().collect();
    experiments.sort_by(|a, b| order::names(a, b));
    if experiments.len() < 2 || !spec.formats.contains(&Format::Html) {
        return Vec::new();
    }
    let mut slugs = Slugs::default();
    let files = experiments.into_iter().take(MOST_PAGES).map(|experiment| {
        let file = slugs.take(&format!("experiment {experiment}")) + ".html";
        (experiment, file)
    });
    let files: Vec<(&str, String)> = files.collect();
    let page = |(experiment, file): &(&str, String)| {
        let own = records.iter().filter(|r| r.experiment == *experiment);
        let own: Vec<&RunRecord> = own.copied().collect();
        let settings = settings(&own, &spec.order, specs);
        let document = Document {
            pages: links(&files, Some(file)),
            ..of_experiment(experiment, &Roles::of(own), &settings, spec)
        };
        ExperimentPage::new(experiment, file, document, &settings)
    };
    files.par_iter().map(page).collect()
}

/// What is said of one experiment alone.
fn of_experiment(
    experiment: &str,
    roles: &Roles<'_>,
    settings: &[Setting<'_>],
    spec: &ReportSpec,
) -> Document {
    let own = ReportSpec {
        title: text::name(experiment, 60),
        // Settings are in order. What only other experiments have is not missing here; notes are
        // about all records.
        order: Vec::new(),
        notes: Vec::new(),
        ..spec.clone()
    };
    document(roles, &[], settings, &own, Vec::new(), &[])
}
