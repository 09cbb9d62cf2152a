//! Sizes, training and status of the runs behind the tables.

use crate::analysis::groups::Group;
use crate::analysis::point::estimate_text;
use crate::analysis::setting::Setting;
use crate::metric;
use crate::record::RunStatus;
use crate::report::captions::{seeds_notes, seeds_sentence, slug};
use crate::report::document::{Cell, Table};
use crate::report::spec::ReportSpec;
use crate::stats::Estimate;
use crate::text::{list, thousands};
use std::collections::BTreeSet;

/// One table.
pub(super) fn tables(setting: &Setting<'_>, _: &ReportSpec) -> Vec<Table> {
    let chance = metric::chance(setting.task, metric::LOSS_NATS);
    let chance = chance.map_or(String::new(), |c| format!(" Chance: {c:.3}."));
    let columns = [
        "method",
        "parameters",
        "of the encoding",
        "final training loss",
        "seeds",
        "runs",
    ];
    vec![Table {
        slug: slug(setting, "runs"),
        title: "Runs".into(),
        caption: format!(
            "Runs behind the tables; {}. {}",
            setting.name,
            seeds_sentence(setting, metric::LOSS_NATS),
        ),
        notes: format!(
            "Final training loss: nats per counted token over the last tenth of the \
             steps.{chance}{}",
            seeds_notes(setting, metric::LOSS_NATS),
        ),
        columns: columns.map(String::from).to_vec(),
        rows: setting.groups.iter().map(row).collect(),
        ..Table::default()
    }]
}

fn row(group: &Group<'_>) -> Vec<Cell> {
    let runs = &group.runs;
    let distinct = |values: BTreeSet<u64>| -> Cell {
        let texts: Vec<String> = values.into_iter().map(thousands).collect();
        texts.join(" / ").into()
    };
    let losses: Vec<f64> = runs
        .iter()
        .filter_map(|r| r.train.final_loss_nats)
        .filter(|l| l.is_finite())
        .collect();
    let loss = Estimate::of_mean(&losses);
    let loss = loss.map_or("-".into(), |e| estimate_text(metric::LOSS_NATS, &e));
    let ok = runs.iter().filter(|r| r.status == RunStatus::Ok).count();
    let mut status = format!("{ok} ok");
    if ok < runs.len() {
        status = format!("{status}, {} diverged", runs.len() - ok);
    }
    let seeds: Vec<String> = runs.iter().map(|r| r.seed.to_string()).collect();
    vec![
        group.name.as_str().into(),
        distinct(runs.iter().map(|r| r.model.parameters).collect()),
        distinct(runs.iter().map(|r| r.model.encoding_parameters).collect()),
        loss.into(),
        list(&seeds, 8).into(),
        status.into(),
    ]
}
