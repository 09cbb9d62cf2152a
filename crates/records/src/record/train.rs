//! How a training went, as a record holds it.

use super::{EvalRow, check_rows};
use serde::{Deserialize, Serialize};

/// Most [`TrainFacts::scores`] of one record.
pub const MOST_SCORES: usize = 10_000;

/// How the training went.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainFacts {
    /// Steps taken: those of the spec, or fewer where the run diverged or `train.stop` ended it.
    pub steps: u64,
    /// Tokens seen by the model.
    pub tokens: u64,
    /// Mean loss over the last tenth of the steps, nats per counted token; absent after
    /// divergence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub final_loss_nats: Option<f64>,
    /// Loss curve, thinned to at most a few hundred points: step and mean loss since the point
    /// before.
    pub loss_curve: Vec<CurvePoint>,
    /// Scores while training, where `eval.every` asks for them: ascending by step, the last step's
    /// being those of the final evaluation, which a training that diverged lacks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scores: Vec<StepScores>,
    /// The scores that `train.stop` decided by, ascending by step. A training that it ended has as
    /// many steps as the last of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stop_scores: Vec<StopScore>,
}

/// A score that decided whether a training ends.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StopScore {
    /// Number of steps done.
    pub step: u64,
    /// The metric of `train.stop`; none where it was not finite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
}

/// The scores after a number of steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepScores {
    /// Number of steps done.
    pub step: u64,
    /// The encoding as trained at each length of `eval.during`, without losses by position.
    pub rows: Vec<EvalRow>,
}

impl TrainFacts {
    /// Checks the rules of [`scores`](Self::scores) and [`stop_scores`](Self::stop_scores).
    pub(super) fn check_scores(&self) -> Result<(), String> {
        let count: usize = self.scores.iter().map(|at| at.rows.len()).sum();
        if count > MOST_SCORES {
            return Err(format!(
                "{count} scores while training; at most {MOST_SCORES}"
            ));
        }
        let mut before = 0;
        for StepScores { step, rows } in &self.scores {
            if *step <= before || *step > self.steps {
                return Err(format!(
                    "train.scores: step {step} after step {before} of {}",
                    self.steps
                ));
            }
            before = *step;
            check_rows(rows).map_err(|wrong| format!("train.scores: step {step}: {wrong}"))?;
        }
        if self.stop_scores.len() > MOST_SCORES {
            return Err(format!("more than {MOST_SCORES} train.stop_scores"));
        }
        let mut before = 0;
        for StopScore { step, .. } in &self.stop_scores {
            if *step <= before || *step > self.steps {
                return Err(format!(
                    "train.stop_scores: step {step} after step {before} of {}",
                    self.steps
                ));
            }
            before = *step;
        }
        Ok(())
    }
}

/// A point of the loss curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CurvePoint {
    /// Number of steps done.
    pub step: u64,
    /// Mean loss since the point before, nats per counted token.
    pub loss_nats: f64,
}
