//! `longreach eval`: trained runs at other lengths or under other encodings, without retraining.

pub mod args;
mod outcome;
mod prepare;
mod variants;

use crate::commands::eval::args::Args;
use crate::commands::eval::outcome::Outcome;
use crate::commands::eval::prepare::{
    Prepared, check_evaluations, check_lengths, existing, prepare,
};
use burn::tensor::Device;
use experiment::device;
use experiment::plan::cost;
use experiment::run::evaluate::evaluate;
use experiment::run::record::{environment, spec_map, task_facts};
use experiment::run::task::Tasks;
use experiment::run::worker::LEAVE_WITHIN;
use experiment::runs_on_disk::files::{WEIGHTS_FILE, check_readable};
use experiment::runs_on_disk::recorded::no_weights;
use experiment::runs_on_disk::selection::{self, Run};
use experiment::spec::EvalSpec;
use records::RunRecord;
use records::record::Label;
use records::store::{EVALS_DIR, evaluation_path};
use rundir::Weights;
use serde_json::json;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use support::console;
use support::exit::{Exit, Failure};
use support::signals;
use support::units::{count, duration};

/// What a request to stop leaves.
const NOT_WRITTEN: &str = "nothing was written of the run that was being evaluated";
/// Seconds of an evaluation that are worth a note.
const LONG: f64 = 60.0;

/// Evaluates the runs and prints the table, or the records as JSON.
///
/// # Errors
///
/// [`Exit::Input`] if a run does not exist; if it is the only one, also if it is not finished,
/// diverged, or its weights are damaged. [`Exit::Config`] for a filter that selects nothing, or for
/// lengths or variants that do not fit every run; [`Exit::Device`]. Nothing has been evaluated
/// then.
pub fn run(arguments: &Args) -> Result<Exit, Failure> {
    let outcome = evaluate_all(arguments, console::tell)?;
    match (arguments.json, outcome.evaluated.as_slice()) {
        (true, [(record, _)]) if outcome.selected == 1 => console::print(&console::json(record)?),
        (true, evaluated) => {
            let records: Vec<_> = evaluated.iter().map(|(record, _)| record).collect();
            console::print(&console::json(&records)?);
        }
        (false, []) => {}
        (false, _) => console::print(&outcome.table()?),
    }
    console::notes(&Vec::from_iter(outcome.notes()));
    for (name, directory, failure) in &outcome.failed {
        console::failed(name, directory, failure);
    }
    let runs = count(outcome.selected, "run");
    if !outcome.failed.is_empty() {
        console::tell(&format!(
            "\n{} of {runs} failed; the same command tries them again",
            outcome.failed.len()
        ));
    }
    if outcome.stopped.is_some() {
        console::tell(&format!(
            "\nstopped: {} of {runs} evaluated; the same command continues",
            outcome.evaluated.len()
        ));
    }
    Ok(outcome.exit())
}

/// Evaluates the runs one after the other; `progress` receives a line per result. A run that fails
/// does not stop the others, unless it is the only one.
fn evaluate_all(request: &Args, mut progress: impl FnMut(&str)) -> Result<Outcome, Failure> {
    signals::listen()?;
    signals::leave_within(LEAVE_WITHIN, NOT_WRITTEN)?;
    if let Some(lengths) = &request.lengths {
        check_lengths(lengths)?;
    }
    let selected = selection::select(&request.paths, &request.filters, &mut progress)?;
    if let Some(lengths) = &request.lengths {
        check_evaluations(&selected, lengths)?;
    }
    let prepared = prepare_all(&selected, request, &mut progress)?;
    let names = Run::names(&selected);
    let total = selected.len();
    let mut device = None;
    let mut outcome = Outcome {
        selected: total,
        evaluated: Vec::new(),
        failed: Vec::new(),
        stopped: None,
    };
    let runs = selected.iter().zip(prepared).zip(names);
    for (index, ((run, prepared), name)) in runs.enumerate() {
        outcome.stopped = signals::asked();
        if outcome.stopped.is_some() {
            break;
        }
        let prefix = if total > 1 {
            format!("[run {}/{total}] {name}: ", index + 1)
        } else {
            String::new()
        };
        let mut say = |line: &str| progress(&format!("{prefix}{line}"));
        let done = match prepared {
            Ok(prepared) => evaluate_run(run, prepared, total, request, &mut device, &mut say),
            Err(failure) => Err(failure),
        };
        match done {
            Ok(Some(done)) => outcome.evaluated.push(done),
            Ok(None) => {}
            Err(failure) if total == 1 => return Err(failure),
            Err(failure) if failure.exit.on_request() => {
                outcome.stopped = Some(failure.exit);
                break;
            }
            // No other run would fare better without a disk or a device.
            Err(failure) if matches!(failure.exit, Exit::Resources | Exit::Device) => {
                return Err(failure);
            }
            Err(failure) => {
                say(&format!(
                    "FAILED\n  {}",
                    console::indented(&failure.message)
                ));
                outcome.failed.push((name, run.directory.clone(), failure));
            }
        }
    }
    Ok(outcome)
}

/// Checks all runs before the first is evaluated. A request that does not fit all is refused.
fn prepare_all(
    selected: &[Run],
    request: &Args,
    progress: &mut impl FnMut(&str),
) -> Result<Vec<Result<Option<Prepared>, Failure>>, Failure> {
    let mut tasks = Tasks::default();
    let mut prepared: Vec<Result<Option<Prepared>, Failure>> = Vec::new();
    let mut notes = BTreeSet::new();
    for run in selected {
        prepared.push(prepare(run, request, &mut tasks, &mut notes));
        if let Some(exit) = signals::asked() {
            let message = "stopped before any evaluation; nothing was written";
            return Err(Failure::new(exit, message));
        }
    }
    // A diverged run has nothing to evaluate: it does not make a request fit.
    let refused = |run: &Result<Option<Prepared>, Failure>| match run {
        Err(failure) => failure.exit == Exit::Config || selected.len() == 1,
        Ok(run) => run.is_none(),
    };
    if prepared.iter().all(refused)
        && let Some(Err(failure)) = prepared.iter().find(|run| run.is_err())
    {
        return Err(failure.clone());
    }
    if let Some(refused) = some_refuse(selected, &prepared) {
        return Err(refused);
    }
    for note in &notes {
        progress(&format!("note: {note}"));
    }
    Ok(prepared)
}

/// The refusal of a request that fits some of the runs only, and how to select these.
fn some_refuse(
    selected: &[Run],
    prepared: &[Result<Option<Prepared>, Failure>],
) -> Option<Failure> {
    let is_refusal = |failure: &&Failure| failure.exit == Exit::Config;
    let refusals = || prepared.iter().filter_map(|run| run.as_ref().err());
    let first = refusals().find(is_refusal)?;
    let kinds = |fits: bool| {
        let runs = selected.iter().zip(prepared);
        let runs = runs.filter(|(_, prepared)| prepared.is_ok() == fits);
        let kinds = runs.filter_map(|(run, _)| Some(run.job.as_ref().ok()?.spec.model.pe.kind()));
        kinds.collect::<BTreeSet<&str>>()
    };
    let fitting = kinds(true);
    let others: Vec<&str> = fitting.difference(&kinds(false)).copied().collect();
    let help = match others.first() {
        Some(kind) => format!("--where pe={kind} selects runs that it fits"),
        None => "select the runs that it fits with --where KEY=VALUE".to_owned(),
    };
    let (count, all) = (refusals().filter(is_refusal).count(), selected.len());
    let message = &first.message;
    let note = format!("{count} of {all} runs cannot be evaluated this way; this is the first");
    Some(Failure::config(message).with_note(note).with_help(help))
}

/// Evaluates one run of `total`, unless its evaluation exists; `None` for a run that diverged.
fn evaluate_run(
    run: &Run,
    prepared: Option<Prepared>,
    total: usize,
    request: &Args,
    device: &mut Option<Device>,
    say: &mut dyn FnMut(&str),
) -> Result<Option<(RunRecord, PathBuf)>, Failure> {
    let Some(prepared) = prepared else {
        if total == 1 {
            return Err(Failure::input(format!(
                "{} diverged in training: there is nothing to evaluate",
                run.directory.display()
            )));
        }
        say("diverged in training, skipped");
        return Ok(None);
    };
    // Opened once, for the first run that has weights: its memory decides what is complete.
    let device = match device {
        Some(device) => device,
        None => device.insert(device::open(&request.device)?),
    };
    let limit = request.memory_limit(device);
    if let Some((record, path)) = existing(&run.directory, &prepared, limit)? {
        say(&format!("evaluated already, in {}", path.display()));
        return Ok(Some((record, path)));
    }
    evaluate_one(&run.directory, &prepared, request, device, say).map(Some)
}

#[expect(
    clippy::too_many_lines,
    reason = "the steps of an evaluation in their order"
)]
fn evaluate_one(
    directory: &Path,
    prepared: &Prepared,
    request: &Args,
    device: &Device,
    say: &mut dyn FnMut(&str),
) -> Result<(RunRecord, PathBuf), Failure> {
    let Prepared {
        job,
        record: own,
        spec,
        id,
        task,
        by_length,
    } = prepared;
    let disk = rundir::system();
    let evals = directory.join(EVALS_DIR);
    check_readable(&evaluation_path(directory, id))?;
    let mut record = own.clone();
    let weights = Weights::load(
        &directory.join(WEIGHTS_FILE),
        record.model.parameters,
        &record.model.weights_blake3,
    )
    .map_err(|error| no_weights(directory, &error))?;
    disk.probe(&evals).map_err(Failure::resources)?;
    if let Some(note) = device::matmul_note(&request.device, spec.model.transformer.matmul) {
        say(&format!("note: {note}"));
    }
    let limit = request.memory_limit(device);
    let secs = cost::evaluation_secs(spec, task.as_ref(), record.model.parameters, limit);
    if request.device.is_cpu() && secs > LONG {
        let time = duration(secs);
        say(&format!(
            "note: about {time} of CPU time; nothing is written before the end"
        ));
    }
    let total = spec.eval.variants.len() * spec.eval.test_lens.len();
    let mut done = 0;
    record.evals = evaluate(
        &job.spec,
        &spec.eval,
        task.as_ref(),
        &weights,
        device,
        limit,
        |row, cost| {
            done += 1;
            let loss = row.metrics.get("loss_nats").map_or_else(
                || row.reason.clone().unwrap_or_default(),
                |loss| format!("loss {:.4} nats", loss.value),
            );
            say(&format!(
                "[{done}/{total}] length {}, {}: {loss} ({:.1} s)",
                row.length(),
                row.variant,
                cost.secs
            ));
        },
    )
    .map_err(|error| Failure::bug(format!("{error:#}")))?
    .ok_or_else(|| {
        Failure::new(
            signals::asked().unwrap_or(Exit::Interrupted),
            format!("stopped; {NOT_WRITTEN}"),
        )
    })?;
    // What training left stays that of the run; the rest is of this evaluation.
    record.run_id.clone_from(id);
    record.evaluation_of = Some(own.run_id.clone());
    record.by_length.clone_from(by_length);
    record.task = task_facts(spec, task.as_ref());
    relabel(&mut record.labels, &spec.eval);
    record.environment = environment(&request.device);
    record.spec = spec_map(spec)?;
    // Of a record that was changed by hand the evaluation keeps the broken seal.
    if let (Some(seal), true) = (&own.seal, own.seal_holds() == Some(true)) {
        record.set_seal(seal.steps_blake3.clone());
    }
    // Written last and as a whole: an interrupted evaluation leaves no record.
    let path = evaluation_path(directory, id);
    let text = records::store::record_text(&path, &record).map_err(Failure::bug)?;
    disk.write_whole(&path, text.as_bytes())
        .map_err(Failure::resources)?;
    Ok((record, path))
}

/// Gives labels on axes of `[eval]` the values that the evaluation was asked for instead.
fn relabel(labels: &mut [Label], eval: &EvalSpec) {
    for label in labels {
        let value = match label.key.as_str() {
            "eval.decode" => json!(eval.decode),
            "eval.last_tokens" => json!(eval.last_tokens),
            _ => continue,
        };
        if value != label.value {
            label.text = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            label.value = value;
        }
    }
}
