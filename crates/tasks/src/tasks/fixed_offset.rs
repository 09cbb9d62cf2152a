//! Fixed offset: the symbol k places from the end of a string.
//!
//! Example: `BOS 3 1 4 1 5 9 2 # 0 0 0 3 SEP | 5 EOS`: the third symbol from the end is 5. Length n
//! is that of the string; k follows it as four decimal digits, so the question has n + 5 tokens. k
//! is drawn for every row, uniform from 1, which asks for the last symbol, to n or `max_offset`,
//! whichever is less. Digits of k and the first ten symbols of a string are the same tokens.
//!
//! Held out: by choices (the question).
//!
//! Source: positional probe of DaRoPE's synthetic tasks (arXiv 2609.34556, section E.4). The paper
//! does not say how k is drawn; `max_offset` is this project's choice.

use crate::symbols::{Row, Rule, SymbolTask, check_alphabet, digits, show};
use crate::{BuildContext, Task, TaskError, TaskSpec};
use schema::in_range;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// Decimal digits of an offset.
const DIGITS: usize = 4;
const MOST: u64 = 10u64.pow(DIGITS as u32) - 1;

struct FixedOffset {
    alphabet: u64,
    max_offset: u64,
}

impl FixedOffset {
    /// Symbols of strings and of digits come before it.
    fn mark(&self) -> i32 {
        self.alphabet.max(10) as i32
    }
}

impl Rule for FixedOffset {
    fn kind(&self) -> &'static str {
        "fixed_offset"
    }
    fn symbols(&self) -> u64 {
        self.mark() as u64 + 1
    }
    /// The string, then the offset less one.
    fn choices(&self, n: usize) -> Vec<u64> {
        let mut choices = vec![self.alphabet; n];
        choices.push(self.max_offset.min(n as u64));
        choices
    }
    fn question_len(&self, n: usize) -> usize {
        n + 1 + DIGITS
    }
    fn answer_len(&self, _: usize) -> usize {
        1
    }
    fn row(&self, n: usize, choices: &[u64]) -> Row {
        let mut question: Vec<i32> = choices[..n].iter().map(|&symbol| symbol as i32).collect();
        let offset = choices[n] as usize + 1;
        let answer = vec![question[n - offset]];
        question.push(self.mark());
        question.extend(digits(offset, DIGITS));
        Row::new(question, answer)
    }
    fn guess(&self) -> f64 {
        1.0 / self.alphabet as f64
    }
    fn name(&self, symbol: i32) -> String {
        match symbol == self.mark() {
            true => "#".to_owned(),
            false => symbol.to_string(),
        }
    }
}

/// `kind = "fixed_offset"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct FixedOffsetConfig {
    /// Number of different symbols in a string, 2 to 4096.
    #[default = 10]
    pub alphabet: u64,
    /// Largest offset, 1 to 9999; 1 is the last symbol. Strings that are shorter have offsets up to
    /// their length.
    #[default(MOST)]
    pub max_offset: u64,
    /// Number of test rows at each length, 1 to 1000000; all rows of a length where there are
    /// fewer.
    #[default = 256]
    pub test_rows: u64,
}

impl TaskSpec for FixedOffsetConfig {
    const SUMMARY: &'static str = "the symbol a given number of places from the end";
    fn examples() -> Vec<String> {
        let rule = FixedOffset {
            alphabet: 10,
            max_offset: MOST,
        };
        vec![show(&rule, &rule.row(7, &[3, 1, 4, 1, 5, 9, 2, 2]))]
    }
    fn build(&self, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
        check_alphabet(self.alphabet)?;
        let hint = "offsets are written with four digits; 1 is the last symbol";
        in_range("max_offset", self.max_offset, 1..=MOST, hint)?;
        let rule = FixedOffset {
            alphabet: self.alphabet,
            max_offset: self.max_offset,
        };
        SymbolTask::boxed(rule, self.test_rows, ctx)
    }
}
