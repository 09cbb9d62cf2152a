//! The document of a report: sections, chapters, conditions and lists, and names for its files.

use super::chapters::{board, overview, prediction};
use super::conditions;
use super::config;
use super::document::{Chapter, Document, Figure, Section};
use super::error::place;
use super::finding::unconverged;
use super::folds::fold;
use super::pages::{self, ExperimentPage};
use super::section::{ReportSize, section};
use super::spec::ReportSpec;
use records::analysis::roles::Roles;
use records::analysis::setting::Setting;
use records::record::{RunRecord, RunStatus};
use records::store::Excluded;
use records::text::{self, Slugs, list, short_hash};
use std::collections::{BTreeMap, BTreeSet};

/// Figures of one report.
const MOST_FIGURES: usize = 100;
/// Items in each of the lists at the end.
const MOST_LISTED: usize = 200;

/// Everything the report shows. `records`: in canonical order, not empty. `pages`: those of its
/// experiments, if they have their own; `evaluated`: chapters after those on the settings.
pub(super) fn document(
    roles: &Roles<'_>,
    excluded: &[Excluded],
    settings: &[Setting<'_>],
    spec: &ReportSpec,
    evaluated: Vec<Chapter>,
    pages: &[ExperimentPage],
) -> Document {
    let records = &roles.results[..];
    let mut notes = notes(records, settings, spec);
    let whole = ReportSize {
        settings: settings.len(),
        runs: records.len(),
    };
    let of = |setting: &Setting<'_>| {
        let pages = pages::of_setting(pages, setting);
        section(setting, spec, &whole, pages)
    };
    let mut sections: Vec<Section> = settings.iter().map(of).collect();
    limit_figures(&mut sections, &mut notes);
    let board = board::chapter(settings);
    let on_board = board.as_ref().map_or(0, |board| board.tables[0].rows.len());
    let of_settings = board.into_iter().chain(prediction::chapter(settings));
    let mut chapters: Vec<Chapter> = of_settings.chain(evaluated).collect();
    name_files(&mut sections, &mut chapters);
    let overview = overview::chapter(settings, &sections, pages, on_board);
    let has_overview = overview.is_some();
    let after_board = usize::from(on_board > 0);
    chapters.splice(after_board..after_board, overview);
    fold(&mut sections, &chapters, has_overview);
    let excluded = excluded
        .iter()
        .map(|e| format!("{}: {}", place(e), e.reason));
    let is_diverged = |r: &&&RunRecord| r.status == RunStatus::Diverged;
    let diverged = records.iter().filter(is_diverged).map(|r| diverged(r));
    Document {
        title: spec.title.clone(),
        pages: pages::of_all(pages),
        sections,
        chapters,
        conditions: conditions::facts(records, settings),
        configs: config::configs(records, spec),
        diverged: listed(diverged.collect()),
        unconverged: listed(settings.iter().flat_map(unconverged).collect()),
        excluded: listed(excluded.collect()),
        notes: listed(notes),
    }
}

/// Whether a record has a label or a variant of this name.
fn is_known(records: &[&RunRecord], name: &str) -> bool {
    records.iter().any(|r| {
        r.labels.iter().any(|l| l.text == name) || r.evals.iter().any(|e| e.variant == name)
    })
}

fn notes(records: &[&RunRecord], settings: &[Setting<'_>], spec: &ReportSpec) -> Vec<String> {
    let of_settings = settings.iter().flat_map(|s| s.notes.iter().cloned());
    let mut notes: Vec<String> = of_settings.collect();
    notes.extend(spec.notes.iter().cloned());
    notes.extend(shared_note(records));
    let order = spec.order.iter().map(String::as_str);
    let unknown: Vec<&str> = order.filter(|o| !is_known(records, o)).collect();
    if !unknown.is_empty() {
        notes.push(format!(
            "Named in the order asked for, but in no record: {}.",
            unknown.join(", ")
        ));
    }
    let differ =
        |of: &dyn Fn(&RunRecord) -> String| records.iter().any(|r| of(r) != of(records[0]));
    if differ(&|r| r.environment.commit.clone()) || differ(&|r| r.environment.version.clone()) {
        notes.push("The runs were made by more than one build; see the conditions.".into());
    }
    if differ(&|r| format!("{:?}", r.environment.runs_together)) {
        let note = "Some runs were trained together on a device other than a CPU, others alone or \
                    in other numbers: last bits may differ; see the conditions.";
        notes.push(note.into());
    }
    if differ(&|r| r.environment.device.clone()) {
        let note = "The runs were made on more than one kind of device; see the conditions.";
        notes.push(note.into());
    }
    notes
}

/// A diverged run and the first sign of it.
fn diverged(record: &RunRecord) -> String {
    let labels = record.labels.iter().take(32);
    let labels: Vec<String> = labels.map(|l| text::name(&l.text, 80)).collect();
    let what = record.diverged.as_ref();
    let what = what.map_or("no step recorded".into(), |d| {
        format!("step {}, {} not finite", d.step, d.what)
    });
    format!(
        "{} [{}] seed {} ({}): {what}",
        text::name(&record.experiment, 60),
        labels.join(", "),
        record.seed,
        short_hash(&record.run_id)
    )
}

/// Which runs are part of several experiments.
fn shared_note(records: &[&RunRecord]) -> Option<String> {
    let mut by_id: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for record in records.iter().filter(|r| r.evaluation_of.is_none()) {
        by_id
            .entry(&record.run_id)
            .or_default()
            .insert(&record.experiment);
    }
    let shared: Vec<(&str, BTreeSet<&str>)> =
        by_id.into_iter().filter(|(_, all)| all.len() > 1).collect();
    let experiments: BTreeSet<String> = shared
        .iter()
        .flat_map(|(_, all)| all)
        .map(|name| text::name(name, 60))
        .collect();
    let experiments: Vec<String> = experiments.into_iter().collect();
    let count = if shared.len() == 1 {
        "1 run is".to_owned()
    } else {
        format!("{} runs are", shared.len())
    };
    (!shared.is_empty()).then(|| {
        format!(
            "{count} part of several experiments and shown in each: {}.",
            list(&experiments, 8)
        )
    })
}

/// Drops figures beyond [`MOST_FIGURES`], those without scores first: a heap of unrelated records
/// must not cost thousands of files.
fn limit_figures(sections: &mut [Section], notes: &mut Vec<String>) {
    let all: usize = sections.iter().map(|s| s.figures.len()).sum();
    if all > MOST_FIGURES {
        let is_scored = |figure: &Figure| figure.metric.is_some();
        let scored = sections.iter().flat_map(|s| &s.figures);
        let scored = scored.filter(|f| is_scored(f)).count().min(MOST_FIGURES);
        let (mut scored, mut others) = (scored, MOST_FIGURES - scored);
        for section in sections {
            section.figures.retain(|figure| {
                let left = if is_scored(figure) {
                    &mut scored
                } else {
                    &mut others
                };
                let is_kept = *left > 0;
                *left -= usize::from(is_kept);
                is_kept
            });
        }
        notes.push(format!(
            "{all} figures would be too many: {MOST_FIGURES} are drawn, those of scores first. Report \
             on fewer settings at once."
        ));
    }
}

/// Names files and anchors. They are made of names in records, so they are slugs, no two equal.
fn name_files(sections: &mut [Section], chapters: &mut [Chapter]) {
    let (mut files, mut anchors) = (Slugs::default(), Slugs::default());
    for fixed in [
        "conditions",
        "diverged-runs",
        "not-converged",
        "left-out",
        "notes",
        "report",
        "overview",
        "overview-reach",
        "overview-kept",
    ] {
        anchors.take(fixed);
    }
    for chapter in &mut *chapters {
        chapter.slug = anchors.take(&chapter.slug);
        chapter
            .tables
            .iter_mut()
            .for_each(|table| table.slug = anchors.take(&table.slug));
    }
    for section in &mut *sections {
        section.slug = anchors.take(&section.slug);
    }
    for section in &mut *sections {
        for figure in &mut section.figures {
            figure.slug = files.take(&figure.slug);
            anchors.take(&format!("plot-{}", figure.slug));
        }
    }
    for run in sections.iter_mut().flat_map(|s| &mut s.runs) {
        run.slug = anchors.take(&run.slug);
    }
    for table in sections
        .iter_mut()
        .flat_map(|s| std::iter::once(&mut s.lead).chain(&mut s.tables))
    {
        table.slug = anchors.take(&table.slug);
    }
}

/// A list that somebody might read to its end.
fn listed(mut items: Vec<String>) -> Vec<String> {
    if items.len() > MOST_LISTED {
        let more = items.len() - MOST_LISTED;
        items.truncate(MOST_LISTED);
        items.push(format!("... and {more} more"));
    }
    items
}
