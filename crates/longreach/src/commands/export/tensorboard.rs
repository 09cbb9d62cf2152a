//! Event files of TensorBoard, one directory for each run.

use experiment::runs_on_disk::timings::timings;
use records::tensorboard::{TrainStep, plain_name, run_directory, run_events};
use records::{Found, RunRecord};
use rundir::steplog;
use std::path::{Path, PathBuf};
use support::exit::Failure;

/// Writes one file for each record and returns their number.
pub fn write(found: &Found, out: &Path) -> Result<usize, Failure> {
    for (record, directory) in found.records.iter().zip(&found.directories) {
        // A later evaluation repeats the training of its run.
        let directory = directory.as_deref();
        let of_training = directory.filter(|_| record.evaluation_of.is_none());
        let secs = of_training
            .and_then(timings)
            .filter(|timings| timings.resumed_at_step == 0)
            .map(|timings| timings.train_secs);
        let steps = of_training
            .map(|run| steps(run, record))
            .unwrap_or_default();
        let events = run_events(record, &steps, secs.filter(|secs| *secs > 0.0));
        rundir::system().write_named(&out.join(place(record)), &events.into_bytes())?;
    }
    Ok(found.records.len())
}

/// The step log of a run; empty where it is missing or damaged, and the record's loss curve stands
/// in.
fn steps(run: &Path, record: &RunRecord) -> Vec<TrainStep> {
    let steps = steplog::read_whole(run, record.train.steps).unwrap_or_default();
    let finite = steps.into_iter().filter(|step| step.loss_nats.is_finite());
    finite
        .map(|step| TrainStep {
            step: step.step,
            loss_nats: step.loss_nats,
            rate_and_norm: Some((step.lr, step.grad_norm)),
        })
        .collect()
}

/// `EXPERIMENT/METHOD-seed-N-RUN_ID/events.out.tfevents.0.longreach`: TensorBoard names a run by
/// its directory, and knows its files by `tfevents`. A later evaluation, whose id may be that of
/// another run, also names the run that it evaluates.
fn place(record: &RunRecord) -> PathBuf {
    let of = record.evaluation_of.as_ref();
    let of = of.map_or_else(String::new, |of| format!("-of-{of}"));
    let id = format!("{}{of}", record.run_id);
    PathBuf::from(plain_name(&record.experiment))
        .join(run_directory(&record.labels, record.seed, &id))
        .join("events.out.tfevents.0.longreach")
}
