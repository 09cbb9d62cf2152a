//! Solving an equation: the digit that an unknown stands for in an equation modulo a small number.
//!
//! Example (modulo 5): `BOS ( ( 1 - x ) + ( 3 + 4 ) ) = 1 SEP | 2 EOS`. The left side is an
//! expression with brackets as in `modular_arithmetic`, of sums and differences alone, so that one
//! digit solves it. Length n is the number of digits, the unknown included; the question has 4n - 1
//! symbols. Every digit is the unknown with equal chance.
//!
//! Held out: by hash (several choices make one equation).
//!
//! Source: `solve_equation` of google-deepmind/neural_networks_chomsky_hierarchy (Deletang et al.
//! 2023, arXiv 2207.02098), modulo 5, the default here. There a length is that of the whole
//! equation, expressions reach it by signs and brackets around single digits, and the unknown is
//! the digit at or after a random symbol. How brackets are drawn: `modular_arithmetic`.

use super::modular_arithmetic::bracketed;
use crate::symbols::{HeldOut, Row, Rule, SymbolTask, show};
use crate::{BuildContext, Task, TaskError, TaskSpec};
use schema::in_range;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// Plus and minus: a product with 0 would leave the unknown open.
const OPERATIONS: u64 = 2;

struct SolveEquation {
    modulus: u64,
}

impl SolveEquation {
    /// Symbols after the digits, operations and brackets.
    fn unknown(&self) -> i32 {
        (self.modulus + OPERATIONS + 2) as i32
    }
    fn equals(&self) -> i32 {
        self.unknown() + 1
    }
}

impl Rule for SolveEquation {
    fn kind(&self) -> &'static str {
        "solve_equation"
    }
    fn unit(&self) -> &'static str {
        "operands"
    }
    fn symbols(&self) -> u64 {
        self.modulus + OPERATIONS + 4
    }
    /// Those of the expression, and which digit is unknown.
    fn choices(&self, n: usize) -> Vec<u64> {
        let expression = (0..2 * n - 1).map(|i| [self.modulus, OPERATIONS][i % 2]);
        let brackets = (1..n as u64).rev();
        expression.chain(brackets).chain([n as u64]).collect()
    }
    fn held_out(&self) -> HeldOut {
        HeldOut::ByHash
    }
    fn question_len(&self, n: usize) -> usize {
        4 * n - 1
    }
    fn answer_len(&self, _: usize) -> usize {
        1
    }
    fn row(&self, n: usize, choices: &[u64]) -> Row {
        let (expression, unknown) = choices.split_at(choices.len() - 1);
        let (mut question, value) = bracketed(self.modulus, OPERATIONS, n, expression);
        let is_digit = |symbol: &i32| *symbol < self.modulus as i32;
        let mut digits = question.iter_mut().filter(|symbol| is_digit(symbol));
        let digit = digits.nth(unknown[0] as usize).expect("one of n digits");
        let solution = std::mem::replace(digit, self.unknown());
        question.extend([self.equals(), value as i32]);
        Row::new(question, vec![solution])
    }
    fn guess(&self) -> f64 {
        1.0 / self.modulus as f64
    }
    fn name(&self, symbol: i32) -> String {
        match symbol - self.modulus as i32 {
            sign @ 0..6 => ["+", "-", "(", ")", "x", "="][sign as usize].to_string(),
            _ => symbol.to_string(),
        }
    }
}

/// `kind = "solve_equation"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct SolveEquationConfig {
    /// Modulus of the values, 2 to 4096; digits are below it.
    #[default = 5]
    pub modulus: u64,
    /// Number of test rows at each length, 1 to 1000000.
    #[default = 256]
    pub test_rows: u64,
}

impl TaskSpec for SolveEquationConfig {
    const SUMMARY: &'static str = "the unknown digit of an equation modulo 5";
    fn examples() -> Vec<String> {
        let row = |n, choices: &[u64]| {
            let rule = SolveEquation { modulus: 5 };
            show(&rule, &rule.row(n, choices))
        };
        vec![row(4, &[1, 1, 2, 0, 3, 0, 4, 0, 1, 0, 1]), row(1, &[3, 0])]
    }
    fn build(&self, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
        let hint = "digits are below it, and values are modulo it";
        in_range("modulus", self.modulus, 2..=4096, hint)?;
        let rule = SolveEquation {
            modulus: self.modulus,
        };
        SymbolTask::boxed(rule, self.test_rows, ctx)
    }
}
