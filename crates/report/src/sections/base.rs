//! The ablation of the rotary base: one row per base.

use crate::captions::{definition, direction, numbered, seeds_notes, seeds_sentence, slug};
use crate::document::{Cell, Table};
use crate::spec::ReportSpec;
use records::analysis::base_sweep::{BaseRow, BaseSweep, base_sweeps, base_text};
use records::analysis::point::point_parts;
use records::analysis::setting::Setting;
use records::text::thousands;

/// A table for each sweep over the base.
pub(super) fn tables(setting: &Setting<'_>, _: &ReportSpec) -> Vec<Table> {
    let sweeps = base_sweeps(setting);
    let slugs = (0..sweeps.len()).map(|i| numbered("base", i, sweeps.len()));
    let both = sweeps.iter().zip(slugs);
    both.map(|(sweep, slug)| table(setting, sweep, &slug))
        .collect()
}

fn table(setting: &Setting<'_>, sweep: &BaseSweep<'_>, slug_name: &str) -> Table {
    let metric = setting.lead();
    let of = sweep.of();
    let is_whole = sweep.rows.iter().all(|row| row.wavelengths.is_some());
    let absent = if is_whole { "" } else { " -: not recorded." };
    let columns = ["base", "longest wavelength", "pairs beyond training"].map(String::from);
    let lengths = setting.headings();
    Table {
        slug: slug(setting, slug_name),
        title: format!("{}{of}", sweep.key),
        caption: format!(
            "{metric} ({}) by {} and test length{of}. {}",
            direction(metric),
            sweep.key,
            seeds_sentence(setting, metric),
        ),
        notes: format!(
            "Longest wavelength: 2π base^((d-2)/d) tokens for d rotated dimensions, before any \
             scaling; pairs beyond training: rotary pairs whose wavelength exceeds the training \
             length in tokens.{absent}{}",
            seeds_notes(setting, metric),
        ),
        definition: definition(setting, metric),
        columns: columns.into_iter().chain(lengths).collect(),
        rows: sweep.rows.iter().map(|base| row(setting, base)).collect(),
        ..Table::default()
    }
}

fn row(setting: &Setting<'_>, row: &BaseRow<'_>) -> Vec<Cell> {
    let metric = setting.lead();
    let (longest, pairs) = match row.wavelengths {
        None => ("-".into(), "-".into()),
        Some(w) => (
            thousands(w.longest.round() as u64),
            format!("{} of {}", w.pairs_beyond, w.pairs),
        ),
    };
    let points = setting
        .lengths
        .iter()
        .map(|&len| Cell::number(point_parts(metric, &setting.point(row.method, metric, len))));
    let start = [base_text(row.base), longest, pairs]
        .map(Cell::from)
        .into_iter();
    start.chain(points).collect()
}
