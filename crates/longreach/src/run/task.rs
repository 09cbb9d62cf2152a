//! The task of a job, with the text that the job was planned with.

use crate::exit::{Exit, Failure};
use crate::plan::spec::Job;
use crate::plan::surroundings::Surroundings;
use tasks::Task;

/// Builds the task of a job for these test lengths and checks that it reads the text the job was
/// planned with.
///
/// # Errors
///
/// [`Exit::Input`] if a corpus is missing or has changed, [`Exit::Config`] if the task has no
/// sequence of a length.
pub fn build_task(job: &Job, test_lens: &[usize]) -> Result<Box<dyn Task>, Failure> {
    let spec = &job.spec;
    let built = Surroundings::of(&job.config_dir).build(
        &spec.task,
        spec.train.train_len,
        test_lens,
        spec.eval.seed,
    );
    let task = built.map_err(|error| {
        let exit = if matches!(error, tasks::TaskError::Input { .. }) {
            Exit::Input
        } else {
            Exit::Config
        };
        Failure::new(exit, error.to_string())
    })?;
    // The spec only names a corpus; the hash stands for its text.
    let found = task.corpus().map(|corpus| corpus.blake3.clone());
    if found != spec.corpus_blake3 {
        let [found, planned] = [found, spec.corpus_blake3.clone()]
            .map(|hash| hash.unwrap_or_else(|| "none".to_owned()));
        return Err(Failure::input(format!(
            "the corpus changed since the run was planned: hash {found} instead of {planned}"
        )));
    }
    Ok(task)
}
