//! The board: every method at every task, each in a group by its ranks over all tasks.

use super::ranks::{AHEAD, RESAMPLES, Scores, Standing, standings};
use crate::captions::{kept_rules, ratio_interval};
use crate::document::{Cell, Chapter, Layout, Table};
use records::analysis::learned::InLength;
use records::analysis::point::{point_parts, value_at};
use records::analysis::setting::{Method, Setting};
use records::metric::{self, lower_is_better};
use records::stats::{self, INTERVAL, Scale};
use records::text;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Settings with columns.
const MOST_SETTINGS: usize = 12;
/// Fewest tasks that can show an order on tasks that were not run: a method ahead at each of six
/// is ahead by a sign test at 5 % (2 / 2^6 = 0.03), at each of five it is not (0.06).
const FEWEST_TASKS: usize = 6;
/// Methods without a row that are named.
const MOST_NAMED: usize = 5;
/// Texts with more than one column.
const MOST_TEXTS: usize = 3;
/// Multiples of the training length at which the score on a text is shown.
const MULTIPLES: [usize; 2] = [4, 16];

/// The chapter, if two or more methods are common to two or more tasks, each learned by one of
/// them.
pub(crate) fn chapter(settings: &[Setting<'_>]) -> Option<Chapter> {
    let mut settings = of_tasks(settings);
    // A task that does not count excludes no method.
    let names = loop {
        let (names, before) = (common(&settings), settings.len());
        settings.retain(|s| is_learned(s, &names) && !lengths(s, &names).is_empty());
        if settings.len() == before {
            break names;
        }
    };
    let seeds: Vec<Vec<u64>> = settings.iter().map(|s| seeds(s, &names)).collect();
    let is_ranked = settings.len() >= 2 && names.len() >= 2;
    if !is_ranked || settings.len() > MOST_SETTINGS || seeds.iter().any(Vec::is_empty) {
        return None;
    }
    let tasks = settings.iter().zip(&seeds);
    let tasks: Vec<Scores> = tasks.map(|(s, seeds)| scores(s, &names, seeds)).collect();
    let mut rows: Vec<(&String, Standing)> = names.iter().zip(standings(&tasks)).collect();
    // Stable: equal methods stay in the order of the first setting.
    rows.sort_by(|(_, a), (_, b)| a.group.cmp(&b.group).then(b.mrr.total_cmp(&a.mrr)));
    let counts: BTreeSet<usize> = seeds.iter().map(Vec::len).collect();
    let mut tables = vec![board(&settings, &rows, &counts)];
    tables.extend(chosen(&settings, &rows));
    Some(Chapter {
        name: "Board".into(),
        slug: "board".into(),
        summary: summary(&settings, &rows),
        tables,
        is_first: true,
    })
}

/// Whether one of these methods has learned the task.
fn is_learned(setting: &Setting<'_>, names: &[String]) -> bool {
    methods(setting, names).any(|m| setting.converged(m) == InLength::Converged)
}

/// One setting for each task that any method has learned: of several training lengths, the one
/// with the most methods.
fn of_tasks<'a, 's>(settings: &'a [Setting<'s>]) -> Vec<&'a Setting<'s>> {
    let is_ranked = |s: &&Setting<'_>| {
        let is_learned = |m: &Method| s.converged(m) == InLength::Converged;
        s.in_length.is_some() && s.longer().next().is_some() && s.methods.iter().any(is_learned)
    };
    let mut of_tasks: Vec<(String, &Setting<'_>)> = Vec::new();
    for setting in settings.iter().filter(is_ranked) {
        let task = task(setting);
        match of_tasks.iter_mut().find(|(other, _)| *other == task) {
            None => of_tasks.push((task, setting)),
            Some((_, best)) if setting.methods.len() > best.methods.len() => *best = setting,
            Some(_) => {}
        }
    }
    of_tasks.into_iter().map(|(_, setting)| setting).collect()
}

/// What tells one task from another: its configuration and its text.
fn task(setting: &Setting<'_>) -> String {
    let corpus = setting.task.corpus.as_ref();
    let config = setting.groups[0].runs[0].spec.get("task");
    format!(
        "{} {} {}",
        setting.task.kind,
        corpus.map_or("", |corpus| corpus.blake3.as_str()),
        config.map(Value::to_string).unwrap_or_default()
    )
}

fn scores(setting: &Setting<'_>, names: &[String], seeds: &[u64]) -> Scores {
    let lead = setting.lead();
    let lengths = lengths(setting, names);
    let by_seed = |seed: &u64| {
        methods(setting, names)
            .map(|method| score(setting, method, *seed, &lengths))
            .collect()
    };
    Scores {
        lower_is_better: lower_is_better(lead),
        by_seed: seeds.iter().map(by_seed).collect(),
    }
}

/// The test lengths past the training length that all methods have.
fn lengths(setting: &Setting<'_>, names: &[String]) -> Vec<usize> {
    let all_have =
        |len: &usize| methods(setting, names).all(|method| setting.is_tested(method, *len));
    setting.longer().filter(all_have).collect()
}

/// The leading metric of a seed, the mean over `lengths`; that of perplexities in nats. The worst
/// score where it is not finite at one of the lengths; none for a seed that has not learned the
/// task, or whose encoding has no value there.
fn score(setting: &Setting<'_>, method: &Method, seed: u64, lengths: &[usize]) -> Option<f64> {
    let lead = setting.lead();
    let run = setting.groups[method.group].run_of(seed)?;
    let trained = &setting.trained(method).variant;
    let in_length = value_at(run, trained, lead, setting.in_length?);
    // `failed` may lack a seed without a score in length.
    let is_lost = in_length.is_err_and(|absent| absent.is_lost());
    if is_lost || setting.failed(method).contains(&seed) {
        return None;
    }
    let at = |len: &usize| match value_at(run, &method.variant, lead, *len) {
        Ok(own) => Some(match metric::scale(lead) {
            Scale::Linear => own,
            Scale::Log => own.ln(),
        }),
        Err(absent) if !absent.is_lost() => None,
        Err(_) if lower_is_better(lead) => Some(f64::INFINITY),
        Err(_) => Some(f64::NEG_INFINITY),
    };
    stats::mean(&lengths.iter().map(at).collect::<Option<Vec<f64>>>()?)
}

/// `seeds`: how many each task is ranked over.
fn board(
    settings: &[&Setting<'_>],
    rows: &[(&String, Standing)],
    seeds: &BTreeSet<usize>,
) -> Table {
    let texts = settings.iter().filter(|s| is_text(s)).count();
    let columns: Vec<Column<'_>> = settings
        .iter()
        .flat_map(|s| Column::of(s, texts <= MOST_TEXTS))
        .collect();
    let row = |(name, standing): &(&String, Standing)| {
        let title = method(settings[0], name).map_or(name.as_str(), |m| &m.title);
        let start = [
            Cell::from(title),
            letter(standing.group).into(),
            metric::number(standing.best, 2).into(),
            metric::number(standing.mrr, 2).into(),
        ];
        start
            .into_iter()
            .chain(columns.iter().map(|c| c.cell(name)))
            .collect()
    };
    let start = ["method", "group", "P(best)", "MRR"].map(String::from);
    Table {
        slug: "board-methods".into(),
        title: "Methods over all tasks".into(),
        caption: format!(
            "By task the reach: the longest test length up to which a seed keeps its score, as a \
             multiple of the training length, median [least, most]. Kept: {}.{}{}",
            kept_rules(settings.iter().map(|s| s.lead())),
            if seeds.contains(&1) {
                " One seed: groups show the tasks' spread only."
            } else {
                ""
            },
            unranked(settings, rows)
        ),
        notes: notes(settings, seeds),
        columns: start
            .into_iter()
            .chain(columns.iter().map(|c| c.heading.clone()))
            .collect(),
        column_links: [None, None, None, None]
            .into_iter()
            .chain(columns.iter().map(|c| Some(format!("#{}", c.setting.slug))))
            .collect(),
        rows: rows.iter().map(row).collect(),
        // Its headings are long: columns are narrow.
        layout: Layout::Heat,
        ..Table::default()
    }
}

/// Names the methods that some tasks have and others lack.
fn unranked(settings: &[&Setting<'_>], rows: &[(&String, Standing)]) -> String {
    let all = settings.iter().flat_map(|s| &s.methods);
    let others = all.filter(|m| rows.iter().all(|(name, _)| **name != m.name));
    let others: BTreeMap<&str, &str> = others.map(|m| (&*m.name, &*m.title)).collect();
    let kind = |s: &Setting<'_>| s.task.kind.clone();
    // Two texts have one kind.
    let task = |s: &&Setting<'_>| match settings.iter().filter(|o| kind(o) == kind(s)).count() {
        1 => kind(s),
        _ => s.name.clone(),
    };
    let lacks = |(name, title): (&&str, &&str)| {
        let missing = settings.iter().filter(|s| method(s, name).is_none());
        let missing: Vec<String> = missing.map(task).collect();
        format!("{title} (not tested at {})", missing.join("; "))
    };
    let mut named: Vec<String> = others.iter().take(MOST_NAMED).map(lacks).collect();
    match others.len().checked_sub(MOST_NAMED) {
        Some(more @ 1..) => named.push(format!("{more} more")),
        _ if named.is_empty() => return String::new(),
        _ => {}
    }
    format!(" Not ranked: {}.", named.join("; "))
}

/// How to read the board.
fn notes(settings: &[&Setting<'_>], seeds: &BTreeSet<usize>) -> String {
    let has_halves = settings.iter().any(|s| s.has_halves());
    let counts = match (seeds.first(), seeds.last()) {
        (Some(least), Some(most)) if least < most => format!("{least} to {most}"),
        (least, _) => least.map_or_else(String::new, usize::to_string),
    };
    let texts = settings.iter().filter(|s| is_text(s));
    let of_ratios = |s: &&Setting<'_>| {
        let lengths = MULTIPLES.map(|k| s.task.train_len.saturating_mul(k));
        ratio_interval(s, &lengths)
    };
    let ratios: BTreeSet<&str> = texts.map(of_ratios).filter(|of| *of != INTERVAL).collect();
    let ratios: Vec<&str> = ratios.into_iter().collect();
    let ratios = match ratios.is_empty() {
        true => String::new(),
        false => format!("; of ratios {}", ratios.join(" or ")),
    };
    format!(
        "Group: methods are ranked at each task by the leading metric, averaged over the test \
             lengths past the training length that all of them have, and over all tasks by the mean reciprocal rank \
             (MRR), over the seeds that all of them have at a task ({counts}). {RESAMPLES} bootstraps draw tasks and seeds. P(best): the share of them in which \
             a method comes first. Group A runs from the method with the highest MRR down to the \
             last, by MRR, that it does not beat in {} % of them; group B: the same for the \
             remaining methods, and so on. A method most of whose seeds did not learn comes after \
             all others. Ratios: over the score in length. Intervals: {INTERVAL}{ratios}. \
             ≥: tested at no longer length. 1x: lost at the first longer length.{}",
        100.0 * AHEAD,
        if has_halves {
            " Grey, †: still learning."
        } else {
            ""
        }
    )
}

/// A column of the board.
struct Column<'a> {
    setting: &'a Setting<'a>,
    heading: String,
    shows: Shown,
}

enum Shown {
    InLength,
    Ratio(usize),
    Reach,
}

impl<'a> Column<'a> {
    /// Those of a setting; only its reach unless it is a text with room for more.
    fn of(setting: &'a Setting<'a>, has_room: bool) -> Vec<Self> {
        let new = |heading: String, shows: Shown| Self {
            setting,
            heading,
            shows,
        };
        let name = &setting.name;
        let train_len = setting.task.train_len;
        let mut columns = Vec::new();
        if has_room && is_text(setting) {
            columns.push(new(
                format!("{}, {name}", in_length(setting)),
                Shown::InLength,
            ));
            let tested = MULTIPLES.into_iter().filter(|k| {
                let len = train_len.saturating_mul(*k);
                setting.lengths.contains(&len)
            });
            columns.extend(tested.map(|k| {
                new(
                    format!("ratio at {k}x"),
                    Shown::Ratio(train_len.saturating_mul(k)),
                )
            }));
            columns.push(new("reach".into(), Shown::Reach));
        } else {
            columns.push(new(name.clone(), Shown::Reach));
        }
        columns
    }

    fn cell(&self, name: &str) -> Cell {
        let setting = self.setting;
        let Some(method) = method(setting, name) else {
            return "".into();
        };
        let cell = match self.shows {
            Shown::InLength => {
                let metric = in_length(setting);
                let len = setting.in_length.unwrap_or_default();
                Cell::number(point_parts(metric, &setting.point(method, metric, len)))
            }
            Shown::Ratio(len) => {
                let ratio = setting.ratio(method, setting.lead(), len);
                Cell::number(point_parts(metric::RATIO, &ratio))
            }
            Shown::Reach => setting.reach_by_seed_text(method).into(),
        };
        match setting.is_still_learning(method) {
            true => cell.still_learning(),
            false => cell,
        }
    }
}

fn is_text(setting: &Setting<'_>) -> bool {
    setting.task.primary_metric == metric::LOSS_NATS
}

/// The metric of a text's score in length: bits per byte where it has them.
fn in_length<'a>(setting: &'a Setting<'_>) -> &'a str {
    let mut all = setting.all_metrics.iter();
    let bits = all.find(|m| *m == metric::BITS_PER_BYTE);
    bits.map_or_else(|| setting.lead(), String::as_str)
}

/// What `[select]` chose for each method at each task, or none where nothing was chosen.
fn chosen(settings: &[&Setting<'_>], rows: &[(&String, Standing)]) -> Option<Table> {
    let any = |s: &&Setting<'_>| s.groups.iter().any(|g| g.runs[0].selected.is_some());
    let settings: Vec<&&Setting<'_>> = settings.iter().filter(|s| any(s)).collect();
    let cell = |setting: &Setting<'_>, name: &str| -> Cell {
        let run = method(setting, name).map(|m| &setting.groups[m.group].runs[0]);
        let Some(selected) = run.and_then(|run| run.selected.as_ref()) else {
            return "-".into();
        };
        let edge = if selected.at_edge().is_empty() {
            ""
        } else {
            " (edge)"
        };
        let values = selected.chosen().map(|c| text::name(&c.text(), 120));
        (values.unwrap_or_default() + edge).into()
    };
    let row = |(name, _): &(&String, Standing)| {
        let title = method(settings[0], name).map_or(name.as_str(), |m| &m.title);
        let cells = settings.iter().map(|setting| cell(setting, name));
        std::iter::once(Cell::from(title)).chain(cells).collect()
    };
    let names = settings.iter().map(|s| s.name.clone());
    (!settings.is_empty()).then(|| Table {
        slug: "board-chosen".into(),
        title: "What was chosen for each method".into(),
        caption:
            "By runs that no score above uses. Edge: the smallest or the largest value tried; a \
                  better one may lie beyond."
                .into(),
        is_folded: true,
        columns: std::iter::once("method".into()).chain(names).collect(),
        rows: rows.iter().map(row).collect(),
        ..Table::default()
    })
}

fn summary(settings: &[&Setting<'_>], rows: &[(&String, Standing)]) -> String {
    let first = rows.iter().filter(|(_, standing)| standing.group == 0);
    let title = |(name, _): &(&String, Standing)| {
        let method = method(settings[0], name);
        method.map_or_else(|| (*name).clone(), |m| m.title.clone())
    };
    let first: Vec<String> = first.map(title).collect();
    let tasks = settings.len();
    let what = match &first[..] {
        [only] if tasks < FEWEST_TASKS => format!("{only} comes first"),
        [only] => format!("{only} is clearly ahead of every other method"),
        all if all.len() == rows.len() => "all methods are in one group".into(),
        all => format!("the leading group (A) is {}", all.join("; ")),
    };
    let limit = match tasks {
        0..FEWEST_TASKS if first.len() < rows.len() => {
            ". With so few tasks this holds for these tasks only"
        }
        _ => "",
    };
    format!("Over {tasks} tasks: {what}{limit}.")
}

/// `A` for the first group; numbers after `Z`.
fn letter(group: usize) -> String {
    match u8::try_from(group) {
        Ok(at @ 0..26) => char::from(b'A' + at).to_string(),
        _ => (group + 1).to_string(),
    }
}

/// Methods that every setting has, in the order of the first.
fn common(settings: &[&Setting<'_>]) -> Vec<String> {
    let Some((first, others)) = settings.split_first() else {
        return Vec::new();
    };
    let has = |s: &Setting<'_>, name: &String| s.methods.iter().any(|m| m.name == *name);
    let names = first.methods.iter().map(|m| m.name.clone());
    names
        .filter(|name| others.iter().all(|s| has(s, name)))
        .collect()
}

/// Seeds that every one of these methods has in a setting.
fn seeds(setting: &Setting<'_>, names: &[String]) -> Vec<u64> {
    let each = methods(setting, names).map(|m| {
        let runs = setting.groups[m.group].runs.iter();
        runs.map(|run| run.seed).collect::<BTreeSet<u64>>()
    });
    let all = each.reduce(|a, b| a.intersection(&b).copied().collect());
    all.unwrap_or_default().into_iter().collect()
}

fn methods<'s>(setting: &'s Setting<'_>, names: &'s [String]) -> impl Iterator<Item = &'s Method> {
    names.iter().filter_map(|name| method(setting, name))
}

fn method<'s>(setting: &'s Setting<'_>, name: &str) -> Option<&'s Method> {
    setting.methods.iter().find(|m| m.name == name)
}
