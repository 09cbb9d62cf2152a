//! What a report should contain.

use crate::claims::Claims;
use std::collections::{BTreeMap, BTreeSet};

/// As [`ReportSpec::baseline`]: the first method of each setting, in the order of its tables.
pub const FIRST_METHOD: &str = "first";

/// A format of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    /// `report.md`, with the figures as SVG files beside it.
    Md,
    /// `report.html`, one page that needs nothing else.
    Html,
    /// `results.csv`, long form: one row for each number. `summaries.csv`: one for each mean over
    /// seeds of what is made of them.
    Csv,
    /// `tables.tex`, booktabs tables to include.
    Tex,
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 4] = [Format::Md, Format::Html, Format::Csv, Format::Tex];
}

/// What a report should contain.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportSpec {
    /// Its heading.
    pub title: String,
    /// Which files.
    pub formats: BTreeSet<Format>,
    /// Whether figures are also written as PNG.
    pub png: bool,
    /// The method others are compared with, seed by seed: its name, or [`FIRST_METHOD`] for the
    /// first of each setting.
    pub baseline: Option<String>,
    /// Claims of a source to evaluate on the records, with published numbers; without any there is
    /// no such chapter.
    pub claims: Claims,
    /// Whether to evaluate the committed assertions on the records.
    pub assertions: bool,
    /// Texts of labels and names of variants in the order of the tables; all others follow in
    /// canonical order.
    pub order: Vec<String>,
    /// Relative paths to the directories of runs by experiment and run id, for links.
    pub run_links: BTreeMap<(String, String), String>,
    /// Further notes, printed at the end of the report.
    pub notes: Vec<String>,
}

impl Default for ReportSpec {
    fn default() -> Self {
        Self {
            title: "Longreach report".into(),
            formats: Format::ALL.into(),
            png: true,
            baseline: None,
            claims: Claims::default(),
            assertions: false,
            order: Vec::new(),
            run_links: BTreeMap::new(),
            notes: Vec::new(),
        }
    }
}
