//! Whether the step log holds every step, and the record agrees with it.

use super::Subject;
use experiment::run::train::{self, final_loss, thin};
use experiment::spec::RunSpec;
use records::range::ROUNDING_NATS;
use records::record::RunStatus;
use rundir::steplog::{self, LOG_FILE, Step};
use tasks::Task;

/// The log holds every step, and the record agrees with it.
pub(super) fn check(run: &Subject<'_>, task: Option<&dyn Task>) -> Vec<String> {
    let Subject {
        directory,
        job,
        record,
    } = run;
    let steps = match steplog::read_whole(directory, job.spec.train.steps) {
        Ok(steps) => steps,
        Err(error) => return vec![format!("{error:#}")],
    };
    let mut wrong = Vec::new();
    if steps.len() as u64 != record.train.steps {
        wrong.push(format!(
            "{LOG_FILE} holds {} steps, the record {}",
            steps.len(),
            record.train.steps
        ));
    }
    let losses: Vec<f64> = steps.iter().map(|step| step.loss_nats).collect();
    if thin(&losses) != record.train.loss_curve {
        wrong.push(format!(
            "the loss curve of the record is not that of {LOG_FILE}"
        ));
    }
    if steps
        .last()
        .is_some_and(|last| last.tokens != record.train.tokens)
    {
        wrong.push(format!(
            "the record counts {} tokens, {LOG_FILE} {}",
            record.train.tokens,
            steps.last().map_or(0, |last| last.tokens)
        ));
    }
    let final_loss = (record.status == RunStatus::Ok).then(|| final_loss(&losses));
    if record.train.final_loss_nats != final_loss {
        wrong.push(format!(
            "the final loss of the record is not that of {LOG_FILE}"
        ));
    }
    let bytes = rundir::read::bounded(&directory.join(LOG_FILE), u64::MAX).unwrap_or_default();
    let hash = blake3::hash(&bytes).to_hex();
    if record
        .seal
        .as_ref()
        .is_some_and(|seal| seal.steps_blake3 != hash.as_str())
    {
        wrong.push(format!(
            "{LOG_FILE} was changed: it does not match the seal of the record"
        ));
    }
    wrong.extend(first_wrong_step(&job.spec, &steps, task));
    wrong
}

/// The first line that holds what no step can, or what its spec does not give.
fn first_wrong_step(spec: &RunSpec, steps: &[Step], task: Option<&dyn Task>) -> Option<String> {
    let mut tokens = 0;
    for (index, step) in (0..).zip(steps) {
        let line = index + 1;
        if !(step.loss_nats >= -ROUNDING_NATS && step.grad_norm >= 0.0) {
            return Some(format!(
                "step {line} of {LOG_FILE} has a loss or a gradient norm below 0"
            ));
        }
        let lr = spec.train.lr_at(index);
        if step.lr != lr {
            return Some(format!(
                "step {line} of {LOG_FILE} has a learning rate of {}, the spec gives {lr}",
                step.lr
            ));
        }
        let Some(task) = task else { continue };
        tokens += train::tokens(spec, task, index);
        if step.tokens != tokens {
            return Some(format!(
                "step {line} of {LOG_FILE} counts {} tokens, the spec gives {tokens}",
                step.tokens
            ));
        }
    }
    None
}
