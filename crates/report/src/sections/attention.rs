//! How far each head attends, in length and at the longest length tested.

use crate::captions::{definition, keys, seeds_notes, seeds_sentence, slug};
use crate::document::{Cell, Table};
use crate::spec::ReportSpec;
use records::analysis::point::point_parts;
use records::analysis::setting::{Method, Setting};
use records::metric::ATTENTION_DISTANCE;

/// Two tables, or none where attention distances were not recorded.
pub(super) fn tables(setting: &Setting<'_>, _: &ReportSpec) -> Vec<Table> {
    let in_length = setting.in_length.into_iter();
    let mut lengths: Vec<usize> = in_length.chain(setting.lengths.last().copied()).collect();
    lengths.dedup();
    if setting.heads().is_empty() {
        return Vec::new();
    }
    lengths.into_iter().map(|len| table(setting, len)).collect()
}

fn table(setting: &Setting<'_>, len: usize) -> Table {
    let heads = setting.heads();
    let row = |method: &Method| -> Vec<Cell> {
        let points = heads.iter().map(|(_, metric)| {
            Cell::number(point_parts(metric, &setting.point(method, metric, len)))
        });
        let name = std::iter::once(Cell::from(method.name.as_str()));
        name.chain(points).collect()
    };
    let names = heads
        .iter()
        .map(|((layer, head), _)| format!("{layer}.{head}"));
    Table {
        slug: slug(setting, &format!("{ATTENTION_DISTANCE}-{len}")),
        title: format!("mean attention distance by head at {len}"),
        caption: format!(
            "Mean attention distance in tokens by layer.head, counted from 1, at {len} {}; {}. {}",
            setting.task.unit,
            setting.name,
            seeds_sentence(setting, ATTENTION_DISTANCE),
        ),
        notes: seeds_notes(setting, ATTENTION_DISTANCE).trim_start().into(),
        definition: definition(setting, ATTENTION_DISTANCE),
        columns: std::iter::once("method".to_string()).chain(names).collect(),
        rows: setting.methods.iter().map(row).collect(),
        keys: keys(setting),
        ..Table::default()
    }
}
