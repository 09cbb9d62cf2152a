//! Selective copy: a few symbols are scattered among blanks, and the answer is these symbols in
//! order.
//!
//! Example (3 symbols at length 8, `.` is a blank): `BOS . 4 . . 11 4 . . SEP | 4 11 4 EOS`. All
//! rows have `data` symbols, at places drawn uniformly. Lengths below `data` are refused.
//!
//! Held out: by hash (the order of drawing places does not show).
//!
//! Source: selective copying of Gu and Dao 2023 (arXiv 2312.00752): 16 symbols of 16 kinds among
//! 4096 places.

use crate::symbols::{HeldOut, Row, Rule, SymbolTask, check_alphabet, check_fits, distinct, show};
use crate::{BuildContext, Task, TaskError, TaskSpec};
use schema::{Invalid, in_range};
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

struct SelectiveCopy {
    alphabet: u64,
    data: u64,
}

impl SelectiveCopy {
    fn data(&self, n: usize) -> usize {
        n.min(self.data as usize)
    }
}

impl Rule for SelectiveCopy {
    fn kind(&self) -> &'static str {
        "selective_copy"
    }
    /// The blank comes after the others.
    fn symbols(&self) -> u64 {
        self.alphabet + 1
    }
    fn check_len(&self, n: usize) -> Result<(), Invalid> {
        check_fits("data", self.data as usize, 1, n)
    }
    /// The symbols in order, then their places.
    fn choices(&self, n: usize) -> Vec<u64> {
        let mut choices = vec![self.alphabet; self.data(n)];
        choices.extend((0..self.data(n)).map(|taken| (n - taken) as u64));
        choices
    }
    fn held_out(&self) -> HeldOut {
        HeldOut::ByHash
    }
    fn answer_len(&self, n: usize) -> usize {
        self.data(n)
    }
    fn row(&self, n: usize, choices: &[u64]) -> Row {
        let (data, places) = choices.split_at(self.data(n));
        let mut places = distinct(places);
        // Symbols come in the order of the answer.
        places.sort_unstable();
        let answer: Vec<i32> = data.iter().map(|&symbol| symbol as i32).collect();
        let mut question = vec![self.alphabet as i32; n];
        places
            .iter()
            .zip(&answer)
            .for_each(|(&place, &symbol)| question[place as usize] = symbol);
        Row::new(question, answer)
    }
    fn guess(&self) -> f64 {
        1.0 / self.alphabet as f64
    }
    fn name(&self, symbol: i32) -> String {
        if symbol == self.alphabet as i32 {
            ".".to_string()
        } else {
            symbol.to_string()
        }
    }
}

/// `kind = "selective_copy"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct SelectiveCopyConfig {
    /// Number of different symbols beside the blank, 2 to 4096.
    #[default = 16]
    pub alphabet: u64,
    /// Number of symbols among the blanks, 1 to the shortest length trained or tested on.
    #[default = 16]
    pub data: u64,
    /// Number of test rows at each length, 1 to 1000000.
    #[default = 256]
    pub test_rows: u64,
}

impl TaskSpec for SelectiveCopyConfig {
    const SUMMARY: &'static str = "write the symbols that are scattered among blanks";
    fn examples() -> Vec<String> {
        let rule = SelectiveCopy {
            alphabet: 16,
            data: 3,
        };
        vec![show(&rule, &rule.row(8, &[4, 11, 4, 5, 1, 3]))]
    }
    fn build(&self, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
        check_alphabet(self.alphabet)?;
        in_range(
            "data",
            self.data,
            1..=65_536,
            "the number of symbols among the blanks",
        )?;
        SymbolTask::boxed(
            SelectiveCopy {
                alphabet: self.alphabet,
                data: self.data,
            },
            self.test_rows,
            ctx,
        )
    }
}
