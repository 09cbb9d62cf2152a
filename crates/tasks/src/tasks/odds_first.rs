//! Odds first: the answer to w is every other symbol of it, then the rest.
//!
//! Example (2 symbols): `BOS 0 0 1 1 0 1 0 1 SEP | 0 1 1 1 0 1 0 0 EOS`.
//!
//! Held out: by choices (the string itself).
//!
//! Source: odds first of Ruoss et al. 2023 (arXiv 2305.16843; 2 symbols there and here). Their code
//! and its docstring disagree about the order; this is the order of the code, counting from 0:
//! symbols 1, 3, 5, ..., then 0, 2, 4, ....

use crate::symbols::{StringRule, SymbolTask, check_alphabet, example};
use crate::{BuildContext, Task, TaskError, TaskSpec};
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

fn rule(alphabet: u64) -> StringRule {
    let odds_first = |w: &[i32]| {
        w.iter()
            .skip(1)
            .step_by(2)
            .chain(w.iter().step_by(2))
            .copied()
            .collect()
    };
    StringRule::new("odds_first", alphabet, odds_first)
}

/// `kind = "odds_first"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct OddsFirstConfig {
    /// Number of different symbols, 2 to 4096.
    #[default = 2]
    pub alphabet: u64,
    /// Number of test rows at each length, 1 to 1000000; all rows of a length where there are
    /// fewer.
    #[default = 256]
    pub test_rows: u64,
}

impl TaskSpec for OddsFirstConfig {
    const SUMMARY: &'static str = "write every other symbol, then the rest";
    fn examples() -> Vec<String> {
        vec![example(&rule(2), &[0, 0, 1, 1, 0, 1, 0, 1])]
    }
    fn build(&self, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
        check_alphabet(self.alphabet)?;
        SymbolTask::boxed(rule(self.alphabet), self.test_rows, ctx)
    }
}
