//! Multiplication: the product of two numbers of equal length, digit by digit, from the most or the
//! least significant digit.
//!
//! Example: `BOS 0 7 * 1 8 SEP | 0 1 2 6 EOS` (7 * 18 = 126), and with `digits = "lsd_first"` `BOS
//! 7 0 * 8 1 SEP | 6 2 1 0 EOS`. Length n is the number of digits of each factor, leading zeros
//! included; the product has 2 n. Tokens have coordinates on two axes for `coordinates = "task"`,
//! as in `addition` with `operands = "equal"`: places in the number as written, and weights.
//!
//! Held out: by choices (the question).
//!
//! Source: multiplication of McLeish et al. 2024 (arXiv 2405.17399), whose factors have lengths of
//! their own and reversed digits; the axes are those of Abacus and of position coupling (Cho et al.
//! 2024, arXiv 2405.20671).

use super::addition::{DigitOrder, digit_axes};
use crate::symbols::{Row, Rule, SymbolTask, show};
use crate::{BuildContext, Task, TaskError, TaskSpec};
use schema::in_range;
use serde::{Deserialize, Serialize};

struct Multiplication {
    base: u64,
    order: DigitOrder,
}

/// The product of two numbers of digits below `base`, least significant digit first.
fn product(a: &[u64], b: &[u64], base: u64) -> Vec<i32> {
    let mut digits = vec![0u64; a.len() + b.len()];
    for (i, x) in a.iter().enumerate() {
        let mut carry = 0;
        for (j, y) in b.iter().enumerate() {
            let sum = digits[i + j] + x * y + carry;
            digits[i + j] = sum % base;
            carry = sum / base;
        }
        digits[i + b.len()] = carry;
    }
    digits.into_iter().map(|digit| digit as i32).collect()
}

impl Rule for Multiplication {
    fn kind(&self) -> &'static str {
        "multiplication"
    }
    fn unit(&self) -> &'static str {
        "digits"
    }
    fn symbols(&self) -> u64 {
        self.base + 1
    }
    /// The digits as written.
    fn choices(&self, n: usize) -> Vec<u64> {
        vec![self.base; 2 * n]
    }
    fn question_len(&self, n: usize) -> usize {
        2 * n + 1
    }
    fn answer_len(&self, n: usize) -> usize {
        2 * n
    }
    fn axes(&self, n: usize) -> Vec<Vec<f64>> {
        digit_axes([n, n, 2 * n], self.order)
    }
    fn row(&self, n: usize, choices: &[u64]) -> Row {
        let (a, b) = choices.split_at(n);
        let written = |number: &[u64]| number.iter().map(|&d| d as i32).collect::<Vec<i32>>();
        let question = [written(a), vec![self.base as i32], written(b)].concat();
        let answer = match self.order {
            DigitOrder::LsdFirst => product(a, b, self.base),
            DigitOrder::MsdFirst => {
                let reversed = |number: &[u64]| number.iter().rev().copied().collect::<Vec<_>>();
                let mut answer = product(&reversed(a), &reversed(b), self.base);
                answer.reverse();
                answer
            }
        };
        Row::new(question, answer)
    }
    fn guess(&self) -> f64 {
        1.0 / self.base as f64
    }
    fn name(&self, symbol: i32) -> String {
        if symbol == self.base as i32 {
            "*".to_string()
        } else {
            symbol.to_string()
        }
    }
}

/// `kind = "multiplication"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MultiplicationConfig {
    /// Digits are below it, 2 to 4096.
    pub base: u64,
    /// Order of the digits, `msd_first` or `lsd_first`.
    pub digits: DigitOrder,
    /// Number of test rows at each length, 1 to 1000000; all rows of a length where there are
    /// fewer.
    pub test_rows: u64,
}

impl Default for MultiplicationConfig {
    fn default() -> Self {
        Self {
            base: 10,
            digits: DigitOrder::MsdFirst,
            test_rows: 256,
        }
    }
}

impl TaskSpec for MultiplicationConfig {
    const SUMMARY: &'static str = "the product of two numbers, plain or with reversed digits";
    fn examples() -> Vec<String> {
        let row = |order, digits: &[u64]| {
            let rule = Multiplication { base: 10, order };
            show(&rule, &rule.row(digits.len() / 2, digits))
        };
        vec![
            row(DigitOrder::MsdFirst, &[0, 7, 1, 8]),
            row(DigitOrder::LsdFirst, &[7, 0, 8, 1]),
        ]
    }
    fn build(&self, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
        let hint = "digits are below it; 10 is decimal";
        in_range("base", self.base, 2..=4096, hint)?;
        let rule = Multiplication {
            base: self.base,
            order: self.digits,
        };
        Ok(Box::new(SymbolTask::new(rule, self.test_rows, ctx)?))
    }
}
