//! One metric: methods by test lengths.

use crate::analysis::point::{Point, point_parts};
use crate::analysis::setting::Setting;
use crate::metric;
use crate::report::captions::{definition, direction, keys, seeds_notes, seeds_sentence, slug};
use crate::report::document::{Cell, Mark, Table};
use crate::report::spec::ReportSpec;
use crate::stats::Scale;

/// Every metric but the leading one, whose table comes first.
pub(super) fn tables(setting: &Setting<'_>, _: &ReportSpec) -> Vec<Table> {
    let others = setting.metrics.iter().skip(1);
    others.map(|metric| table(setting, metric)).collect()
}

/// The table of one metric.
pub(super) fn table(setting: &Setting<'_>, metric: &str) -> Table {
    let ranked = if setting.seeds().1 > 1 {
        " Bold: the best; italic: within its noise."
    } else {
        ""
    };
    let rule = if setting.seeds().1 > 1 {
        " Bold: the best of its column, its interval touching no other. Italic, where there is no \
         such one: the best mean and those whose interval touches that of the best."
    } else {
        ""
    };
    let is_derived = metric::find(metric).is_some_and(|def| def.derived_from_loss.is_some());
    let derived = match (is_derived, metric::scale(metric)) {
        (false, _) => "",
        (true, Scale::Linear) => " Derived from nats for each run, then averaged.",
        (true, Scale::Log) => " Averaged in nats: exp of the mean loss.",
    };
    Table {
        slug: slug(setting, metric),
        title: format!("{metric} by test length"),
        caption: format!(
            "{metric} ({}) by test length in {}; {}. {}{ranked}",
            direction(metric),
            setting.task.unit,
            setting.name,
            seeds_sentence(setting, metric),
        ),
        notes: format!("{}{derived}{rule}", seeds_notes(setting, metric))
            .trim_start()
            .into(),
        definition: definition(setting, metric),
        columns: std::iter::once("method".to_string())
            .chain(setting.lengths.iter().map(|l| l.to_string()))
            .collect(),
        rows: rows(setting, metric),
        metric: Some(metric.into()),
        keys: keys(setting),
        ..Table::default()
    }
}

/// A row for each method, with marks on the best of each column.
fn rows(setting: &Setting<'_>, metric: &str) -> Vec<Vec<Cell>> {
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    let mut columns: Vec<Vec<Point>> = setting.lengths.iter().map(|_| Vec::new()).collect();
    for method in &setting.methods {
        let mut row: Vec<Cell> = vec![method.name.as_str().into()];
        for (column, &len) in columns.iter_mut().zip(&setting.lengths) {
            let point = setting.point(method, metric, len);
            row.push(Cell::number(point_parts(metric, &point)));
            column.push(point);
        }
        rows.push(row);
    }
    for (at, (column, &len)) in columns.iter().zip(&setting.lengths).enumerate() {
        let is_ranked =
            |at: usize| !setting.is_extrapolation_of_unconverged(&setting.methods[at], len);
        if let Some(best) = setting.clear_best(column, metric) {
            if is_ranked(best) {
                rows[best][at + 1].mark = Mark::Best;
            }
            continue;
        }
        for near in setting.near_best(column, metric) {
            if is_ranked(near) {
                rows[near][at + 1].mark = Mark::Near;
            }
        }
    }
    rows
}
