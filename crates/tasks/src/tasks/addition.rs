//! Addition: the sum of two numbers, digit by digit, from the most or the least significant digit.
//!
//! Examples: `BOS 9 7 + 8 SEP | 1 0 5 EOS` (97 + 8 = 105), and with `digits = "lsd_first"` `BOS 7 9
//! + 8 SEP | 5 0 1 EOS`. Length n is the number of digits of both operands together; the first has
//! 1 to n - 1 of them with equal probability, and leading zeros are allowed. The sum is padded with
//! zeros to n digits, so that all rows of a length have the same number of tokens. Length 1, which
//! only `min_len = 1` trains on, has an empty second operand, which counts as zero.
//!
//! With `operands = "equal"` both have n digits and the sum n + 1, so that every row of a length has
//! its digits at the same places: `BOS 0 7 + 1 8 SEP | 0 2 5 EOS` (7 + 18 = 25). Tokens then have
//! coordinates on two axes for `coordinates = "task"`. Axis 0 is the place of a digit in its
//! number as written, from 1. On axis 1 digits of equal weight have equal coordinates: ones have 2,
//! tens 3, and so on, plus and SEP 1. Tokens without a coordinate have 0.
//!
//! With `hints = k` a hint precedes every digit, in the sum too:
//! `BOS h3 7 h4 0 + h3 8 h4 1 SEP | h3 5 h4 2 h5 0 EOS`. Digits of equal weight have the same hint.
//! The hints of a row are consecutive among k symbols, and which is the first is drawn for each
//! row, in tests too. Hints are scored with the rest of the answer. They take the place of
//! coordinates.
//!
//! With `scratchpad = true` the answer begins with a step for every digit, from the ones on: the
//! digits of both operands, the carry into them, and the digit of the sum. The sum follows after an
//! equals sign: `BOS 0 7 + 1 8 SEP | 7 8 0 5 0 1 1 2 = 0 2 5 EOS`. Scratchpads are scored with the
//! rest of the answer, and tokens have no coordinates.
//!
//! Held out: by choices (the operands, whatever their hints).
//!
//! Sources: decimal addition of Kazemnejad et al. 2023 (arXiv 2305.19466), most significant digit
//! first; binary addition of Ruoss et al. 2023 (arXiv 2305.16843) is `base = 2`, `digits =
//! "lsd_first"`, but its answer has an end marker before its zeros. The axes are those of Abacus
//! (McLeish et al. 2024, arXiv 2405.17399) and of position coupling (Cho et al. 2024, arXiv
//! 2405.20671), which both pad operands to equal lengths or reverse digits. Index hints are those
//! of Zhou et al. 2024 (arXiv 2402.09371), drawn from 102 symbols. Scratchpads are those of Nye et
//! al. 2021 (arXiv 2112.00114), whose steps also repeat the digits that are left and those of the
//! sum.

use crate::symbols::{Row, Rule, SymbolTask, show};
use crate::{BuildContext, Task, TaskError, TaskSpec};
use schema::{Invalid, in_range};
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// The order in which digits are written, operands and sum alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DigitOrder {
    /// As people write numbers.
    MsdFirst,
    /// Reversed, so that a carry moves in the direction of writing.
    LsdFirst,
}

/// How many digits the operands have at a length.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operands {
    /// The length is that of both together, and where the first ends is drawn.
    #[default]
    Split,
    /// The length is that of each.
    Equal,
}

/// A sentence for definitions.
pub(super) const IN_ANSWER: &str = "the scratchpad is part of the answer";

struct Addition {
    base: u64,
    order: DigitOrder,
    operands: Operands,
    /// Symbols that hints are drawn from; 0 for none.
    hints: u64,
    scratchpad: bool,
}

/// Coordinates of the tokens of `BOS a sign b SEP answer` on two axes, for numbers of these
/// lengths: places of digits as written, from 1, and their weights, with 2 for the ones and 1 for
/// the sign and SEP; 0 where there is none.
pub(super) fn digit_axes(lengths: [usize; 3], order: DigitOrder) -> Vec<Vec<f64>> {
    let (mut places, mut weights) = (vec![], vec![]);
    for (number, length) in lengths.into_iter().enumerate() {
        places.push(0.0);
        // BOS stands before the first number, the sign and SEP before the others.
        weights.push(if number == 0 { 0.0 } else { 1.0 });
        for place in 0..length {
            places.push((place + 1) as f64);
            let weight = match order {
                DigitOrder::LsdFirst => place,
                DigitOrder::MsdFirst => length - 1 - place,
            };
            weights.push((weight + 2) as f64);
        }
    }
    vec![places, weights]
}

impl Addition {
    /// Tokens of digits, with their hints.
    fn tokens(&self, digits: usize) -> usize {
        if self.hints > 0 { 2 * digits } else { digits }
    }

    /// A number with a hint before every digit; `first` is that of the digit of the least weight.
    fn hinted(&self, number: Vec<i32>, first: u64) -> Vec<i32> {
        if self.hints == 0 {
            return number;
        }
        let (first, digits) = (self.base + 1 + first, number.len());
        let weight = |place| match self.order {
            DigitOrder::LsdFirst => place,
            DigitOrder::MsdFirst => digits - 1 - place,
        };
        let pair = |(place, digit)| [first as i32 + weight(place) as i32, digit];
        number.into_iter().enumerate().flat_map(pair).collect()
    }

    /// The steps of adding two numbers of equal length, least significant digit first.
    fn steps(&self, a: &[u64], b: &[u64]) -> Vec<i32> {
        let mut carry = 0;
        let step = |(&x, &y): (&u64, &u64)| {
            let sum = x + y + carry;
            let step = [x, y, carry, sum % self.base].map(|digit| digit as i32);
            carry = sum / self.base;
            step
        };
        a.iter().zip(b).flat_map(step).collect()
    }

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
        self.base + 1 + self.hints + u64::from(self.scratchpad)
    }
    /// The digits as written, then where the plus stands, or which hint is the first.
    fn choices(&self, n: usize) -> Vec<u64> {
        if self.operands == Operands::Equal {
            let mut choices = vec![self.base; 2 * n];
            if self.hints > 0 {
                choices.push(self.hints - n as u64);
            }
            return choices;
        }
        let mut choices = vec![self.base; n];
        choices.push((n as u64 - 1).max(1));
        choices
    }
    /// The operands: with other hints a sum is the same.
    fn held_choices(&self, n: usize) -> usize {
        self.choices(n).len() - usize::from(self.hints > 0)
    }
    fn question_len(&self, n: usize) -> usize {
        match self.operands {
            Operands::Split => n + 1,
            Operands::Equal => self.tokens(2 * n) + 1,
        }
    }
    fn answer_len(&self, n: usize) -> usize {
        match self.operands {
            Operands::Split => n,
            // Four tokens for each digit, and the equals sign.
            Operands::Equal if self.scratchpad => 5 * n + 2,
            Operands::Equal => self.tokens(n + 1),
        }
    }
    fn axes(&self, n: usize) -> Vec<Vec<f64>> {
        match self.operands {
            Operands::Equal if self.hints == 0 && !self.scratchpad => {
                digit_axes([n, n, n + 1], self.order)
            }
            _ => Vec::new(),
        }
    }
    fn row(&self, n: usize, choices: &[u64]) -> Row {
        let (a, b) = match self.operands {
            // At n = 1 `b` has no digits and counts as 0.
            Operands::Split => choices[..n].split_at(1 + choices[n] as usize),
            Operands::Equal => choices[..2 * n].split_at(n),
        };
        let sum_len = match self.operands {
            Operands::Split => n,
            Operands::Equal => n + 1,
        };
        let first = choices.get(2 * n).copied().unwrap_or(0);
        let from_ones = |number: &[u64]| match self.order {
            DigitOrder::LsdFirst => number.to_vec(),
            DigitOrder::MsdFirst => number.iter().rev().copied().collect(),
        };
        let (ones_a, ones_b) = (from_ones(a), from_ones(b));
        let mut sum = self.add(&ones_a, &ones_b, sum_len);
        if self.order == DigitOrder::MsdFirst {
            sum.reverse();
        }
        let written = |number: &[u64]| {
            let digits = number.iter().map(|&digit| digit as i32).collect();
            self.hinted(digits, first)
        };
        let question = [written(a), vec![self.base as i32], written(b)].concat();
        if self.scratchpad {
            let equals = self.base as i32 + 1;
            let steps = self.steps(&ones_a, &ones_b);
            return Row::new(question, [steps, vec![equals], sum].concat());
        }
        Row::new(question, self.hinted(sum, first))
    }
    fn guess(&self) -> f64 {
        1.0 / self.base as f64
    }
    fn remark(&self) -> Option<String> {
        if self.scratchpad {
            return Some(IN_ANSWER.to_owned());
        }
        (self.hints > 0)
            .then(|| "rows are kept apart by their operands, whatever their hints".into())
    }
    fn name(&self, symbol: i32) -> String {
        match symbol - self.base as i32 {
            0 => "+".to_string(),
            1 if self.scratchpad => "=".to_string(),
            hint @ 1.. => format!("h{hint}"),
            _ => symbol.to_string(),
        }
    }
}

/// `kind = "addition"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct AdditionConfig {
    /// Base of the numbers: digits are below it; 2 to 4096.
    #[default = 10]
    pub base: u64,
    /// Order of the digits.
    #[default(DigitOrder::MsdFirst)]
    pub digits: DigitOrder,
    /// Number of digits of the operands at a length.
    #[serde(skip_serializing_if = "schema::is_default")]
    #[default(Operands::Split)]
    pub operands: Operands,
    /// Symbols from which the hints before the digits are drawn, 0 to 65536; 0 for no hints. Needs
    /// `operands = "equal"` and one more than the digits of the longest operand.
    #[serde(skip_serializing_if = "schema::is_default")]
    pub hints: u64,
    /// Whether the answer begins with the steps of the addition. Needs `operands = "equal"`.
    #[serde(skip_serializing_if = "schema::is_default")]
    pub scratchpad: bool,
    /// Number of test rows at each length, 1 to 1000000; all rows of a length where there are
    /// fewer.
    #[default = 256]
    pub test_rows: u64,
}

impl TaskSpec for AdditionConfig {
    const SUMMARY: &'static str = "the sum of two numbers, plain or with reversed digits";
    fn examples() -> Vec<String> {
        let row = |base, order, digits: &[u64], plus: u64| {
            let rule = Addition {
                base,
                order,
                operands: Operands::Split,
                hints: 0,
                scratchpad: false,
            };
            show(
                &rule,
                &rule.row(digits.len(), &[digits, &[plus - 1]].concat()),
            )
        };
        let hinted = Addition {
            base: 10,
            order: DigitOrder::LsdFirst,
            operands: Operands::Equal,
            hints: 102,
            scratchpad: false,
        };
        let steps = Addition {
            hints: 0,
            scratchpad: true,
            ..hinted
        };
        let (plain, reversed) = (DigitOrder::MsdFirst, DigitOrder::LsdFirst);
        vec![
            row(10, plain, &[9, 7, 8], 2),
            row(10, plain, &[5, 3, 7, 2, 6, 1, 9, 1, 7, 7], 5),
            row(10, reversed, &[7, 9, 8], 2),
            row(2, reversed, &[0, 0, 1, 0, 1, 1, 0, 1], 3),
            show(&hinted, &hinted.row(2, &[7, 0, 8, 1, 2])),
            show(&steps, &steps.row(2, &[7, 0, 8, 1])),
        ]
    }
    fn build(&self, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
        in_range(
            "base",
            self.base,
            2..=4096,
            "digits are below it; 10 is decimal",
        )?;
        self.check_hints(ctx)?;
        self.check_scratchpad()?;
        let rule = Addition {
            base: self.base,
            order: self.digits,
            operands: self.operands,
            hints: self.hints,
            scratchpad: self.scratchpad,
        };
        SymbolTask::boxed(rule, self.test_rows, ctx)
    }
}

impl AdditionConfig {
    /// Checks that both operands have a digit for every step, and nothing before it.
    fn check_scratchpad(&self) -> Result<(), Invalid> {
        let (problem, help) = match (self.operands, self.hints) {
            _ if !self.scratchpad => return Ok(()),
            (Operands::Split, _) => (
                "has a step for the digits of both operands, and operands of any lengths are drawn",
                "set task.operands = \"equal\"",
            ),
            (Operands::Equal, 1..) => ("takes no hints", "remove hints or scratchpad"),
            (Operands::Equal, 0) => return Ok(()),
        };
        Err(Invalid::new("scratchpad", true, problem, "false", help))
    }

    /// Checks that there are hints for the sum of the longest operands.
    fn check_hints(&self, ctx: &BuildContext<'_>) -> Result<(), TaskError> {
        let hint = "the symbols that hints are drawn from; 102 in the paper, 0 for no hints";
        in_range("hints", self.hints, 0..=65536, hint)?;
        if self.hints == 0 {
            return Ok(());
        }
        if self.operands == Operands::Split {
            let problem = "name digits of equal weight, and operands of any lengths are drawn";
            let help = "set task.operands = \"equal\"";
            return Err(Invalid::new("hints", self.hints, problem, "0", help).into());
        }
        let lengths = ctx.test_lens.iter().copied().chain([ctx.train_len]);
        let least = lengths.max().unwrap_or(1) as u64 + 1;
        if self.hints < least {
            let problem = format!("are fewer than the {least} digits of the longest sum");
            let allowed = format!("0, or {least} to 65536");
            let help = "use more hints, or shorter lengths";
            return Err(Invalid::new("hints", self.hints, problem, allowed, help).into());
        }
        Ok(())
    }
}
