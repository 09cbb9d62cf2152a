//! `timings.json`: how long a run took and how much memory, on the machine that ran it. It is not
//! part of a record, which does not depend on the machine.

use schema::is_default;
use serde::{Deserialize, Serialize};

/// Wall-clock figures of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timings {
    /// Seconds of training, without the scores taken on the way, in the process that ended it.
    pub train_secs: f64,
    /// The step at which that process began; 0 if it trained from the first step on.
    #[serde(default, skip_serializing_if = "is_default")]
    pub resumed_at_step: u64,
    /// Seconds of those scores.
    #[serde(default, skip_serializing_if = "is_default")]
    pub score_secs: f64,
    /// Tokens that it trained on per second.
    pub train_tokens_per_sec: f64,
    /// Seconds of evaluation.
    pub eval_secs: f64,
    /// Each evaluation.
    pub evals: Vec<EvalTiming>,
    /// Largest resident memory in training, if the system reports it.
    pub train_peak_memory_bytes: Option<u64>,
    /// Estimate of the same.
    pub train_estimated_memory_bytes: u64,
    /// What changed on the way: a resume under another program, checkpoints that were skipped.
    pub notes: Vec<String>,
    /// The device, with its number.
    pub device: String,
    /// Threads of the CPU backend.
    pub threads: usize,
    /// Runs that were trained as one batched model: the figures of training are those of all of
    /// them. 0 where it was trained alone.
    #[serde(default, skip_serializing_if = "is_default")]
    pub runs_together: usize,
}

/// Wall-clock figures of one evaluation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EvalTiming {
    /// The variant.
    pub variant: String,
    /// The length, in the task's unit.
    pub test_len: usize,
    /// Seconds.
    pub secs: f64,
    /// Largest resident memory during it, if the system reports it.
    pub peak_memory_bytes: Option<u64>,
    /// Estimate of the same.
    pub estimated_memory_bytes: u64,
}
