//! The table of the task.

use super::languages::Language;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;
use std::collections::BTreeMap;

/// What is asked about a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AutomatonAnswer {
    /// Whether it is accepted, after all of it.
    Accept,
    /// The state after each symbol, at the symbol.
    States,
}

/// `kind = "automaton"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct AutomatonConfig {
    /// The language, by its name.
    #[default(Language::FlipFlop)]
    pub language: Language,
    /// What is asked about a word.
    #[default(AutomatonAnswer::Accept)]
    pub answer: AutomatonAnswer,
    /// Number of test rows at each length, 1 to 1000000; half of them accepted. A length whose
    /// words all have one answer has half as many.
    #[default = 256]
    pub test_rows: u64,
    /// The alphabet of `own`: 1 to 64 names, each of 1 to 32 ASCII letters, digits, `_` and `-`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub symbols: Vec<String>,
    /// The states of `own`: 1 to 64 names as in `symbols`, each of which some word leads to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<String>,
    /// The state of `own` before the first symbol.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub start: String,
    /// The states of `own` in which a word is accepted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub accepting: Vec<String>,
    /// The next state of `own` for every state and symbol: `transitions.even = { a = "odd", b =
    /// "even" }`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub transitions: BTreeMap<String, BTreeMap<String, String>>,
}

impl AutomatonConfig {
    /// The first key that belongs to `language = "own"` alone.
    pub(super) fn own_key(&self) -> Option<&'static str> {
        let keys = [
            ("symbols", self.symbols.is_empty()),
            ("states", self.states.is_empty()),
            ("start", self.start.is_empty()),
            ("accepting", self.accepting.is_empty()),
            ("transitions", self.transitions.is_empty()),
        ];
        let given = keys.into_iter().find(|(_, is_empty)| !is_empty);
        given.map(|(key, _)| key)
    }
}
