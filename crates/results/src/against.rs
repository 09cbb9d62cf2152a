//! The chapters of a report that hold it against something: a source's claims, and what a correct
//! suite must show.

use crate::assertions::{Assertions, Stand, Standing};
use crate::claims::{Claims, Column, Comparison, Outcome, Verdict, counts};
use crate::metric;
use crate::record::RunRecord;
use crate::report::{Chapter, ReportError};
use crate::stats::MOST_EXACT;
use crate::table::{Cell, Table, list};

/// Numbers shown with one claim; `claims.csv` has all.
const MOST_NUMBERS: usize = 12;

/// How a verdict follows from an interval.
const RULE: &str = "Mean over seeds with its 95 % CI, ± or [low, high] (shares); differences and \
                    ratios paired by seed, n in brackets. A comparison agrees or disagrees if its \
                    whole interval does, and is undecided otherwise, for a single seed, and \
                    beyond the training length of a method that has not converged.";

/// A chapter, and the rows of its files.
pub(crate) struct Against {
    pub chapter: Chapter,
    pub csv: Vec<CsvFile>,
}

pub(crate) struct CsvFile {
    pub name: &'static str,
    pub head: Vec<&'static str>,
    pub rows: Vec<Vec<String>>,
}

/// The chapter on a source's claims.
pub(crate) fn source(claims: &Claims, records: &[RunRecord]) -> Against {
    let (outcomes, columns) = (claims.evaluate(records), claims.correlate(records));
    let lists = [
        (
            Verdict::Agrees,
            "agreeing",
            "Claims that the records agree with.",
        ),
        (
            Verdict::Disagrees,
            "disagreeing",
            "Claims that the records disagree with; what disagrees comes first.",
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
    let mut tables = Vec::new();
    for (verdict, slug, what) in lists {
        let of: Vec<&Outcome> = outcomes.iter().filter(|o| o.verdict == verdict).collect();
        if of.is_empty() {
            continue;
        }
        let rows = of.iter().map(|outcome| {
            let claim = &claims.claims[outcome.claim];
            let means = outcome
                .means()
                .map_or_else(String::new, |[agree, all]| format!("{agree} of {all}"));
            let shown = [
                claim.text.clone(),
                claim.source.clone(),
                dash(&outcome.place),
                dash(&means),
                numbers(&outcome.numbers),
            ];
            let means_matter = verdict == Verdict::Undecided;
            shown
                .into_iter()
                .enumerate()
                .filter(|(i, _)| *i != 3 || means_matter)
                .map(|(_, text)| Cell::from(text))
                .collect()
        });
        let title = verdict.name();
        tables.push(Table {
            slug: format!("claims-{slug}"),
            title: format!(
                "{}{} ({})",
                title[..1].to_uppercase(),
                &title[1..],
                of.len()
            ),
            caption: if verdict == Verdict::NotTested {
                what.into()
            } else {
                format!("{what} {RULE}")
            },
            columns: if verdict == Verdict::Undecided {
                ["claim", "source", "where", "means that agree", "numbers"]
                    .map(String::from)
                    .to_vec()
            } else {
                ["claim", "source", "where", "numbers"]
                    .map(String::from)
                    .to_vec()
            },
            rows: rows.collect(),
            prose: true,
        });
    }
    if !columns.is_empty() {
        tables.push(correlations(&columns));
    }
    let counted = counts(&outcomes);
    let summary = if claims.claims.is_empty() {
        String::new()
    } else {
        format!("Claims of the source: {counted}")
    };
    let claim_rows = outcomes.iter().flat_map(|outcome| {
        let claim = &claims.claims[outcome.claim];
        let head = vec![
            (outcome.claim + 1).to_string(),
            claim.source.clone(),
            claim.text.clone(),
            outcome.place.clone(),
        ];
        number_rows(head, outcome.verdict.name(), &outcome.numbers)
    });
    let claim_head = ["claim", "source", "text", "place", "verdict"]
        .into_iter()
        .chain(NUMBER_HEAD)
        .collect();
    let column_rows = columns.iter().flat_map(|column| {
        column.methods.iter().map(|(method, theirs, ours)| {
            let number = |value: Option<f64>| value.map_or(String::new(), |v| v.to_string());
            let mut row = vec![
                column.source.clone(),
                column.place.clone(),
                column.metric.clone(),
            ];
            row.extend([column.lengths.0, column.lengths.1].map(|l| l.to_string()));
            row.extend([
                method.clone(),
                theirs.to_string(),
                ours.to_string(),
                column.methods.len().to_string(),
            ]);
            row.extend([
                number(column.correlation.map(|c| c.rho)),
                number(column.correlation.map(|c| c.p)),
            ]);
            row
        })
    });
    let column_head = vec![
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
    ];
    Against {
        chapter: Chapter {
            name: "Against the source".into(),
            slug: "against-the-source".into(),
            summary,
            tables,
        },
        csv: vec![
            CsvFile {
                name: "claims.csv",
                head: claim_head,
                rows: claim_rows.collect(),
            },
            CsvFile {
                name: "correlations.csv",
                head: column_head,
                rows: column_rows.collect(),
            },
        ],
    }
}

fn correlations(columns: &[Column]) -> Table {
    let rows = columns.iter().map(|column| {
        let pair = |m: &(String, f64, f64)| {
            let text = |v: f64| metric::number(v, metric::decimals(&column.metric, v));
            format!("{} {} / {}", m.0, text(m.1), text(m.2))
        };
        let number = |value: Option<f64>| value.map_or("-".into(), |v| metric::number(v, 3));
        let pairs: Vec<String> = column.methods.iter().map(pair).collect();
        let lengths = format!("{} / {}", column.lengths.0, column.lengths.1);
        [
            column.source.clone(),
            column.place.clone(),
            column.metric.clone(),
            lengths,
            column.methods.len().to_string(),
            number(column.correlation.map(|c| c.rho)),
            number(column.correlation.map(|c| c.p)),
            list(&pairs, MOST_NUMBERS),
        ]
        .map(Cell::from)
        .to_vec()
    });
    Table {
        slug: "rank-correlation".into(),
        title: "Rank correlation".into(),
        caption: format!(
            "Spearman's rank correlation over methods between a published column and ours (means \
             over seeds), ties sharing their mean rank. n: methods in both; two-sided p over all \
             permutations for n up to {MOST_EXACT}, else by Student's t with n - 2 degrees of \
             freedom. Pairs are published / ours. -: one side is constant. Methods that have not \
             converged have no place beyond the training length."
        ),
        columns: [
            "source", "where", "metric", "length", "n", "rho", "p", "pairs",
        ]
        .map(String::from)
        .to_vec(),
        rows: rows.collect(),
        prose: true,
    }
}

/// The chapter on what a correct suite must show.
pub(crate) fn assertions(records: &[RunRecord]) -> Result<Against, ReportError> {
    let failed = |e: serde_json::Error| ReportError::Render {
        file: "assertions.json",
        reason: e.to_string(),
    };
    let committed = Assertions::committed().map_err(failed)?;
    let stands = committed.evaluate(records);
    let of = |stand: &Stand| committed.assertions.iter().find(|a| a.id == stand.id);
    let count = |standing: Standing| stands.iter().filter(|s| s.standing == standing).count();
    let all = [
        Standing::Holds,
        Standing::Fails,
        Standing::FragileFails,
        Standing::Undecided,
        Standing::NoRecords,
        Standing::Elsewhere,
    ];
    let counted: Vec<String> = all
        .iter()
        .map(|&s| (count(s), s.name()))
        .filter(|c| c.0 > 0)
        .map(|(n, name)| format!("{name}: {n}"))
        .collect();
    let rows = stands.iter().map(|stand| {
        let (text, basis) = of(stand).map_or((String::new(), String::new()), |a| {
            (a.text.clone(), a.basis.clone())
        });
        let elsewhere = of(stand)
            .and_then(|a| a.elsewhere.clone())
            .filter(|_| stand.standing == Standing::Elsewhere);
        let shown = elsewhere.unwrap_or_else(|| numbers(&stand.numbers));
        [
            stand.id.to_string(),
            text,
            basis,
            dash(&stand.place),
            stand.standing.name().into(),
            shown,
        ]
        .map(Cell::from)
        .to_vec()
    });
    let table = Table {
        slug: "assertions".into(),
        title: "Assertions".into(),
        caption: format!(
            "What published results let expect of a correct suite at this size. Fragile: may fail \
             at tiny scale without a mistake. Checks without records are named and count neither \
             way. {RULE}"
        ),
        columns: ["no.", "assertion", "basis", "where", "result", "numbers"]
            .map(String::from)
            .to_vec(),
        rows: rows.collect(),
        prose: true,
    };
    let csv_rows = stands.iter().flat_map(|stand| {
        let (text, basis) = of(stand).map_or((String::new(), String::new()), |a| {
            (a.text.clone(), a.basis.clone())
        });
        number_rows(
            vec![stand.id.to_string(), basis, text, stand.place.clone()],
            stand.standing.name(),
            &stand.numbers,
        )
    });
    let head = ["assertion", "basis", "text", "place", "standing"]
        .into_iter()
        .chain(NUMBER_HEAD)
        .collect();
    Ok(Against {
        chapter: Chapter {
            name: "What a correct suite must show".into(),
            slug: "what-a-correct-suite-must-show".into(),
            summary: format!("What a correct suite must show, {}.", counted.join(", ")),
            tables: vec![table],
        },
        csv: vec![CsvFile {
            name: "assertions.csv",
            head,
            rows: csv_rows.collect(),
        }],
    })
}

const NUMBER_HEAD: [&str; 8] = [
    "comparison",
    "mean",
    "half_width_95",
    "low_95",
    "high_95",
    "n",
    "needed",
    "comparison_verdict",
];

/// A row for each number, or one without any.
fn number_rows(head: Vec<String>, verdict: &str, numbers: &[Comparison]) -> Vec<Vec<String>> {
    let start = || head.iter().cloned().chain([verdict.to_string()]);
    if numbers.is_empty() {
        return vec![start().chain(NUMBER_HEAD.map(|_| String::new())).collect()];
    }
    let number = |value: Option<f64>| value.map_or(String::new(), |v| v.to_string());
    let row = |n: &Comparison| {
        let mean = number(n.estimate.map(|e| e.mean));
        let half = number(n.estimate.and_then(|e| e.half_width));
        let interval = n.estimate.and_then(|e| e.interval);
        let (low, high) = (number(interval.map(|i| i.0)), number(interval.map(|i| i.1)));
        let count = n.estimate.map_or(0, |e| e.n).to_string();
        start()
            .chain([
                n.what.clone(),
                mean,
                half,
                low,
                high,
                count,
                n.needed.clone(),
                n.verdict.name().into(),
            ])
            .collect()
    };
    numbers.iter().map(row).collect()
}

/// What disagrees first, then what is undecided: that is what a reader looks for.
fn numbers(comparisons: &[Comparison]) -> String {
    let rank = |c: &&Comparison| match c.verdict {
        Verdict::Disagrees => 0,
        Verdict::Undecided => 1,
        Verdict::Agrees => 2,
        Verdict::NotTested => 3,
    };
    let mut sorted: Vec<&Comparison> = comparisons.iter().collect();
    sorted.sort_by_key(rank);
    let mixed = sorted.first().map(rank_of) != sorted.last().map(rank_of);
    let text = |c: &&Comparison| {
        if mixed {
            format!("{}: {}", c.verdict.name(), c.text)
        } else {
            c.text.clone()
        }
    };
    let mut shown: Vec<String> = sorted.iter().take(MOST_NUMBERS).map(text).collect();
    if sorted.len() > MOST_NUMBERS {
        shown.push(format!("... and {} more", sorted.len() - MOST_NUMBERS));
    }
    dash(&shown.join("; "))
}

fn rank_of(comparison: &&Comparison) -> Verdict {
    comparison.verdict
}

fn dash(text: &str) -> String {
    if text.is_empty() {
        "-".into()
    } else {
        text.into()
    }
}
