//! Computing the numbers of a run again: from its weights, or from the beginning.

use super::{Args, Subject};
use burn::tensor::Device;
use experiment::device;
use experiment::plan::memory::MemoryLimit;
use experiment::run::evaluate::evaluate;
use experiment::run::numbers::{Numbers, is_of_this_build};
use experiment::run::protocol::{CheckpointEvery, How};
use experiment::run::task::build_task;
use experiment::run::worker;
use experiment::runs_on_disk::files::{JOB_FILE, RECORD_FILE, WEIGHTS_FILE};
use experiment::runs_on_disk::recorded::origin;
use experiment::spec::differences::{differences, shown};
use experiment::spec::{Job, RunSpec};
use records::RunRecord;
use records::record::{EvalRow, EvalStatus, RunStatus, StepScores};
use rundir::Weights;
use rundir::steplog::LOG_FILE;
use std::path::Path;
use support::exit::{Exit, Failure};
use support::signals;
use support::temporary;
use tasks::Task;

use super::evaluations;

/// Largest relative difference (absolute below 1) of a number that another build or another kind of
/// device recorded: the last digits differ there.
const TOLERANCE: f64 = 1e-3;

/// Scores the weights of a run again and compares every number of its own evaluation and of later
/// ones. Lengths that were skipped, or do not fit into the memory now, are left out.
pub(super) fn reevaluate(
    run: &Subject<'_>,
    weights: &Weights,
    task: &dyn Task,
    request: &Args,
) -> Result<Numbers, Failure> {
    let mut found = Numbers::default();
    if run.record.status == RunStatus::Ok {
        let spec = &run.job.spec;
        let again = score(run.job, spec, task, weights, request)?;
        compare(&mut found, RECORD_FILE, run.record, &again, request);
    }
    for (name, evaluation) in evaluations::readable(run) {
        let job = evaluation.job(run.job);
        let task = build_task(&job, &job.spec.eval.test_lens)?;
        let again = score(run.job, &job.spec, task.as_ref(), weights, request)?;
        compare(&mut found, &name, &evaluation.record, &again, request);
    }
    Ok(found)
}

/// The rows of an evaluation of the weights of a run.
fn score(
    job: &Job,
    asked: &RunSpec,
    task: &dyn Task,
    weights: &Weights,
    request: &Args,
) -> Result<Vec<EvalRow>, Failure> {
    let device = device::open(&request.device)?;
    let limit = limit(request, &device);
    let rows = evaluate(
        &job.spec,
        &asked.eval,
        task,
        weights,
        &device,
        limit,
        |_, _| (),
    );
    rows.map_err(|error| Failure::bug(format!("{error:#}")))?
        .ok_or_else(|| {
            let exit = signals::asked().unwrap_or(Exit::Interrupted);
            Failure::new(exit, "stopped while scoring again")
        })
}

/// Adds what differs between the rows of a record and the same, scored again.
fn compare(found: &mut Numbers, name: &str, record: &RunRecord, again: &[EvalRow], request: &Args) {
    let exact = is_of_this_build(record) && record.environment.device == request.device.kind;
    let mut largest = 0.0_f64;
    let mut differ = Vec::new();
    for row in &record.evals {
        let is_same =
            |other: &&EvalRow| other.variant == row.variant && other.test_len == row.test_len;
        let Some(other) = again.iter().find(is_same) else {
            continue;
        };
        if [row.status, other.status].contains(&EvalStatus::Skipped) {
            continue;
        }
        let relative = difference(row, other);
        largest = largest.max(relative);
        if relative > if exact { 0.0 } else { TOLERANCE } {
            differ.push(changed(row, other));
        }
    }
    let (more, shown) = (differ.len().saturating_sub(MOST_SHOWN), differ.iter());
    for text in shown.take(MOST_SHOWN) {
        found.wrong.push(format!("{name}, scored again: {text}"));
    }
    if more > 0 {
        found
            .wrong
            .push(format!("{name}, scored again: {more} more rows differ"));
    }
    if differ.is_empty() && largest > 0.0 {
        found.notes.push(format!(
            "{name}: another build or device recorded it; scored again, its numbers differ by \
                 at most {largest:.1e}"
        ));
    }
}

/// Rows of one record that are named.
const MOST_SHOWN: usize = 5;

/// The largest relative difference (absolute below 1) of two rows; infinite if they hold different
/// numbers at all.
fn difference(row: &EvalRow, other: &EvalRow) -> f64 {
    if row == other {
        return 0.0;
    }
    let same_kind = row.status == other.status
        && row.metrics.keys().eq(other.metrics.keys())
        && row.loss_by_position.len() == other.loss_by_position.len()
        && row.loss_by_block.len() == other.loss_by_block.len()
        && row
            .metrics
            .values()
            .zip(other.metrics.values())
            .all(|(a, b)| a.n == b.n);
    if !same_kind {
        return f64::INFINITY;
    }
    let metrics = row.metrics.values().zip(other.metrics.values());
    let metrics = metrics.map(|(a, b)| (a.value, b.value));
    let bins = row.loss_by_position.iter().zip(&other.loss_by_position);
    let bins = bins.map(|(a, b)| (a.loss_nats, b.loss_nats));
    let blocks = row.loss_by_block.iter().zip(&other.loss_by_block);
    let blocks = blocks.map(|(a, b)| (*a, *b));
    let relative = |(a, b): (f64, f64)| (a - b).abs() / a.abs().max(1.0);
    metrics
        .chain(bins)
        .chain(blocks)
        .map(relative)
        .fold(f64::MIN_POSITIVE, f64::max)
}

/// The first difference of two rows in words.
fn changed(row: &EvalRow, other: &EvalRow) -> String {
    let at = format!(
        "{} at {}",
        schema::text::one_line(&row.variant, 60),
        row.test_len
    );
    let [theirs, ours] = [row, other].map(|row| serde_json::to_value(row).unwrap_or_default());
    match differences(&theirs, &ours).first() {
        Some((key, theirs, ours)) => {
            format!("{at}: {key} is {}, not {}", shown(*ours), shown(*theirs))
        }
        None => at,
    }
}

/// Removes the scores while training that one of two records of a run skipped for lack of memory.
fn skip_scores(one: &mut RunRecord, other: &mut RunRecord) {
    let skipped = |record: &RunRecord| -> Vec<(u64, usize)> {
        let at = |at: &StepScores| {
            let rows = at.rows.iter();
            let rows = rows.filter(|row| row.status == EvalStatus::Skipped);
            let step = at.step;
            rows.map(|row| (step, row.test_len)).collect::<Vec<_>>()
        };
        record.train.scores.iter().flat_map(at).collect()
    };
    let out = [skipped(one), skipped(other)].concat();
    for at in one.train.scores.iter_mut().chain(&mut other.train.scores) {
        let step = at.step;
        at.rows.retain(|row| !out.contains(&(step, row.test_len)));
    }
}

fn limit(request: &Args, device: &Device) -> MemoryLimit {
    request.device.memory_limit(request.memory_limit, device)
}

/// Trains the job again in a temporary directory and compares every byte that must not differ.
#[expect(clippy::too_many_lines, reason = "one training with its comparisons")]
pub(super) fn retrain(run: &Subject<'_>, request: &Args) -> Result<Vec<String>, Failure> {
    let Subject {
        directory,
        job,
        record,
    } = run;
    let scratch = temporary::directory()?;
    let again = scratch
        .path()
        .join(directory.file_name().unwrap_or_default());
    std::fs::create_dir(&again).map_err(Failure::resources)?;
    // Not a copy: relative paths may start from another directory now.
    let text = serde_json::to_vec_pretty(job).map_err(Failure::bug)?;
    std::fs::write(again.join(JOB_FILE), text).map_err(Failure::resources)?;
    let how = How {
        device: request.device.clone(),
        // Never: nothing resumes from a temporary directory.
        checkpoint_every: CheckpointEvery::Steps(u64::MAX),
        memory_limit: limit(request, &device::open(&request.device)?),
        initial_weights: false,
        runs_per_worker: 1,
    };
    worker::run_silently(std::slice::from_ref(&again), &how).map_err(|failure| {
        let stopped = "stopped while it was trained again; --retrain starts at the first step";
        match failure.exit.on_request() {
            true => Failure::new(failure.exit, stopped),
            false => failure,
        }
    })?;
    let mut wrong = Vec::new();
    // Of a copied record the seal knows the log, and the record itself the weights.
    let is_copied = origin(directory).is_some();
    if is_copied && let Some(seal) = &record.seal {
        let log = std::fs::read(again.join(LOG_FILE)).map_err(Failure::input)?;
        if blake3::hash(&log).to_hex().as_str() != seal.steps_blake3 {
            wrong.push(format!("trained again, {LOG_FILE} has other bytes"));
        }
    }
    for name in [WEIGHTS_FILE, LOG_FILE] {
        let bytes = |directory: &Path| std::fs::read(directory.join(name)).ok();
        if !is_copied && bytes(directory) != bytes(&again) {
            wrong.push(format!("trained again, {name} has other bytes"));
        }
    }
    let mut fresh = records::read_record(&again.join(RECORD_FILE)).map_err(Failure::input)?;
    // Commit and labels may differ, and the seal with them.
    let mut expected = RunRecord::clone(record);
    expected.seal = None;
    fresh.seal = None;
    expected.environment.clone_from(&fresh.environment);
    expected.labels.clone_from(&fresh.labels);
    // Lengths that either of the two skipped for lack of memory cannot be compared.
    let out: Vec<(String, usize)> = expected
        .evals
        .iter()
        .chain(&fresh.evals)
        .filter(|row| row.status == EvalStatus::Skipped)
        .map(|row| (row.variant.clone(), row.test_len))
        .collect();
    for record in [&mut expected, &mut fresh] {
        record
            .evals
            .retain(|row| !out.contains(&(row.variant.clone(), row.test_len)));
    }
    skip_scores(&mut expected, &mut fresh);
    let [theirs, ours] =
        [&expected, &fresh].map(|record| serde_json::to_value(record).unwrap_or_default());
    let differ: Vec<String> = differences(&theirs, &ours)
        .into_iter()
        .map(|(key, ..)| key)
        .collect();
    if !differ.is_empty() {
        wrong.push(format!(
            "trained again, the record differs in {}",
            differ.join(", ")
        ));
    }
    Ok(wrong)
}
