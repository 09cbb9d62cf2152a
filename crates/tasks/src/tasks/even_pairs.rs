//! Even pairs: the answer to a string of bits is 0 if the number of unequal neighbours (`01` and
//! `10`) is even, 1 otherwise.
//!
//! Example: `BOS 0 0 1 1 1 0 SEP | 0 EOS`. The number is even exactly if the first bit equals the
//! last one, so two bits decide.
//!
//! Held out: by choices (the string itself).
//!
//! Source: even pairs of Ruoss et al. 2023 (arXiv 2305.16843).

use crate::symbols::{StringRule, SymbolTask, example};
use crate::{BuildContext, Task, TaskError, TaskSpec};
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

fn rule() -> StringRule {
    let answer = |w: &[i32]| vec![i32::from(w.first() != w.last())];
    StringRule {
        answer_len: |_| 1,
        ..StringRule::new("even_pairs", 2, answer)
    }
}

/// `kind = "even_pairs"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct EvenPairsConfig {
    /// Number of test rows at each length, 1 to 1000000; all rows of a length where there are
    /// fewer.
    #[default = 256]
    pub test_rows: u64,
}

impl TaskSpec for EvenPairsConfig {
    const SUMMARY: &'static str = "whether the number of unequal neighbours is odd";
    fn examples() -> Vec<String> {
        vec![
            example(&rule(), &[0, 0, 1, 1, 1, 0]),
            example(&rule(), &[0, 1, 1]),
        ]
    }
    fn build(&self, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
        SymbolTask::boxed(rule(), self.test_rows, ctx)
    }
}
