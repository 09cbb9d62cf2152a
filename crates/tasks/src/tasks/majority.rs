//! Majority: the answer to a string of bits is 1 if it has more ones than zeros, 0 otherwise; a tie
//! is 0.
//!
//! Example: `BOS 1 0 1 1 0 SEP | 1 EOS`. Bits are uniform, so at even lengths 0 is the answer of
//! more than half of the rows.
//!
//! Held out: by choices (the string itself).
//!
//! Source: the majority task of formal-language studies of transformers (for one, zoology, arXiv
//! 2312.04927); it leaves ties open, and the choice above is this project's.

use crate::symbols::{HeldOut, StringRule, SymbolTask, example};
use crate::{BuildContext, Task, TaskError, TaskSpec};
use serde::{Deserialize, Serialize};

fn rule() -> StringRule {
    StringRule {
        kind: "majority",
        alphabet: 2,
        answers: 2,
        answer: Box::new(|w| {
            vec![i32::from(
                2 * w.iter().filter(|&&bit| bit == 1).count() > w.len(),
            )]
        }),
        answer_len: |_| 1,
        held_out: HeldOut::ByChoices,
    }
}

/// `kind = "majority"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MajorityConfig {
    /// Number of test rows at each length, 1 to 1000000; all rows of a length where there are
    /// fewer.
    pub test_rows: u64,
}

impl Default for MajorityConfig {
    fn default() -> Self {
        Self { test_rows: 256 }
    }
}

impl TaskSpec for MajorityConfig {
    const SUMMARY: &'static str = "whether there are more ones than zeros";
    fn examples() -> Vec<String> {
        vec![
            example(&rule(), &[1, 0, 1, 1, 0]),
            example(&rule(), &[1, 0]),
        ]
    }
    fn build(&self, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
        Ok(Box::new(SymbolTask::new(rule(), self.test_rows, ctx)?))
    }
}
