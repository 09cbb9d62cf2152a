//! The chapter on what the in-length score predicts: over the trained methods of each setting, the
//! rank correlation of the score at the training length with the score at multiples of it.

use crate::document::{Cell, Chapter, Table};
use records::analysis::learned::InLength;
use records::analysis::setting::{Method, Setting};
use records::metric;
use records::stats::{self, Correlation, Estimate};
use std::cmp::Reverse;
use std::collections::HashSet;

/// Fewer methods give no correlation worth a number: of four, one order in 24 is perfect.
const FEWEST_METHODS: usize = 5;
/// Multiples of the training length.
const MULTIPLES: [usize; 5] = [2, 4, 8, 16, 32];

/// The chapter, where at least two settings test [`FEWEST_METHODS`] trained methods past the
/// training length.
pub(crate) fn chapter(settings: &[Setting<'_>]) -> Option<Chapter> {
    let rows = rows(settings);
    let is_used = |at: usize| rows.iter().any(|row| row.by_multiple[at].is_some());
    let used: Vec<usize> = (0..MULTIPLES.len()).filter(|&at| is_used(at)).collect();
    if rows.len() < 2 {
        return None;
    }
    let all: Vec<Cell> = used.iter().map(|&at| mean(&rows, at)).collect();
    let means = used
        .iter()
        .zip(&all)
        .map(|(&at, cell)| format!("{} at {} times", cell.text, MULTIPLES[at]));
    let means: Vec<String> = means.collect();
    let mut cells: Vec<Vec<Cell>> = rows.iter().map(|row| row.cells(&used)).collect();
    let last = [Cell::from("mean over settings"), "".into(), "".into()];
    cells.push(last.into_iter().chain(all).collect());
    let columns = ["setting", "metric", "methods"].map(String::from);
    let multiples = used.iter().map(|&at| format!("{}x", MULTIPLES[at]));
    Some(Chapter {
        name: "Does the in-length score predict the rest?".into(),
        slug: "in-length-prediction".into(),
        summary: format!(
            "Mean rank correlation over {} settings: {}. 1: the order at the training length is \
             the order past it.",
            rows.len(),
            means.join("; ")
        ),
        tables: vec![Table {
            slug: "in-length-correlation".into(),
            title: "In-length score and score past the training length".into(),
            caption: "Spearman's rank correlation over methods, of the score at the training \
                      length with the score at multiples of it, and a 95 % interval."
                .into(),
            notes: notes(),
            columns: columns.into_iter().chain(multiples).collect(),
            rows: cells,
            ..Table::default()
        }],
        is_first: false,
    })
}

fn notes() -> String {
    format!(
        "Scores are those of the tables by length, by the leading metric: means over all seeds in \
         length, and past it over the seeds that learned the task. Methods are trained encodings: \
         variants of a run share its in-length score and are left out, and so are methods that \
         have not learned the task in length. A training counts once: where several settings \
         have records of the same weights, only the one with the most methods has that method. A \
         setting counts with at least {FEWEST_METHODS} methods; their number is that at the first \
         multiple, and (n) follows a correlation of fewer. `-`: fewer methods have a number at \
         that length, or all have the same. Intervals over methods are Bonett and Wright's, on \
         Fisher's scale; a perfect order has none. The last row is the mean over n settings with \
         Student's t. Settings share encodings, so its interval is for these encodings on other \
         settings, not for other encodings."
    )
}

/// The correlations of one setting.
struct Row<'a> {
    setting: &'a str,
    metric: &'a str,
    /// As many as [`MULTIPLES`].
    by_multiple: Vec<Option<Correlation>>,
}

impl Row<'_> {
    fn cells(&self, used: &[usize]) -> Vec<Cell> {
        let first = self.by_multiple.iter().flatten().next();
        let start = [
            Cell::from(self.setting),
            self.metric.into(),
            first.map_or(String::new(), |c| c.n.to_string()).into(),
        ];
        let each = used.iter().map(|&at| {
            let Some(found) = &self.by_multiple[at] else {
                return "-".into();
            };
            let cell: Cell = match found.interval_95() {
                Some(interval) => with_interval(found.rho, interval),
                None => metric::number(found.rho, 2).into(),
            };
            match first {
                Some(first) if first.n != found.n => {
                    format!("{} (n = {})", cell.text, found.n).into()
                }
                _ => cell,
            }
        });
        start.into_iter().chain(each).collect()
    }
}

/// The rows in the order of the settings. A method whose weights a setting with more methods has
/// counts there and nowhere else.
fn rows<'a>(settings: &'a [Setting<'_>]) -> Vec<Row<'a>> {
    let mut by_size: Vec<(usize, Vec<&Method>)> =
        settings.iter().map(trained).enumerate().collect();
    by_size.sort_by_key(|(_, methods)| Reverse(methods.len()));
    let mut counted: HashSet<&str> = HashSet::new();
    let mut rows: Vec<(usize, Row<'a>)> = Vec::new();
    for (at, mut methods) in by_size {
        let setting = &settings[at];
        methods.retain(|method| !weights(setting, method).any(|hash| counted.contains(hash)));
        if let Some(row) = row(setting, &methods) {
            counted.extend(methods.iter().flat_map(|method| weights(setting, method)));
            rows.push((at, row));
        }
    }
    rows.sort_by_key(|(at, _)| *at);
    rows.into_iter().map(|(_, row)| row).collect()
}

/// The methods that were trained and have learned the task in length.
fn trained<'a>(setting: &'a Setting<'_>) -> Vec<&'a Method> {
    let is_trained = |method: &&Method| {
        let group = &setting.groups[method.group];
        group.variants[0].name == method.variant && setting.converged(method) == InLength::Converged
    };
    setting.methods.iter().filter(is_trained).collect()
}

/// Hashes of the weights of a method's runs.
fn weights<'a>(setting: &'a Setting<'_>, method: &Method) -> impl Iterator<Item = &'a str> {
    let runs = setting.groups[method.group].runs.iter();
    runs.map(|run| run.model.weights_blake3.as_str())
}

/// None for a setting without any correlation over these methods.
fn row<'a>(setting: &'a Setting<'_>, methods: &[&Method]) -> Option<Row<'a>> {
    let in_length = setting.in_length?;
    let score = |method: &Method, length: usize| {
        let point = setting.score(method, setting.lead(), length);
        point.estimate.map(|e| e.mean)
    };
    let at = |multiple: &usize| {
        let length = setting.task.train_len.checked_mul(*multiple)?;
        let both = methods
            .iter()
            .filter_map(|m| Some((score(m, in_length)?, score(m, length)?)));
        let (near, far): (Vec<f64>, Vec<f64>) = both.unzip();
        let enough = near.len() >= FEWEST_METHODS;
        stats::spearman(&near, &far).filter(|_| enough)
    };
    let by_multiple: Vec<_> = MULTIPLES.iter().map(at).collect();
    by_multiple.iter().any(Option::is_some).then_some(Row {
        setting: &setting.name,
        metric: setting.lead(),
        by_multiple,
    })
}

/// The mean over settings at one multiple.
fn mean(rows: &[Row<'_>], at: usize) -> Cell {
    let all = rows.iter().filter_map(|row| row.by_multiple[at].as_ref());
    let all: Vec<f64> = all.map(|c| c.rho).collect();
    let Some(mean) = stats::mean(&all) else {
        return "-".into();
    };
    let interval = Estimate::of_mean(&all).and_then(|estimate| estimate.interval);
    let cell = match interval {
        // A mean of correlations lies between -1 and 1, and so does its interval. Two are often
        // equal, since ranks are few.
        Some((low, high)) if all.len() > 2 => with_interval(mean, (low.max(-1.0), high.min(1.0))),
        _ => metric::number(mean, 2).into(),
    };
    format!("{} (n = {})", cell.text, all.len()).into()
}

fn with_interval(value: f64, (low, high): (f64, f64)) -> Cell {
    let number = |value: f64| metric::number(value, 2);
    format!("{} [{}, {}]", number(value), number(low), number(high)).into()
}
