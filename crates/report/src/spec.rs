//! What a report should contain.

use records::claims::Claims;
use records::names::Names;
use records::record::RunRecord;
use records::timings::Timings;
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
    /// Names of kinds for people.
    pub names: Names,
    /// What is known of runs beside their records, by experiment and run id.
    pub runs: BTreeMap<(String, String), RunPlace>,
    /// Further notes, printed at the end of the report.
    pub notes: Vec<String>,
    /// Whether [`Report::summary`](crate::Report::summary) has the colours of the figures, in
    /// sequences that a terminal obeys.
    pub colors: bool,
    /// Columns of the terminal that [`Report::summary`](crate::Report::summary) is printed on: a
    /// table that is wider leaves its intervals to the report. None leaves nothing out.
    pub width: Option<usize>,
}

impl ReportSpec {
    /// What is known of a run beside its record.
    pub(crate) fn place(&self, run: &RunRecord) -> RunPlace {
        let place = self.runs.get(&(run.experiment.clone(), run.run_id.clone()));
        place.cloned().unwrap_or_default()
    }
}

/// What is known of a run beside its record.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunPlace {
    /// Relative path to its directory, for links.
    pub link: Option<String>,
    /// Relative path of a config that plans it: for links, and for the command that trains it
    /// again, both in pages.
    pub config: Option<String>,
    /// What it cost, where that was measured.
    pub timings: Option<Timings>,
}

impl Default for ReportSpec {
    fn default() -> Self {
        Self {
            title: "Longreach report".into(),
            formats: Format::ALL.into(),
            baseline: None,
            claims: Claims::default(),
            assertions: false,
            order: Vec::new(),
            names: Names::default(),
            runs: BTreeMap::new(),
            notes: Vec::new(),
            colors: false,
            width: None,
        }
    }
}
