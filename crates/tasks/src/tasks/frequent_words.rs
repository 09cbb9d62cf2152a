//! Frequent words: which words are the most frequent in a text of shuffled words.
//!
//! Example (1 asked for): `BOS . . w7 . . . . . . . . . . w7 SEP | w7 EOS`. Length n is the number
//! of words, dots included. The word of rank r occurs floor(n r^-`alpha` / zeta(`alpha`)) times,
//! for ranks from 2 on; rank 1 and what is left are dots, which are noise. Which word has which
//! rank is drawn for each row, and then the words are shuffled. The answer is the `top` words that
//! are the most frequent, from the most frequent on.
//!
//! A config is refused if, at one of its lengths, these words do not all occur more often than the
//! words ranked after them.
//!
//! Held out: by hash (several draws make one row).
//!
//! Source: frequent words extraction of RULER (Hsieh et al. 2024, arXiv 2404.06654; NVIDIA/RULER,
//! `freq_words_extraction.py`): alpha 2, three words, in any order there. A word is a token here
//! and six letters there, and rounded counts are made up with dots, where RULER has fewer words.

use crate::symbols::{HeldOut, Row, Rule, SymbolTask, distinct, show, shuffle_choices};
use crate::{BuildContext, Task, TaskError, TaskSpec};
use schema::{Invalid, in_range};
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;
use std::cmp::Reverse;
use std::ops::Bound::{Excluded, Included};

/// What is neither asked for nor counted.
const DOT: i32 = 0;

struct FrequentWords {
    words: u64,
    alpha: f64,
    top: usize,
}

/// Riemann's zeta of `s` > 1: a sum, and its rest by the formula of Euler and Maclaurin.
fn zeta(s: f64) -> f64 {
    const TERMS: i32 = 100;
    let end = f64::from(TERMS);
    let sum: f64 = (1..TERMS).map(|k| libm::pow(f64::from(k), -s)).sum();
    let at_end = libm::pow(end, -s);
    sum + at_end * (end / (s - 1.0) + 0.5 + s / (12.0 * end))
}

impl FrequentWords {
    /// How often each word of a row occurs in it, falling: words that do occur.
    fn counts(&self, n: usize) -> Vec<usize> {
        let scale = n as f64 / zeta(self.alpha);
        (0..self.words)
            .map(|word| (scale * libm::pow(word as f64 + 2.0, -self.alpha)) as usize)
            .take_while(|count| *count > 0)
            .collect()
    }

    /// Whether the words asked for are the only ones that occur as often as they do.
    fn is_clear(&self, n: usize) -> bool {
        let mut counts = self.counts(n);
        counts.push(0);
        counts.len() > self.top && counts[..=self.top].is_sorted_by(|a, b| a > b)
    }
}

/// The `top` most frequent words of a text, of equally frequent ones the first.
fn most_frequent(text: &[i32], words: u64, top: usize) -> Vec<i32> {
    let mut found: Vec<(usize, usize)> = vec![(0, 0); words as usize + 1];
    for (place, &word) in text.iter().enumerate() {
        let (count, first) = &mut found[word as usize];
        if *count == 0 {
            *first = place;
        }
        *count += 1;
    }
    let mut ranked: Vec<i32> = (1..=words as i32).collect();
    ranked.retain(|&word| found[word as usize].0 > 0);
    ranked.sort_by_key(|&word| {
        let (count, first) = found[word as usize];
        (Reverse(count), first)
    });
    ranked.resize(top, DOT);
    ranked
}

impl Rule for FrequentWords {
    fn kind(&self) -> &'static str {
        "frequent_words"
    }
    fn unit(&self) -> &'static str {
        "words"
    }
    fn symbols(&self) -> u64 {
        self.words + 1
    }
    fn check_len(&self, n: usize) -> Result<(), Invalid> {
        if self.is_clear(n) {
            return Ok(());
        }
        let mut counts = self.counts(n);
        counts.truncate(self.top + 1);
        let problem = format!(
            "asks for words that occur equally often, or for none, at length {n}: the most \
             frequent ones occur {counts:?} times there"
        );
        let next = (n..n + 100_000).find(|n| self.is_clear(*n));
        let allowed = match next {
            Some(next) => format!(
                "words that can be told apart at length {n}; {} words can be told apart at length {next}",
                self.top
            ),
            None => format!("words that can be told apart at length {n}"),
        };
        let hint = "use longer lengths, fewer words or another alpha";
        Err(Invalid::new("top", self.top, problem, allowed, hint))
    }
    /// The words, the most frequent first, and their shuffling.
    fn choices(&self, n: usize) -> Vec<u64> {
        // Without replacement: every choice is among one fewer (`distinct` undoes it).
        let words = (0..self.counts(n).len() as u64).map(|taken| self.words - taken);
        words.chain(shuffle_choices(n)).collect()
    }
    fn held_out(&self) -> HeldOut {
        HeldOut::ByHash
    }
    fn answer_len(&self, _: usize) -> usize {
        self.top
    }
    fn row(&self, n: usize, choices: &[u64]) -> Row {
        let counts = self.counts(n);
        let (words, places) = choices.split_at(counts.len());
        let mut text = Vec::with_capacity(n);
        for (word, count) in distinct(words).into_iter().zip(counts) {
            text.resize(text.len() + count, word as i32 + 1);
        }
        text.resize(n, DOT);
        for (last, &place) in (1..n).rev().zip(places) {
            text.swap(last, place as usize);
        }
        let answer = most_frequent(&text, self.words, self.top);
        Row::new(text, answer)
    }
    fn guess(&self) -> f64 {
        1.0 / self.words as f64
    }
    fn name(&self, symbol: i32) -> String {
        match symbol {
            DOT => ".".to_owned(),
            word => format!("w{word}"),
        }
    }
}

/// `kind = "frequent_words"`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct FrequentWordsConfig {
    /// Number of different words, 2 to 4096.
    #[default = 64]
    pub words: u64,
    /// How fast counts fall with the rank of a word, above 1 and at most 10.
    #[default = 2.0]
    pub alpha: f64,
    /// Number of words asked for, 1 to 16, and at most `words`.
    #[default = 3]
    pub top: u64,
    /// Number of test rows at each length, 1 to 1000000.
    #[default = 256]
    pub test_rows: u64,
}

impl TaskSpec for FrequentWordsConfig {
    const SUMMARY: &'static str = "the most frequent words of a text";
    fn examples() -> Vec<String> {
        let rule = FrequentWords {
            words: 9,
            alpha: 2.0,
            top: 1,
        };
        let shuffled = [6, 0, 8, 11, 3, 5, 5, 8, 4, 0, 5, 0, 1, 0];
        vec![show(&rule, &rule.row(14, &[&[6], &shuffled[1..]].concat()))]
    }
    fn build(&self, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
        let hint = "the number of different words";
        in_range("words", self.words, 2..=4096, hint)?;
        let range = (Excluded(1.0), Included(10.0));
        in_range("alpha", self.alpha, range, "RULER has 2; less is harder")?;
        let hint = "the words asked for are among those of the row; RULER has 3";
        in_range("top", self.top, 1..=self.words.min(16), hint)?;
        let rule = FrequentWords {
            words: self.words,
            alpha: self.alpha,
            top: self.top as usize,
        };
        SymbolTask::boxed(rule, self.test_rows, ctx)
    }
}
