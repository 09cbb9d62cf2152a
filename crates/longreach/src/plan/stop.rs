//! `train.stop` as a specification holds it.

use serde::{Deserialize, Serialize};

/// Ends a training once a score at the training length, on selection rows and under the trained
/// encoding, reaches a bound. The learning rate follows the schedule of all steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StopSpec {
    /// The score, stored or derived.
    pub metric: String,
    /// It ends the training from this value on, where more is better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
    /// It ends the training up to this value, where less is better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
    /// Steps from one score to the next.
    pub every: u64,
}

impl StopSpec {
    /// Whether a score ends the training; one that is not finite never does.
    pub fn is_met(&self, score: Option<f64>) -> bool {
        score.is_some_and(|score| {
            self.at_least.is_none_or(|bound| score >= bound)
                && self.at_most.is_none_or(|bound| score <= bound)
        })
    }
}
