//! Reverse: the answer to w is w from its last symbol to its first.
//!
//! Example (2 symbols): `BOS 0 1 1 SEP | 1 1 0 EOS`.
//!
//! Held out: nothing, as in the earliest records.
//!
//! Sources: reverse string of Ruoss et al. 2023 (arXiv 2305.16843; 2 symbols there) and the reverse
//! tasks of Kazemnejad et al. 2023 (arXiv 2305.19466); the alphabet is a parameter here (16 unless
//! set).

use crate::symbols::{HeldOut, StringRule, SymbolTask, check_alphabet, example};
use crate::{BuildContext, Task, TaskError, TaskSpec};
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

fn rule(alphabet: u64) -> StringRule {
    // Not held out: the rows of the earliest records, which published numbers rest on.
    StringRule {
        held_out: HeldOut::No,
        ..StringRule::new("reverse", alphabet, |w| w.iter().rev().copied().collect())
    }
}

/// `kind = "reverse"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct ReverseConfig {
    /// Number of different symbols, 2 to 4096.
    #[default = 16]
    pub alphabet: u64,
    /// Number of test strings at each length, 1 to 1000000; all strings of a length where there
    /// are fewer.
    #[default = 256]
    pub test_rows: u64,
}

impl TaskSpec for ReverseConfig {
    const SUMMARY: &'static str = "write the string backwards";
    fn examples() -> Vec<String> {
        vec![
            example(&rule(16), &[0, 1, 1, 0, 1, 0]),
            example(&rule(16), &[7, 15, 2]),
        ]
    }
    fn build(&self, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
        check_alphabet(self.alphabet)?;
        SymbolTask::boxed(rule(self.alphabet), self.test_rows, ctx)
    }
}
