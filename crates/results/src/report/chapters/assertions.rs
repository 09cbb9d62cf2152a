//! The chapter on findings that a correct suite reproduces.

use super::numbers::{ChapterFiles, CsvFile, NUMBER_HEAD, RULE, number_rows, or_dash, sentences};
use crate::claims::{AssertionOutcome, AssertionResult, Assertions};
use crate::record::RunRecord;
use crate::report::document::{Cell, Chapter, Layout, Table};
use crate::report::error::ReportError;

const RESULTS: [AssertionResult; 6] = [
    AssertionResult::Holds,
    AssertionResult::Fails,
    AssertionResult::FragileFails,
    AssertionResult::Undecided,
    AssertionResult::NoRecords,
    AssertionResult::Elsewhere,
];

/// Evaluates the committed assertions.
///
/// # Errors
///
/// When the committed file is no list of assertions, which a test excludes.
pub(crate) fn chapter(records: &[RunRecord]) -> Result<ChapterFiles, ReportError> {
    let committed = Assertions::committed().map_err(|e| ReportError::Render {
        file: "assertions.json",
        reason: e.to_string(),
    })?;
    let outcomes = committed.evaluate(records);
    let count = |result: AssertionResult| outcomes.iter().filter(|o| o.result == result).count();
    let counted: Vec<String> = RESULTS
        .iter()
        .map(|&result| (count(result), result.name()))
        .filter(|(n, _)| *n > 0)
        .map(|(n, name)| format!("{name}: {n}"))
        .collect();
    let columns = ["no.", "assertion", "basis", "where", "result", "numbers"];
    let table = Table {
        slug: "assertions".into(),
        title: "Assertions".into(),
        caption: format!(
            "Published findings that a correct suite reproduces at this size. Fragile: may fail at \
             tiny scale without a mistake. Checks without records are named and count neither \
             way. {RULE}"
        ),
        columns: columns.map(String::from).to_vec(),
        rows: outcomes.iter().map(|o| row(&committed, o)).collect(),
        layout: Layout::Prose,
    };
    let head = ["assertion", "basis", "text", "place", "result"];
    let csv_rows = outcomes.iter().flat_map(|o| {
        let (text, basis) = text_and_basis(&committed, o);
        let result = o.result.name().to_string();
        let head = [o.id.to_string(), basis, text, o.place.clone(), result];
        number_rows(&head, &o.numbers)
    });
    Ok(ChapterFiles {
        chapter: Chapter {
            name: "What a correct suite reproduces".into(),
            slug: "what-a-correct-suite-reproduces".into(),
            summary: format!("What a correct suite reproduces, {}.", counted.join(", ")),
            tables: vec![table],
        },
        csv: vec![CsvFile {
            name: "assertions.csv",
            head: head.into_iter().chain(NUMBER_HEAD).collect(),
            rows: csv_rows.collect(),
        }],
    })
}

fn text_and_basis(assertions: &Assertions, outcome: &AssertionOutcome) -> (String, String) {
    let mut all = assertions.assertions.iter();
    let found = all.find(|assertion| assertion.id == outcome.id);
    found.map_or_else(Default::default, |a| (a.text.clone(), a.basis.clone()))
}

fn row(assertions: &Assertions, outcome: &AssertionOutcome) -> Vec<Cell> {
    let (text, basis) = text_and_basis(assertions, outcome);
    let mut all = assertions.assertions.iter();
    let found = all.find(|assertion| assertion.id == outcome.id);
    let elsewhere = found
        .and_then(|assertion| assertion.elsewhere.clone())
        .filter(|_| outcome.result == AssertionResult::Elsewhere);
    [
        outcome.id.to_string(),
        text,
        basis,
        or_dash(&outcome.place),
        outcome.result.name().into(),
        elsewhere.unwrap_or_else(|| sentences(&outcome.numbers)),
    ]
    .map(Cell::from)
    .to_vec()
}
