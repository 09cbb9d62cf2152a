//! The chapter on the mean reciprocal rank of methods over several tasks, past the training length.

use crate::document::{Cell, Chapter, Table};
use records::analysis::learned::InLength;
use records::analysis::setting::{Method, Setting};
use records::metric::{self, better_first};
use records::stats;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// Settings with a column.
const MOST_SETTINGS: usize = 12;

/// The chapter, where at least two kinds of task with answers were learned by one of at least two
/// methods that all have in common.
pub(crate) fn chapter(settings: &[Setting<'_>]) -> Option<Chapter> {
    let has_answers = |s: &&Setting<'_>| {
        s.task.primary_metric != metric::LOSS_NATS && s.longer().next().is_some()
    };
    let is_learned = |s: &&Setting<'_>| {
        s.methods
            .iter()
            .any(|m| s.converged(m) == InLength::Converged)
    };
    let mut by_kind: BTreeMap<&str, &Setting<'_>> = BTreeMap::new();
    for setting in settings.iter().filter(has_answers).filter(is_learned) {
        let best = by_kind.entry(&setting.task.kind).or_insert(setting);
        if setting.methods.len() > best.methods.len() {
            *best = setting;
        }
    }
    let settings: Vec<&Setting<'_>> = by_kind.into_values().collect();
    let names = common(&settings);
    let seeds = seeds(&settings, &names);
    if settings.len() < 2 || names.len() < 2 || seeds.is_empty() || settings.len() > MOST_SETTINGS {
        return None;
    }
    let rows = ranked(&settings, &names, &seeds);
    let text = |values: &[f64]| seeds_text(values).unwrap_or_else(|| "-".into());
    let shown: Vec<String> = rows
        .iter()
        .map(|row| format!("{} {}", row.title, text(&row.by_seed)))
        .collect();
    Some(Chapter {
        name: "Over the tasks".into(),
        slug: "over-the-tasks".into(),
        summary: format!(
            "Mean reciprocal rank past the training length over {} tasks: {}.",
            settings.len(),
            listed(&shown)
        ),
        tables: vec![table(&settings, &rows, seeds.len())],
        is_first: false,
    })
}

/// A method's ranks.
struct Ranked<'a> {
    title: &'a str,
    /// Mean reciprocal rank over tasks, by seed.
    by_seed: Vec<f64>,
    /// Mean rank over seeds, by task.
    by_task: Vec<f64>,
}

/// The ranks of every method, the best one first.
fn ranked<'a>(settings: &[&'a Setting<'_>], names: &'a [String], seeds: &[u64]) -> Vec<Ranked<'a>> {
    // By setting, seed and method.
    let ranks: Vec<Vec<Vec<f64>>> = settings
        .iter()
        .map(|s| seeds.iter().map(|&seed| ranks(s, names, seed)).collect())
        .collect();
    let of_method = |(at, name): (usize, &'a String)| {
        let of_seed = |seed: usize| {
            let reciprocals = ranks.iter().map(|setting| 1.0 / setting[seed][at]);
            stats::mean(&reciprocals.collect::<Vec<_>>())
        };
        let of_task = |setting: &Vec<Vec<f64>>| {
            let all: Vec<f64> = setting.iter().map(|seed| seed[at]).collect();
            stats::mean(&all).unwrap_or(f64::NAN)
        };
        Ranked {
            title: method(settings[0], name).map_or(name, |m| &m.title),
            by_seed: (0..seeds.len()).filter_map(of_seed).collect(),
            by_task: ranks.iter().map(of_task).collect(),
        }
    };
    let mut rows: Vec<Ranked<'a>> = names.iter().enumerate().map(of_method).collect();
    let score = |row: &Ranked<'_>| stats::mean(&row.by_seed).unwrap_or(0.0);
    rows.sort_by(|a, b| score(b).total_cmp(&score(a)));
    rows
}

fn table(settings: &[&Setting<'_>], rows: &[Ranked<'_>], seeds: usize) -> Table {
    let spread = if seeds > 1 {
        format!("Mean, smallest and largest seed, n = {seeds}.")
    } else {
        "Single seed: no ranking.".into()
    };
    let row = |row: &Ranked<'_>| {
        let mrr = seeds_text(&row.by_seed).unwrap_or_else(|| "-".into());
        let start = [Cell::from(row.title), Cell::from(mrr)].into_iter();
        let ranks = row
            .by_task
            .iter()
            .map(|rank| metric::number(*rank, 1).into());
        start.chain(ranks).collect()
    };
    let start = ["method".to_string(), "MRR".to_string()].into_iter();
    Table {
        slug: "mean-reciprocal-rank".into(),
        title: "Mean reciprocal rank".into(),
        caption: format!(
            "Rank by the leading metric past the training length, its reciprocal averaged over \
             tasks; 1: the best at every task. Columns of tasks: the mean rank over seeds. {spread}"
        ),
        notes: "For every seed and task, methods are ranked by the leading metric, averaged over \
                all test lengths past the training length. Ties share their mean rank. A method \
                or seed that has not learned a task in length, or has no number at one of the lengths, \
                comes after those that have. Tasks that no method has learned do not count, and \
                of a task at several training lengths the one with the most methods does."
            .into(),
        columns: start
            .chain(settings.iter().map(|s| s.name.clone()))
            .collect(),
        rows: rows.iter().map(row).collect(),
        ..Table::default()
    }
}

/// Entries that hold commas themselves, at most twelve of them.
fn listed(entries: &[String]) -> String {
    let more = entries.len().saturating_sub(12);
    let more = if more > 0 {
        format!("; and {more} more")
    } else {
        String::new()
    };
    entries[..entries.len().min(12)].join("; ") + &more
}

/// `0.67, seeds 0.61 to 0.75`, or `0.67` for one seed.
fn seeds_text(values: &[f64]) -> Option<String> {
    let number = |value: f64| metric::number(value, 2);
    let mean = number(stats::mean(values)?);
    let ends = |(low, high): (f64, f64), value: &f64| (low.min(*value), high.max(*value));
    let (low, high) = values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), ends);
    Some(if values.len() > 1 {
        format!("{mean}, seeds {} to {}", number(low), number(high))
    } else {
        mean
    })
}

/// Methods that every setting has, in the order of the first.
fn common(settings: &[&Setting<'_>]) -> Vec<String> {
    let Some((first, others)) = settings.split_first() else {
        return Vec::new();
    };
    let is_common = |name: &String| {
        others
            .iter()
            .all(|s| s.methods.iter().any(|m| m.name == *name))
    };
    first
        .methods
        .iter()
        .map(|m| m.name.clone())
        .filter(is_common)
        .collect()
}

/// Seeds that every method has in every setting.
fn seeds(settings: &[&Setting<'_>], names: &[String]) -> Vec<u64> {
    let runs = settings.iter().flat_map(|s| {
        names
            .iter()
            .filter_map(|name| method(s, name))
            .map(move |m| &s.groups[m.group].runs)
    });
    let each = runs.map(|runs| runs.iter().map(|run| run.seed).collect::<BTreeSet<u64>>());
    each.reduce(|a, b| a.intersection(&b).copied().collect())
        .unwrap_or_default()
        .into_iter()
        .collect()
}

fn method<'s>(setting: &'s Setting<'_>, name: &str) -> Option<&'s Method> {
    setting.methods.iter().find(|m| m.name == name)
}

/// Ranks of the methods from 1, in their order; ties share their mean.
fn ranks(setting: &Setting<'_>, names: &[String], seed: u64) -> Vec<f64> {
    let lead = setting.lead();
    let score = |name: &String| -> Option<f64> {
        let method =
            method(setting, name).filter(|m| setting.converged(m) == InLength::Converged)?;
        let at = |len| {
            setting
                .score(method, lead, len)
                .values
                .iter()
                .find(|(other, _)| *other == seed)
                .map(|(_, value)| *value)
        };
        stats::mean(&setting.longer().map(at).collect::<Option<Vec<f64>>>()?)
    };
    let scores: Vec<Option<f64>> = names.iter().map(score).collect();
    let order = |a: &Option<f64>, b: &Option<f64>| match (a, b) {
        (Some(a), Some(b)) => better_first(lead, *a, *b),
        // A method without a score comes after all that have one, and ties with others without.
        (a, b) => b.is_some().cmp(&a.is_some()),
    };
    let rank = |own: &Option<f64>| {
        let count = |wanted: Ordering| {
            scores
                .iter()
                .filter(|other| order(other, own) == wanted)
                .count() as f64
        };
        // The equal ones include the method itself.
        1.0 + count(Ordering::Less) + (count(Ordering::Equal) - 1.0) / 2.0
    };
    scores.iter().map(rank).collect()
}
