//! Passkey: a number stands once somewhere in long filler, and the answer is the number.
//!
//! Example (2 digits, 3 filler tokens): `BOS f0 f1 f2 f0 key 4 7 f1 f2 SEP | 4 7 EOS`. Length n is
//! the number of filler tokens, so the question has n + 1 + `digits` tokens. The depth, how many
//! filler tokens stand before the key, is uniform from 0 to n; every fifth of the depths is also
//! scored on its own. The filler repeats the same few tokens again and again, or is random
//! (`random_filler`).
//!
//! Held out: by choices (number, depth and random filler).
//!
//! Source: passkey retrieval of Mohtashami and Jaggi 2023 (arXiv 2305.16300) as YaRN runs it (arXiv
//! 2309.00071): five filler sentences repeated, a number up to 50000, uniform depth. In tokens
//! instead of English here, always with the same number of digits (leading zeros included), and SEP
//! asks the question.

use crate::symbols::{Row, Rule, SymbolTask, show};
use crate::{BuildContext, Task, TaskError, TaskSpec};
use schema::in_range;
use serde::{Deserialize, Serialize};

/// Depths that are scored on their own, from the first filler token to the last.
const DEPTHS: usize = 5;
/// Symbols 0 to 9 are the digits.
const KEY: i32 = 10;
const FIRST_FILLER: i32 = 11;

struct Passkey {
    digits: usize,
    filler: u64,
    random_filler: bool,
}

impl Rule for Passkey {
    fn kind(&self) -> &'static str {
        "passkey"
    }
    fn unit(&self) -> &'static str {
        "filler tokens"
    }
    fn symbols(&self) -> u64 {
        FIRST_FILLER as u64 + self.filler
    }
    /// The digits, the depth, the filler if it is random.
    fn choices(&self, n: usize) -> Vec<u64> {
        let mut choices = vec![10; self.digits];
        choices.push(n as u64 + 1);
        if self.random_filler {
            choices.resize(self.digits + 1 + n, self.filler);
        }
        choices
    }
    fn question_len(&self, n: usize) -> usize {
        n + 1 + self.digits
    }
    fn answer_len(&self, _: usize) -> usize {
        self.digits
    }
    fn row(&self, n: usize, choices: &[u64]) -> Row {
        let number: Vec<i32> = choices[..self.digits]
            .iter()
            .map(|&digit| digit as i32)
            .collect();
        let depth = choices[self.digits] as usize;
        let filler = |i: usize| {
            if self.random_filler {
                choices[self.digits + 1 + i]
            } else {
                i as u64 % self.filler
            }
        };
        let mut question: Vec<i32> = (0..n).map(|i| FIRST_FILLER + filler(i) as i32).collect();
        question.splice(
            depth..depth,
            [KEY].into_iter().chain(number.iter().copied()),
        );
        Row::new(question, number)
    }
    fn groups(&self) -> Vec<(String, String)> {
        let group = |i: usize| {
            let (from, to) = (100 * i / DEPTHS, 100 * (i + 1) / DEPTHS);
            let end = if i + 1 == DEPTHS {
                "at most"
            } else {
                "less than"
            };
            (
                format!("depth_{from}_{to}"),
                format!(
                    "rows whose number has at least {from} % and {end} {to} % of the filler \
                     before it"
                ),
            )
        };
        (0..DEPTHS).map(group).collect()
    }
    fn group(&self, row: &Row) -> Option<usize> {
        let depth = row.question.iter().position(|symbol| *symbol == KEY)?;
        let filler = row.question.len() - 1 - self.digits;
        // A number after all filler has depth 100 % and joins the last group.
        Some((DEPTHS * depth / filler.max(1)).min(DEPTHS - 1))
    }
    fn guess(&self) -> f64 {
        0.1
    }
    fn name(&self, symbol: i32) -> String {
        match symbol {
            KEY => "key".to_string(),
            FIRST_FILLER.. => format!("f{}", symbol - FIRST_FILLER),
            _ => symbol.to_string(),
        }
    }
}

/// `kind = "passkey"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PasskeyConfig {
    /// Number of digits of the number, 1 to 64.
    pub digits: u64,
    /// Number of different filler tokens, 1 to 4096.
    pub filler: u64,
    /// Whether every filler token is drawn, instead of all of them in turn again and again.
    pub random_filler: bool,
    /// Number of test rows at each length, 1 to 1000000; all rows of a length where there are
    /// fewer.
    pub test_rows: u64,
}

impl Default for PasskeyConfig {
    fn default() -> Self {
        Self {
            digits: 5,
            filler: 5,
            random_filler: false,
            test_rows: 256,
        }
    }
}

impl TaskSpec for PasskeyConfig {
    const SUMMARY: &'static str = "the number that stands in long filler";
    fn examples() -> Vec<String> {
        let rule = Passkey {
            digits: 2,
            filler: 3,
            random_filler: false,
        };
        vec![show(&rule, &rule.row(6, &[4, 7, 4]))]
    }
    fn build(&self, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
        in_range(
            "digits",
            self.digits,
            1..=64,
            "the number of digits of the number to find",
        )?;
        in_range(
            "filler",
            self.filler,
            1..=4096,
            "the number of different filler tokens",
        )?;
        let rule = Passkey {
            digits: self.digits as usize,
            filler: self.filler,
            random_filler: self.random_filler,
        };
        Ok(Box::new(SymbolTask::new(rule, self.test_rows, ctx)?))
    }
}
