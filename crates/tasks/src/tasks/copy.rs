//! Copy: the answer to w is w.
//!
//! Example (2 symbols): `BOS 1 0 1 SEP | 1 0 1 EOS`.
//!
//! With `distinct = true` no symbol occurs twice in a string, so that lengths are at most the
//! alphabet.
//!
//! Held out: nothing, as in the earliest records; distinct symbols by choices (the string itself).
//!
//! Sources: the copy tasks of Kazemnejad et al. 2023 (arXiv 2305.19466) and Jelassi et al. 2024
//! (arXiv 2402.01032); the alphabet is a parameter here (16 unless set; 2 in DeepMind's string
//! tasks, 26 in Jelassi et al., 100 in Kazemnejad et al.). Distinct symbols: Huang et al. 2025
//! (arXiv 2410.02140), 150 of them.

use crate::symbols::{HeldOut, StringRule, SymbolTask, check_alphabet, check_distinct, example};
use crate::{BuildContext, Task, TaskError, TaskSpec};
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

fn rule(alphabet: u64, distinct: bool) -> StringRule {
    StringRule {
        // Plain rows are those of the earliest records, which published numbers rest on.
        held_out: if distinct {
            HeldOut::ByChoices
        } else {
            HeldOut::No
        },
        distinct,
        ..StringRule::new("copy", alphabet, <[i32]>::to_vec)
    }
}

/// `kind = "copy"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct CopyConfig {
    /// Number of different symbols, 2 to 4096.
    #[default = 16]
    pub alphabet: u64,
    /// Whether no symbol occurs twice in a string; lengths are then at most `alphabet`.
    #[serde(skip_serializing_if = "schema::is_default")]
    pub distinct: bool,
    /// Number of test strings at each length, 1 to 1000000; all strings of a length where there
    /// are fewer.
    #[default = 256]
    pub test_rows: u64,
}

impl TaskSpec for CopyConfig {
    const SUMMARY: &'static str = "write the string again";
    fn examples() -> Vec<String> {
        vec![
            example(&rule(16, false), &[1, 0, 1, 1, 0, 0, 1]),
            example(&rule(16, false), &[7, 15, 2]),
        ]
    }
    fn build(&self, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
        check_alphabet(self.alphabet)?;
        if self.distinct {
            check_distinct(self.alphabet, ctx)?;
        }
        let rule = rule(self.alphabet, self.distinct);
        SymbolTask::boxed(rule, self.test_rows, ctx)
    }
}
