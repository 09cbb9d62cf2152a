//! Majority: the answer to a string is its most frequent symbol.
//!
//! Example: `BOS 1 0 1 1 0 SEP | 1 EOS`. Bits are uniform unless `draw = "balanced"`: then the
//! number of zeros is uniform, so that near-ties are as rare as clear majorities. The answer to a
//! tie of bits is 0, which at even lengths makes 0 the answer of more than half of the rows;
//! balanced strings have no ties. With `alphabet` above 2 strings are uniform among those without a
//! tie. With `interleaved = 3` a row holds three strings, one symbol of each in turn, and the
//! answer has one symbol for each string. Length n is that of a string.
//!
//! Held out: by choices (the string itself) where bits are uniform; else by hash, because several
//! draws make one string.
//!
//! Sources: majority of formal-language studies of transformers (for one, zoology, arXiv
//! 2312.04927), which leave ties open: that a uniform tie is 0 is this project's choice. All else
//! as in Huang et al. 2025 (arXiv 2410.02140), `algorithmic/language_modeling_train.py` of
//! lacoco-lab/length_generalization: binary majority draws the number of zeros uniformly and
//! again at a tie; majority of 26 letters draws letters uniformly and again at a tie; three
//! balanced strings are interleaved, and a length there is that of the whole.

use crate::symbols::{
    HeldOut, Row, Rule, SymbolTask, check_alphabet, show, shuffle_choices, shuffled_bits,
};
use crate::{BuildContext, Stream, Task, TaskError, TaskSpec};
use schema::{Invalid, in_range};
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// Values of a choice that names a stream of draws.
const STREAMS: u64 = 1 << 53;

/// How strings of bits are drawn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BitDraw {
    /// Every symbol by itself.
    #[default]
    Uniform,
    /// The number of zeros first, uniform, then their places.
    Balanced,
}

struct Majority {
    alphabet: u64,
    draw: BitDraw,
    interleaved: usize,
}

/// The most frequent symbol of a string, the smallest of them at a tie, and whether it is one.
fn most_frequent(string: &[i32]) -> (i32, bool) {
    let mut sorted = string.to_vec();
    sorted.sort_unstable();
    let (mut best, mut times, mut tied) = (0, 0, false);
    for equal in sorted.chunk_by(|a, b| a == b) {
        if equal.len() > times {
            (best, times, tied) = (equal[0], equal.len(), false);
        } else if equal.len() == times {
            tied = true;
        }
    }
    (best, tied)
}

impl Majority {
    /// The choices of one string.
    fn string_choices(&self, n: usize) -> Vec<u64> {
        match self.draw {
            BitDraw::Uniform if self.alphabet == 2 => vec![2; n],
            // The symbols, and the stream of further draws after a tie.
            BitDraw::Uniform => {
                let mut choices = vec![self.alphabet; n];
                choices.push(STREAMS);
                choices
            }
            // The number of zeros, and how places are shuffled.
            BitDraw::Balanced => {
                let counts = if n.is_multiple_of(2) { n } else { n + 1 };
                [counts as u64]
                    .into_iter()
                    .chain(shuffle_choices(n))
                    .collect()
            }
        }
    }

    fn string(&self, n: usize, choices: &[u64]) -> Vec<i32> {
        let drawn = |choices: &[u64]| choices.iter().map(|&c| c as i32).collect::<Vec<i32>>();
        match self.draw {
            BitDraw::Uniform if self.alphabet == 2 => drawn(choices),
            BitDraw::Uniform => {
                let mut string = drawn(&choices[..n]);
                let mut more = Stream::new(choices[n], "majority/ties", n as u64);
                while most_frequent(&string).1 {
                    string.fill_with(|| more.below(self.alphabet) as i32);
                }
                string
            }
            BitDraw::Balanced => {
                let zeros = choices[0] as usize;
                // Half of an even length would be a tie.
                let is_past_half = n.is_multiple_of(2) && zeros >= n / 2;
                let zeros = zeros + usize::from(is_past_half);
                shuffled_bits(n, zeros, &choices[1..])
            }
        }
    }
}

impl Rule for Majority {
    fn kind(&self) -> &'static str {
        "majority"
    }
    fn unit(&self) -> &'static str {
        if self.interleaved == 1 {
            "symbols"
        } else {
            "symbols of each string"
        }
    }
    fn symbols(&self) -> u64 {
        self.alphabet
    }
    fn choices(&self, n: usize) -> Vec<u64> {
        self.string_choices(n).repeat(self.interleaved)
    }
    fn held_out(&self) -> HeldOut {
        if self.alphabet == 2 && self.draw == BitDraw::Uniform {
            HeldOut::ByChoices
        } else {
            HeldOut::ByHash
        }
    }
    fn question_len(&self, n: usize) -> usize {
        n * self.interleaved
    }
    fn answer_len(&self, _: usize) -> usize {
        self.interleaved
    }
    fn row(&self, n: usize, choices: &[u64]) -> Row {
        let each = choices.chunks(choices.len() / self.interleaved);
        let strings: Vec<Vec<i32>> = each.map(|choices| self.string(n, choices)).collect();
        let question = (0..n)
            .flat_map(|i| strings.iter().map(move |string| string[i]))
            .collect();
        let answer = strings.iter().map(|string| most_frequent(string).0);
        Row::new(question, answer.collect())
    }
    fn guess(&self) -> f64 {
        1.0 / self.alphabet as f64
    }
    fn remark(&self) -> Option<String> {
        let ties = "strings without one most frequent symbol are drawn again";
        (self.held_out() == HeldOut::ByHash).then(|| ties.to_owned())
    }
}

/// `kind = "majority"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct MajorityConfig {
    /// Number of different symbols, 2 to 4096.
    #[serde(skip_serializing_if = "is_two")]
    #[default = 2]
    pub alphabet: u64,
    /// How strings are drawn; `balanced` is for bits.
    #[serde(skip_serializing_if = "schema::is_default")]
    #[default(BitDraw::Uniform)]
    pub draw: BitDraw,
    /// Number of strings in one example, symbol by symbol in turn, 1 to 16.
    #[serde(skip_serializing_if = "is_one")]
    #[default = 1]
    pub interleaved: u64,
    /// Number of test rows at each length, 1 to 1000000; all rows of a length where there are
    /// fewer and bits are uniform.
    #[default = 256]
    pub test_rows: u64,
}

fn is_two(number: &u64) -> bool {
    *number == 2
}

fn is_one(number: &u64) -> bool {
    *number == 1
}

impl TaskSpec for MajorityConfig {
    const SUMMARY: &'static str = "the most frequent symbol";
    fn examples() -> Vec<String> {
        let row = |alphabet, interleaved: usize, symbols: &[u64]| {
            let rule = Majority {
                alphabet,
                draw: BitDraw::Uniform,
                interleaved,
            };
            show(&rule, &rule.row(symbols.len() / interleaved, symbols))
        };
        vec![
            row(2, 1, &[1, 0, 1, 1, 0]),
            row(2, 1, &[1, 0]),
            row(2, 3, &[1, 0, 1, 0, 0, 1, 1, 1, 0]),
        ]
    }
    fn build(&self, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
        check_alphabet(self.alphabet)?;
        if self.alphabet > 2 && self.draw == BitDraw::Balanced {
            let problem = format!("is for bits, and `alphabet` is {}", self.alphabet);
            let hint = "remove draw: strings of more symbols are uniform, without ties";
            return Err(Invalid::new("draw", "balanced", problem, "uniform", hint).into());
        }
        let hint = "the number of strings that take turns in one example";
        in_range("interleaved", self.interleaved, 1..=16, hint)?;
        let rule = Majority {
            alphabet: self.alphabet,
            draw: self.draw,
            interleaved: self.interleaved as usize,
        };
        SymbolTask::boxed(rule, self.test_rows, ctx)
    }
}
