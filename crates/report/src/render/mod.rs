//! The document in three markups, as CSV, and on the terminal.
//!
//! ```text
//! templates/*.j2  Markdown, LaTeX
//! page/           the page: template, style sheet, script
//! templates.rs    the document as their context
//! html.rs         the document as the context of the page
//! runs.rs         its runs as data for the page's script
//! columns.rs      columns of LaTeX tables
//! texts.rs        texts as every template prints them
//! escape.rs       one escaper for each markup
//! csv.rs          CSV files
//! terminal.rs     text for the terminal
//! ```

mod columns;
mod csv;
pub(super) mod escape;
mod html;
mod runs;
mod templates;
mod terminal;
mod texts;

pub(crate) use csv::{csv_text, results_csv, summaries_csv};
pub(crate) use templates::{html, latex, markdown};
pub(crate) use terminal::terminal;
