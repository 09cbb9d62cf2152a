//! Multiplication: the product of two numbers of equal length, digit by digit, from the most or the
//! least significant digit.
//!
//! Example: `BOS 0 7 * 1 8 SEP | 0 1 2 6 EOS` (7 * 18 = 126), and with `digits = "lsd_first"` `BOS
//! 7 0 * 8 1 SEP | 6 2 1 0 EOS`. Length n is the number of digits of each factor, leading zeros
//! included; the product has 2 n. Tokens have coordinates on two axes for `coordinates = "task"`,
//! as in `addition` with `operands = "equal"`: places in the number as written, and weights.
//!
//! With `scratchpad = true` the answer begins with a step for every digit of the second factor,
//! from the ones on: the digit, its product with the first factor, and the sum of these products so
//! far, each moved to its place. The product follows after an equals sign: `BOS 0 7 * 1 8 SEP | 8 0
//! 5 6 0 5 6 1 0 0 7 0 1 2 6 = 0 1 2 6 EOS`. Products of a digit have n + 1 digits, the sum after
//! step i n + i, all written in the order of `digits`. Scratchpads are scored with the rest of the
//! answer, and tokens have no coordinates.
//!
//! Held out: by choices (the question).
//!
//! Source: multiplication of McLeish et al. 2024 (arXiv 2405.17399), whose factors have lengths of
//! their own and reversed digits; the axes are those of Abacus and of position coupling (Cho et al.
//! 2024, arXiv 2405.20671). Scratchpads are after Nye et al. 2021 (arXiv 2112.00114); this one,
//! long multiplication with its sums, is this project's choice.

use super::addition::{DigitOrder, IN_ANSWER, digit_axes};
use crate::symbols::{Row, Rule, SymbolTask, show};
use crate::{BuildContext, Task, TaskError, TaskSpec};
use schema::in_range;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

struct Multiplication {
    base: u64,
    order: DigitOrder,
    scratchpad: bool,
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
        self.base + 1 + u64::from(self.scratchpad)
    }
    /// The digits as written.
    fn choices(&self, n: usize) -> Vec<u64> {
        vec![self.base; 2 * n]
    }
    fn question_len(&self, n: usize) -> usize {
        2 * n + 1
    }
    fn answer_len(&self, n: usize) -> usize {
        if !self.scratchpad {
            return 2 * n;
        }
        // Step i has a digit, its product, and a sum of n + i digits; then comes the equals sign.
        let steps: usize = (1..=n).map(|i| 1 + (n + 1) + (n + i)).sum();
        steps + 1 + 2 * n
    }
    fn axes(&self, n: usize) -> Vec<Vec<f64>> {
        if self.scratchpad {
            return Vec::new();
        }
        digit_axes([n, n, 2 * n], self.order)
    }
    fn row(&self, n: usize, choices: &[u64]) -> Row {
        let (a, b) = choices.split_at(n);
        let written = |number: &[u64]| number.iter().map(|&d| d as i32).collect::<Vec<i32>>();
        let question = [written(a), vec![self.base as i32], written(b)].concat();
        let (mut a, mut b) = (a.to_vec(), b.to_vec());
        if self.order == DigitOrder::MsdFirst {
            a.reverse();
            b.reverse();
        }
        let answer = |a: &[u64], b: &[u64]| {
            let mut digits = product(a, b, self.base);
            if self.order == DigitOrder::MsdFirst {
                digits.reverse();
            }
            digits
        };
        let mut answered = Vec::with_capacity(self.answer_len(n));
        if self.scratchpad {
            for (i, &digit) in b.iter().enumerate() {
                answered.push(digit as i32);
                answered.extend(answer(&a, &[digit]));
                // The products so far add up to that with the digits so far.
                answered.extend(answer(&a, &b[..=i]));
            }
            answered.push(self.base as i32 + 1);
        }
        answered.extend(answer(&a, &b));
        Row::new(question, answered)
    }
    fn guess(&self) -> f64 {
        1.0 / self.base as f64
    }
    fn remark(&self) -> Option<String> {
        self.scratchpad.then(|| IN_ANSWER.to_owned())
    }
    fn name(&self, symbol: i32) -> String {
        match symbol - self.base as i32 {
            0 => "*".to_string(),
            1 => "=".to_string(),
            _ => symbol.to_string(),
        }
    }
}

/// `kind = "multiplication"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct MultiplicationConfig {
    /// Base of the numbers: digits are below it; 2 to 4096.
    #[default = 10]
    pub base: u64,
    /// Order of the digits.
    #[default(DigitOrder::MsdFirst)]
    pub digits: DigitOrder,
    /// Whether the answer begins with the steps of long multiplication.
    #[serde(skip_serializing_if = "schema::is_default")]
    pub scratchpad: bool,
    /// Number of test rows at each length, 1 to 1000000; all rows of a length where there are
    /// fewer.
    #[default = 256]
    pub test_rows: u64,
}

impl TaskSpec for MultiplicationConfig {
    const SUMMARY: &'static str = "the product of two numbers, plain or with reversed digits";
    fn examples() -> Vec<String> {
        let row = |order, scratchpad, digits: &[u64]| {
            let rule = Multiplication {
                base: 10,
                order,
                scratchpad,
            };
            show(&rule, &rule.row(digits.len() / 2, digits))
        };
        vec![
            row(DigitOrder::MsdFirst, false, &[0, 7, 1, 8]),
            row(DigitOrder::LsdFirst, false, &[7, 0, 8, 1]),
            row(DigitOrder::MsdFirst, true, &[0, 7, 1, 8]),
        ]
    }
    fn build(&self, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
        let hint = "digits are below it; 10 is decimal";
        in_range("base", self.base, 2..=4096, hint)?;
        let rule = Multiplication {
            base: self.base,
            order: self.digits,
            scratchpad: self.scratchpad,
        };
        SymbolTask::boxed(rule, self.test_rows, ctx)
    }
}
