//! A report: a pure function of records and a [`ReportSpec`].
//!
//! ```text
//! spec.rs         what a report should contain
//! build.rs        from records to files
//! canonical.rs    records in canonical order, each run once
//! assemble.rs     the document: sections, chapters, lists
//! document.rs     its types, before any markup
//! folds.rs        which tables are folded away
//! experiments.rs  a page for each of several experiments
//! pages.rs        links between pages
//! plot/           figures as SVG
//! section.rs      a setting: what was found, tables, figures, definitions
//! sections/       tables of a setting, one file each
//! figures/        figures of a setting, one file each
//! chapters/       tables about all settings: board, overview, correlations, claims, assertions
//! finding.rs      what the numbers of a setting say, in sentences
//! best.rs         the sentence on the method with the best score
//! captions.rs     parts of captions that tables and figures share
//! remarks.rs      letters behind names of methods, and what they mean
//! conditions.rs   facts that all numbers depend on
//! config.rs       one resolved spec of each experiment, and its configs
//! render/         Markdown, HTML, LaTeX, CSV, terminal
//! error.rs        why there is no report
//! output.rs       the files, and writing them
//! comparison/     the scores of two sets of records
//! ```
#![cfg_attr(not(test), warn(clippy::too_many_lines, clippy::print_stdout))]

mod assemble;
mod best;
mod build;
mod canonical;
mod captions;
mod chapters;
mod comparison;
mod conditions;
mod config;
mod document;
mod error;
mod experiments;
mod figures;
mod finding;
mod folds;
mod output;
mod pages;
pub mod plot;
mod remarks;
mod render;
mod section;
mod sections;
mod spec;

pub use build::report;
pub use comparison::{
    Change, ComparedSetting, ComparisonSpec, RecordSet, Score, ScoreComparison, SeedsLearned,
    Verdict,
};
pub use error::ReportError;
pub use output::{Report, ReportFile};
pub use spec::{FIRST_METHOD, Format, ReportSpec, RunPlace};
