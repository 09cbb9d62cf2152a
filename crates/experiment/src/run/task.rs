//! The task of a job, with the text that the job was planned with.

use crate::plan::job_check::JobConfig;
use crate::plan::surroundings::Surroundings;
use crate::spec::{Job, RunSpec};
use config::diagnostic::Diagnostic;
use std::collections::HashMap;
use std::rc::Rc;
use support::exit::Failure;
use tasks::{Rows, Task, TaskError};

/// How a corpus is found again.
const MOVED: &str = "if the config and its corpus have moved, `longreach run` from their new place \
                     writes it down; `eval` and `verify` also take --config-dir";

/// Tasks that are built already: runs that read the same text have it in memory once.
#[derive(Default)]
pub struct Tasks(HashMap<String, Rc<dyn Task>>);

impl Tasks {
    /// The task of a job for these test lengths. Checks that the job is one that a config can ask
    /// for, and that it reads the text it was planned with.
    ///
    /// # Errors
    ///
    /// [`Exit::Input`](support::exit::Exit::Input) if the job cannot be run, a corpus is missing or
    /// has changed; [`Exit::Config`](support::exit::Exit::Config) if the task has no sequence of a
    /// length.
    pub fn task(&mut self, job: &Job, test_lens: &[usize]) -> Result<Rc<dyn Task>, Failure> {
        let refused = |error| refused(job, error);
        // First: what follows relies on these bounds.
        let written = JobConfig::of(job).map_err(refused)?;
        let task = self.built(job, test_lens, job.spec.eval.rows)?;
        written.check(job, task.as_ref()).map_err(refused)?;
        Ok(task)
    }

    /// The task whose scores `train.stop` decides by, if it is given: the job's on selection rows.
    ///
    /// # Errors
    ///
    /// As [`Self::task`].
    pub fn stop_task(&mut self, job: &Job) -> Result<Option<Rc<dyn Task>>, Failure> {
        let eval = job.spec.stop_eval();
        let task = eval.map(|eval| self.built(job, &eval.test_lens.of_rows(), eval.rows));
        task.transpose()
    }

    /// A task of a job, which reads the text that the job was planned with.
    fn built(
        &mut self,
        job: &Job,
        test_lens: &[usize],
        rows: Rows,
    ) -> Result<Rc<dyn Task>, Failure> {
        let RunSpec {
            task,
            corpus_blake3,
            model,
            train,
            eval,
            ..
        } = &job.spec;
        // Everything that `build` reads, and the text that it has to find.
        let key = format!(
            "{task:?} {corpus_blake3:?} {} {test_lens:?} {} {rows:?} {:?} {:?}",
            train.train_len, eval.seed, model.transformer.mask, job.config_dir
        );
        if let Some(task) = self.0.get(&key) {
            return Ok(task.clone());
        }
        let task: Rc<dyn Task> = build(job, test_lens, rows)?.into();
        self.0.insert(key, task.clone());
        Ok(task)
    }
}

/// The task of one job: [`Tasks::task`].
///
/// # Errors
///
/// As there.
pub fn build_task(job: &Job, test_lens: &[usize]) -> Result<Rc<dyn Task>, Failure> {
    Tasks::default().task(job, test_lens)
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

/// A task with the text that its job was planned with.
fn build(job: &Job, test_lens: &[usize], rows: Rows) -> Result<Box<dyn Task>, Failure> {
    let spec = &job.spec;
    let task = attempt(job, test_lens, rows).map_err(|error| {
        if matches!(error, TaskError::Input { .. }) {
            Failure::input(error).with_help(MOVED)
        } else {
            Failure::config(error)
        }
    })?;
    // The spec only names a corpus; the hash stands for its text.
    let found = task.corpus().map(|corpus| corpus.blake3.clone());
    if found != spec.corpus_blake3 {
        let [found, planned] = [found, spec.corpus_blake3.clone()]
            .map(|hash| hash.unwrap_or_else(|| "none".to_owned()));
        return Err(Failure::input(format!(
            "the corpus changed since the run was planned: hash {found} instead of {planned}"
        ))
        .with_note(format!(
            "its files are relative to {}",
            job.config_dir.display()
        ))
        .with_help(format!(
            "restore them, or run the config again: other text makes other runs; {MOVED}"
        )));
    }
    Ok(task)
}

fn refused(job: &Job, error: Diagnostic) -> Failure {
    let error = error.with_help("`longreach run` with its config writes it anew");
    let message = format!("the job of run {} cannot be run: {error}", job.run_id);
    Failure::input(message)
}
