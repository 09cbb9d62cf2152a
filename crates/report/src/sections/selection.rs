//! What each method chose under `[select]`, and what else it tried.

use crate::captions::slug;
use crate::document::{Cell, Table};
use crate::spec::ReportSpec;
use records::analysis::groups::Group;
use records::analysis::setting::Setting;
use records::metric;
use records::record::{Candidate, Selected};
use records::text;

/// For each way of choosing a table of choices, and one of everything that was tried, folded away;
/// none where nothing was chosen. A setting may pool experiments that chose in several ways.
pub(super) fn tables(setting: &Setting<'_>, _: &ReportSpec) -> Vec<Table> {
    let mut ways: Vec<Vec<(&Group<'_>, &Selected)>> = Vec::new();
    let way = |one: &Selected| (one.by.clone(), one.test_len, one.steps, one.seeds.clone());
    for group in &setting.groups {
        let Some(selected) = group.runs.first().and_then(|run| run.selected.as_ref()) else {
            continue;
        };
        let chosen = (group, selected);
        match ways.iter_mut().find(|w| way(w[0].1) == way(selected)) {
            Some(known) => known.push(chosen),
            None => ways.push(vec![chosen]),
        }
    }
    let tables = ways.iter().enumerate();
    tables
        .flat_map(|(at, chosen)| of_way(setting, at, chosen))
        .collect()
}

/// The tables of choices that were made in one way, the `at`th of the setting.
fn of_way(setting: &Setting<'_>, at: usize, chosen: &[(&Group<'_>, &Selected)]) -> [Table; 2] {
    let (_, first) = chosen[0];
    let slug = |name: &str| match at {
        0 => slug(setting, name),
        at => slug(setting, &format!("{name}-{}", at + 1)),
    };
    let seeds: Vec<String> = first.seeds.iter().map(u64::to_string).collect();
    let caption = format!(
        "Chosen by {} at {} on rows that no result is scored on, mean of seeds {}, {} steps; {}.",
        text::name(&first.by, 40),
        setting.unit_count(first.test_len),
        text::list(&seeds, 12),
        first.steps,
        setting.name
    );
    let columns = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    [
        Table {
            slug: slug("selection"),
            title: "Chosen values".into(),
            caption: caption.clone(),
            notes: format!(
                "{}An edge is the smallest or the largest value tried: a better one may lie beyond. Gap: \
                 the score of the next best less that of the chosen one.",
                match metric::find(&first.by).is_some_and(|def| def.name == metric::LOSS_NATS) {
                    true => "",
                    false => "Of equal scores the lower loss was chosen. ",
                }
            ),
            columns: columns(&["method", "chosen", "score", "next best", "its score", "gap"]),
            rows: chosen
                .iter()
                .map(|(group, selected)| row(group, selected))
                .collect(),
            ..Table::default()
        },
        Table {
            slug: slug("selection-tried"),
            title: "Everything tried".into(),
            caption,
            is_folded: true,
            columns: columns(&["method", "values", "score", "by seed"]),
            rows: chosen
                .iter()
                .flat_map(|(group, selected)| tried(group, selected))
                .collect(),
            ..Table::default()
        },
    ]
}

fn row(group: &Group<'_>, selected: &Selected) -> Vec<Cell> {
    let values = |all: &[&Candidate]| match all {
        [] => "-".to_owned(),
        all => all
            .iter()
            .map(|one| shown(one))
            .collect::<Vec<_>>()
            .join(" or "),
    };
    let next = selected.next();
    let score = |score: Option<f64>| score.map_or("-".into(), |score| number(selected, score));
    let chosen = selected.chosen();
    let edge = match (
        selected.at_edge().is_empty(),
        chosen.and_then(Candidate::mean),
    ) {
        (false, _) => " (edge)",
        (true, None) => " (the first: none has a score)",
        (true, Some(_)) => "",
    };
    let best = chosen.and_then(Candidate::mean);
    let second = next.first().and_then(|next| next.mean());
    let moves = best.zip(second).map(|(best, second)| second - best);
    vec![
        group.named.title.as_str().into(),
        (values(chosen.as_slice()) + edge).into(),
        score(best).into(),
        values(&next).into(),
        score(second).into(),
        moves.map_or("-".into(), |by| format!("{by:+.4}")).into(),
    ]
}

fn tried(group: &Group<'_>, selected: &Selected) -> Vec<Vec<Cell>> {
    let row = |candidate: &&Candidate| -> Vec<Cell> {
        let by_seed = candidate.scores.iter();
        let by_seed = by_seed.map(|score| score.map_or("-".into(), |s| number(selected, s)));
        let by_seed: Vec<String> = by_seed.collect();
        let mean = candidate.mean();
        vec![
            group.named.title.as_str().into(),
            shown(candidate).into(),
            mean.map_or("-".into(), |mean| number(selected, mean))
                .into(),
            by_seed.join(", ").into(),
        ]
    };
    selected.ranked().iter().map(row).collect()
}

fn shown(candidate: &Candidate) -> String {
    text::name(&candidate.text(), 120)
}

/// With one digit more than a table of scores: neighbours of a sweep lie close.
fn number(selected: &Selected, score: f64) -> String {
    metric::number(score, metric::decimals(&selected.by, score) + 1)
}
