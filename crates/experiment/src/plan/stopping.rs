//! What `train.stop` asks of a run: when its scores are taken, how, what they cost, and mistakes.

use super::eval::eval_tokens;
use super::ranges::whole;
use super::task::check_drawn;
use crate::spec::scores::metric_names;
use crate::spec::test_lens::{TestLen, draws_lengths};
use crate::spec::{EvalSpec, RunSpec, Stage, StopSpec, TestLens, VariantSpec};
use config::axes::Cell;
use config::diagnostic::Diagnostic;
use posenc::EncodingConfig;
use records::metric::{BITS_PER_BYTE, LOSS_NATS, PERPLEXITY, is_share, lower_is_better};
use records::record::MOST_SCORES;
use tasks::{Rows, Scoring, Task};

impl RunSpec {
    /// Whether `train.stop` takes a score after this many steps. In stages that is in the last one:
    /// what is evaluated has its encoding.
    pub fn may_stop_after(&self, step: u64) -> bool {
        let train = &self.train;
        let due = |stop: &StopSpec| step.is_multiple_of(stop.every);
        step > before_last_stage(&train.stages)
            && step < train.steps
            && train.stop.as_ref().is_some_and(due)
    }

    /// How many scores `train.stop` takes at most.
    pub fn stop_scores(&self) -> u64 {
        let train = &self.train;
        train.stop.as_ref().map_or(0, |stop| {
            (train.steps - 1) / stop.every - before_last_stage(&train.stages) / stop.every
        })
    }

    /// The evaluation that `train.stop` decides by.
    pub fn stop_eval(&self) -> Option<EvalSpec> {
        let train_len = self.train.train_len;
        let test_len = match self.train.stop.as_ref()?.min_len {
            Some(from) => TestLen::Range(from, train_len),
            None => TestLen::One(train_len),
        };
        let trained = self.eval.variants.first()?;
        Some(EvalSpec {
            test_lens: vec![test_len].into(),
            rows: Rows::Selection,
            last_tokens: None,
            attention_distance: false,
            every: None,
            during: TestLens::default(),
            variants: vec![VariantSpec {
                name: trained.name.clone(),
                pe: vec![self.model.pe.clone()],
                positions: Vec::new(),
            }],
            ..self.eval.clone()
        })
    }
}

/// The steps before the last stage.
fn before_last_stage(stages: &[Stage]) -> u64 {
    let earlier = stages.split_last().map_or(&[][..], |(_, rest)| rest);
    earlier.iter().map(|stage| stage.steps).sum()
}

/// Tokens that the scores of `train.stop` read, at most: the training may end before.
pub(super) fn tokens(spec: &RunSpec, task: &dyn Task) -> u64 {
    let Some(eval) = spec.stop_eval() else {
        return 0;
    };
    let shape = spec.model.transformer.shape();
    let facts = |pe: &EncodingConfig| pe.facts(&shape);
    let of_one = eval_tokens(&eval, task, &spec.model.positions, facts);
    of_one.saturating_mul(spec.stop_scores())
}

/// The metrics of a task that may end a training.
fn known(task: &dyn Task) -> Vec<String> {
    let mut names = metric_names(task, None);
    if task.scoring() == Scoring::LanguageModel {
        names.push(PERPLEXITY.to_owned());
    }
    if task.bytes_per_token().is_some() {
        names.push(BITS_PER_BYTE.to_owned());
    }
    names
}

/// Refuses a stop that no training can come to.
pub(super) fn check(
    cell: &Cell,
    stop: Option<&StopSpec>,
    (steps, train_len): (u64, usize),
    task: &dyn Task,
) -> Result<(), Diagnostic> {
    let Some(stop) = stop else {
        return Ok(());
    };
    let (metric, names) = (&stop.metric, known(task));
    if !names.contains(metric) {
        let problem = format!("is not a metric of task `{}`", task.kind());
        let help = "name one that the task is scored by";
        return Err(cell.error("train.stop.metric", &problem, &names.join(", "), help));
    }
    check_bound(cell, stop)?;
    if let Some(from) = stop.min_len {
        let help = "leave it out to score rows of train_len alone";
        whole(
            cell,
            "train.stop.min_len",
            from as u64,
            1,
            train_len.saturating_sub(1) as u64,
            help,
        )?;
        if !draws_lengths(task) {
            let problem = format!(
                "is for tasks that generate their rows, but `{}` reads them from files",
                task.kind()
            );
            return Err(cell.error("train.stop.min_len", &problem, "no min_len", help));
        }
        check_drawn(cell, "train.stop.min_len", from, train_len, task)?;
    }
    let help = "the steps of the training from one score to the next";
    whole(cell, "train.stop.every", stop.every, 1, steps, help)?;
    let scores = steps / stop.every;
    if scores <= MOST_SCORES as u64 {
        return Ok(());
    }
    let problem = format!("makes {scores} scores in {steps} steps");
    let least = steps.div_ceil(MOST_SCORES as u64);
    let help = format!("set it to {least} or more");
    let allowed = format!("at most {MOST_SCORES} scores");
    Err(cell.error("train.stop.every", &problem, &allowed, &help))
}

/// Refuses a bound that is missing, on the side that every model is on, or out of range.
fn check_bound(cell: &Cell, stop: &StopSpec) -> Result<(), Diagnostic> {
    stop.check_ranges(cell)?;
    let metric = &stop.metric;
    let lowest = match metric.as_str() {
        PERPLEXITY => "the lowest perplexity is 1",
        LOSS_NATS | BITS_PER_BYTE => "the lowest loss is 0",
        _ => "a share is at most 1",
    };
    for (key, value) in [
        ("train.stop.at_least", stop.at_least),
        ("train.stop.at_most", stop.at_most),
    ] {
        let Some(value) = value else { continue };
        if is_share(metric) && key.ends_with("at_least") && value <= 0.0 {
            let problem = "would end the training at its first score";
            let error = cell.error(key, problem, "more than 0, at most 1", "write 0.95");
            return Err(error.with_value(value));
        }
        if is_share(metric) && value > 1.0 {
            let error = cell.error(key, "is out of range", "a number from 0 to 1", lowest);
            return Err(error.with_value(value));
        }
    }
    let key = match (stop.at_least, stop.at_most) {
        (Some(_), None) => "train.stop.at_least",
        (None, Some(_)) => "train.stop.at_most",
        (given, _) => {
            let problem = match given {
                Some(_) => "has two bounds, and only one is allowed",
                None => "has no bound that ends the training",
            };
            let right = match lower_is_better(metric) {
                true => "at_most",
                false => "at_least",
            };
            let help = format!("{metric} ends it by {right}");
            return Err(cell.error("train.stop", problem, "at_least or at_most", &help));
        }
    };
    let lower = lower_is_better(metric);
    if lower != stop.at_most.is_some() {
        let (better, right) = match lower {
            true => ("less", "at_most"),
            false => ("more", "at_least"),
        };
        let problem = format!("would end the training at once: {better} is better for {metric}");
        let help = format!("write train.stop.{right} instead");
        return Err(cell.error(key, &problem, right, &help));
    }
    Ok(())
}
