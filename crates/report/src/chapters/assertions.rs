//! The chapter on expectations from the literature.

use super::numbers::{ChapterFiles, CsvFile, NUMBER_HEAD, number_rows, or_dash, rule, sentences};
use crate::document::{Cell, Chapter, Layout, Table, Tone};
use crate::error::ReportError;
use records::claims::{
    Assertion, AssertionOutcome, AssertionResult, Assertions, ExperimentSetting,
};

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
/// When the committed file is not a list of assertions, which a test excludes.
pub(crate) fn chapter(settings: &[ExperimentSetting<'_>]) -> Result<ChapterFiles, ReportError> {
    let committed = Assertions::committed().map_err(|e| ReportError::Render {
        file: "assertions.json",
        reason: e.to_string(),
    })?;
    let outcomes = committed.evaluate(settings);
    let count = |result: AssertionResult| outcomes.iter().filter(|o| o.result == result).count();
    let counted: Vec<String> = RESULTS
        .iter()
        .map(|&result| (count(result), result.name()))
        .filter(|(n, _)| *n > 0)
        .map(|(n, name)| format!("{name}: {n}"))
        .collect();
    let tables = vec![
        matrix(&committed, &outcomes, settings),
        numbers(&committed, &outcomes),
    ];
    let head = ["assertion", "basis", "text", "place", "result"];
    let csv_rows = outcomes.iter().flat_map(|o| {
        let (text, basis) = text_and_basis(&committed, o);
        let result = o.result.name().to_string();
        let head = [o.id.to_string(), basis, text, o.place.clone(), result];
        number_rows(&head, &o.numbers)
    });
    Ok(ChapterFiles {
        chapter: Chapter {
            name: "Expectations from the literature".into(),
            slug: "what-a-correct-suite-reproduces".into(),
            summary: format!("Expectations from the literature, {}.", counted.join(", ")),
            tables,
            is_first: false,
        },
        csv: vec![CsvFile {
            name: "assertions.csv",
            head: head.into_iter().chain(NUMBER_HEAD).collect(),
            rows: csv_rows.collect(),
        }],
        notes: Vec::new(),
    })
}

fn text_and_basis(assertions: &Assertions, outcome: &AssertionOutcome) -> (String, String) {
    let mut all = assertions.assertions.iter();
    let found = all.find(|assertion| assertion.id == outcome.id);
    found.map_or_else(Default::default, |a| (a.text.clone(), a.basis.clone()))
}

/// One row for each assertion, one column for each setting that can test any.
fn matrix(
    assertions: &Assertions,
    outcomes: &[AssertionOutcome],
    settings: &[ExperimentSetting<'_>],
) -> Table {
    let is_tested = |s: &&ExperimentSetting<'_>| outcomes.iter().any(|o| o.place == s.name);
    let tested: Vec<&ExperimentSetting<'_>> = settings.iter().filter(is_tested).collect();
    // An experiment with one setting is named by itself.
    let heading = |s: &&ExperimentSetting<'_>| {
        let of = tested.iter().filter(|t| t.experiment == s.experiment);
        if of.count() == 1 {
            s.experiment.clone()
        } else {
            s.name.clone()
        }
    };
    let start = ["assertion", "verdicts"].map(String::from).into_iter();
    let row = |assertion: &Assertion| -> Vec<Cell> {
        let own: Vec<&AssertionOutcome> =
            outcomes.iter().filter(|o| o.id == assertion.id).collect();
        let counted = RESULTS.iter().filter_map(|&result| {
            let n = own.iter().filter(|o| o.result == result).count();
            match (n, result) {
                (0, _) => None,
                (_, AssertionResult::NoRecords | AssertionResult::Elsewhere) => {
                    Some(result.name().to_owned())
                }
                (n, _) => Some(format!("{} {n}", result.name())),
            }
        });
        let counted: Vec<String> = counted.collect();
        let name = format!("{}. {}", assertion.id, assertion.text);
        let verdicts = tested.iter().map(|s| {
            let outcome = own.iter().find(|o| o.place == s.name);
            outcome.map_or_else(|| Cell::from(""), |o| verdict(o.result))
        });
        let start = [Cell::from(name), Cell::from(counted.join(", "))].into_iter();
        start.chain(verdicts).collect()
    };
    Table {
        slug: "assertions".into(),
        title: "Assertions".into(),
        caption: "Expectations from the literature, in every \
                  experiment that can test them. ✓ holds, ✗ fails, (✗) fails in a check that may \
                  fail at tiny scale without a mistake, ? undecided."
            .into(),
        notes: format!(
            "A check that no record can make counts neither way: an expectation may be tested in \
             part. {}",
            rule(outcomes.iter().flat_map(|outcome| &outcome.numbers))
        ),
        columns: start.chain(tested.iter().map(heading)).collect(),
        rows: assertions.assertions.iter().map(row).collect(),
        layout: Layout::Matrix,
        ..Table::default()
    }
}

fn verdict(result: AssertionResult) -> Cell {
    let (text, tone) = match result {
        AssertionResult::Holds => ("✓", Tone::Good),
        AssertionResult::Fails => ("✗", Tone::Bad),
        AssertionResult::FragileFails => ("(✗)", Tone::Bad),
        AssertionResult::Undecided => ("?", Tone::Open),
        AssertionResult::NoRecords | AssertionResult::Elsewhere => ("", Tone::Open),
    };
    Cell {
        tone: Some(tone),
        ..Cell::from(text)
    }
}

/// One row for each assertion and setting, with its numbers.
fn numbers(assertions: &Assertions, outcomes: &[AssertionOutcome]) -> Table {
    let row = |outcome: &AssertionOutcome| -> Vec<Cell> {
        let mut all = assertions.assertions.iter();
        let found = all.find(|assertion| assertion.id == outcome.id);
        let elsewhere = found
            .and_then(|assertion| assertion.elsewhere.clone())
            .filter(|_| outcome.result == AssertionResult::Elsewhere);
        let basis = found.map(|assertion| assertion.basis.clone());
        [
            outcome.id.to_string(),
            or_dash(&outcome.place),
            outcome.result.name().into(),
            elsewhere.unwrap_or_else(|| sentences(&outcome.numbers)),
            basis.unwrap_or_default(),
        ]
        .map(Cell::from)
        .to_vec()
    };
    let columns = ["no.", "where", "result", "numbers", "basis"];
    Table {
        slug: "assertions-numbers".into(),
        title: "Numbers behind the assertions".into(),
        caption: "Each assertion in each setting that can test it.".into(),
        is_folded: true,
        columns: columns.map(String::from).to_vec(),
        rows: outcomes.iter().map(row).collect(),
        layout: Layout::Prose,
        ..Table::default()
    }
}
