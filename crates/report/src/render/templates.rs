//! Markdown, HTML and LaTeX from templates.
//!
//! All three get the same document as their context, and every value is escaped for the markup it is
//! printed in.

use super::columns::Columns;
use super::texts::{around, each, pairs};
use super::{escape, html as page};
use crate::document::{Cell, Document, Figure, Layout, Mark, Section, Table};
use crate::error::ReportError;
use crate::plot::described;
use minijinja::value::ValueKind;
use minijinja::{AutoEscape, Environment, Error, Value, context};
use records::text::printable;
use std::collections::BTreeSet;
use std::sync::Mutex;

/// A markup: its file, its template, and how text is escaped for it.
struct Markup {
    file: &'static str,
    template: &'static str,
    /// None: as HTML, by the template library.
    escape: Option<fn(&str) -> String>,
}

const MARKDOWN: Markup = Markup {
    file: "report.md",
    template: include_str!("templates/report.md.j2"),
    escape: Some(escape::markdown),
};

const LATEX: Markup = Markup {
    file: "tables.tex",
    template: include_str!("templates/tables.tex.j2"),
    escape: Some(escape::latex),
};

const HTML: Markup = Markup {
    file: "report.html",
    template: include_str!("page/page.html.j2"),
    escape: None,
};

/// GitHub-flavoured Markdown.
pub(crate) fn markdown(document: &Document) -> Result<String, ReportError> {
    MARKDOWN.render(whole(document))
}

/// Table floats to include in a document that loads `booktabs`.
pub(crate) fn latex(document: &Document) -> Result<String, ReportError> {
    LATEX.render(whole(document))
}

/// One page with nothing to load; the figures are inline.
pub(crate) fn html(document: &Document) -> Result<String, ReportError> {
    HTML.render(page::context(document))
}

impl Markup {
    fn render(&self, context: Value) -> Result<String, ReportError> {
        let text = self
            .environment()
            .and_then(|env| env.render_named_str(self.file, self.template, context));
        text.map_err(|e| ReportError::Render {
            file: self.file,
            reason: format!("{e:#}"),
        })
    }

    fn environment(&self) -> Result<Environment<'static>, Error> {
        let mut env = Environment::new();
        match self.escape {
            None => env.set_auto_escape_callback(|_| AutoEscape::Html),
            Some(escape) => {
                // Any mode but none makes the output of macros safe, so it is escaped once.
                env.set_auto_escape_callback(|_| AutoEscape::Custom("own".into()));
                env.set_formatter(move |out, _, value| {
                    let text = value.to_string();
                    let is_markup = value.is_safe() || value.kind() == ValueKind::Number;
                    out.write_str(&if is_markup { text } else { escape(&text) })?;
                    Ok(())
                });
            }
        }
        env.add_filter("link", escape::link);
        // What an earlier table said is not said again.
        let said = Mutex::new(BTreeSet::new());
        env.add_filter("once", move |text: String| {
            let is_new = said.lock().is_ok_and(|mut said| said.insert(text.clone()));
            if is_new { text } else { String::new() }
        });
        env.add_filter("latex_comment", |text: &str| {
            Value::from_safe_string(escape::latex_comment(text))
        });
        let syntax = minijinja::syntax::SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .keep_trailing_newline(true)
            .build()?;
        env.set_syntax(syntax);
        Ok(env)
    }
}

fn whole(document: &Document) -> Value {
    let sections = document.sections.iter().map(section);
    context! {
        sections => sections.collect::<Vec<_>>(),
        ..around(document, document.configs.iter(), table)
    }
}

fn section(section: &Section) -> Value {
    let figure = |f: &Figure| {
        context! {
            slug => f.slug.as_str(),
            name => printable(&described(f.plot.title(), f.plot.subtitle())),
            caption => printable(&f.caption),
            notes => printable(&f.notes),
        }
    };
    context! {
        name => printable(&section.name),
        slug => section.slug.as_str(),
        finding => printable(&section.finding),
        caveats => each(&section.caveats),
        lead => table(&section.lead),
        tables => section.tables.iter().filter(|t| !t.is_for_page).map(table).collect::<Vec<_>>(),
        figures => section.figures.iter().map(figure).collect::<Vec<_>>(),
        definitions => pairs(&section.definitions),
    }
}

fn table(table: &Table) -> Value {
    let aligned = Columns::of(table);
    let cells = |row: &Vec<Cell>| {
        let cells = row.iter().enumerate();
        let cells = cells.map(|(at, c)| cell(c, aligned.as_ref().map(|all| all.cell(at, c))));
        cells.collect::<Vec<_>>()
    };
    let heading = |(at, text): (usize, &String)| match &aligned {
        Some(all) => all.heading(at, text),
        None => Value::from(printable(text)),
    };
    let anchor = |link: &Option<String>| link.as_ref()?.strip_prefix('#').map(String::from);
    // Sentences break within columns of equal width, with room for the gaps between them.
    let width = format!("{:.3}", 0.9 / table.columns.len().max(1) as f64);
    context! {
        width,
        slug => table.slug.as_str(),
        prose => !matches!(table.layout, Layout::Numbers | Layout::Heat),
        folded => table.is_folded,
        glossary => table.layout == Layout::Glossary,
        title => printable(&table.title),
        caption => printable(&table.caption),
        notes => printable(&table.notes),
        definition => printable(&table.definition),
        columns => each(&table.columns),
        anchors => table.column_links.iter().map(anchor).collect::<Vec<_>>(),
        aligned => aligned.as_ref().map(Columns::spec),
        headings => table.columns.iter().enumerate().map(heading).collect::<Vec<_>>(),
        rows => table.rows.iter().map(cells).collect::<Vec<_>>(),
    }
}

/// `aligned`: the cell in LaTeX where its table has aligned numbers.
fn cell(cell: &Cell, aligned: Option<Value>) -> Value {
    let link = |(text, href): &(String, Option<String>)| context! { text => printable(text), href };
    context! {
        text => printable(&cell.text),
        bold => cell.mark == Mark::Best,
        near => cell.mark == Mark::Near,
        aligned,
        links => cell.links.iter().map(link).collect::<Vec<_>>(),
    }
}
