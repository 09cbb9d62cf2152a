//! Count: how often the last symbol of the question occurs in the string before it.
//!
//! Example (4 symbols): `BOS a c b a a d a SEP | 3 EOS`: there are 3 a in `a c b a a d`. Length n
//! is the length of the string, so the question has n + 1 symbols. The answer is a decimal number
//! with as many digits as n has, most significant first, so that all rows of a length have the
//! same number of tokens.
//!
//! Held out: by choices (the question).
//!
//! Source: counting as in the formal-language studies of transformers (for one, Kazemnejad et al.
//! 2023, arXiv 2305.19466); the asked symbol at the end and the digits are this project's choice.

use crate::symbols::{Row, Rule, SymbolTask, check_alphabet, digits, digits_len, show};
use crate::{BuildContext, Task, TaskError, TaskSpec};
use serde::{Deserialize, Serialize};

/// Symbols 0 to 9 are the digits of answers, the others those of strings.
const FIRST_LETTER: i32 = 10;

struct Count {
    alphabet: u64,
}

impl Rule for Count {
    fn kind(&self) -> &'static str {
        "count"
    }
    fn symbols(&self) -> u64 {
        self.alphabet + FIRST_LETTER as u64
    }
    fn choices(&self, n: usize) -> Vec<u64> {
        vec![self.alphabet; n + 1]
    }
    fn question_len(&self, n: usize) -> usize {
        n + 1
    }
    fn answer_len(&self, n: usize) -> usize {
        digits_len(n)
    }
    fn row(&self, n: usize, choices: &[u64]) -> Row {
        let count = choices[..n]
            .iter()
            .filter(|symbol| **symbol == choices[n])
            .count();
        let question = choices
            .iter()
            .map(|&symbol| FIRST_LETTER + symbol as i32)
            .collect();
        Row::new(question, digits(count, digits_len(n)))
    }
    fn guess(&self) -> f64 {
        0.1
    }
    fn name(&self, symbol: i32) -> String {
        match symbol - FIRST_LETTER {
            letter @ 0..26 => char::from(b'a' + letter as u8).to_string(),
            letter if letter >= 26 => format!("s{letter}"),
            _ => symbol.to_string(),
        }
    }
}

/// `kind = "count"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CountConfig {
    /// Number of different symbols in a string, 2 to 4096.
    pub alphabet: u64,
    /// Number of test rows at each length, 1 to 1000000; all rows of a length where there are
    /// fewer.
    pub test_rows: u64,
}

impl Default for CountConfig {
    fn default() -> Self {
        Self {
            alphabet: 4,
            test_rows: 256,
        }
    }
}

impl TaskSpec for CountConfig {
    const SUMMARY: &'static str = "how often the last symbol occurs before it";
    fn examples() -> Vec<String> {
        let row = |choices: &[u64]| {
            show(
                &Count { alphabet: 4 },
                &Count { alphabet: 4 }.row(choices.len() - 1, choices),
            )
        };
        vec![
            row(&[0, 2, 1, 0, 0, 3, 0]),
            row(&[1, 1, 2, 3, 1, 0, 0, 0, 2, 2, 3]),
        ]
    }
    fn build(&self, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
        check_alphabet(self.alphabet)?;
        SymbolTask::boxed(
            Count {
                alphabet: self.alphabet,
            },
            self.test_rows,
            ctx,
        )
    }
}
