//! Texts of a document as every template prints them.

use crate::document::{Chapter, Config, Document, Table};
use minijinja::{Value, context};
use records::text::printable;

/// What every template prints before and after the settings. `table`: a table of a chapter.
pub(super) fn around<'d>(
    document: &'d Document,
    configs: impl Iterator<Item = &'d Config>,
    table: fn(&Table) -> Value,
) -> Value {
    let chapter = |c: &Chapter| {
        let tables: Vec<Value> = c.tables.iter().map(table).collect();
        context! { name => printable(&c.name), slug => c.slug.as_str(), summary => printable(&c.summary), tables }
    };
    let (first, chapters): (Vec<_>, Vec<_>) = document.chapters.iter().partition(|c| c.is_first);
    let configs = configs.map(|config| {
        let lines: Vec<String> = config.toml.lines().map(printable).collect();
        context! {
            experiment => printable(&config.experiment),
            files => each(&config.files),
            about => printable(&config.about),
            lines,
        }
    });
    let lists = document.lists().into_iter();
    let lists = lists.map(|(slug, name, items)| context! { slug, name, items => each(items) });
    context! {
        title => printable(&document.title),
        first => first.into_iter().map(chapter).collect::<Vec<_>>(),
        chapters => chapters.into_iter().map(chapter).collect::<Vec<_>>(),
        conditions => pairs(&document.conditions),
        configs => configs.collect::<Vec<_>>(),
        lists => lists.collect::<Vec<_>>(),
    }
}

pub(super) fn each(list: &[String]) -> Vec<String> {
    list.iter().map(|text| printable(text)).collect()
}

pub(super) fn pairs(list: &[(String, String)]) -> Vec<[String; 2]> {
    list.iter()
        .map(|(a, b)| [printable(a), printable(b)])
        .collect()
}

/// Whether a cell says that there is no number.
pub(super) fn cell_reason(text: &str) -> bool {
    let reasons = ["diverged", "unsupported", "skipped", "not converged"];
    matches!(text, "-" | "none") || reasons.iter().any(|reason| text.starts_with(reason))
}
