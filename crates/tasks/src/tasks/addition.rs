//! Addition: the sum of two numbers, digit by digit, from the most or the least significant digit.
//!
//! Examples: `BOS 9 7 + 8 SEP | 1 0 5 EOS` (97 + 8 = 105), and with `digits = "lsd_first"` `BOS 7 9
//! + 8 SEP | 5 0 1 EOS`. Length n is the number of digits of both operands together; the first has
//! 1 to n - 1 of them with equal probability, and leading zeros are allowed. The sum is padded with
//! zeros to n digits, so that all rows of a length have the same number of tokens. Length 1, which
//! only `min_len = 1` trains on, has an empty second operand, which counts as zero.
//!
//! Held out: by choices (the question).
//!
//! Sources: decimal addition of Kazemnejad et al. 2023 (arXiv 2305.19466), most significant digit
//! first; binary addition of Ruoss et al. 2023 (arXiv 2305.16843) is `base = 2`, `digits =
//! "lsd_first"`, but its answer has an end marker before its zeros.

use crate::symbols::{Row, Rule, SymbolTask, show};
use crate::{BuildContext, Task, TaskError, TaskSpec};
use schema::in_range;
use serde::{Deserialize, Serialize};

/// The order in which digits are written, operands and sum alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DigitOrder {
    /// As people write numbers.
    MsdFirst,
    /// Reversed, so that a carry moves in the direction of writing.
    LsdFirst,
}

struct Addition {
    base: u64,
    order: DigitOrder,
}

impl Addition {
    /// The sum of two numbers of `len` digits, least significant digit first.
    fn add(&self, a: &[u64], b: &[u64], len: usize) -> Vec<i32> {
        let at = |number: &[u64], i: usize| number.get(i).copied().unwrap_or(0);
        let mut carry = 0;
        let digit = |i| {
            let sum = at(a, i) + at(b, i) + carry;
            carry = sum / self.base;
            (sum % self.base) as i32
        };
        (0..len).map(digit).collect()
    }
}

impl Rule for Addition {
    fn kind(&self) -> &'static str {
        "addition"
    }
    fn unit(&self) -> &'static str {
        "digits"
    }
    fn symbols(&self) -> u64 {
        self.base + 1
    }
    /// The digits as written, then where the plus stands.
    fn choices(&self, n: usize) -> Vec<u64> {
        let mut choices = vec![self.base; n];
        choices.push((n as u64 - 1).max(1));
        choices
    }
    fn question_len(&self, n: usize) -> usize {
        n + 1
    }
    fn answer_len(&self, n: usize) -> usize {
        n
    }
    fn row(&self, n: usize, choices: &[u64]) -> Row {
        // At n = 1 `b` has no digits and counts as 0.
        let (a, b) = choices[..n].split_at(1 + choices[n] as usize);
        let mut question: Vec<i32> = a.iter().map(|&d| d as i32).collect();
        question.push(self.base as i32);
        question.extend(b.iter().map(|&d| d as i32));
        let answer = match self.order {
            DigitOrder::LsdFirst => self.add(a, b, n),
            DigitOrder::MsdFirst => {
                let reversed = |number: &[u64]| number.iter().rev().copied().collect::<Vec<_>>();
                let mut sum = self.add(&reversed(a), &reversed(b), n);
                sum.reverse();
                sum
            }
        };
        Row::new(question, answer)
    }
    fn guess(&self) -> f64 {
        1.0 / self.base as f64
    }
    fn name(&self, symbol: i32) -> String {
        if symbol == self.base as i32 {
            "+".to_string()
        } else {
            symbol.to_string()
        }
    }
}

/// `kind = "addition"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdditionConfig {
    /// Digits are below it, 2 to 4096.
    pub base: u64,
    /// Order of the digits, `msd_first` or `lsd_first`.
    pub digits: DigitOrder,
    /// Number of test rows at each length, 1 to 1000000; all rows of a length where there are
    /// fewer.
    pub test_rows: u64,
}

impl Default for AdditionConfig {
    fn default() -> Self {
        Self {
            base: 10,
            digits: DigitOrder::MsdFirst,
            test_rows: 256,
        }
    }
}

impl TaskSpec for AdditionConfig {
    const SUMMARY: &'static str = "the sum of two numbers, plain or with reversed digits";
    fn examples() -> Vec<String> {
        let row = |base, order, digits: &[u64], plus: u64| {
            let rule = Addition { base, order };
            show(
                &rule,
                &rule.row(digits.len(), &[digits, &[plus - 1]].concat()),
            )
        };
        let (plain, reversed) = (DigitOrder::MsdFirst, DigitOrder::LsdFirst);
        vec![
            row(10, plain, &[9, 7, 8], 2),
            row(10, plain, &[5, 3, 7, 2, 6, 1, 9, 1, 7, 7], 5),
            row(10, reversed, &[7, 9, 8], 2),
            row(2, reversed, &[0, 0, 1, 0, 1, 1, 0, 1], 3),
        ]
    }
    fn build(&self, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
        in_range(
            "base",
            self.base,
            2..=4096,
            "digits are below it; 10 is decimal",
        )?;
        Ok(Box::new(SymbolTask::new(
            Addition {
                base: self.base,
                order: self.digits,
            },
            self.test_rows,
            ctx,
        )?))
    }
}
