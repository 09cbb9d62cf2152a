//! The task of a job, with the text that the job was planned with.

use crate::plan::job_check::JobConfig;
use crate::plan::surroundings::Surroundings;
use crate::spec::{Job, RunSpec};
use config::diagnostic::Diagnostic;
use std::rc::Rc;
use support::exit::{Exit, Failure};
use tasks::{Rows, Task, TaskError};

/// How a corpus is found again.
const MOVED: &str = "if the config and its corpus have moved, `longreach run` from their new place \
                     writes it down; `eval` and `verify` also take --config-dir";

/// Builds the task of a job for these test lengths. Checks that the job is one that a config can
/// ask for, and that it reads the text it was planned with.
///
/// # Errors
///
/// [`Exit::Input`] if the job cannot be run, a corpus is missing or has changed;
/// [`Exit::Config`] if the task has no sequence of a length.
pub fn build_task(job: &Job, test_lens: &[usize]) -> Result<Box<dyn Task>, Failure> {
    let spec = &job.spec;
    let refused = |error| refused(job, error);
    // First: what follows relies on these bounds.
    let written = JobConfig::of(job).map_err(refused)?;
    let task = built(job, test_lens, spec.eval.rows)?;
    written.check(job, task.as_ref()).map_err(refused)?;
    Ok(task)
}

/// The task whose scores `train.stop` decides by, if it is given: the job's on selection rows.
///
/// # Errors
///
/// As [`build_task`].
pub fn build_stop_task(job: &Job) -> Result<Option<Box<dyn Task>>, Failure> {
    let Some(eval) = job.spec.stop_eval() else {
        return Ok(None);
    };
    built(job, &eval.test_lens.ends(), eval.rows).map(Some)
}

/// Whether the tasks of `train.stop` of two jobs are the same.
pub fn shares_stop_task(job: &Job, other: &Job) -> bool {
    let (spec, its) = (&job.spec, &other.spec);
    let with_stop = [spec, its].iter().all(|spec| spec.train.stop.is_some());
    let lengths = |spec: &RunSpec| spec.stop_eval().map(|eval| eval.test_lens);
    with_stop
        && lengths(spec) == lengths(its)
        && job.config_dir == other.config_dir
        && spec.task == its.task
        && spec.corpus_blake3 == its.corpus_blake3
        && spec.train.train_len == its.train.train_len
        && spec.eval.seed == its.eval.seed
}

/// Why the task of a job has no sequences of these lengths.
pub fn refusal(job: &Job, test_lens: &[usize]) -> Option<TaskError> {
    attempt(job, test_lens, job.spec.eval.rows).err()
}

fn attempt(job: &Job, test_lens: &[usize], rows: Rows) -> Result<Box<dyn Task>, TaskError> {
    let spec = &job.spec;
    Surroundings::of(&job.config_dir).build(
        &spec.task,
        spec.train.train_len,
        test_lens,
        spec.eval.seed,
        rows,
        spec.model.transformer.mask,
    )
}

/// A task of a job, which reads the text that the job was planned with.
fn built(job: &Job, test_lens: &[usize], rows: Rows) -> Result<Box<dyn Task>, Failure> {
    let spec = &job.spec;
    let task = attempt(job, test_lens, rows).map_err(|error| {
        let exit = if matches!(error, TaskError::Input { .. }) {
            Exit::Input
        } else {
            Exit::Config
        };
        let message = match exit {
            Exit::Input => format!("{error}\n  = help: {MOVED}"),
            _ => error.to_string(),
        };
        Failure::new(exit, message)
    })?;
    // The spec only names a corpus; the hash stands for its text.
    let found = task.corpus().map(|corpus| corpus.blake3.clone());
    if found != spec.corpus_blake3 {
        let [found, planned] = [found, spec.corpus_blake3.clone()]
            .map(|hash| hash.unwrap_or_else(|| "none".to_owned()));
        return Err(Failure::input(format!(
            "the corpus changed since the run was planned: hash {found} instead of {planned}\n  = \
             help: {MOVED}"
        )));
    }
    Ok(task)
}

/// The task of another job, checked for this one, if the two are the same: a corpus is then in
/// memory once.
pub fn shared_task(
    job: &Job,
    (other, task): (&Job, &Rc<dyn Task>),
) -> Option<Result<Rc<dyn Task>, Failure>> {
    let (spec, its) = (&job.spec, &other.spec);
    let is_same = job.config_dir == other.config_dir
        && spec.task == its.task
        && spec.corpus_blake3 == its.corpus_blake3
        && spec.train.train_len == its.train.train_len
        && spec.eval.test_lens == its.eval.test_lens
        && spec.eval.seed == its.eval.seed
        && spec.eval.rows == its.eval.rows
        && spec.model.transformer.mask == its.model.transformer.mask;
    let checked = || {
        let written = JobConfig::of(job)?;
        written.check(job, task.as_ref())?;
        Ok(task.clone())
    };
    is_same.then(|| checked().map_err(|error| refused(job, error)))
}

fn refused(job: &Job, error: Diagnostic) -> Failure {
    let error = error.with_help("`longreach run` with its config writes it anew");
    let message = format!("the job of run {} cannot be run: {error}", job.run_id);
    Failure::input(message)
}
