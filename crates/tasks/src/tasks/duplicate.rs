//! Duplicate: the answer to w is w twice.
//!
//! Example (2 symbols): `BOS 1 0 1 SEP | 1 0 1 1 0 1 EOS`.
//!
//! Held out: by choices (the string itself).
//!
//! Source: duplicate string of Ruoss et al. 2023 (arXiv 2305.16843; 2 symbols there); the alphabet
//! is a parameter here (16 unless set, as for copy).

use crate::symbols::{StringRule, SymbolTask, check_alphabet, example};
use crate::{BuildContext, Task, TaskError, TaskSpec};
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

fn rule(alphabet: u64) -> StringRule {
    StringRule {
        answer_len: |n| 2 * n,
        ..StringRule::new("duplicate", alphabet, |w| w.repeat(2))
    }
}

/// `kind = "duplicate"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct DuplicateConfig {
    /// Number of different symbols, 2 to 4096.
    #[default = 16]
    pub alphabet: u64,
    /// Number of test rows at each length, 1 to 1000000; all rows of a length where there are
    /// fewer.
    #[default = 256]
    pub test_rows: u64,
}

impl TaskSpec for DuplicateConfig {
    const SUMMARY: &'static str = "write the string twice";
    fn examples() -> Vec<String> {
        vec![
            example(&rule(16), &[1, 0, 1]),
            example(&rule(16), &[7, 15, 2]),
        ]
    }
    fn build(&self, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
        check_alphabet(self.alphabet)?;
        SymbolTask::boxed(rule(self.alphabet), self.test_rows, ctx)
    }
}
