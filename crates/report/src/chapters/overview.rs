//! The chapter that opens a report on several settings: methods by settings, with how far each
//! method keeps its score, and how much of it at one multiple of the training length. Many settings
//! are the rows, so that the page has room for their names.

use crate::captions::kept_rules;
use crate::document::{Cell, Chapter, Layout, Section, Table};
use crate::pages::{self, ExperimentPage};
use records::analysis::setting::{Method, Setting};
use records::metric;
use std::collections::BTreeMap;

/// Methods from which on those of a single setting are left to its own tables.
const MOST_METHODS: usize = 40;
/// Settings with a column.
const MOST_SETTINGS: usize = 40;
/// Settings from which on they are the rows, and the methods that most of them have the columns.
const WIDE: usize = 9;
/// Columns of methods, and the least share of the settings that one has.
const MOST_COLUMNS: usize = 10;
const LEAST_SHARE: f64 = 0.2;

/// The chapter, or none where there is one setting or one method. `sections`: those of the settings;
/// `pages`: those of the experiments, to which cells lead. `on_board`: methods of the board, which
/// has their reach.
pub(crate) fn chapter(
    settings: &[Setting<'_>],
    sections: &[Section],
    pages: &[ExperimentPage],
    on_board: usize,
) -> Option<Chapter> {
    let is_shown = |s: &Setting<'_>| s.in_length.is_some() && s.longer().next().is_some();
    let both = settings.iter().zip(sections).filter(|(s, _)| is_shown(s));
    let columns: Vec<(&Setting<'_>, &Section)> = both.take(MOST_SETTINGS).collect();
    let (rows, left) = rows(&columns);
    if columns.len() < 2 || rows.len() < 2 {
        return None;
    }
    let is_wide = columns.len() >= WIDE;
    let left = match left {
        0 => String::new(),
        n if is_wide => format!(" Methods of few settings, {n}, are in their tables only."),
        n => format!(" {n} methods of a single setting each are in its tables only."),
    };
    let mut tables = Vec::new();
    tables.extend((rows.len() != on_board).then(|| reach(&columns, &rows, &left)));
    tables.extend(multiple(&columns).map(|k| kept(&columns, &rows, k)));
    if tables.is_empty() {
        return None;
    }
    for table in &mut tables {
        lead_to_pages(table, &columns, &rows, pages);
        if is_wide {
            turn(table);
        }
    }
    Some(Chapter {
        name: "Overview".into(),
        slug: "overview".into(),
        summary: String::new(),
        tables,
        is_first: true,
    })
}

type Columns<'c, 's> = [(&'c Setting<'s>, &'c Section)];

/// Names of methods, those of most settings first, and how many are left out.
fn rows<'c>(columns: &Columns<'c, '_>) -> (Vec<&'c str>, usize) {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut names: Vec<&str> = Vec::new();
    for method in columns.iter().flat_map(|(s, _)| &s.methods) {
        let count = counts.entry(&method.name).or_default();
        *count += 1;
        if *count == 1 {
            names.push(&method.name);
        }
    }
    // Stable: methods of equally many settings stay in the order of the first.
    names.sort_by_key(|name| std::cmp::Reverse(counts[name]));
    let all = names.len();
    if columns.len() >= WIDE {
        let least = LEAST_SHARE * columns.len() as f64;
        names.retain(|name| counts[name] as f64 >= least);
        names.truncate(MOST_COLUMNS);
    } else if all > MOST_METHODS {
        names.retain(|name| counts[name] > 1);
    }
    let left = all - names.len();
    (names, left)
}

/// The title of each method where it is first; its name where two have one title.
fn titles(columns: &Columns<'_, '_>, names: &[&str]) -> Vec<String> {
    let title = |name: &&str| {
        let mut methods = columns.iter().flat_map(|(s, _)| &s.methods);
        let method = methods.find(|m| m.name == **name);
        method.map_or_else(|| (*name).to_owned(), |method| method.title.clone())
    };
    let all: Vec<String> = names.iter().map(title).collect();
    let is_alone = |title: &String| all.iter().filter(|other| *other == title).count() == 1;
    let each = all
        .iter()
        .zip(names)
        .map(|(title, name)| match is_alone(title) {
            true => title.clone(),
            false => (*name).to_owned(),
        });
    each.collect()
}

fn matrix(
    columns: &Columns<'_, '_>,
    rows: &[&str],
    cell: impl Fn(&Setting<'_>, &Method) -> Cell,
) -> Table {
    let heading = |(s, _): &(&Setting<'_>, &Section)| s.name.clone();
    let link = |(_, section): &(&Setting<'_>, &Section)| Some(format!("#{}", section.slug));
    let titles = titles(columns, rows);
    let row = |(name, title): (&&str, String)| -> Vec<Cell> {
        let cells = columns.iter().map(|(setting, _)| {
            let method = setting.methods.iter().find(|m| m.name == **name);
            method.map_or_else(
                || Cell::from(""),
                |m| {
                    let cell = cell(setting, m);
                    let is_learning = cell.heat.is_some() && setting.is_still_learning(m);
                    if is_learning {
                        Cell { heat: None, ..cell }.still_learning()
                    } else {
                        cell
                    }
                },
            )
        });
        std::iter::once(Cell::from(title)).chain(cells).collect()
    };
    let first = std::iter::once("method".to_owned());
    Table {
        columns: first.chain(columns.iter().map(heading)).collect(),
        column_links: std::iter::once(None)
            .chain(columns.iter().map(link))
            .collect(),
        rows: rows.iter().zip(titles).map(row).collect(),
        layout: Layout::Heat,
        ..Table::default()
    }
}

/// Makes the settings the rows, but for those with fewer than two methods.
fn turn(table: &mut Table) {
    let methods: Vec<String> = table.rows.iter().map(|row| row[0].text.clone()).collect();
    let settings = table.columns.iter().zip(&table.column_links).enumerate();
    let row = |(at, (name, link)): (usize, (&String, &Option<String>))| {
        let start = Cell::linked(vec![(name.clone(), link.clone())]);
        let cells = table.rows.iter().map(|row| row[at].clone());
        std::iter::once(start).chain(cells).collect::<Vec<Cell>>()
    };
    let rows = settings.skip(1).map(row);
    let given = |row: &Vec<Cell>| row[1..].iter().filter(|c| !c.text.is_empty()).count();
    let rows = rows.filter(|row| given(row) >= 2);
    table.rows = rows.collect();
    table.columns = std::iter::once("setting".to_owned())
        .chain(methods)
        .collect();
    table.column_links = Vec::new();
}

/// Links each cell of a matrix to the page of the experiment that has the method.
fn lead_to_pages(
    table: &mut Table,
    columns: &Columns<'_, '_>,
    names: &[&str],
    pages: &[ExperimentPage],
) {
    for (row, name) in table.rows.iter_mut().zip(names) {
        for (cell, (setting, _)) in row.iter_mut().skip(1).zip(columns) {
            let method = setting.methods.iter().find(|m| m.name == **name);
            let run = method.and_then(|m| setting.groups[m.group].runs.first());
            cell.page = run.and_then(|run| pages::link(pages, run));
        }
    }
}

/// How far each method keeps its score, in multiples of the training length.
fn reach(columns: &Columns<'_, '_>, rows: &[&str], left: &str) -> Table {
    let longest = columns.iter().filter_map(|(s, _)| {
        let longest = s.lengths.last().copied()?;
        Some(longest as f64 / s.task.train_len.max(1) as f64)
    });
    // The training length itself is the pale end of the colours.
    let most = longest.fold(2.0, f64::max).log2();
    let heat = |setting: &Setting<'_>, method: &Method| -> Option<f64> {
        let len = setting.reach(method)?.test_len.unwrap_or_default();
        let ratio = len as f64 / setting.task.train_len.max(1) as f64;
        Some((ratio.log2() / most).clamp(0.0, 1.0))
    };
    let cell = |setting: &Setting<'_>, method: &Method| Cell {
        heat: heat(setting, method),
        ..Cell::from(setting.reach_text(method))
    };
    Table {
        slug: "overview-reach".into(),
        title: "How far each method keeps its score".into(),
        caption: format!(
            "Longest test length up to which a method keeps its score, as a multiple of the \
             training length. Kept: {}.{left}",
            kept_rules(columns.iter().map(|(setting, _)| setting.lead()))
        ),
        notes: format!(
            "By the leading metric of each setting, means over seeds. ≥: tested at no longer length. \
             1x: lost at the first longer length. none: a variant that has not the in-length score \
             of its trained encoding at the training length. Not converged: fewer than half of the \
             seeds learned the task in length. Empty: not run.{}",
            match columns.iter().any(|(setting, _)| setting.has_halves()) {
                true => " Grey, †: still learning.",
                false => "",
            }
        ),
        ..matrix(columns, rows, cell)
    }
}

/// The largest multiple of the training length, a power of two, that most settings test.
fn multiple(columns: &Columns<'_, '_>) -> Option<usize> {
    let is_common = |k: &usize| {
        let tests = |s: &Setting<'_>| s.lengths.contains(&(s.task.train_len.saturating_mul(*k)));
        2 * columns.iter().filter(|(s, _)| tests(s)).count() > columns.len()
    };
    [16, 8, 4, 2].into_iter().find(is_common)
}

/// How much of its score each method keeps at one multiple of the training length.
fn kept(columns: &Columns<'_, '_>, rows: &[&str], k: usize) -> Table {
    let cell = |setting: &Setting<'_>, method: &Method| -> Cell {
        let len = setting.task.train_len.saturating_mul(k);
        if !setting.lengths.contains(&len) {
            return "-".into();
        }
        if setting.is_extrapolation_of_unconverged(method, len) {
            return "not converged".into();
        }
        let point = setting.kept_share(method, setting.lead(), len);
        match point.estimate {
            None => "-".into(),
            Some(estimate) => Cell {
                heat: Some(estimate.mean.clamp(0.0, 1.0)),
                ..Cell::from(metric::number(estimate.mean, 2))
            },
        }
    };
    Table {
        slug: "overview-kept".into(),
        title: format!("Share of the in-length score at {k}x the training length"),
        caption: "1: the score in length. Means over seeds.".into(),
        notes: "For a metric where lower is better, the in-length score over the one there; \
                otherwise the one there over the in-length score. -: that length was not tested, \
                or gave no number."
            .into(),
        is_folded: true,
        ..matrix(columns, rows, cell)
    }
}
