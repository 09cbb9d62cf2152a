//! Modular arithmetic: the value of an expression of digits, `+`, `-` and `*` modulo a small
//! number.
//!
//! Examples (modulo 5): `BOS 1 - 1 - 1 SEP | 4 EOS`, where `*` binds tighter than `+` and `-`, and
//! with `brackets = true` `BOS ( ( 1 - 2 ) * ( 3 + 4 ) ) SEP | 3 EOS`, where every operation has
//! its brackets. Length n is the number of digits, so the question has 2n - 1 symbols, with
//! brackets 4n - 3.
//!
//! Held out: by choices (the expression shows them); with brackets by hash, because several choices
//! make one tree.
//!
//! Source: modular arithmetic, simple and with brackets, of Ruoss et al. 2023 (arXiv 2305.16843),
//! modulo 5, the default here. There a length is that of the whole expression: even ones are
//! shortened by one, and expressions with brackets reach their length by signs and brackets around
//! single digits. Counting digits makes every length possible without either. The outermost
//! operation comes after the 1st, 2nd, ... or last but one digit with equal chance, and the same
//! holds within (there equal chances are over symbols, not digits).

use crate::symbols::{HeldOut, Row, Rule, SymbolTask, show};
use crate::{BuildContext, Task, TaskError, TaskSpec};
use schema::in_range;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

const PLUS: u64 = 0;
const MINUS: u64 = 1;
const OPERATIONS: u64 = 3;

struct ModularArithmetic {
    modulus: u64,
    brackets: bool,
}

impl ModularArithmetic {
    /// `digit operation digit ...` by precedence: products first, sums from the left.
    fn flat(&self, choices: &[u64]) -> Row {
        let question = choices
            .iter()
            .enumerate()
            .map(|(i, &c)| (c + self.modulus * (i % 2) as u64) as i32)
            .collect();
        // Products bind first: a product is complete at the next plus or minus.
        let (mut sum, mut sign, mut product) = (0, PLUS, choices[0]);
        for pair in choices[1..].chunks(2) {
            if pair[0] == PLUS || pair[0] == MINUS {
                sum = apply(self.modulus, sum, sign, product);
                (sign, product) = (pair[0], pair[1]);
            } else {
                product = product * pair[1] % self.modulus;
            }
        }
        Row::new(
            question,
            vec![apply(self.modulus, sum, sign, product) as i32],
        )
    }
}

/// An expression of `n` digits below `modulus` in which every operation has its brackets, and its
/// value. Choices are its digits and operations in turn, and then for every operation which two
/// neighbours it joins. The last one joins at any place with equal chance. Symbols are the digits,
/// the `operations` operations (plus, minus, times), and two brackets.
pub(super) fn bracketed(
    modulus: u64,
    operations: u64,
    n: usize,
    choices: &[u64],
) -> (Vec<i32>, u64) {
    let (open, close) = (
        (modulus + operations) as i32,
        (modulus + operations + 1) as i32,
    );
    let mut parts: Vec<(Vec<i32>, u64)> = choices[..2 * n - 1]
        .iter()
        .step_by(2)
        .map(|&d| (vec![d as i32], d))
        .collect();
    let mut between: Vec<u64> = choices[1..2 * n - 1].iter().step_by(2).copied().collect();
    // Each choice joins two neighbouring parts, until one is left.
    for &place in &choices[2 * n - 1..] {
        let place = place as usize;
        let (right, right_value) = parts.remove(place + 1);
        let operation = between.remove(place);
        let (left, value) = &mut parts[place];
        left.insert(0, open);
        left.push((modulus + operation) as i32);
        left.extend(right);
        left.push(close);
        *value = apply(modulus, *value, operation, right_value);
    }
    parts.remove(0)
}

/// The value of one operation.
fn apply(modulus: u64, left: u64, operation: u64, right: u64) -> u64 {
    match operation {
        PLUS => (left + right) % modulus,
        MINUS => (left + modulus - right) % modulus,
        _ => left * right % modulus,
    }
}

impl Rule for ModularArithmetic {
    fn kind(&self) -> &'static str {
        "modular_arithmetic"
    }
    fn unit(&self) -> &'static str {
        "operands"
    }
    fn symbols(&self) -> u64 {
        self.modulus + OPERATIONS + if self.brackets { 2 } else { 0 }
    }
    fn choices(&self, n: usize) -> Vec<u64> {
        let mut choices: Vec<u64> = (0..2 * n - 1)
            .map(|i| if i % 2 == 0 { self.modulus } else { OPERATIONS })
            .collect();
        if self.brackets {
            choices.extend((1..n as u64).rev());
        }
        choices
    }
    fn held_out(&self) -> HeldOut {
        if self.brackets {
            HeldOut::ByHash
        } else {
            HeldOut::ByChoices
        }
    }
    fn question_len(&self, n: usize) -> usize {
        if self.brackets { 4 * n - 3 } else { 2 * n - 1 }
    }
    fn answer_len(&self, _: usize) -> usize {
        1
    }
    fn row(&self, n: usize, choices: &[u64]) -> Row {
        if self.brackets {
            let (question, value) = bracketed(self.modulus, OPERATIONS, n, choices);
            Row::new(question, vec![value as i32])
        } else {
            self.flat(choices)
        }
    }
    fn guess(&self) -> f64 {
        1.0 / self.modulus as f64
    }
    fn name(&self, symbol: i32) -> String {
        match symbol - self.modulus as i32 {
            sign @ 0..5 => ["+", "-", "*", "(", ")"][sign as usize].to_string(),
            _ => symbol.to_string(),
        }
    }
}

/// `kind = "modular_arithmetic"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct ModularArithmeticConfig {
    /// Modulus of the values, 2 to 4096; digits are below it.
    #[default = 5]
    pub modulus: u64,
    /// Whether every operation is in brackets; without them `*` binds tighter.
    pub brackets: bool,
    /// Number of test rows at each length, 1 to 1000000; without brackets all rows of a length
    /// where there are fewer.
    #[default = 256]
    pub test_rows: u64,
}

impl TaskSpec for ModularArithmeticConfig {
    const SUMMARY: &'static str = "the value of an expression modulo 5";
    fn examples() -> Vec<String> {
        let row = |brackets, n, choices: &[u64]| {
            let rule = ModularArithmetic {
                modulus: 5,
                brackets,
            };
            show(&rule, &rule.row(n, choices))
        };
        vec![
            row(false, 3, &[1, 1, 1, 1, 1]),
            row(false, 3, &[1, 0, 2, 2, 3]),
            row(true, 4, &[1, 1, 2, 2, 3, 0, 4, 0, 1, 0]),
        ]
    }
    fn build(&self, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
        in_range(
            "modulus",
            self.modulus,
            2..=4096,
            "digits are below it, and values are modulo it",
        )?;
        let rule = ModularArithmetic {
            modulus: self.modulus,
            brackets: self.brackets,
        };
        SymbolTask::boxed(rule, self.test_rows, ctx)
    }
}
