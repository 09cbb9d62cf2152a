//! The chapter on a source's claims and its published numbers.

use super::numbers::{
    ChapterFiles, CsvFile, MOST_NUMBERS, NUMBER_HEAD, RULE, number, number_rows, or_dash, sentences,
};
use crate::document::{Cell, Chapter, Layout, Table};
use records::claims::{Claims, Column, Outcome, Verdict, counts};
use records::metric;
use records::record::RunRecord;
use records::stats::MOST_EXACT;
use records::text::{self, list};

/// The lists of claims: verdict, anchor, first sentence of the caption.
const LISTS: [(Verdict, &str, &str); 4] = [
    (
        Verdict::Agrees,
        "agreeing",
        "Claims that the records agree with.",
    ),
    (
        Verdict::Disagrees,
        "disagreeing",
        "Claims that the records disagree with; comparisons that disagree come first.",
    ),
    (
        Verdict::Undecided,
        "undecided",
        "Claims that the records do not decide.",
    ),
    (
        Verdict::NotTested,
        "not-tested",
        "Claims that no record is about.",
    ),
];

/// Evaluates claims and correlates published numbers.
pub(crate) fn chapter(claims: &Claims, records: &[RunRecord]) -> ChapterFiles {
    let (outcomes, columns) = (claims.evaluate(records), claims.correlate(records));
    let lists = LISTS
        .iter()
        .filter_map(|(verdict, slug, what)| claim_table(claims, &outcomes, *verdict, slug, what));
    let correlated = Some(&columns).filter(|columns| !columns.is_empty());
    let summary = if claims.claims.is_empty() {
        String::new()
    } else {
        format!("Claims of the source: {}", counts(&outcomes))
    };
    ChapterFiles {
        chapter: Chapter {
            name: "Against the source".into(),
            slug: "against-the-source".into(),
            summary,
            tables: lists
                .chain(correlated.map(|columns| correlation_table(columns)))
                .collect(),
            is_first: true,
        },
        csv: vec![claims_csv(claims, &outcomes), correlations_csv(&columns)],
        notes: outcomes
            .iter()
            .filter_map(|o| impossible(claims, o))
            .collect(),
    }
}

/// A note on a bound of a claim that its records cannot meet, whatever their scores are.
fn impossible(claims: &Claims, outcome: &Outcome) -> Option<String> {
    let why = outcome.numbers.iter().find_map(|n| n.impossible.as_ref())?;
    Some(format!(
        "Claim {} (\"{}\") in {}: {why}. More seeds or test rows, or another bound, can decide it.",
        outcome.claim + 1,
        text::name(&claims.claims[outcome.claim].text, 120),
        outcome.place
    ))
}

/// The claims with one verdict; none if there are none.
fn claim_table(
    claims: &Claims,
    outcomes: &[Outcome],
    verdict: Verdict,
    slug: &str,
    what: &str,
) -> Option<Table> {
    let of: Vec<&Outcome> = outcomes.iter().filter(|o| o.verdict == verdict).collect();
    if of.is_empty() {
        return None;
    }
    // Only an undecided claim is judged by its means.
    let has_means = verdict == Verdict::Undecided;
    let row = |outcome: &&Outcome| -> Vec<Cell> {
        let claim = &claims.claims[outcome.claim];
        let means = outcome.means();
        let means = means.map_or("-".into(), |[agree, all]| format!("{agree} of {all}"));
        let start = [
            claim.text.clone(),
            claim.source.clone(),
            or_dash(&outcome.place),
        ];
        let means = has_means.then_some(means);
        let cells = start.into_iter().chain(means);
        let cells = cells.chain([sentences(&outcome.numbers)]);
        cells.map(Cell::from).collect()
    };
    let mut columns = vec!["claim", "source", "where"];
    columns.extend(has_means.then_some("means that agree"));
    columns.push("numbers");
    let title = verdict.name();
    Some(Table {
        slug: format!("claims-{slug}"),
        title: format!(
            "{}{} ({})",
            title[..1].to_uppercase(),
            &title[1..],
            of.len()
        ),
        caption: what.into(),
        notes: if verdict == Verdict::NotTested {
            String::new()
        } else {
            RULE.into()
        },
        columns: columns.into_iter().map(String::from).collect(),
        rows: of.iter().map(row).collect(),
        layout: Layout::Prose,
        ..Table::default()
    })
}

fn claims_csv(claims: &Claims, outcomes: &[Outcome]) -> CsvFile {
    let rows = outcomes.iter().flat_map(|outcome| {
        let claim = &claims.claims[outcome.claim];
        let head = [
            (outcome.claim + 1).to_string(),
            claim.source.clone(),
            claim.text.clone(),
            outcome.place.clone(),
            outcome.verdict.name().into(),
        ];
        number_rows(&head, &outcome.numbers)
    });
    let head = ["claim", "source", "text", "place", "verdict"];
    CsvFile {
        name: "claims.csv",
        head: head.into_iter().chain(NUMBER_HEAD).collect(),
        rows: rows.collect(),
    }
}

fn correlations_csv(columns: &[Column]) -> CsvFile {
    let row = |column: &Column, (method, theirs, ours): &(String, f64, f64)| {
        vec![
            column.source.clone(),
            column.place.clone(),
            column.metric.clone(),
            column.lengths.0.to_string(),
            column.lengths.1.to_string(),
            method.clone(),
            theirs.to_string(),
            ours.to_string(),
            column.methods.len().to_string(),
            number(column.correlation.map(|c| c.rho)),
            number(column.correlation.map(|c| c.p)),
        ]
    };
    let rows = columns
        .iter()
        .flat_map(|column| column.methods.iter().map(move |m| row(column, m)));
    CsvFile {
        name: "correlations.csv",
        head: vec![
            "source",
            "place",
            "metric",
            "published_len",
            "test_len",
            "method",
            "published",
            "mean",
            "n",
            "spearman_rho",
            "p",
        ],
        rows: rows.collect(),
    }
}

fn correlation_table(columns: &[Column]) -> Table {
    let row = |column: &Column| {
        let pair = |m: &(String, f64, f64)| {
            let text = |v: f64| metric::number(v, metric::decimals(&column.metric, v));
            format!("{} {} / {}", m.0, text(m.1), text(m.2))
        };
        let number = |value: Option<f64>| value.map_or("-".into(), |v| metric::number(v, 3));
        let pairs: Vec<String> = column.methods.iter().map(pair).collect();
        [
            column.source.clone(),
            column.place.clone(),
            column.metric.clone(),
            format!("{} / {}", column.lengths.0, column.lengths.1),
            column.methods.len().to_string(),
            number(column.correlation.map(|c| c.rho)),
            number(column.correlation.map(|c| c.p)),
            list(&pairs, MOST_NUMBERS),
        ]
        .map(Cell::from)
        .to_vec()
    };
    let head = [
        "source", "where", "metric", "length", "n", "rho", "p", "pairs",
    ];
    Table {
        slug: "rank-correlation".into(),
        title: "Rank correlation".into(),
        caption: "Spearman's rank correlation over methods between a published column and ours \
                  (means over seeds). Pairs are published / ours."
            .into(),
        notes: format!(
            "Ties share their mean rank. n: methods in both; two-sided p over all permutations for \
             n up to {MOST_EXACT}, else by Student's t with n - 2 degrees of freedom. -: one side \
             is constant. Methods that have not converged are left out beyond the training length."
        ),
        columns: head.map(String::from).to_vec(),
        rows: columns.iter().map(row).collect(),
        layout: Layout::Prose,
        ..Table::default()
    }
}
