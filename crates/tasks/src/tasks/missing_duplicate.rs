//! Missing duplicate: a string of bits written twice has one bit masked, and the answer is that
//! bit.
//!
//! Example: `BOS 0 1 1 0 0 2 1 0 SEP | 1 EOS`, where 2 is the mask and w = `0 1 1 0`. Length n is
//! the length of w, so the question has 2n symbols.
//!
//! Held out: by choices (w and the place of the mask).
//!
//! Source: missing duplicate of Ruoss et al. 2023 (arXiv 2305.16843). There a length is that of the
//! whole question and odd ones end in a filler symbol; counting w instead needs no filler.

use crate::symbols::{Row, Rule, SymbolTask, show};
use crate::{BuildContext, Task, TaskError, TaskSpec};
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

const MASK: i32 = 2;

struct MissingDuplicate;

impl Rule for MissingDuplicate {
    fn kind(&self) -> &'static str {
        "missing_duplicate"
    }
    fn unit(&self) -> &'static str {
        "symbols of w"
    }
    fn symbols(&self) -> u64 {
        3
    }
    /// The bits of w, then the place of the mask.
    fn choices(&self, n: usize) -> Vec<u64> {
        let mut choices = vec![2; n];
        choices.push(2 * n as u64);
        choices
    }
    fn question_len(&self, n: usize) -> usize {
        2 * n
    }
    fn answer_len(&self, _: usize) -> usize {
        1
    }
    fn row(&self, n: usize, choices: &[u64]) -> Row {
        let mut question: Vec<i32> = choices[..n]
            .iter()
            .chain(&choices[..n])
            .map(|&bit| bit as i32)
            .collect();
        let missing = std::mem::replace(&mut question[choices[n] as usize], MASK);
        Row::new(question, vec![missing])
    }
    fn guess(&self) -> f64 {
        0.5
    }
}

/// `kind = "missing_duplicate"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct MissingDuplicateConfig {
    /// Number of test rows at each length, 1 to 1000000; all rows of a length where there are
    /// fewer.
    #[default = 256]
    pub test_rows: u64,
}

impl TaskSpec for MissingDuplicateConfig {
    const SUMMARY: &'static str = "the masked bit of a string written twice";
    fn examples() -> Vec<String> {
        let row = |n, choices: &[u64]| show(&MissingDuplicate, &MissingDuplicate.row(n, choices));
        vec![row(4, &[0, 1, 1, 0, 5]), row(3, &[1, 0, 1, 4])]
    }
    fn build(&self, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
        SymbolTask::boxed(MissingDuplicate, self.test_rows, ctx)
    }
}
