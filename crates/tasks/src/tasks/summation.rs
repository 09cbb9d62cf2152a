//! Summation: the answer to a string of digits is their sum modulo 10, after the last one or after
//! every one.
//!
//! Examples: `BOS 3 9 4 SEP | 6 EOS`, and with `answer = "running"` `BOS 3 9 4 SEP | 3 2 6 EOS`.
//!
//! Held out: by choices (the string itself).
//!
//! Source: summation of Kazemnejad et al. 2023 (arXiv 2305.19466), modulus 10, the default here;
//! the running sum is a scan of the kind that a scratchpad writes out.

use crate::symbols::{StringRule, SymbolTask, example};
use crate::{BuildContext, Task, TaskError, TaskSpec};
use schema::in_range;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

fn rule(modulus: u64, answer: SumAnswer) -> StringRule {
    let running = move |w: &[i32]| -> Vec<i32> {
        let next = |sum: &mut i32, digit: &i32| {
            *sum = (*sum + digit) % modulus as i32;
            Some(*sum)
        };
        w.iter().scan(0, next).collect()
    };
    let last = move |w: &[i32]| running(w).split_off(w.len() - 1);
    match answer {
        SumAnswer::Running => StringRule::new("summation", modulus, running),
        SumAnswer::Final => StringRule {
            answer_len: |_| 1,
            ..StringRule::new("summation", modulus, last)
        },
    }
}

/// Which sums are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SumAnswer {
    /// The sum of all digits.
    Final,
    /// The sum after each digit.
    Running,
}

/// `kind = "summation"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct SummationConfig {
    /// Modulus of the sums, 2 to 4096; digits are below it.
    #[default = 10]
    pub modulus: u64,
    /// Which sums are answered.
    #[default(SumAnswer::Final)]
    pub answer: SumAnswer,
    /// Number of test rows at each length, 1 to 1000000; all rows of a length where there are
    /// fewer.
    #[default = 256]
    pub test_rows: u64,
}

impl TaskSpec for SummationConfig {
    const SUMMARY: &'static str = "the sum of digits modulo 10, or all running sums";
    fn examples() -> Vec<String> {
        vec![
            example(&rule(10, SumAnswer::Final), &[3, 9, 4]),
            example(&rule(10, SumAnswer::Running), &[3, 9, 4]),
        ]
    }
    fn build(&self, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
        in_range(
            "modulus",
            self.modulus,
            2..=4096,
            "digits are below it, and sums are modulo it",
        )?;
        SymbolTask::boxed(rule(self.modulus, self.answer), self.test_rows, ctx)
    }
}
