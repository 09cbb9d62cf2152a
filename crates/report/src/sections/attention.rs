//! What is recorded of every head, in length and at the longest length where it is.

use crate::captions::{definition, methods, seeds_notes, seeds_sentence, slug};
use crate::document::{Cell, Table};
use crate::spec::ReportSpec;
use records::analysis::point::point_parts;
use records::analysis::setting::{Method, Setting};
use records::metric::{ATTENTION_DISTANCE, BLIND, OF_HEADS, SEMANTIC_SCORE};

/// At most two tables for each of [`OF_HEADS`] that was recorded.
pub(super) fn tables(setting: &Setting<'_>, _: &ReportSpec) -> Vec<Table> {
    let tables = OF_HEADS.iter().flat_map(|of| {
        let lengths = setting.lengths_of_heads(of).into_iter();
        lengths.map(|len| table(setting, of, len))
    });
    tables.collect()
}

/// What one of [`OF_HEADS`] is called in a title.
fn title(of: &str) -> &'static str {
    match of {
        ATTENTION_DISTANCE => "mean attention distance",
        BLIND => "share of pairs without weight",
        SEMANTIC_SCORE => "semantic score",
        _ => "positional score",
    }
}

fn table(setting: &Setting<'_>, of: &str, len: usize) -> Table {
    let heads = setting.heads(of);
    let row = |method: &Method| -> Vec<Cell> {
        let points = heads.iter().map(|(_, metric)| {
            Cell::number(point_parts(metric, &setting.point(method, metric, len)))
        });
        let name = std::iter::once(Cell::from(method.title.as_str()));
        name.chain(points).collect()
    };
    let names = heads
        .iter()
        .map(|((layer, head), _)| format!("{layer}.{head}"));
    let (first, rest) = title(of).split_at(1);
    let unit = if of == ATTENTION_DISTANCE {
        " in tokens"
    } else {
        ""
    };
    Table {
        slug: slug(setting, &format!("{of}-{len}")),
        title: format!("{} by head at {len}", title(of)),
        caption: format!(
            "{}{rest}{unit} by layer.head, counted from 1, at {len} {}; {}. {}",
            first.to_uppercase(),
            setting.task.unit,
            setting.name,
            seeds_sentence(setting, of),
        ),
        notes: seeds_notes(setting, of).trim_start().into(),
        definition: definition(setting, of),
        columns: std::iter::once("method".to_string()).chain(names).collect(),
        rows: setting.methods.iter().map(row).collect(),
        methods: methods(setting),
        ..Table::default()
    }
}
