//! Checks of `longreach eval` before any evaluation: runs, lengths, scores and variants.

use crate::commands::eval::args::Args;
use crate::commands::eval::variants::{ByLength, variants};
use crate::commands::records::check_seal;
use experiment::plan::eval::Scores;
use experiment::plan::memory::{MemoryLimit, TaskSizes};
use experiment::run::task::{Tasks, refusal};
use experiment::run::worker::skipped_fits;
use experiment::runs_on_disk::files::{JOB_FILE, RECORD_FILE, check_own, refuse_link};
use experiment::runs_on_disk::recorded::{origin, weights_help};
use experiment::runs_on_disk::selection::Run;
use experiment::spec::{EvalSpec, Job, RunSpec, TestLen, TestLens};
use records::record::{EvalRow, MOST_EVALS, RunStatus};
use records::store::{EVALS_DIR, evaluation_path, find_records_within};
use records::{RunRecord, read_record};
use schema::text::excerpt;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use support::exit::Failure;
use tasks::{Task, TaskError};

/// A run that is ready to be evaluated.
pub struct Prepared {
    /// The job of the trained run.
    pub job: Job,
    /// The run's own record.
    pub record: RunRecord,
    /// The run's spec with the evaluation that was asked for.
    pub spec: RunSpec,
    /// The hash of `spec`: the evaluation's id.
    pub id: String,
    /// The task, with test sets of the lengths.
    pub task: Rc<dyn Task>,
    /// The keys of variants that follow the length.
    pub by_length: ByLength,
}

/// Checks everything that can be checked before a run is evaluated; `None` for a run that diverged.
///
/// # Errors
///
/// [`Exit::Input`](support::exit::Exit::Input) if the run is not finished,
/// [`Exit::Config`](support::exit::Exit::Config) for lengths, scores or variants that do not fit
/// it.
#[expect(
    clippy::too_many_lines,
    reason = "one check after the other, each with its answer"
)]
pub fn prepare(
    run: &Run,
    request: &Args,
    tasks: &mut Tasks,
    notes: &mut BTreeSet<String>,
) -> Result<Option<Prepared>, Failure> {
    let mut job = run.job.clone()?;
    check_own(&run.directory, &job)?;
    refuse_link(&run.directory, "a run")?;
    refuse_link(&run.directory.join(EVALS_DIR), "a run's evaluations")?;
    if let Some(config_dir) = &request.config_dir {
        job.config_dir.clone_from(config_dir);
    }
    let unfinished = |error| {
        Failure::input(error).with_help("finish the run first: `longreach run` with its config")
    };
    let record = read_record(&run.directory.join(RECORD_FILE)).map_err(unfinished)?;
    if record.run_id != job.run_id || record.seed != job.spec.seed {
        return Err(Failure::input(format!(
            "{}: {RECORD_FILE} belongs to run {}, seed {}, {JOB_FILE} to run {}, seed {}",
            run.directory.display(),
            excerpt(&record.run_id),
            record.seed,
            job.run_id,
            job.spec.seed
        ))
        .with_help("`longreach verify` checks the files of a run"));
    }
    notes.extend(check_seal(&record, &run.directory)?);
    if record.status == RunStatus::Diverged {
        return Ok(None);
    }
    let own = &job.spec.eval.test_lens;
    let asked: Option<TestLens> = request.lengths.clone().map(Into::into);
    let lengths = asked.unwrap_or_else(|| own.clone());
    check_columns(&lengths, own)?;
    let task = match tasks.task(&job, &lengths.of_rows()) {
        Err(failure) if request.lengths.is_some() && tasks.task(&job, own).is_ok() => {
            Err(refused_lengths(&lengths, &job).unwrap_or(failure))
        }
        built => built,
    }?;

    lengths.check(task.as_ref()).map_err(|error| {
        Failure::config(format!("--lengths {}: {}", error.value, error.problem))
            .with_allowed(error.allowed)
            .with_help(error.hint)
    })?;
    let mut spec = job.spec.clone();
    check_scores(request, &spec, task.as_ref(), &lengths)?;
    let (variants, by_length, variant_notes) =
        variants(&job.spec, task.as_ref(), &lengths, &request.variants)?;
    notes.extend(variant_notes);
    let rows = variants.len().saturating_mul(lengths.len());
    if rows > MOST_EVALS {
        return Err(Failure::config(format!(
            "{} variants at {} lengths are {rows} evaluations",
            variants.len(),
            lengths.len()
        ))
        .with_allowed(format!("at most {MOST_EVALS} in a record"))
        .with_help("call the command once for each part of --lengths"));
    }
    spec.eval = EvalSpec {
        variants,
        test_lens: lengths,
        decode: request.decode.unwrap_or(spec.eval.decode),
        last_tokens: request.last_tokens.or(spec.eval.last_tokens),
        attention_distance: request.attention_distance || spec.eval.attention_distance,
        ..spec.eval
    };
    let id = spec.run_id().map_err(Failure::bug)?;
    Ok(Some(Prepared {
        job,
        record,
        spec,
        id,
        task,
        by_length,
    }))
}

/// Refuses lengths that the task of a run cannot have. The task's hint is left out: it is about
/// the config, which is fixed by now.
fn refused_lengths(lengths: &TestLens, job: &Job) -> Option<Failure> {
    let shown: Vec<String> = lengths.written().iter().map(TestLen::to_string).collect();
    let why = match refusal(job, &lengths.of_rows())? {
        TaskError::Config(error) => format!(
            "`task.{}` {}\n  = allowed: {}\n  = help: choose lengths that the task of the run has",
            error.key, error.problem, error.allowed
        ),
        TaskError::Input { problem, .. } => format!(
            "{problem}\n  = help: give shorter lengths: a run is tested on the text that it was \
             planned with"
        ),
    };
    let message = format!("--lengths {}: {why}", shown.join(","));
    Some(Failure::config(message))
}

/// The record of this evaluation and its path, if it exists, can be read, is of these weights, and
/// is complete.
///
/// # Errors
///
/// [`Exit::Config`](support::exit::Exit::Config) if it is the one that the run itself made, and
/// skipped lengths that fit now.
pub fn existing(
    directory: &Path,
    prepared: &Prepared,
    limit: MemoryLimit,
) -> Result<Option<(RunRecord, PathBuf)>, Failure> {
    let Prepared {
        record: own,
        spec,
        id,
        task,
        ..
    } = prepared;
    let sizes = TaskSizes::of(task.as_ref(), &spec.eval.test_lens);
    // What is asked for is the evaluation that the run itself made.
    if *id == own.run_id {
        if skipped_fits(own, spec, &sizes, limit) {
            let help = match origin(directory) {
                None => "`longreach run` with its config and --memory-limit scores them".to_owned(),
                Some(_) => weights_help(directory),
            };
            let problem = "the run skipped lengths for lack of memory, but they fit now";
            return Err(Failure::config(problem).with_help(help));
        }
        return Ok(Some((own.clone(), directory.join(RECORD_FILE))));
    }
    let path = evaluation_path(directory, id);
    let Ok(record) = read_record(&path) else {
        return Ok(None);
    };
    // The id covers the spec, not the weights: a run trained again may have others.
    let same =
        record.run_id == *id && record.model == own.model && record.seal_holds() != Some(false);
    let is_complete = same && !skipped_fits(&record, spec, &sizes, limit);
    Ok(is_complete.then_some((record, path)))
}

/// Refuses a length where the run was tested over a range that ends there, and the other way round:
/// a table has one column for both.
fn check_columns(lengths: &TestLens, own: &TestLens) -> Result<(), Failure> {
    let differs = |asked: &&TestLen| {
        let mut own = own.written().iter();
        own.any(|own| own.to() == asked.to() && own != *asked)
    };
    let Some(asked) = lengths.written().iter().find(differs) else {
        return Ok(());
    };
    Err(Failure::config(format!(
        "--lengths {asked}: the run was tested at another length or range that ends at {}, and a \
         table has one column for both",
        asked.to()
    ))
    .with_help("choose another upper end"))
}

/// Refuses a length where an evaluation of such a training in the same experiment was over a range
/// that ends there, and the other way round: one table has both.
///
/// # Errors
///
/// [`Exit::Config`](support::exit::Exit::Config) with the evaluation;
/// [`Exit::Input`](support::exit::Exit::Input) if the experiment cannot be read.
pub fn check_evaluations(selected: &[Run], lengths: &[TestLen]) -> Result<(), Failure> {
    let setting = |job: &Job| {
        let spec = &job.spec;
        let kind = spec.task.kind().to_owned();
        (kind, spec.train.train_len, spec.corpus_blake3.clone())
    };
    let mut experiments: BTreeMap<PathBuf, BTreeSet<_>> = BTreeMap::new();
    for run in selected {
        let place = run.directory.canonicalize().map_err(Failure::input)?;
        if let (Some(experiment), Ok(job)) = (place.parent(), &run.job) {
            let settings = experiments.entry(experiment.to_owned()).or_default();
            settings.insert(setting(job));
        }
    }
    for (experiment, settings) in experiments {
        let found = find_records_within(std::slice::from_ref(&experiment), 1);
        let found = found.map_err(Failure::input)?.records;
        for (evaluation, of) in found
            .iter()
            .filter_map(|one| Some((one, one.evaluation_of.as_ref()?)))
        {
            let task = &evaluation.task;
            let corpus = task.corpus.as_ref().map(|corpus| corpus.blake3.clone());
            if !settings.contains(&(task.kind.clone(), task.train_len, corpus)) {
                continue;
            }
            let clash = lengths.iter().find_map(|asked| {
                let differs = |row: &&EvalRow| {
                    asked.to() == row.test_len && asked.to_string() != row.length()
                };
                Some((asked, evaluation.evals.iter().find(differs)?))
            });
            let Some((asked, row)) = clash else { continue };
            let path = evaluation_path(&experiment.join(of), &evaluation.run_id);
            return Err(Failure::config(format!(
                "--lengths {asked}: {} was over {}, and a table has one column for both",
                path.display(),
                row.length()
            ))
            .with_help("choose another upper end, or remove that evaluation"));
        }
    }
    Ok(())
}

/// Checks `--lengths`.
///
/// # Errors
///
/// [`Exit::Config`](support::exit::Exit::Config) for none, a repeated one, or one out of range.
pub fn check_lengths(lengths: &[TestLen]) -> Result<(), Failure> {
    let distinct: std::collections::BTreeSet<usize> = lengths.iter().map(TestLen::to).collect();
    if lengths.is_empty()
        || distinct.contains(&0)
        || distinct.iter().any(|length| *length > 1 << 22)
        || distinct.len() < lengths.len()
    {
        let shown = lengths
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(",");
        return Err(Failure::config(format!(
            "--lengths {shown}: lengths are missing, repeated or out of range\n  = \
             allowed: different whole numbers from 1 to {}\n  = \
             help: write --lengths 128,256,512",
            1 << 22
        )));
    }
    Ok(())
}

/// Refuses scores that the task and model do not have, by the rules of a config.
fn check_scores(
    request: &Args,
    spec: &RunSpec,
    task: &dyn Task,
    lengths: &[usize],
) -> Result<(), Failure> {
    let scores = Scores {
        decode: request.decode.unwrap_or(spec.eval.decode),
        last_tokens: request.last_tokens.or(spec.eval.last_tokens),
        attention_distance: request.attention_distance || spec.eval.attention_distance,
        test_lens: lengths,
    };
    scores
        .check(&spec.model.transformer, task)
        .map_err(|error| {
            let (flag, help) = match error.key.as_str() {
                "decode" => (
                    format!("--decode {}", error.value.trim_matches('"')),
                    "leave it out, or evaluate a run on a task with answers, such as copy",
                ),
                "attention_distance" => (
                    "--attention-distance".to_owned(),
                    "leave it out, or evaluate a run with softmax attention",
                ),
                _ => (
                    format!("--last-tokens {}", error.value),
                    "leave it out, or score fewer predictions of text at longer --lengths",
                ),
            };
            let (problem, allowed) = (error.problem, error.allowed);
            Failure::config(format!("{flag}: {problem}"))
                .with_allowed(allowed)
                .with_help(help)
        })
}
