//! The page of a report as the context of its template: figures, controls, differences and runs.

use super::escape;
use super::runs;
use super::texts::{around, cell_reason, each, pairs};
use crate::captions::key;
use crate::document::{
    Cell, Differences, Document, Figure, Layout, Mark, PageLink, RunView, Section, Table, Tone,
};
use crate::plot::{PageFigure, definitions};
use minijinja::{Value, context};
use rayon::prelude::*;
use records::palette::{palette, rgb};
use records::text::printable;
use serde_json::{Map, Value as Json, json};

/// The script of the page.
const SCRIPT: &str = include_str!("page/page.js");
/// Its hash, by which the page's content security policy knows it; a test compares it.
const SCRIPT_HASH: &str = "sha256-GYc3cOn1ckpPfBbXMiHgI6yChXa0Es4wCCkgnjUW8TI=";
/// The style sheet of the page.
const STYLE: &str = include_str!("page/page.css");
/// Settings from which on each is folded away.
const FOLDED_FROM: usize = 4;
/// Columns from which on intervals stand below their means, so that the last column is in sight.
const WIDE_FROM: usize = 8;
/// Methods from which on rows can be filtered.
const FILTERED_FROM: usize = 8;

/// What the page shows, beside what every markup does.
pub(super) fn context(document: &Document) -> Value {
    let is_large = document.sections.len() >= FOLDED_FROM;
    let sections: Vec<Value> = document
        .sections
        .par_iter()
        .map(|s| section(s, is_large))
        .collect();
    let configs = document.configs.iter();
    let configs = configs.filter(|config| !document.is_elsewhere(&config.experiment));
    context! {
        pages => document.pages.iter().map(page_link).collect::<Vec<_>>(),
        folded => is_large,
        sections,
        defs => Value::from_safe_string(definitions()),
        script => Value::from_safe_string(SCRIPT.into()),
        script_hash => SCRIPT_HASH,
        style => Value::from_safe_string(style()),
        ..around(document, configs, table)
    }
}

/// The style sheet with the colours of methods, and that of heat, which is the first of them.
fn style() -> String {
    let variables = |colors: &[String]| {
        let each = colors.iter().enumerate();
        let each = each.map(|(at, color)| format!("--s{at}: {color};"));
        let [r, g, b] = rgb(&colors[0]);
        format!(
            "{} --heat: {r} {g} {b};",
            each.collect::<Vec<_>>().join(" ")
        )
    };
    let (light, dark) = (&palette().light, &palette().dark);
    STYLE
        .replace("light-palette;", &variables(light))
        .replace("dark-palette;", &variables(dark))
}

fn page_link(link: &PageLink) -> Value {
    // Names of files and anchors are slugs.
    context! { name => printable(&link.name), href => link.href.as_deref() }
}

fn section(section: &Section, is_large: bool) -> Value {
    let figures = section.figures.iter();
    let (scored, mut others): (Vec<&Figure>, Vec<&Figure>) =
        figures.partition(|f| f.metric.is_some());
    let tables = std::iter::once(&section.lead).chain(&section.tables);
    let (scores, mut tables): (Vec<&Table>, Vec<&Table>) = tables.partition(|t| t.metric.is_some());
    // The page of the only experiment has the rest; several are compared here alone.
    if section.pages.len() == 1 {
        others.clear();
        tables.clear();
    }
    let metric = |t: &&Table| t.metric.as_deref().map(printable).map(|m| [m.clone(), m]);
    let panels: Vec<(&Table, Option<DrawnFigure<'_>>)> = scores
        .iter()
        .map(|scores| {
            let figure = scored.iter().find(|f| f.metric == scores.metric);
            (*scores, figure.map(|f| DrawnFigure::of(f, is_large)))
        })
        .collect();
    // The first score figure with two scales tells the one that readers find.
    let mut drawn = panels.iter().filter_map(|(_, drawn)| drawn.as_ref());
    let scales = drawn.find(|d| d.page.scales.len() > 1);
    let scales: Option<Vec<[&str; 2]>> =
        scales.map(|d| d.page.scales.iter().map(|name| [*name; 2]).collect());
    let panel = |(scores, drawn): &(&Table, Option<DrawnFigure<'_>>)| {
        context! {
            metric => scores.metric.as_deref().map(printable),
            table => table(scores),
            figure => drawn.as_ref().map(figure),
        }
    };
    let has_seeds = section.figures.iter().any(|f| f.plot.has_seeds());
    context! {
        name => printable(&section.name),
        slug => section.slug.as_str(),
        pages => section.pages.iter().map(page_link).collect::<Vec<_>>(),
        finding => printable(&section.finding),
        caveats => each(&section.caveats),
        panels => panels.iter().map(panel).collect::<Vec<_>>(),
        metrics => scores.iter().filter_map(metric).collect::<Vec<_>>(),
        other_scales => scales,
        has_seeds,
        baselines => baselines(&section.differences),
        differences => differences(&section.differences),
        is_long => section.lead.rows.len() >= FILTERED_FROM,
        tables => tables.iter().map(|t| table(t)).collect::<Vec<_>>(),
        figures => others.iter().map(|f| figure(&DrawnFigure::of(f, is_large))).collect::<Vec<_>>(),
        definitions => pairs(&section.definitions),
        runs => section.runs.iter().map(run_row).collect::<Vec<_>>(),
        run_data => runs::data(&section.runs).map(Value::from_safe_string),
    }
}

/// A figure and its drawing.
struct DrawnFigure<'f> {
    figure: &'f Figure,
    page: PageFigure,
}

impl<'f> DrawnFigure<'f> {
    fn of(figure: &'f Figure, is_large: bool) -> Self {
        Self {
            figure,
            page: figure.plot.to_page(is_large),
        }
    }
}

fn figure(drawn: &DrawnFigure<'_>) -> Value {
    let DrawnFigure { figure: f, page } = drawn;
    let entries = page.entries.iter().map(|entry| {
        context! {
            key => entry.key.as_str(),
            name => printable(&entry.name),
            sample => Value::from_safe_string(entry.sample.clone()),
        }
    });
    context! {
        slug => f.slug.as_str(),
        title => printable(f.plot.title()),
        caption => printable(&f.caption),
        notes => printable(&f.notes),
        svg => Value::from_safe_string(page.svg.clone()),
        heading => printable(&page.heading),
        entries => entries.collect::<Vec<_>>(),
    }
}

fn table(table: &Table) -> Value {
    let is_wide = table.columns.len() >= WIDE_FROM;
    let class = match (table.layout, table.methods.is_empty()) {
        (Layout::Numbers, true) => "sortable",
        (Layout::Numbers, false) if is_wide => "sortable methods wide",
        (Layout::Numbers, false) => "sortable methods",
        (Layout::Heat, _) => "sortable methods matrix",
        (Layout::Matrix, _) => "sortable prose matrix",
        (Layout::Prose, _) => "prose",
        (Layout::Glossary, _) => "prose glossary",
    };
    let columns = table.columns.iter().enumerate().map(|(at, text)| {
        let href = table.column_links.get(at).cloned().flatten();
        context! { text => printable(text), href }
    });
    let row = |(at, row): (usize, &Vec<Cell>)| {
        let key = table.methods.get(at).copied().flatten().map(key);
        context! { key, cells => row.iter().map(cell).collect::<Vec<_>>() }
    };
    context! {
        class,
        slug => table.slug.as_str(),
        folded => table.is_folded,
        title => printable(&table.title),
        caption => printable(&table.caption),
        notes => printable(&table.notes),
        columns => columns.collect::<Vec<_>>(),
        rows => table.rows.iter().enumerate().map(row).collect::<Vec<_>>(),
    }
}

fn cell(cell: &Cell) -> Value {
    let link = |(text, href): &(String, Option<String>)| {
        let href = href.as_deref().map(escape::link);
        context! { text => printable(text), href }
    };
    let (main, interval) = cell
        .text
        .split_at(cell.interval_at.unwrap_or(cell.text.len()));
    let mut classes = Vec::new();
    classes.extend(match cell.mark {
        Mark::Best => Some("best"),
        Mark::Near => Some("near"),
        Mark::None => None,
    });
    classes.extend(cell.tone.map(|tone| match tone {
        Tone::Good => "good",
        Tone::Bad => "bad",
        Tone::Open => "open",
    }));
    classes.extend(cell_reason(&cell.text).then_some("absent"));
    classes.extend(cell.is_learning.then_some("learning"));
    if let Some(heat) = cell.heat {
        classes.extend(["heat"]);
        classes.extend((heat > DEEP).then_some("deep"));
    }
    context! {
        main => printable(main),
        interval => printable(interval),
        class => classes.join(" "),
        heat => cell.heat.map(|heat| format!("{heat:.2}")),
        page => cell.page.as_deref(),
        links => cell.links.iter().map(link).collect::<Vec<_>>(),
    }
}

/// Heat from which on the ground is too deep for the ink of the page.
const DEEP: f64 = 0.6;

fn baselines(all: &[Differences]) -> Vec<[String; 2]> {
    let mut out = vec![[String::new(), "nothing".to_owned()]];
    for one in all {
        let (key, name) = &one.baseline;
        if !out.iter().any(|known| known[0] == *key) {
            out.push([key.clone(), printable(name)]);
        }
    }
    out
}

/// `{metric: {baseline: {method: [text, ...]}}}`; a text begins with `*` where the interval excludes
/// 0.
fn differences(all: &[Differences]) -> Value {
    let mut out = Map::new();
    for one in all {
        let row = |(key, cells): &(String, Vec<(String, bool)>)| {
            let mark = |is_clear: bool| if is_clear { "*" } else { "" };
            let cell = |(text, is_clear): &(String, bool)| {
                format!("{}{}", mark(*is_clear), printable(text))
            };
            (
                key.clone(),
                json!(cells.iter().map(cell).collect::<Vec<_>>()),
            )
        };
        let rows: Map<String, Json> = one.rows.iter().map(row).collect();
        let of_metric = out
            .entry(printable(&one.metric))
            .or_insert_with(|| json!({}));
        if let Json::Object(of_metric) = of_metric {
            of_metric.insert(one.baseline.0.clone(), Json::Object(rows));
        }
    }
    if out.is_empty() {
        return Value::UNDEFINED;
    }
    Value::from_safe_string(escape::script_text(&Json::Object(out)))
}

/// A row of the table that stands for the runs where no script does.
fn run_row(view: &RunView) -> Value {
    context! {
        name => printable(&view.name),
        run => printable(&view.run),
        outcome => printable(&view.outcome),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::prelude::{BASE64_STANDARD, Engine as _};
    use sha2::{Digest, Sha256};

    #[test]
    fn the_policy_names_the_script() {
        let hash = BASE64_STANDARD.encode(Sha256::digest(SCRIPT));
        assert_eq!(SCRIPT_HASH, format!("sha256-{hash}"), "page.js has changed");
        assert!(SCRIPT.len() <= 24_000, "{}", SCRIPT.len());
        // What would end the element, or load or run anything.
        for word in [
            "</",
            "<!--",
            "eval(",
            "innerHTML",
            "Function(",
            "fetch(",
            "import(",
        ] {
            assert!(!SCRIPT.contains(word), "{word}");
        }
    }
}
