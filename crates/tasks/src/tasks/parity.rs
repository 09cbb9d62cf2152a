//! Parity: the answer to a string of bits is 1 if its number of ones is odd, 0 otherwise.
//!
//! Example: `BOS 1 0 1 0 1 0 0 SEP | 1 EOS`.
//!
//! Held out: by choices (the string itself).
//!
//! Source: parity check of Ruoss et al. 2023 (arXiv 2305.16843).

use crate::symbols::{HeldOut, StringRule, SymbolTask, example};
use crate::{BuildContext, Task, TaskError, TaskSpec};
use serde::{Deserialize, Serialize};

fn rule() -> StringRule {
    StringRule {
        kind: "parity",
        alphabet: 2,
        answers: 2,
        answer: Box::new(|w| vec![w.iter().sum::<i32>() % 2]),
        answer_len: |_| 1,
        held_out: HeldOut::ByChoices,
    }
}

/// `kind = "parity"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ParityConfig {
    /// Number of test rows at each length, 1 to 1000000; all rows of a length where there are
    /// fewer.
    pub test_rows: u64,
}

impl Default for ParityConfig {
    fn default() -> Self {
        Self { test_rows: 256 }
    }
}

impl TaskSpec for ParityConfig {
    const SUMMARY: &'static str = "whether the number of ones is odd";
    fn examples() -> Vec<String> {
        vec![
            example(&rule(), &[1, 0, 1, 0, 1, 0, 0]),
            example(&rule(), &[0, 1, 1, 1, 1]),
        ]
    }
    fn build(&self, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
        Ok(Box::new(SymbolTask::new(rule(), self.test_rows, ctx)?))
    }
}
