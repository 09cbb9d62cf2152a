//! Passkey: a number occurs once somewhere in long filler, and the answer is the number.
//!
//! Example (2 digits, 3 filler tokens): `BOS f0 f1 f2 f0 key 4 7 f1 f2 SEP | 4 7 EOS`. Length n is
//! the number of filler tokens, so the question has n + 1 + `digits` tokens. The depth, how many
//! filler tokens come before the key, is uniform from 0 to n; each fifth of the range of depths
//! is also scored on its own. The filler repeats the same few tokens again and again, or is random
//! (`random_filler`).
//!
//! With `text` the filler is n consecutive bytes of a real text. Training rows read them anywhere
//! in its training split, test rows in its validation split: `BOS l e t _ x key 4 7 = 1 SEP | 4 7
//! EOS`. A byte that is a digit is the same token as that digit of the number, and `key` is a token
//! of its own, so that the number is what follows `key`. Rows for selection read the part of the
//! validation split that `text` keeps for it.
//!
//! Held out: by choices (number, depth and random filler); in text by hash (passages may stand in
//! both splits).
//!
//! Source: passkey retrieval of Mohtashami and Jaggi 2023 (arXiv 2305.16300) as YaRN runs it (arXiv
//! 2309.00071): five filler sentences repeated, a number up to 50000, uniform depth. In tokens
//! instead of English here, always with the same number of digits (leading zeros included), and SEP
//! asks the question.

use super::filler::{FILLER, Filler, FillerKeys};
use crate::symbols::{HeldOut, Row, Rule, show};
use crate::text::Haystack;
use crate::{BuildContext, Task, TaskError, TaskSpec};
use schema::in_range;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// Depths that are scored on their own, from the first filler token to the last.
const DEPTHS: usize = 5;
/// Symbols 0 to 9 are the digits.
const KEY: i32 = 10;
const FIRST_FILLER: i32 = 11;

struct Passkey {
    digits: usize,
    filler: Filler,
}

impl Rule for Passkey {
    fn kind(&self) -> &'static str {
        "passkey"
    }
    fn unit(&self) -> &'static str {
        self.filler.unit()
    }
    fn symbols(&self) -> u64 {
        FIRST_FILLER as u64 + self.filler.symbols()
    }
    /// The digits, the depth, the filler if it is drawn.
    fn choices(&self, n: usize) -> Vec<u64> {
        let mut choices = vec![10; self.digits];
        choices.push(n as u64 + 1);
        choices.extend(self.filler.choices(n));
        choices
    }
    fn held_out(&self) -> HeldOut {
        self.filler.held_out(HeldOut::ByChoices)
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
        let drawn = &choices[self.digits + 1..];
        let mut question = self.filler.tokens(n, drawn, FIRST_FILLER);
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
    fn remark(&self) -> Option<String> {
        self.filler.remark()
    }
    fn name(&self, symbol: i32) -> String {
        match symbol {
            KEY => "key".to_string(),
            FIRST_FILLER.. => self.filler.name(symbol - FIRST_FILLER),
            _ => symbol.to_string(),
        }
    }
}

/// `kind = "passkey"`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct PasskeyConfig {
    /// Number of digits of the number, 1 to 64.
    #[default = 5]
    pub digits: u64,
    /// Number of different filler tokens, 1 to 4096.
    #[default(FILLER)]
    pub filler: u64,
    /// Whether every filler token is drawn, instead of all of them in turn again and again.
    pub random_filler: bool,
    /// Real text instead of filler tokens: a table with keys of the task `text` that say which;
    /// `{}` is the text that the program carries. Lengths then count bytes of text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<Haystack>,
    /// Number of test rows at each length, 1 to 1000000; all rows of a length where there are
    /// fewer.
    #[default = 256]
    pub test_rows: u64,
}

impl TaskSpec for PasskeyConfig {
    const SUMMARY: &'static str = "the number hidden in long filler";
    fn examples() -> Vec<String> {
        let row = |filler, n, choices: &[u64]| {
            let rule = Passkey { digits: 2, filler };
            show(&rule, &rule.row(n, choices))
        };
        vec![
            row(Filler::InTurn(3), 6, &[4, 7, 4]),
            row(Filler::Text(b"let x=1".to_vec()), 7, &[4, 7, 5, 0]),
        ]
    }
    fn build(&self, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
        in_range(
            "digits",
            self.digits,
            1..=64,
            "the number of digits of the number to find",
        )?;
        let keys = FillerKeys {
            filler: self.filler,
            random_filler: self.random_filler,
            text: self.text.as_ref(),
        };
        let digits = self.digits as usize;
        keys.task(|filler| Passkey { digits, filler }, self.test_rows, ctx)
    }
}
