//! Sort: the answer to w is its symbols from the smallest to the largest.
//!
//! Example (50 symbols): `BOS 31 4 15 4 SEP | 4 4 15 31 EOS`. The order of the symbols is that of
//! their token ids. With `distinct = true` no symbol occurs twice in a string, so that lengths are
//! at most the alphabet.
//!
//! Held out: by choices (the string itself).
//!
//! Source: the sort task of Kazemnejad et al. 2023 (arXiv 2305.19466) over 50 single symbols, which
//! is the default here. Distinct symbols: Huang et al. 2025 (arXiv 2410.02140), 150 of them. Few
//! symbols: `bucket_sort`.

use crate::symbols::{StringRule, SymbolTask, check_alphabet, check_distinct, example};
use crate::{BuildContext, Task, TaskError, TaskSpec};
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

fn rule(alphabet: u64, distinct: bool) -> StringRule {
    let sorted = |w: &[i32]| {
        let mut w = w.to_vec();
        w.sort_unstable();
        w
    };
    StringRule {
        distinct,
        ..StringRule::new("sort", alphabet, sorted)
    }
}

/// `kind = "sort"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct SortConfig {
    /// Number of different symbols, 2 to 4096.
    #[default = 50]
    pub alphabet: u64,
    /// Whether no symbol occurs twice in a string; lengths are then at most `alphabet`.
    #[serde(skip_serializing_if = "schema::is_default")]
    pub distinct: bool,
    /// Number of test rows at each length, 1 to 1000000; all rows of a length where there are
    /// fewer.
    #[default = 256]
    pub test_rows: u64,
}

impl TaskSpec for SortConfig {
    const SUMMARY: &'static str = "write the symbols in ascending order, many symbols";
    fn examples() -> Vec<String> {
        vec![
            example(&rule(50, false), &[31, 4, 15, 4]),
            example(&rule(50, false), &[9, 0, 49, 27, 3]),
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
