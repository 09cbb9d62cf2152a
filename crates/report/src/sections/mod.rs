//! The tables of a setting.
//!
//! A new table is a file beside this one with `fn tables`, and one line in [`TABLES`] or [`DETAILS`].

mod attention;
mod base;
pub(crate) mod baseline;
mod cost;
pub(crate) mod denominators;
pub(crate) mod differences;
pub(crate) mod methods;
pub(crate) mod metric;
mod reach;
pub(crate) mod run_views;
mod runs;
mod selection;

use crate::document::Table;
use crate::spec::ReportSpec;
use records::analysis::groups::TRAINED;
use records::analysis::setting::Setting;

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
const DETAILS: [Tables; 4] = [
    metric::tables,
    attention::tables,
    denominators::tables,
    methods::tables,
];

/// The tables below the leading one; details are folded.
pub(crate) fn tables(setting: &Setting<'_>, spec: &ReportSpec) -> Vec<Table> {
    let of = |tables: &Tables| tables(setting, spec);
    let folded = |table: Table| Table {
        is_folded: true,
        ..table
    };
    let details = DETAILS.iter().flat_map(of).map(folded);
    TABLES.iter().flat_map(of).chain(details).collect()
}
