//! Sizes and training of the runs behind the tables: columns of the table of methods.

use crate::captions::seeds_notes;
use crate::document::Cell;
use records::analysis::groups::{Group, Run};
use records::analysis::point::estimate_text;
use records::analysis::setting::Setting;
use records::metric;
use records::stats::Estimate;
use records::text::{self, thousands};
use serde_json::Value;
use std::collections::BTreeSet;

/// The columns of [`row`].
pub(super) const COLUMNS: [&str; 3] = ["parameters", "of the encoding", "final training loss"];

/// How the columns are to be read; `stop` is what ended trainings early.
pub(super) fn notes(setting: &Setting<'_>, stop: Option<&str>) -> String {
    let chance = setting.chance(metric::LOSS_NATS);
    let chance = chance.map_or(String::new(), |c| format!(" Chance: {c:.3}."));
    let stop = stop.map_or(String::new(), |stop| format!(" {stop}"));
    format!(
        "Final training loss: mean of the last tenth of the steps, each in nats per counted \
         token.{chance}{stop}{}",
        seeds_notes(setting, metric::LOSS_NATS)
    )
}

/// What ended trainings early, and how the column of steps is to be read; none without `train.stop`.
pub(super) fn stop_in_words(setting: &Setting<'_>) -> Option<String> {
    let mut rules = BTreeSet::new();
    for run in setting.groups.iter().flat_map(|group| &group.runs) {
        let Some(stop) = run.spec.get("train").and_then(|train| train.get("stop")) else {
            continue;
        };
        let bound = |key: &str| stop.get(key).and_then(Value::as_f64);
        let bound = match (bound("at_least"), bound("at_most")) {
            (Some(bound), _) => format!("at least {bound}"),
            (_, bound) => format!("at most {}", bound.unwrap_or_default()),
        };
        let task = setting.task;
        let rows = match stop.get("min_len").and_then(Value::as_u64) {
            Some(from) => format!("of {from} to {} {}", task.train_len, task.unit),
            None => "at the training length".to_owned(),
        };
        rules.insert(format!(
            "{} was {bound} on selection rows {rows}, measured every {} steps",
            text::name(
                stop.get("metric").and_then(Value::as_str).unwrap_or("?"),
                40
            ),
            thousands(
                stop.get("every")
                    .and_then(Value::as_u64)
                    .unwrap_or_default()
            ),
        ));
    }
    let rules: Vec<String> = rules.into_iter().collect();
    (!rules.is_empty()).then(|| {
        format!(
            "Steps: the median over seeds, then the least and the most; a training ended once {}, \
             or after all its steps.",
            rules.join(", or once ")
        )
    })
}

/// The steps that the seeds of a method took: the median, the least and the most.
pub(super) fn steps(group: &Group<'_>) -> String {
    let mut steps: Vec<u64> = group.runs.iter().map(|run| run.train.steps).collect();
    steps.sort_unstable();
    let (Some(least), Some(most)) = (steps.first(), steps.last()) else {
        return "-".into();
    };
    let median = u64::midpoint(steps[(steps.len() - 1) / 2], steps[steps.len() / 2]);
    match least == most {
        true => thousands(median),
        false => format!(
            "{} ({} to {})",
            thousands(median),
            thousands(*least),
            thousands(*most)
        ),
    }
}

/// Parameters of the runs, and those of their encodings.
pub(super) fn sizes(group: &Group<'_>) -> [Cell; 2] {
    let distinct = |of: fn(&Run<'_>) -> u64| -> Cell {
        let values: BTreeSet<u64> = group.runs.iter().map(of).collect();
        let texts: Vec<String> = values.into_iter().map(thousands).collect();
        texts.join(" / ").into()
    };
    [
        distinct(|run| run.model.parameters),
        distinct(|run| run.model.encoding_parameters),
    ]
}

pub(super) fn row(group: &Group<'_>) -> Vec<Cell> {
    let losses: Vec<f64> = group
        .runs
        .iter()
        .filter_map(|r| r.train.final_loss_nats)
        .filter(|l| l.is_finite())
        .collect();
    let loss = Estimate::of_mean(&losses);
    let loss = loss.map_or("-".into(), |e| estimate_text(metric::LOSS_NATS, &e));
    sizes(group).into_iter().chain([loss.into()]).collect()
}
