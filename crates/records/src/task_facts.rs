//! What a record says of its task and of the text behind it.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Facts about the task that a report needs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskFacts {
    /// `copy`, `reverse`, `text`, ...
    pub kind: String,
    /// Longest length trained on, in the task's unit.
    pub train_len: usize,
    /// What a length counts, such as `bytes` or `symbols`.
    pub unit: String,
    /// Metric the report leads with, such as `loss_nats` or `exact_match`.
    pub primary_metric: String,
    /// Metric definitions to print beside the tables: name and one sentence.
    pub definitions: BTreeMap<String, String>,
    /// Score of guessing, by metric, where it is defined.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub chance: BTreeMap<String, f64>,
    /// Bytes per token where bits per byte make sense (1 for byte-level text).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_token: Option<f64>,
    /// The text that is scored, where all of it is: the same at every length. Absent in other
    /// tasks, and where the configuration says how much is scored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scored: Option<ScoredText>,
    /// The text trained and tested on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corpus: Option<CorpusFacts>,
}

/// Identity of a text corpus.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CorpusFacts {
    /// As named in the config: `cargo` or globs.
    pub source: String,
    /// Number of files.
    pub files: usize,
    /// Bytes in the training split.
    pub train_bytes: u64,
    /// Bytes in the validation split.
    pub valid_bytes: u64,
    /// BLAKE3 of both splits with their sizes, lower-case hex.
    pub blake3: String,
}

/// How much of a validation split is scored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScoredText {
    /// Consecutive tokens, each scored once; of masked text those that are read.
    pub tokens: u64,
    /// Their bytes, where they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}
