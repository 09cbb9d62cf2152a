//! Cycle navigation: the answer to a string of moves is the place on a cycle where they end,
//! starting from place 0.
//!
//! Example (cycle of 5): `BOS 2 0 1 0 0 SEP | 3 EOS`, where 0 is one place to the left, 1 stays and
//! 2 is one place to the right. Moves and places share their symbols.
//!
//! Held out: by choices (the moves).
//!
//! Source: cycle navigation of Ruoss et al. 2023 (arXiv 2305.16843) on a cycle of 5, the default
//! here.

use crate::symbols::{StringRule, SymbolTask, example};
use crate::{BuildContext, Task, TaskError, TaskSpec};
use schema::in_range;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

fn rule(cycle: u64) -> StringRule {
    let end = move |w: &[i32]| {
        let end = w
            .iter()
            .map(|step| i64::from(step - 1))
            .sum::<i64>()
            .rem_euclid(cycle as i64);
        vec![end as i32]
    };
    StringRule {
        answers: cycle,
        answer_len: |_| 1,
        ..StringRule::new("cycle_navigation", 3, end)
    }
}

/// `kind = "cycle_navigation"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct CycleNavigationConfig {
    /// Number of places on the cycle, 2 to 4096.
    #[default = 5]
    pub cycle: u64,
    /// Number of test rows at each length, 1 to 1000000; all rows of a length where there are
    /// fewer.
    #[default = 256]
    pub test_rows: u64,
}

impl TaskSpec for CycleNavigationConfig {
    const SUMMARY: &'static str = "where moves on a cycle end";
    fn examples() -> Vec<String> {
        vec![
            example(&rule(5), &[2, 0, 1, 0, 0]),
            example(&rule(5), &[2, 2, 1]),
        ]
    }
    fn build(&self, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
        in_range(
            "cycle",
            self.cycle,
            2..=4096,
            "the number of places on the cycle",
        )?;
        SymbolTask::boxed(rule(self.cycle), self.test_rows, ctx)
    }
}
