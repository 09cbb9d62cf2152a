//! The weights that trainings start from: where they are, and that they are still those of their
//! record.

use super::files::WEIGHTS_FILE;
use super::recorded::origin;
use crate::plan::planned::PlannedRun;
use crate::spec::Job;
use rundir::Weights;
use std::collections::HashSet;
use std::path::PathBuf;
use support::exit::Failure;

/// The file of weights that the training of a job starts from, none where they are drawn.
///
/// # Errors
///
/// [`Exit::Input`](support::exit::Exit::Input) if the job names no place of them.
fn start_file(job: &Job) -> Result<Option<PathBuf>, Failure> {
    let Some(start) = &job.spec.train.start_from else {
        return Ok(None);
    };
    let place = job
        .start_dir
        .as_deref()
        .ok_or_else(|| Failure::input("the job names no weights to start from"))?;
    Ok(Some(match start.run_id {
        Some(_) => place.join(WEIGHTS_FILE),
        None => place.to_owned(),
    }))
}

/// The weights that the training of a job starts from, if it does not draw them.
///
/// # Errors
///
/// [`Exit::Input`](support::exit::Exit::Input) if they cannot be read or are not those of their
/// record.
pub fn start_weights(job: &Job) -> Result<Option<Weights>, Failure> {
    let (Some(start), Some(file)) = (&job.spec.train.start_from, start_file(job)?) else {
        return Ok(None);
    };
    let read = Weights::load(&file, start.parameters, &start.weights_blake3);
    read.map(Some)
        .map_err(|error| Failure::input(format!("the weights to start from: {error:#}")))
}

/// Reads the weights that trainings start from, each file once.
///
/// # Errors
///
/// [`Exit::Input`](support::exit::Exit::Input) for the first run whose weights were never here, are
/// missing, or are not those of their record.
pub fn check_starts<'a>(runs: impl IntoIterator<Item = &'a PlannedRun>) -> Result<(), Failure> {
    let mut read = HashSet::new();
    for PlannedRun { job, .. } in runs {
        let (Some(start), Some(file)) = (&job.spec.train.start_from, start_file(job)?) else {
            continue;
        };
        if !read.insert((file, start.weights_blake3.clone())) {
            continue;
        }
        let name = job.name();
        if let Some(start) = &job.start_dir
            && let Some(place) = origin(start)
        {
            let start = start.display();
            return Err(Failure::input(format!(
                "{name}: starts from the weights of {start}, whose record was copied from {place} \
                 without weights"
            ))
            .with_allowed("a run that was trained here")
            .with_help(format!(
                "remove {start} and run its config without --recorded: the weights are the same \
                 bytes on the same build"
            )));
        }
        start_weights(job).map_err(|failure| {
            let help = "name another run or file, or remove that run and run its config again: the \
                        weights are the same bytes on the same build";
            Failure::new(
                failure.exit,
                format!(
                    "{name}: {}\n  = key: train.start_from\n  = help: {help}",
                    failure.message
                ),
            )
        })?;
    }
    Ok(())
}
