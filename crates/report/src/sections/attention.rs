//! What is recorded of every head: attention distances by test length, and each head in length and
//! at the longest length where it is.

use crate::captions::{definition, methods, seeds_notes, seeds_sentence, slug};
use crate::document::{Cell, Table};
use crate::spec::ReportSpec;
use records::analysis::point::point_parts;
use records::analysis::setting::{Method, Setting};
use records::metric::{ATTENTION_DISTANCE, BLIND, OF_HEADS, SEMANTIC_SCORE};

/// A table of the distances by length, where there are several, and at most two tables of heads for
/// each of [`OF_HEADS`] that was recorded.
pub(super) fn tables(setting: &Setting<'_>, _: &ReportSpec) -> Vec<Table> {
    let by_head = OF_HEADS.iter().flat_map(|of| {
        let lengths = setting.lengths_of_heads(of);
        let in_length = lengths.range(..=setting.task.train_len).next_back();
        let longest = lengths.last().filter(|len| Some(*len) != in_length);
        let both: Vec<usize> = in_length.into_iter().chain(longest).copied().collect();
        both.into_iter().map(|len| by_head(setting, of, len))
    });
    by_length(setting).into_iter().chain(by_head).collect()
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

/// Attention distances by test length, means over heads.
fn by_length(setting: &Setting<'_>) -> Option<Table> {
    let of = ATTENTION_DISTANCE;
    let lengths = setting.lengths_of_heads(of);
    let columns = lengths
        .iter()
        .map(|&len| (setting.length(len), of, len))
        .collect();
    let table = Table {
        slug: slug(setting, of),
        title: format!("{} by test length", title(of)),
        caption: format!(
            "Mean attention distance in tokens by test length in {}, mean over all heads; {}. {}",
            setting.task.unit,
            setting.name,
            seeds_sentence(setting, of),
        ),
        ..table(setting, of, columns)
    };
    (lengths.len() > 1).then_some(table)
}

/// One of [`OF_HEADS`] by head at a test length.
fn by_head(setting: &Setting<'_>, of: &str, len: usize) -> Table {
    let heads = setting.heads(of);
    let columns = heads
        .iter()
        .map(|((layer, head), metric)| (format!("{layer}.{head}"), *metric, len))
        .collect();
    let (first, rest) = title(of).split_at(1);
    let unit = match of == ATTENTION_DISTANCE {
        true => " in tokens",
        false => "",
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
        ..table(setting, of, columns)
    }
}

/// Methods by columns: heading, metric and test length of each.
fn table(setting: &Setting<'_>, of: &str, columns: Vec<(String, &str, usize)>) -> Table {
    let row = |method: &Method| -> Vec<Cell> {
        let points = columns.iter().map(|(_, metric, len)| {
            Cell::number(point_parts(metric, &setting.point(method, metric, *len)))
        });
        let name = std::iter::once(Cell::from(method.title.as_str()));
        name.chain(points).collect()
    };
    let rows = setting.methods.iter().map(row).collect();
    let headings = columns.into_iter().map(|(heading, ..)| heading);
    Table {
        notes: seeds_notes(setting, of).trim_start().into(),
        definition: definition(setting, of),
        columns: std::iter::once("method".to_string())
            .chain(headings)
            .collect(),
        rows,
        methods: methods(setting),
        ..Table::default()
    }
}
