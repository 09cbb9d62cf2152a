//! The sections of a report: for each setting its tables, figures and definitions.
//!
//! A new table is a file beside this one with `fn tables`, and one line in [`TABLES`].

mod attention;
mod base;
pub(crate) mod baseline;
mod extrapolation;
pub(crate) mod methods;
mod metric;
mod reach;
mod runs;

use super::document::{Section, Table};
use super::figures::figures;
use super::finding::finding;
use super::spec::ReportSpec;
use crate::analysis::setting::Setting;
use crate::metric::LOSS_NATS;

/// Makes the tables of a kind for one setting; none where it has nothing to show.
type Tables = fn(&Setting<'_>, &ReportSpec) -> Vec<Table>;

/// The tables below the leading one, in the order of the report.
const TABLES: [Tables; 8] = [
    reach::tables,
    extrapolation::tables,
    metric::tables,
    baseline::tables,
    base::tables,
    attention::tables,
    methods::tables,
    runs::tables,
];

/// The section of one setting.
pub(super) fn section(setting: &Setting<'_>, spec: &ReportSpec) -> Section {
    // A metric derived from the loss is only as clear as the loss.
    let is_loss = setting.task.primary_metric == LOSS_NATS;
    let loss = is_loss.then(|| LOSS_NATS.to_string());
    let defined = loss.iter().chain(&setting.metrics);
    let name = match setting.slug.as_str() {
        "" => "results",
        slug => slug,
    };
    Section {
        name: setting.name.clone(),
        slug: name.into(),
        finding: finding(setting, spec),
        lead: metric::table(setting, setting.lead()),
        tables: TABLES
            .iter()
            .flat_map(|tables| tables(setting, spec))
            .collect(),
        figures: figures(setting),
        definitions: defined
            .map(|m| (m.clone(), setting.definition(m)))
            .collect(),
    }
}
