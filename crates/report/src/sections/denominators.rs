//! The denominators of linear attention that may be negative or 0.

use crate::captions::slug;
use crate::document::{Cell, Table};
use crate::spec::ReportSpec;
use records::analysis::setting::{Method, Setting};
use records::record::Denominators;
use records::text::thousands;

/// What is counted: its name, and its number.
type Count = (&'static str, fn(&Denominators) -> u64);

/// The rows of each method.
const COUNTS: [Count; 3] = [
    ("all", |of| of.count),
    ("negative", |of| of.negative),
    ("clamped", |of| of.clamped),
];

/// One table, or none where no method has such denominators.
pub(super) fn tables(setting: &Setting<'_>, _: &ReportSpec) -> Vec<Table> {
    let methods = setting.methods.iter();
    let rows: Vec<Vec<Cell>> = methods
        .filter(|method| of_method(setting, method).is_some())
        .flat_map(|method| COUNTS.iter().map(|count| row(setting, method, count)))
        .collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let lengths = setting.headings();
    let heads = ["method", "denominators"].map(String::from);
    vec![Table {
        slug: slug(setting, "denominators"),
        title: "Denominators of linear attention".into(),
        caption: format!(
            "Denominators of linear attention by test length in {}, those below 0, and those that \
             were clamped; {}. Sums over seeds.",
            setting.task.unit, setting.name
        ),
        notes: "One for each query, head and layer of an evaluation. Below 0: the keys most \
                similar to the query got negative weights. Clamped: a magnitude below 1e-6 became \
                1e-6, and the weights do not sum to 1. -: not counted."
            .into(),
        columns: heads.into_iter().chain(lengths).collect(),
        rows,
        ..Table::default()
    }]
}

fn row(setting: &Setting<'_>, method: &Method, (name, count): &Count) -> Vec<Cell> {
    let cells = setting.lengths.iter().map(|&length| {
        let counted = at(setting, method, length);
        let text = counted.map_or_else(|| "-".to_owned(), |of| thousands(count(&of)));
        Cell::from(text)
    });
    let heads = [method.title.as_str(), name].map(Cell::from);
    heads.into_iter().chain(cells).collect()
}

/// The sum over seeds at one length.
fn at(setting: &Setting<'_>, method: &Method, length: usize) -> Option<Denominators> {
    let runs = setting.groups[method.group].runs.iter();
    let rows = runs.filter_map(|run| run.row(&method.variant, length)?.denominators);
    Denominators::sum(rows)
}

/// The sum over seeds and lengths.
fn of_method(setting: &Setting<'_>, method: &Method) -> Option<Denominators> {
    let lengths = setting.lengths.iter();
    Denominators::sum(lengths.filter_map(|&length| at(setting, method, length)))
}

/// A sentence on the methods that divided by negative or clamped denominators, if there are any.
pub(crate) fn finding(setting: &Setting<'_>) -> Option<String> {
    let each = setting.methods.iter().filter_map(|method| {
        let of = of_method(setting, method).filter(|of| of.negative.max(of.clamped) > 0)?;
        let [count, negative, clamped] = [of.count, of.negative, of.clamped].map(thousands);
        Some(format!(
            "{}: {negative} negative and {clamped} clamped of {count}",
            method.title
        ))
    });
    let each: Vec<String> = each.collect();
    (!each.is_empty()).then(|| {
        format!(
            "Denominators of linear attention that are not sums of weights: {}.",
            each.join("; ")
        )
    })
}
