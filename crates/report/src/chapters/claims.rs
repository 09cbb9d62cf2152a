//! The chapter on a source's claims and its published numbers.

use super::numbers::{
    ChapterFiles, CsvFile, MOST_NUMBERS, NUMBER_HEAD, number, number_rows, or_dash, rule, sentences,
};
use crate::document::{Cell, Chapter, Layout, Table};
use records::claims::{
    Beside, Claims, Column, ExperimentSetting, MOST_SEEDS, Outcome, Power, Verdict, counts, range,
};
use records::metric;
use records::stats::{ALPHA, Correlation, MOST_EXACT};
use records::text::{self, list};

/// Claims that name what no record has, and that the summary names.
const MOST_LACKING: usize = 5;

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
        "Claims that the records do not decide. Seeds: how many in all would decide, and how, if means \
         and spreads stayed; -: it takes more than seeds, such as learning the task first.",
    ),
    (
        Verdict::NotTested,
        "not-tested",
        "Claims that the records cannot test, and why.",
    ),
];

/// Evaluates claims and correlates published numbers.
pub(crate) fn chapter(claims: &Claims, settings: &[ExperimentSetting<'_>]) -> ChapterFiles {
    let (outcomes, columns) = (claims.evaluate(settings), claims.correlate(settings));
    let lists = LISTS
        .iter()
        .filter_map(|(verdict, slug, what)| claim_table(claims, &outcomes, *verdict, slug, what));
    let beside = claims.beside(settings);
    let beside = (!beside.is_empty()).then(|| beside_table(&beside));
    let correlated = (!columns.is_empty()).then(|| correlation_tables(&columns));
    let counts =
        (!claims.claims.is_empty()).then(|| format!("Claims of the source: {}", counts(&outcomes)));
    let lacking = claims.lacking(settings).into_iter();
    let lacking = lacking.map(|(at, what)| format!("{}: {what}.", named(claims, at)));
    let unmatched = claims.unmatched(settings).into_iter().map(|(at, what)| {
        let source = text::name(&claims.published[at].source, 60);
        format!("Numbers of {source} {what}.")
    });
    let told = lacking
        .take(MOST_LACKING)
        .chain(unmatched.take(MOST_LACKING));
    let summary = counts.into_iter().chain(told).collect::<Vec<_>>().join(" ");
    ChapterFiles {
        chapter: Chapter {
            name: "Against the source".into(),
            slug: "against-the-source".into(),
            summary,
            tables: beside
                .into_iter()
                .chain(lists)
                .chain(correlated.into_iter().flatten())
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
        "{} in {}: {why}. More seeds or test rows, or another bound, can decide it.",
        named(claims, outcome.claim),
        outcome.place
    ))
}

/// A claim in a note, by its place in the list.
fn named(claims: &Claims, at: usize) -> String {
    let text = text::name(&claims.claims[at].text, 120);
    format!("Claim {} (\"{text}\")", at + 1)
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
    let row = |(at, outcome): (usize, &&Outcome)| -> Vec<Cell> {
        let claim = &claims.claims[outcome.claim];
        let is_next = at > 0 && of[at - 1].claim == outcome.claim;
        let once = |text: &String| if is_next { String::new() } else { text.clone() };
        let means = outcome.means();
        let means = means.map_or("-".into(), |[agree, all]| format!("{agree} of {all}"));
        let start = [
            once(&claim.text),
            once(&claim.source),
            or_dash(&outcome.place),
        ];
        let means = has_means.then(|| [means, seeds(outcome)]);
        let cells = start.into_iter().chain(means.into_iter().flatten());
        let cells = cells.chain([sentences(&outcome.numbers)]);
        cells.map(Cell::from).collect()
    };
    let mut columns = vec!["claim", "source", "where"];
    columns.extend(
        has_means
            .then_some(["means that agree", "seeds"])
            .into_iter()
            .flatten(),
    );
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
        notes: match of.iter().all(|o| o.place.is_empty()) {
            true => String::new(),
            false => rule(of.iter().flat_map(|outcome| &outcome.numbers)),
        },
        columns: columns.into_iter().map(String::from).collect(),
        rows: of.iter().enumerate().map(row).collect(),
        layout: Layout::Prose,
        ..Table::default()
    })
}

/// How many seeds would decide an undecided claim, and how.
fn seeds(outcome: &Outcome) -> String {
    match outcome.power() {
        None => "-".into(),
        Some(Power::More) => format!("> {MOST_SEEDS}"),
        Some(Power::Seeds(seeds, verdict)) => format!("{seeds}: {}", verdict.name()),
    }
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

/// Published numbers of single seeds and ours.
fn beside_table(all: &[Beside]) -> Table {
    let met = all.iter().filter(|beside| beside.is_met()).count();
    let row = |beside: &Beside| {
        let text =
            |value: f64| metric::number(value, metric::decimals(&beside.metric, value).max(4));
        let of = |values: &[f64]| {
            let (low, high) = range(values);
            format!("{} to {}", text(low), text(high))
        };
        let (ours, theirs) = beside.means();
        let unfitted = match beside.unfitted {
            0 => String::new(),
            n => format!(" ({n} did not fit)"),
        };
        [
            beside.source.clone(),
            beside.place.clone(),
            beside.method.clone(),
            format!("{} / {}", beside.lengths.0, beside.lengths.1),
            format!("{}, {}", text(theirs), of(&beside.theirs)),
            beside.theirs.len().to_string(),
            format!("{}, {}", text(ours), of(&beside.ours)),
            format!("{}{unfitted}", beside.ours.len()),
            if beside.is_met() { "met" } else { "not met" }.into(),
        ]
        .map(Cell::from)
        .to_vec()
    };
    let columns = [
        "source",
        "where",
        "method",
        "length",
        "published",
        "seeds",
        "ours",
        "seeds",
        "",
    ];
    Table {
        slug: "published-seeds".into(),
        title: format!("Published numbers met ({met} of {})", all.len()),
        caption: "Published scores whose seeds are known, and ours: the mean, and the smallest to \
                  the largest of the seeds; lengths as published / ours."
            .into(),
        notes: "Met: our mean lies within the seeds of the source. Means are arithmetic here, as \
                sources print them, also of perplexities. Where the source counts only seeds that \
                fit the training length, so do we."
            .into(),
        columns: columns.map(String::from).to_vec(),
        rows: all.iter().map(row).collect(),
        layout: Layout::Prose,
        ..Table::default()
    }
}

/// One row for each published table and setting, and its pairs, folded away.
fn correlation_tables(columns: &[Column]) -> [Table; 2] {
    let is_one_row = |a: &Column, b: &Column| {
        (&a.source, &a.place, &a.metric) == (&b.source, &b.place, &b.metric)
    };
    let head = |last: [&str; 2]| {
        let names = ["source", "where", "metric"].into_iter().chain(last);
        names.map(String::from).collect()
    };
    let rows = columns.chunk_by(is_one_row).map(correlation_row).collect();
    let all = columns.iter().filter_map(|column| column.correlation);
    let shown: Vec<Correlation> = all.filter(|c| c.p < ALPHA).collect();
    let against = shown.iter().filter(|c| c.rho < 0.0).count();
    [
        Table {
            slug: "rank-correlation".into(),
            is_folded: true,
            title: "Rank correlation".into(),
            caption: format!(
                "Spearman's rank correlation over methods between published numbers and ours (means \
                 over seeds), by length: published / ours. {} of {} have p below {ALPHA}, {against} of \
                 them negative.",
                shown.len(),
                columns.len()
            ),
            notes: format!(
                "Ties share their mean rank. n: methods in both, at least three; two-sided p over \
                 all permutations for n up to {MOST_EXACT}, else by Student's t with n - 2 degrees \
                 of freedom. -: one side is constant. Methods that have not converged are left out \
                 beyond the training length."
            ),
            columns: head(["n", "rho by length"]),
            rows,
            layout: Layout::Prose,
            ..Table::default()
        },
        Table {
            slug: "rank-correlation-pairs".into(),
            title: "Published numbers and ours".into(),
            caption: "The pairs behind the rank correlations: published / ours.".into(),
            is_folded: true,
            columns: head(["length", "pairs"]),
            rows: columns.iter().map(pairs_row).collect(),
            layout: Layout::Prose,
            ..Table::default()
        },
    ]
}

/// The correlations of one published table with one setting, by length.
fn correlation_row(columns: &[Column]) -> Vec<Cell> {
    let rho = |column: &Column| {
        let text = match column.correlation {
            None => "-".into(),
            Some(Correlation { rho, p, .. }) => {
                format!("{} (p {})", metric::number(rho, 2), metric::number(p, 3))
            }
        };
        format!("{}: {text}", lengths_text(column))
    };
    let each: Vec<String> = columns.iter().map(rho).collect();
    let counts = columns.iter().map(|column| column.methods.len());
    let (least, most) = counts.fold((usize::MAX, 0), |(a, b), n| (a.min(n), b.max(n)));
    let fewer = (least < most).then(|| format!("{least} to "));
    let count = fewer.unwrap_or_default() + &most.to_string();
    let first = &columns[0];
    let start = [&first.source, &first.place, &first.metric].map(String::clone);
    let cells = start.into_iter().chain([count, each.join("; ")]);
    cells.map(Cell::from).collect()
}

fn pairs_row(column: &Column) -> Vec<Cell> {
    let pair = |(m, title): (&(String, f64, f64), &String)| {
        let text = |v: f64| metric::number(v, metric::decimals(&column.metric, v));
        format!("{title} {} / {}", text(m.1), text(m.2))
    };
    let both = column.methods.iter().zip(&column.titles);
    let each: Vec<String> = both.map(pair).collect();
    [
        column.source.clone(),
        column.place.clone(),
        column.metric.clone(),
        lengths_text(column),
        list(&each, MOST_NUMBERS),
    ]
    .map(Cell::from)
    .to_vec()
}

fn lengths_text(column: &Column) -> String {
    format!("{} / {}", column.lengths.0, column.lengths.1)
}
