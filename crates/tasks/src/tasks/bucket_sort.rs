//! Bucket sort: the answer to w is its symbols from the smallest to the largest, over so few
//! symbols that counting them is enough.
//!
//! Example (5 symbols): `BOS 1 0 2 0 4 1 1 2 SEP | 0 0 1 1 1 2 2 4 EOS`.
//!
//! Held out: by choices (the string itself).
//!
//! Source: bucket sort of Ruoss et al. 2023 (arXiv 2305.16843): 5 symbols, the default here. Many
//! symbols: `sort`.

use crate::symbols::{StringRule, SymbolTask, check_alphabet, example};
use crate::{BuildContext, Task, TaskError, TaskSpec};
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

fn rule(alphabet: u64) -> StringRule {
    let counted = move |w: &[i32]| {
        (0..alphabet as i32)
            .flat_map(|symbol| vec![symbol; w.iter().filter(|&&s| s == symbol).count()])
            .collect()
    };
    StringRule::new("bucket_sort", alphabet, counted)
}

/// `kind = "bucket_sort"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct BucketSortConfig {
    /// Number of different symbols, 2 to 4096.
    #[default = 5]
    pub alphabet: u64,
    /// Number of test rows at each length, 1 to 1000000; all rows of a length where there are
    /// fewer.
    #[default = 256]
    pub test_rows: u64,
}

impl TaskSpec for BucketSortConfig {
    const SUMMARY: &'static str = "write the symbols in ascending order, few symbols";
    fn examples() -> Vec<String> {
        vec![example(&rule(5), &[1, 0, 2, 0, 4, 1, 1, 2])]
    }
    fn build(&self, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
        check_alphabet(self.alphabet)?;
        SymbolTask::boxed(rule(self.alphabet), self.test_rows, ctx)
    }
}
