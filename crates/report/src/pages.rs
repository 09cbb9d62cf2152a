//! The pages of a report over several experiments: links to them, from the matrix, the settings and
//! each other.

use super::document::{Document, PageLink};
use records::analysis::setting::Setting;
use records::record::TaskFacts;
use records::text;
use std::collections::BTreeSet;

/// Name of the page over all experiments.
pub(crate) const ALL: &str = "report.html";

/// The page of one experiment.
pub(crate) struct ExperimentPage {
    /// As its records name it.
    experiment: String,
    pub file: String,
    pub document: Document,
    /// Its settings and their anchors.
    anchors: Vec<(SettingKey, String)>,
}

impl ExperimentPage {
    /// `document`: of `settings`, one section each.
    pub(crate) fn new(
        experiment: &str,
        file: &str,
        document: Document,
        settings: &[Setting<'_>],
    ) -> Self {
        let anchors = settings.iter().zip(&document.sections);
        let anchors =
            anchors.map(|(setting, section)| (setting_key(setting.task), section.slug.clone()));
        Self {
            experiment: experiment.to_owned(),
            file: file.to_owned(),
            anchors: anchors.collect(),
            document,
        }
    }
}

/// What tells the settings of one experiment apart.
type SettingKey = (String, String, String, String, usize);

fn setting_key(task: &TaskFacts) -> SettingKey {
    let corpus = task.corpus.as_ref().map_or("", |c| c.blake3.as_str());
    (
        task.kind.clone(),
        task.primary_metric.clone(),
        task.unit.clone(),
        corpus.to_owned(),
        task.train_len,
    )
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

/// The place of an experiment's setting on its page.
pub(crate) fn link(pages: &[ExperimentPage], experiment: &str, task: &TaskFacts) -> Option<String> {
    let page = pages.iter().find(|page| page.experiment == experiment)?;
    let key = setting_key(task);
    let (_, anchor) = page.anchors.iter().find(|(known, _)| *known == key)?;
    Some(format!("{}#{anchor}", page.file))
}

/// The places of a setting on the pages of its experiments, or none where one has no page.
pub(crate) fn of_setting(pages: &[ExperimentPage], setting: &Setting<'_>) -> Vec<PageLink> {
    let runs = setting.groups.iter().flat_map(|group| &group.runs);
    let experiments: BTreeSet<&str> = runs.map(|run| run.experiment.as_str()).collect();
    let links = experiments.into_iter().map(|experiment| {
        let href = Some(link(pages, experiment, setting.task)?);
        let name = text::name(experiment, 60);
        Some(PageLink { name, href })
    });
    links.collect::<Option<_>>().unwrap_or_default()
}
