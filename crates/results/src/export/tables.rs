//! Records as tables of runs, scores, scores while training, loss curves and losses by position.
//! The tables share the column `run_id`.

use super::columns::ColumnTable;
use crate::metric::{self, BITS_PER_BYTE, PERPLEXITY};
use crate::record::{EvalRow, EvalStatus, RunRecord, RunStatus, StepScores};
use crate::spec::settings;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Settings with a column of their own; all of them are in `spec`.
const MOST_SETTINGS: usize = 500;

/// The tables `runs`, `scores`, `during`, `curves` and `positions` of some records, in the order of
/// the records.
pub fn tables(records: &[RunRecord]) -> Vec<ColumnTable> {
    vec![
        runs(records),
        scores(records),
        during(records),
        curves(records),
        positions(records),
    ]
}

/// A row for each record: what it is, what it cost, its whole spec, and the settings that differ
/// between the records.
fn runs(records: &[RunRecord]) -> ColumnTable {
    let mut table = ColumnTable::new("runs");
    let text = |of: &dyn Fn(&RunRecord) -> Option<String>| {
        records.iter().map(of).collect::<Vec<_>>().into_iter()
    };
    table.texts("run_id", text(&|r| Some(r.run_id.clone())));
    table.texts("experiment", text(&|r| Some(r.experiment.clone())));
    table.texts("method", text(&|r| Some(method(r))));
    table.ints("seed", records.iter().map(|r| Some(r.seed)));
    table.texts("status", text(&|r| Some(run_status(r.status).to_owned())));
    table.texts("evaluation_of", text(&|r| r.evaluation_of.clone()));
    table.texts("half_of", text(&|r| r.half_of.clone()));
    table.texts("task", text(&|r| Some(r.task.kind.clone())));
    table.texts("unit", text(&|r| Some(r.task.unit.clone())));
    let lengths = records.iter().map(|r| Some(r.task.train_len as u64));
    table.ints("train_len", lengths);
    table.texts(
        "corpus_blake3",
        text(&|r| Some(r.task.corpus.as_ref()?.blake3.clone())),
    );
    table.ints(
        "parameters",
        records.iter().map(|r| Some(r.model.parameters)),
    );
    let encoding = records.iter().map(|r| Some(r.model.encoding_parameters));
    table.ints("encoding_parameters", encoding);
    table.texts(
        "weights_blake3",
        text(&|r| Some(r.model.weights_blake3.clone())),
    );
    table.ints("steps", records.iter().map(|r| Some(r.train.steps)));
    table.ints("tokens", records.iter().map(|r| Some(r.train.tokens)));
    let losses = records.iter().map(|r| r.train.final_loss_nats);
    table.floats("final_loss_nats", losses);
    table.texts("version", text(&|r| Some(r.environment.version.clone())));
    table.texts("commit", text(&|r| Some(r.environment.commit.clone())));
    table.texts("device", text(&|r| Some(r.environment.device.clone())));
    table.texts("burn", text(&|r| Some(r.environment.burn.clone())));
    table.texts(
        "spec",
        text(&|r| Some(Value::Object(r.spec.clone()).to_string())),
    );
    settings_columns(&mut table, records);
    table
}

/// A column `config.KEY` for each setting that is not the same in all records: of numbers, if all
/// its values are numbers.
fn settings_columns(table: &mut ColumnTable, records: &[RunRecord]) {
    let all: Vec<BTreeMap<String, String>> = records.iter().map(|r| settings(&r.spec)).collect();
    let keys: BTreeSet<&String> = all.iter().flat_map(BTreeMap::keys).collect();
    let is_own = |key: &&&String| !key.starts_with("eval.variants.") && **key != "seed";
    let differs = |key: &&&String| all.iter().any(|s| s.get(**key) != all[0].get(**key));
    let keys = keys.iter().filter(is_own).filter(differs);
    for key in keys.take(MOST_SETTINGS) {
        let values: Vec<Option<&String>> = all.iter().map(|s| s.get(*key)).collect();
        let number = |value: &String| value.parse::<f64>().ok().filter(|x| x.is_finite());
        let name = format!("config.{key}");
        if values.iter().flatten().all(|value| number(value).is_some()) {
            let numbers = values.into_iter().map(|value| number(value?));
            table.floats(&name, numbers);
        } else {
            table.texts(&name, values.into_iter().map(|value| value.cloned()));
        }
    }
}

/// A row for each score after training: run, variant, test length and metric. An evaluation without
/// numbers has one row, without a metric.
fn scores(records: &[RunRecord]) -> ColumnTable {
    let rows = records
        .iter()
        .flat_map(|r| r.evals.iter().map(move |row| (r, None, row)));
    score_rows("scores", rows)
}

/// The same for scores while training, with their step.
fn during<'a>(records: &'a [RunRecord]) -> ColumnTable {
    let trained = records.iter().filter(|r| r.evaluation_of.is_none());
    let rows = trained.flat_map(|r| {
        let at = move |scores: &'a StepScores| {
            scores
                .rows
                .iter()
                .map(move |row| (r, Some(scores.step), row))
        };
        r.train.scores.iter().flat_map(at)
    });
    score_rows("during", rows)
}

/// A row for each metric of some evaluations, each after a number of steps or after training.
fn score_rows<'a>(
    name: &str,
    evaluations: impl Iterator<Item = (&'a RunRecord, Option<u64>, &'a EvalRow)>,
) -> ColumnTable {
    type Row<'a> = (
        &'a RunRecord,
        Option<u64>,
        &'a EvalRow,
        Option<(String, f64, u64)>,
    );
    let mut rows: Vec<Row<'_>> = Vec::new();
    for (record, step, row) in evaluations {
        let before = rows.len();
        let stored = row.metrics.keys().map(String::as_str);
        for name in stored.chain([PERPLEXITY, BITS_PER_BYTE]) {
            let derived = !row.metrics.contains_key(name);
            let value = metric::value(&record.task, row, name);
            // A number may overflow where the loss does not, as a perplexity does.
            let value = value.filter(|(value, _)| !derived || value.is_finite());
            if let Some((value, n)) = value {
                rows.push((record, step, row, Some((name.to_owned(), value, n))));
            }
        }
        if rows.len() == before {
            rows.push((record, step, row, None));
        }
    }
    let mut table = ColumnTable::new(name);
    table.texts("run_id", rows.iter().map(|(r, ..)| Some(r.run_id.clone())));
    let experiments = rows.iter().map(|(r, ..)| Some(r.experiment.clone()));
    table.texts("experiment", experiments);
    table.texts("method", rows.iter().map(|(r, ..)| Some(method(r))));
    table.ints("seed", rows.iter().map(|(r, ..)| Some(r.seed)));
    if name == "during" {
        table.ints("step", rows.iter().map(|(_, step, ..)| *step));
    }
    let variants = rows.iter().map(|(.., row, _)| Some(row.variant.clone()));
    table.texts("variant", variants);
    let lengths = rows.iter().map(|(r, ..)| Some(r.task.train_len as u64));
    table.ints("train_len", lengths);
    let lengths = rows.iter().map(|(.., row, _)| Some(row.test_len as u64));
    table.ints("test_len", lengths);
    let from = rows
        .iter()
        .map(|(.., row, _)| row.from_len.map(|from| from as u64));
    if from.clone().any(|from| from.is_some()) {
        table.ints("from_len", from);
    }
    let statuses = rows
        .iter()
        .map(|(.., row, _)| Some(eval_status(row.status).to_owned()));
    table.texts("status", statuses);
    table.texts("reason", rows.iter().map(|(.., row, _)| row.reason.clone()));
    let metrics = rows
        .iter()
        .map(|(.., score)| Some(score.as_ref()?.0.clone()));
    table.texts("metric", metrics);
    table.floats(
        "value",
        rows.iter().map(|(.., score)| Some(score.as_ref()?.1)),
    );
    table.ints("n", rows.iter().map(|(.., score)| Some(score.as_ref()?.2)));
    table
}

/// A row for each point of a loss curve.
fn curves(records: &[RunRecord]) -> ColumnTable {
    let trained = records.iter().filter(|r| r.evaluation_of.is_none());
    let points = trained.flat_map(|r| r.train.loss_curve.iter().map(move |point| (r, point)));
    let points: Vec<_> = points.collect();
    let mut table = ColumnTable::new("curves");
    table.texts("run_id", points.iter().map(|(r, _)| Some(r.run_id.clone())));
    table.ints("step", points.iter().map(|(_, point)| Some(point.step)));
    let losses = points.iter().map(|(_, point)| Some(point.loss_nats));
    table.floats("loss_nats", losses);
    table
}

/// A row for each bin of a loss by position.
fn positions(records: &[RunRecord]) -> ColumnTable {
    let rows = records
        .iter()
        .flat_map(|r| r.evals.iter().map(move |row| (r, row)));
    let bins = rows.flat_map(|(r, row)| row.loss_by_position.iter().map(move |bin| (r, row, bin)));
    let bins: Vec<_> = bins.collect();
    let mut table = ColumnTable::new("positions");
    table.texts("run_id", bins.iter().map(|(r, ..)| Some(r.run_id.clone())));
    let variants = bins.iter().map(|(_, row, _)| Some(row.variant.clone()));
    table.texts("variant", variants);
    let lengths = bins.iter().map(|(_, row, _)| Some(row.test_len as u64));
    table.ints("test_len", lengths);
    table.ints("from", bins.iter().map(|(.., bin)| Some(bin.from as u64)));
    table.ints("to", bins.iter().map(|(.., bin)| Some(bin.to as u64)));
    let losses = bins.iter().map(|(.., bin)| Some(bin.loss_nats));
    table.floats("loss_nats", losses);
    table
}

/// The values on the axes: `rope, 10000`.
pub(super) fn method(record: &RunRecord) -> String {
    let labels: Vec<&str> = record.labels.iter().map(|l| l.text.as_str()).collect();
    labels.join(", ")
}

fn run_status(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Ok => "ok",
        RunStatus::Diverged => "diverged",
    }
}

fn eval_status(status: EvalStatus) -> &'static str {
    match status {
        EvalStatus::Ok => "ok",
        EvalStatus::Diverged => "diverged",
        EvalStatus::Unsupported => "unsupported",
        EvalStatus::Skipped => "skipped",
    }
}
