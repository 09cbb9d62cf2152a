//! The range of every number of a record: what no training and no evaluation can give.

use crate::metric::{self, LAST_LOSS_NATS, LOSS_NATS};
use crate::record::{Metric, RunRecord};
use crate::text;
use std::collections::BTreeMap;

/// How far below zero rounding may put a mean loss: logarithms are approximate on some devices.
pub const ROUNDING_NATS: f64 = 1e-3;
/// Largest number of items that a mean can be over: more tokens than any test reads.
const MOST_ITEMS: u64 = 1 << 50;

impl RunRecord {
    /// Checks that every number is possible: shares from 0 to 1, losses from 0, means over at least
    /// one item.
    pub fn check_ranges(&self) -> Result<(), String> {
        let train = &self.train;
        let curve = train.loss_curve.iter().map(|point| point.loss_nats);
        for loss in curve.chain(train.final_loss_nats) {
            if !is_loss(loss) {
                return Err(format!("train: a loss of {loss} nats, which is below 0"));
            }
        }
        let while_training = train.scores.iter().flat_map(|at| &at.rows);
        for row in while_training.chain(&self.evals) {
            let at = || {
                let variant = text::name(&row.variant, 40);
                format!("{variant} at {}", row.test_len)
            };
            check_metrics(&row.metrics).map_err(|problem| format!("{}: {problem}", at()))?;
            let bins = row.loss_by_position.iter().map(|bin| bin.loss_nats);
            let mut losses = bins.chain(row.loss_by_block.iter().copied());
            if let Some(loss) = losses.find(|loss| !is_loss(*loss)) {
                return Err(format!("{}: a loss of {loss} nats, below 0", at()));
            }
        }
        for (name, chance) in &self.task.chance {
            let chance = Metric {
                value: *chance,
                n: 1,
            };
            check_metric(name, chance).map_err(|problem| format!("task.chance: {problem}"))?;
        }
        Ok(())
    }
}

fn is_loss(nats: f64) -> bool {
    nats >= -ROUNDING_NATS
}

fn check_metrics(metrics: &BTreeMap<String, Metric>) -> Result<(), String> {
    metrics
        .iter()
        .try_for_each(|(name, metric)| check_metric(name, *metric))
}

fn check_metric(name: &str, Metric { value, n }: Metric) -> Result<(), String> {
    let shown = || text::name(name, 40);
    if n == 0 || n > MOST_ITEMS {
        return Err(format!("{} is a mean over {n} items", shown()));
    }
    let Some(def) = metric::find(name) else {
        return Ok(());
    };
    let is_share = def.is_share || [metric::BLIND, metric::SEMANTIC_SCORE].contains(&def.name);
    if is_share && !(0.0..=1.0).contains(&value) {
        return Err(format!("{} is {value}, not a share from 0 to 1", shown()));
    }
    let is_below = match def.name {
        LOSS_NATS | LAST_LOSS_NATS => !is_loss(value),
        metric::ATTENTION_DISTANCE
        | metric::POSITIONAL_SCORE
        | metric::PERPLEXITY
        | metric::BITS_PER_BYTE => value < 0.0,
        _ => false,
    };
    if is_below {
        return Err(format!("{} is {value}, which is below 0", shown()));
    }
    Ok(())
}
