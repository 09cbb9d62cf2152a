//! The pages of a report over several experiments: links to them, from the matrix, the settings and
//! each other.

use super::document::{Document, PageLink};
use records::RunRecord;
use records::analysis::setting::Setting;
use records::text;
use std::collections::{BTreeMap, HashMap};

/// Name of the page over all experiments.
pub(crate) const ALL: &str = "report.html";

/// The page of one experiment.
pub(crate) struct ExperimentPage {
    /// As its records name it.
    experiment: String,
    pub file: String,
    pub document: Document,
    /// The anchor of the setting of each run, by run id.
    anchors: HashMap<String, String>,
}

impl ExperimentPage {
    /// `document`: of `settings`, one section each.
    pub(crate) fn new(
        experiment: &str,
        file: &str,
        document: Document,
        settings: &[Setting<'_>],
    ) -> Self {
        let places = settings.iter().zip(&document.sections);
        let anchors = places.flat_map(|(setting, section)| {
            let runs = setting.groups.iter().flat_map(|group| &group.runs);
            runs.map(|run| (run.run_id.clone(), section.slug.clone()))
        });
        Self {
            experiment: experiment.to_owned(),
            file: file.to_owned(),
            anchors: anchors.collect(),
            document,
        }
    }
}

/// Links to all pages, without one to the page that they are on. `own`: its file, or none for the
/// page over all.
pub(crate) fn links(files: &[(&str, String)], own: Option<&String>) -> Vec<PageLink> {
    let all = PageLink {
        name: "all experiments".into(),
        href: own.map(|_| ALL.to_owned()),
    };
    let each = files.iter().map(|(experiment, file)| PageLink {
        name: text::name(experiment, 60),
        href: Some(file.clone()).filter(|file| Some(file) != own),
    });
    std::iter::once(all).chain(each).collect()
}

/// Links of the page over all experiments.
pub(crate) fn of_all(pages: &[ExperimentPage]) -> Vec<PageLink> {
    let files = pages
        .iter()
        .map(|p| (p.experiment.as_str(), p.file.clone()));
    if pages.is_empty() {
        return Vec::new();
    }
    links(&files.collect::<Vec<_>>(), None)
}

/// The place of a run's setting on the page of its experiment.
pub(crate) fn link(pages: &[ExperimentPage], run: &RunRecord) -> Option<String> {
    let page = pages.iter().find(|p| p.experiment == run.experiment)?;
    let anchor = page.anchors.get(&run.run_id)?;
    Some(format!("{}#{anchor}", page.file))
}

/// The places of a setting on the pages of its experiments, or none where one has no page.
pub(crate) fn of_setting(pages: &[ExperimentPage], setting: &Setting<'_>) -> Vec<PageLink> {
    let runs = setting.groups.iter().flat_map(|group| &group.runs);
    let experiments: BTreeMap<&str, &RunRecord> =
        runs.map(|run| (run.experiment.as_str(), &**run)).collect();
    let links = experiments.into_iter().map(|(experiment, run)| {
        let href = Some(link(pages, run)?);
        let name = text::name(experiment, 60);
        Some(PageLink { name, href })
    });
    links.collect::<Option<_>>().unwrap_or_default()
}
