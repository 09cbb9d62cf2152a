//! Shared by tasks that answer a string of symbols with another: layout, streams, test sets and scoring.
//!
//! A row is `BOS w SEP answer EOS`; the inputs are all tokens but the last, the targets all but the first, and the targets that
//! count are the answer and EOS. Length n is the length of `w`.
//!
//! Test rows of one length differ from each other. They are not kept out of training: with k symbols there are k^n strings, so
//! short test strings are also trained on, and long ones practically never are (16 symbols, n = 8: 4e9 strings).

use crate::error::check_range;
use crate::{Batch, BuildContext, Permutation, Scoring, Stream, Task, TaskError};
use std::collections::BTreeMap;

pub(crate) const BOS: i32 = 0;
pub(crate) const SEP: i32 = 1;
pub(crate) const EOS: i32 = 2;
/// Token id of symbol 0.
pub(crate) const FIRST_SYMBOL: i32 = 3;

/// Permuted part of a test string: as many leading symbols as have at most this many values.
const MAX_PREFIXES: u64 = 1 << 62;

/// What distinguishes one string task from another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rule {
    pub kind: &'static str,
    /// The answer to a string, over the same symbols.
    pub answer: fn(&[i32]) -> Vec<i32>,
    /// Length of the answer to a string of this length.
    pub answer_len: fn(usize) -> usize,
}

/// A string task over `alphabet` symbols.
#[derive(Debug, Clone)]
pub(crate) struct SymbolTask {
    rule: Rule,
    alphabet: u64,
    test_rows: u64,
    eval_seed: u64,
    train_purpose: String,
    test_purpose: String,
}

impl SymbolTask {
    pub(crate) fn new(rule: Rule, alphabet: u64, test_rows: u64, ctx: &BuildContext<'_>) -> Result<Self, TaskError> {
        check_range("alphabet", alphabet, 2, 4096, "the number of different symbols in a string")?;
        check_range("test_rows", test_rows, 1, 1_000_000, "the number of test strings at each length")?;
        let (train_purpose, test_purpose) = (format!("train-data/{}", rule.kind), format!("test-data/{}", rule.kind));
        Ok(Self { rule, alphabet, test_rows, eval_seed: ctx.eval_seed, train_purpose, test_purpose })
    }

    /// Appends the row of one string of symbol token ids.
    fn push_row(&self, batch: &mut Batch, string: &[i32]) {
        let mut row = Vec::with_capacity(batch.seq_len + 1);
        row.push(BOS);
        row.extend_from_slice(string);
        row.push(SEP);
        row.extend((self.rule.answer)(string));
        row.push(EOS);
        assert_eq!(row.len(), batch.seq_len + 1, "answer_len of {} disagrees with its answer", self.rule.kind);
        batch.inputs.extend_from_slice(&row[..batch.seq_len]);
        batch.targets.extend_from_slice(&row[1..]);
        batch.counted.extend((0..batch.seq_len).map(|i| i > string.len()));
    }

    fn draw(&self, stream: &mut Stream, n: usize) -> Vec<i32> {
        (0..n).map(|_| FIRST_SYMBOL + stream.below(self.alphabet) as i32).collect()
    }

    /// How many leading symbols the permutation decides, and how many values they have.
    fn prefix(&self, length: usize) -> (usize, u64) {
        let (mut symbols, mut values) = (0, 1u64);
        while symbols < length && values <= MAX_PREFIXES / self.alphabet {
            values *= self.alphabet;
            symbols += 1;
        }
        (symbols, values)
    }

    /// Test string `row`: a prefix from a permutation, so that no two rows are equal, then symbols from the row's own stream.
    fn test_string(&self, length: usize, row: u64) -> Vec<i32> {
        let (symbols, values) = self.prefix(length);
        let mut number = Permutation::new(self.eval_seed, &self.test_purpose, length as u64, values).get(row);
        let mut string = Vec::with_capacity(length);
        for _ in 0..symbols {
            string.push(FIRST_SYMBOL + (number % self.alphabet) as i32);
            number /= self.alphabet;
        }
        if symbols < length {
            let mut stream = Stream::new(self.eval_seed, &format!("{}/{length}", self.test_purpose), row);
            string.extend(self.draw(&mut stream, length - symbols));
        }
        string
    }
}

impl Task for SymbolTask {
    fn kind(&self) -> &'static str {
        self.rule.kind
    }
    fn vocab_size(&self) -> usize {
        self.alphabet as usize + FIRST_SYMBOL as usize
    }
    fn unit(&self) -> &'static str {
        "symbols"
    }
    fn seq_len(&self, length: usize) -> usize {
        length + (self.rule.answer_len)(length) + 2
    }
    fn train_batch(&self, length: usize, rows: usize, seed: u64, step: u64) -> Batch {
        let mut stream = Stream::new(seed, &self.train_purpose, step);
        let mut batch = Batch::with_capacity(rows, self.seq_len(length));
        for _ in 0..rows {
            let string = self.draw(&mut stream, length);
            self.push_row(&mut batch, &string);
        }
        batch
    }
    /// `test_rows` of the table, or every string of this length where there are fewer.
    fn test_rows(&self, length: usize) -> usize {
        self.test_rows.min(self.prefix(length).1) as usize
    }
    fn test_batch(&self, length: usize, first_row: usize, rows: usize) -> Batch {
        let end = first_row + rows;
        assert!(end <= self.test_rows(length), "test rows {first_row}..{end} of {}", self.test_rows(length));
        let mut batch = Batch::with_capacity(rows, self.seq_len(length));
        for row in first_row..end {
            self.push_row(&mut batch, &self.test_string(length, row as u64));
        }
        batch
    }
    fn scoring(&self) -> Scoring {
        Scoring::Answer
    }
    fn primary_metric(&self) -> &'static str {
        "exact_match"
    }
    fn definitions(&self) -> BTreeMap<String, String> {
        let at_most = self.test_rows;
        [
            ("exact_match", "share of test rows whose answer and EOS are all predicted right"),
            ("token_accuracy", "share of answer tokens, EOS included, predicted right, every token of every row weighing the same"),
            ("loss_nats", "mean negative log-likelihood in nats of the answer tokens, EOS included, every token weighing the same"),
        ]
        .map(|(metric, meaning)| {
            let how = format!(
                "{meaning}; teacher-forced, first scored token is the one after SEP; {at_most} distinct test strings per length (all \
                 strings where there are fewer), not kept out of training, so short ones repeat there."
            );
            (metric.to_string(), how)
        })
        .into()
    }
    /// `token_accuracy`: a uniform guess among the symbols, EOS not considered. `loss_nats`: a uniform guess over the vocabulary.
    /// `exact_match` falls as alphabet^-length and has no single level.
    fn chance(&self) -> BTreeMap<String, f64> {
        let guess = 1.0 / self.alphabet as f64;
        [("token_accuracy".to_string(), guess), ("loss_nats".to_string(), libm::log(self.vocab_size() as f64))].into()
    }
}

/// The row of one string as text: what is read, a bar, what counts. Symbols are written as their numbers.
pub(crate) fn example(rule: Rule, symbols: &[i32]) -> String {
    let words = |symbols: &[i32]| symbols.iter().map(i32::to_string).collect::<Vec<_>>().join(" ");
    format!("BOS {} SEP | {} EOS", words(symbols), words(&(rule.answer)(symbols)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const COPY: Rule = Rule { kind: "copy", answer: |w| w.to_vec(), answer_len: |n| n };

    fn task(alphabet: u64, test_rows: u64) -> SymbolTask {
        let ctx = BuildContext { config_dir: "".into(), lock: "", cargo_home: None, train_len: 4, test_lens: vec![4], eval_seed: 1 };
        SymbolTask::new(COPY, alphabet, test_rows, &ctx).unwrap()
    }

    #[test]
    fn test_strings_are_distinct_also_where_the_permuted_prefix_is_shorter() {
        for (alphabet, length) in [(2, 3), (2, 8), (2, 61), (2, 62), (2, 63), (3, 50), (16, 15), (16, 16), (16, 40), (4096, 1), (4096, 6)] {
            let task = task(alphabet, 300);
            let rows = task.test_rows(length);
            assert_eq!(rows as u64, 300.min(alphabet.saturating_pow(length as u32)), "{alphabet}^{length}");
            let strings: BTreeSet<_> = (0..rows as u64).map(|row| task.test_string(length, row)).collect();
            assert_eq!(strings.len(), rows);
            assert!(strings.iter().all(|s| s.len() == length && s.iter().all(|t| (3..3 + alphabet as i32).contains(t))));
        }
    }

    #[test]
    fn test_strings_use_all_symbols_everywhere() {
        let task = task(16, 4000);
        for position in [0, 7, 14, 15, 20] {
            let mut counts = [0u32; 16];
            (0..4000).for_each(|row| counts[(task.test_string(21, row)[position] - FIRST_SYMBOL) as usize] += 1);
            let chi2: f64 = counts.iter().map(|&c| (f64::from(c) - 250.0).powi(2) / 250.0).sum();
            assert!(chi2 < 42.0, "position {position}: {chi2}");
        }
    }
}
