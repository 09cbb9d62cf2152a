//! The sections of a report: for each setting its tables, figures and definitions.
//!
//! A new table is a file beside this one with `fn tables`, and one line in [`TABLES`] or [`DETAILS`].

mod attention;
mod base;
pub(crate) mod baseline;
mod cost;
pub(crate) mod denominators;
mod differences;
pub(crate) mod methods;
mod metric;
mod reach;
mod run_views;
mod runs;
mod selection;

use super::document::{PageLink, Section, Table};
use super::figures::figures;
use super::finding::finding;
use super::remarks::with_remarks;
use super::spec::{Format, ReportSpec};
use records::analysis::groups::TRAINED;
use records::analysis::setting::Setting;
use records::metric::{ATTENTION_DISTANCE, LOSS_NATS};

/// Makes the tables of a kind for one setting; none where it has nothing to show.
type Tables = fn(&Setting<'_>, &ReportSpec) -> Vec<Table>;

/// The tables below the leading one, in the order of the report.
const TABLES: [Tables; 5] = [
    selection::tables,
    reach::tables,
    baseline::tables,
    base::tables,
    cost::tables,
];

/// The tables below those, which are folded away.
const DETAILS: [Tables; 5] = [
    metric::tables,
    attention::tables,
    denominators::tables,
    methods::tables,
    runs::tables,
];

/// Differences to baselines that the page of a report holds.
const MOST_DIFFERENCES: usize = 12_000;

/// The size of the whole report, which bounds what each section may hold.
pub(super) struct ReportSize {
    pub settings: usize,
    pub runs: usize,
}

fn tables(setting: &Setting<'_>, spec: &ReportSpec) -> Vec<Table> {
    let of = |tables: &Tables| tables(setting, spec);
    let folded = |table: Table| Table {
        is_folded: true,
        ..table
    };
    let details = DETAILS.iter().flat_map(of).map(folded);
    TABLES.iter().flat_map(of).chain(details).collect()
}

/// The section of one setting. `pages`: those that show its runs, none where this one does.
pub(super) fn section(
    setting: &Setting<'_>,
    spec: &ReportSpec,
    whole: &ReportSize,
    pages: Vec<PageLink>,
) -> Section {
    // What only a page shows costs time, so it is made for pages only.
    let is_page = spec.formats.contains(&Format::Html);
    // A metric derived from the loss is only as clear as the loss.
    let is_loss = setting.task.primary_metric == LOSS_NATS;
    let loss = is_loss.then(|| LOSS_NATS.to_string());
    let heads = !setting.heads().is_empty();
    let distance = heads.then(|| ATTENTION_DISTANCE.to_string());
    let defined = loss.iter().chain(&setting.metrics).chain(&distance);
    let name = match setting.slug.as_str() {
        "" => "results",
        slug => slug,
    };
    Section {
        name: setting.name.clone(),
        slug: name.into(),
        finding: finding(setting, spec),
        lead: with_remarks(metric::table(setting, setting.lead()), setting),
        tables: tables(setting, spec),
        figures: figures(setting, spec),
        differences: if is_page {
            // Of many runs there is room for fewer.
            let most = MOST_DIFFERENCES * 600 / whole.runs.max(600);
            differences::differences(setting, most / whole.settings.max(1))
        } else {
            Vec::new()
        },
        runs: if is_page && pages.is_empty() {
            run_views::views(setting, spec, whole.runs)
        } else {
            Vec::new()
        },
        definitions: defined
            .map(|m| (m.clone(), setting.definition(m)))
            .collect(),
        pages,
    }
}
