//! Needles: names and their numbers are hidden in long filler, and some names are asked for.
//!
//! Example (2 names, 1 number of 2 digits each, 1 asked for, 3 filler tokens): `BOS f0 k5 4 7 f1 f2
//! k3 1 9 f0 k3 SEP | 1 9 EOS`. Length n is the number of filler tokens. Every needle, a name and
//! one of its numbers, stands after a number of filler tokens that is uniform from 0 to n; needles
//! at one place keep the order in which they were drawn. The names asked for stand last, and the
//! answer is their numbers: name by name, those of a name in the order of the text. The filler
//! repeats the same few tokens again and again, is random (`random_filler`), or is n consecutive
//! bytes of a real text (`text`), as in `passkey`: digits of the text are the tokens of the
//! numbers, and names are tokens of their own.
//!
//! Held out: by hash (several draws make one row).
//!
//! Source: the needle tasks of RULER (Hsieh et al. 2024, arXiv 2404.06654; NVIDIA/RULER, `niah.py`)
//! with several keys, values and queries. In tokens instead of English here, and always in one
//! order, where RULER accepts any.

use super::filler::{FILLER, Filler, FillerKeys};
use crate::symbols::{HeldOut, Row, Rule, distinct, show};
use crate::text::Haystack;
use crate::{BuildContext, Task, TaskError, TaskSpec};
use schema::in_range;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// Symbols 0 to 9 are the digits.
const FIRST_NAME: i32 = 10;

struct Needles {
    names: u64,
    keys: usize,
    values: usize,
    queries: usize,
    digits: usize,
    filler: Filler,
}

impl Needles {
    fn needles(&self) -> usize {
        self.keys * self.values
    }
    fn first_filler(&self) -> i32 {
        FIRST_NAME + self.names as i32
    }
}

/// What stands in filler: `parts`, each with the number of filler tokens before it, among `filler`.
/// Parts at one place keep their order.
pub(super) fn inserted(filler: &[i32], parts: &[(usize, Vec<i32>)]) -> Vec<i32> {
    let mut read = Vec::new();
    for place in 0..=filler.len() {
        let here = parts.iter().filter(|(depth, _)| *depth == place);
        here.for_each(|(_, part)| read.extend(part));
        read.extend(filler.get(place));
    }
    read
}

impl Rule for Needles {
    fn kind(&self) -> &'static str {
        "needles"
    }
    fn unit(&self) -> &'static str {
        self.filler.unit()
    }
    fn symbols(&self) -> u64 {
        FIRST_NAME as u64 + self.names + self.filler.symbols()
    }
    /// Names, digits, depths, the names asked for, and the filler if it is drawn.
    fn choices(&self, n: usize) -> Vec<u64> {
        // Without replacement: every choice is among one fewer (`distinct` turns them into ids).
        let mut choices: Vec<u64> = (0..self.keys as u64)
            .map(|taken| self.names - taken)
            .collect();
        choices.extend(vec![10; self.needles() * self.digits]);
        choices.extend(vec![n as u64 + 1; self.needles()]);
        choices.extend((0..self.queries).map(|taken| (self.keys - taken) as u64));
        choices.extend(self.filler.choices(n));
        choices
    }
    fn held_out(&self) -> HeldOut {
        HeldOut::ByHash
    }
    fn question_len(&self, n: usize) -> usize {
        n + self.needles() * (1 + self.digits) + self.queries
    }
    fn answer_len(&self, _: usize) -> usize {
        self.queries * self.values * self.digits
    }
    fn row(&self, n: usize, choices: &[u64]) -> Row {
        let (names, rest) = choices.split_at(self.keys);
        let (digits, rest) = rest.split_at(self.needles() * self.digits);
        let (depths, rest) = rest.split_at(self.needles());
        let (asked, drawn) = rest.split_at(self.queries);
        let names: Vec<i32> = distinct(names)
            .into_iter()
            .map(|name| FIRST_NAME + name as i32)
            .collect();
        let numbers: Vec<Vec<i32>> = digits
            .chunks(self.digits)
            .map(|number| number.iter().map(|&digit| digit as i32).collect())
            .collect();
        // Needle i is number i % values of name i / values.
        let parts: Vec<(usize, Vec<i32>)> = numbers
            .iter()
            .zip(depths)
            .enumerate()
            .map(|(i, (number, &depth))| {
                let name = names[i / self.values];
                (depth as usize, [&[name], number.as_slice()].concat())
            })
            .collect();
        let filler = self.filler.tokens(n, drawn, self.first_filler());
        let mut question = inserted(&filler, &parts);
        let mut answer = Vec::new();
        for key in distinct(asked) {
            let key = key as usize;
            question.push(names[key]);
            let mut own: Vec<usize> = (key * self.values..(key + 1) * self.values).collect();
            // In the order of the text; a stable sort, as needles at one place keep theirs.
            own.sort_by_key(|&needle| depths[needle]);
            own.iter()
                .for_each(|&needle| answer.extend(&numbers[needle]));
        }
        Row::new(question, answer)
    }
    fn guess(&self) -> f64 {
        0.1
    }
    fn remark(&self) -> Option<String> {
        self.filler.remark()
    }
    fn name(&self, symbol: i32) -> String {
        let first_filler = self.first_filler();
        match symbol {
            _ if symbol >= first_filler => self.filler.name(symbol - first_filler),
            FIRST_NAME.. => format!("k{}", symbol - FIRST_NAME),
            _ => symbol.to_string(),
        }
    }
}

/// `kind = "needles"`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct NeedlesConfig {
    /// Number of different names, 1 to 4096.
    #[default = 64]
    pub names: u64,
    /// Number of names in one example, 1 to 64, and at most `names`.
    #[default = 4]
    pub keys: u64,
    /// Number of numbers that each name of a row has, 1 to 16.
    #[default = 1]
    pub values: u64,
    /// Number of names asked for, 1 to `keys`.
    #[default = 1]
    pub queries: u64,
    /// Number of digits of a number, 1 to 16.
    #[default = 4]
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
    /// Number of test rows at each length, 1 to 1000000.
    #[default = 256]
    pub test_rows: u64,
}

impl NeedlesConfig {
    fn filler(&self) -> FillerKeys<'_> {
        FillerKeys {
            filler: self.filler,
            random_filler: self.random_filler,
            text: self.text.as_ref(),
        }
    }
    fn rule(&self, filler: Filler) -> Needles {
        Needles {
            names: self.names,
            keys: self.keys as usize,
            values: self.values as usize,
            queries: self.queries as usize,
            digits: self.digits as usize,
            filler,
        }
    }
}

impl TaskSpec for NeedlesConfig {
    const SUMMARY: &'static str = "the numbers of the names asked for, hidden in long filler";
    fn examples() -> Vec<String> {
        let config = |keys, values, queries| Self {
            keys,
            values,
            queries,
            digits: 2,
            filler: 3,
            ..Self::default()
        };
        let row = |config: Self, choices: &[u64]| {
            let rule = config.rule(config.filler().plain());
            show(&rule, &rule.row(4, choices))
        };
        vec![
            row(config(2, 1, 1), &[5, 3, 4, 7, 1, 9, 1, 3, 1]),
            row(config(2, 1, 2), &[5, 3, 4, 7, 1, 9, 1, 3, 1, 0]),
            row(config(1, 2, 1), &[5, 4, 7, 1, 9, 3, 1, 0]),
        ]
    }
    fn build(&self, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
        let hint = "the number of different names";
        in_range("names", self.names, 1..=4096, hint)?;
        let hint = "the names of a row are distinct";
        in_range("keys", self.keys, 1..=self.names.min(64), hint)?;
        in_range("values", self.values, 1..=16, "the numbers of each name")?;
        let hint = "the names asked for are among those of the row";
        in_range("queries", self.queries, 1..=self.keys, hint)?;
        in_range("digits", self.digits, 1..=16, "the digits of each number")?;
        let rule = |filler| self.rule(filler);
        self.filler().task(rule, self.test_rows, ctx)
    }
}
