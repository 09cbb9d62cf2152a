//! What the chapters on claims and assertions share: the rule of verdicts, numbers in a cell, and
//! rows of their CSV files.

use crate::document::Chapter;
use records::claims::{Comparison, Verdict};

/// Numbers shown with one claim; its CSV file has all.
pub(super) const MOST_NUMBERS: usize = 12;

/// How a verdict follows from an interval.
const RULE: [&str; 2] = [
    "Methods: by their names in results.csv. Mean over seeds with its 95 % CI, ± or [low, high] \
     (shares and perplexities, the latter averaged in nats); differences and ratios paired by \
     seed; n: the number of seeds. ",
    "A comparison agrees or disagrees if its whole interval does. It is undecided otherwise, for a \
     single seed, beyond the training length of a method that has not converged, and where a seed \
     without a finite score could change it. Where a loss is to be lower, an interval with zero and no gain of 0.01 nats (1 % of the perplexity) \
     disagrees too. Of several comparisons, only those disagree that Holm's step-down procedure \
     rejects at 5 %. Shares so near to 1 that not even a perfect score could be shown to be higher \
     are not compared.",
];
const OVER_TEXT: &str = "Over seeds and text: the interval also covers which blocks of the text \
                         are scored. ";

/// How the verdicts on these numbers follow from their intervals.
pub(super) fn rule<'a>(mut numbers: impl Iterator<Item = &'a Comparison>) -> String {
    let is_over_text = |number: &Comparison| number.estimate.is_some_and(|e| e.apart().is_some());
    let over_text = if numbers.any(is_over_text) {
        OVER_TEXT
    } else {
        ""
    };
    RULE.join(over_text)
}

/// A chapter, and the rows of its files.
pub(crate) struct ChapterFiles {
    pub chapter: Chapter,
    pub csv: Vec<CsvFile>,
    /// For the notes of the report.
    pub notes: Vec<String>,
}

/// A CSV file before it is escaped.
pub(crate) struct CsvFile {
    pub name: &'static str,
    pub head: Vec<&'static str>,
    pub rows: Vec<Vec<String>>,
}

/// Columns of a comparison.
pub(super) const NUMBER_HEAD: [&str; 8] = [
    "comparison",
    "mean",
    "half_width_95",
    "low_95",
    "high_95",
    "n",
    "needed",
    "comparison_verdict",
];

/// A row for each number, or one without numbers. `head`: the cells before them.
pub(super) fn number_rows(head: &[String], numbers: &[Comparison]) -> Vec<Vec<String>> {
    let head = || head.iter().cloned();
    if numbers.is_empty() {
        return vec![head().chain(NUMBER_HEAD.map(|_| String::new())).collect()];
    }
    let row = |comparison: &Comparison| {
        let estimate = comparison.estimate;
        let interval = estimate.and_then(|e| e.interval);
        let cells = [
            comparison.what.clone(),
            number(estimate.map(|e| e.mean)),
            number(estimate.and_then(|e| e.half_width)),
            number(interval.map(|i| i.0)),
            number(interval.map(|i| i.1)),
            estimate.map_or(0, |e| e.n).to_string(),
            comparison.needed.clone(),
            comparison.verdict.name().into(),
        ];
        head().chain(cells).collect()
    };
    numbers.iter().map(row).collect()
}

/// A number, or an empty cell.
pub(super) fn number(value: Option<f64>) -> String {
    value.map_or(String::new(), |v| v.to_string())
}

/// Comparisons as text, by verdict: those that disagree first, then the undecided ones.
pub(super) fn sentences(comparisons: &[Comparison]) -> String {
    let rank = |c: &&Comparison| match c.verdict {
        Verdict::Disagrees => 0,
        Verdict::Undecided => 1,
        Verdict::Agrees => 2,
        Verdict::NotTested => 3,
    };
    // Those that cannot be decided for one reason follow each other.
    let mut sorted: Vec<&Comparison> = comparisons.iter().collect();
    sorted.sort_by_key(|c| (rank(c), c.why_open()));
    let is_mixed = sorted.first().map(|c| c.verdict) != sorted.last().map(|c| c.verdict);
    let together =
        |a: &&Comparison, b: &&Comparison| a.why_open().is_some() && a.why_open() == b.why_open();
    let lines: Vec<&[&Comparison]> = sorted.chunk_by(together).collect();
    let judged = |of: &[&[&Comparison]]| {
        let each: Vec<String> = of
            .chunk_by(|a, b| a[0].rule() == b[0].rule())
            .map(alike)
            .collect();
        let verdict = is_mixed.then(|| format!("{}: ", of[0][0].verdict.name()));
        verdict.unwrap_or_default() + &each.join("; ")
    };
    let (shown, more) = lines.split_at(lines.len().min(MOST_NUMBERS));
    let mut texts: Vec<String> = shown
        .chunk_by(|a, b| a[0].verdict == b[0].verdict)
        .map(judged)
        .collect();
    if !more.is_empty() {
        texts.push(format!("... and {} more", more.concat().len()));
    }
    or_dash(&texts.join("; "))
}

/// Lines of one rule, which the last one ends with. A line has one comparison, or all that cannot be
/// decided for one reason.
fn alike(lines: &[&[&Comparison]]) -> String {
    let text = |line: &&[&Comparison]| match (line[0].why_open(), line.len()) {
        (Some(why), count @ 2..) => format!("{why} ({count} comparisons)"),
        _ => line[0].text(),
    };
    let each: Vec<String> = lines.iter().map(text).collect();
    let rule = lines[0][0]
        .rule()
        .map_or(String::new(), |rule| match lines.len() {
            1 => format!(", {rule}"),
            _ => format!("; each {rule}"),
        });
    each.join("; ") + &rule
}

/// The text, or `-` for an empty one.
pub(super) fn or_dash(text: &str) -> String {
    if text.is_empty() {
        "-".into()
    } else {
        text.into()
    }
}
