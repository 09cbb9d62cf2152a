//! The section of a setting: what was found, its tables, figures and definitions.

use crate::document::{PageLink, Section};
use crate::figures::figures;
use crate::finding::{caveats, finding};
use crate::remarks::with_remarks;
use crate::sections::{differences, metric, run_views, tables};
use crate::spec::{Format, ReportSpec};
use records::analysis::setting::Setting;
use records::metric::{LOSS_NATS, OF_HEADS};

/// Differences to baselines that the page of a report holds.
const MOST_DIFFERENCES: usize = 12_000;

/// The size of the whole report, which bounds what each section may hold.
pub(super) struct ReportSize {
    /// Settings.
    pub settings: usize,
    /// Runs.
    pub runs: usize,
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
    let of_heads = OF_HEADS
        .iter()
        .filter(|name| !setting.heads(name).is_empty());
    let of_heads: Vec<String> = of_heads.map(ToString::to_string).collect();
    let defined = loss.iter().chain(&setting.metrics).chain(&of_heads);
    let name = match setting.slug.as_str() {
        "" => "results",
        slug => slug,
    };
    Section {
        name: setting.name.clone(),
        slug: name.into(),
        finding: finding(setting),
        caveats: caveats(setting, spec),
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
