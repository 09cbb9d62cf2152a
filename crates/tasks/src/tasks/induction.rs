//! Induction: the last symbol occurred once before, and the answer is the symbol that followed it
//! there.
//!
//! Example (16 symbols): `BOS 5 9 2 7 9 SEP | 2 EOS`. Length n is the number of symbols before the
//! repeated one, so the question has n + 1 symbols. The repeated symbol and its earlier place are
//! uniform, and it occurs nowhere else, so that the distance to look back grows with n, which is at
//! least 2. The answer is never the repeated symbol.
//!
//! Held out: by choices (the question).
//!
//! Source: the induction heads of Olsson et al. 2022 (arXiv 2209.11895) as an associative recall
//! task.

use crate::symbols::{Row, Rule, SymbolTask, check_shortest, show};
use crate::{BuildContext, Task, TaskError, TaskSpec};
use schema::{Invalid, in_range};
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

struct Induction {
    alphabet: u64,
}

impl Rule for Induction {
    fn kind(&self) -> &'static str {
        "induction"
    }
    fn symbols(&self) -> u64 {
        self.alphabet
    }
    fn check_len(&self, n: usize) -> Result<(), Invalid> {
        check_shortest("induction", 2, n)
    }
    /// The repeated symbol and its earlier place, then the others in order, as numbers among the
    /// symbols without the repeated one.
    fn choices(&self, n: usize) -> Vec<u64> {
        let mut choices = vec![self.alphabet - 1; n + 1];
        choices[0] = self.alphabet;
        choices[1] = (n as u64 - 1).max(1);
        choices
    }
    fn question_len(&self, n: usize) -> usize {
        n + 1
    }
    fn answer_len(&self, _: usize) -> usize {
        1
    }
    fn row(&self, _: usize, choices: &[u64]) -> Row {
        let (repeated, place) = (choices[0], choices[1] as usize);
        let mut question: Vec<i32> = choices[2..]
            .iter()
            .map(|&other| (other + u64::from(other >= repeated)) as i32)
            .collect();
        question.insert(place, repeated as i32);
        question.push(repeated as i32);
        let follower = question[place + 1];
        Row::new(question, vec![follower])
    }
    fn guess(&self) -> f64 {
        1.0 / (self.alphabet - 1) as f64
    }
}

/// `kind = "induction"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct InductionConfig {
    /// Number of different symbols, 3 to 4096; with two, the answer would always be the
    /// other one.
    #[default = 16]
    pub alphabet: u64,
    /// Number of test rows at each length, 1 to 1000000; all rows of a length where there are
    /// fewer.
    #[default = 256]
    pub test_rows: u64,
}

impl TaskSpec for InductionConfig {
    const SUMMARY: &'static str = "the symbol after the earlier occurrence of the last symbol";
    fn examples() -> Vec<String> {
        let row = |choices: &[u64]| {
            show(
                &Induction { alphabet: 16 },
                &Induction { alphabet: 16 }.row(choices.len() - 1, choices),
            )
        };
        vec![row(&[9, 1, 5, 2, 7])]
    }
    fn build(&self, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
        let hint = "the number of different symbols in a string";
        in_range("alphabet", self.alphabet, 3..=4096, hint)?;
        SymbolTask::boxed(
            Induction {
                alphabet: self.alphabet,
            },
            self.test_rows,
            ctx,
        )
    }
}
