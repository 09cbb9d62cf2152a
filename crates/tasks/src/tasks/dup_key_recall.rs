//! Recall of a key that occurs twice: the later one of its two values.
//!
//! Example: `BOS a 3 b 7 a 9 c 1 ? a SEP | 9 EOS`. Length n is the number of pairs of a key and a
//! value, so the question has 2 n + 2 tokens. The key asked for occurs `occurrences` times, at
//! places that are drawn and with values that all differ; the other keys and values are drawn one
//! by one, so other keys may occur several times. With `occurrences = 1` content is enough to find
//! the value: the control. Lengths below `occurrences` are refused.
//!
//! Held out: by hash (several draws make one row).
//!
//! Source: positional probes of DaRoPE's synthetic tasks (arXiv 2609.34556, section E.4): this is
//! `dup_key_recall` there, and `assoc_recall` with `occurrences = 1`. The paper does not say how
//! pairs are drawn; that values of the key differ is this project's choice.

use crate::symbols::{HeldOut, Row, Rule, SymbolTask, check_fits, distinct, show};
use crate::{BuildContext, Task, TaskError, TaskSpec};
use schema::{Invalid, in_range};
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

struct DupKeyRecall {
    keys: u64,
    values: u64,
    occurrences: usize,
}

impl DupKeyRecall {
    /// How often the key asked for occurs among `n` pairs.
    fn own(&self, n: usize) -> usize {
        self.occurrences.min(n)
    }
    /// Keys are symbols after the values.
    fn key(&self, key: u64) -> i32 {
        (self.values + key) as i32
    }
}

impl Rule for DupKeyRecall {
    fn kind(&self) -> &'static str {
        "dup_key_recall"
    }
    fn unit(&self) -> &'static str {
        "pairs"
    }
    fn symbols(&self) -> u64 {
        self.values + self.keys + 1
    }
    fn check_len(&self, n: usize) -> Result<(), Invalid> {
        check_fits("occurrences", self.occurrences, 1, n)
    }
    /// The key asked for, its places and values, the other keys and their values.
    fn choices(&self, n: usize) -> Vec<u64> {
        let own = self.own(n) as u64;
        let others = n - self.own(n);
        let mut choices = vec![self.keys];
        // Without replacement: every choice is among one fewer (`distinct` undoes it).
        choices.extend((0..own).map(|taken| n as u64 - taken));
        choices.extend((0..own).map(|taken| self.values - taken));
        choices.extend(vec![self.keys - 1; others]);
        choices.extend(vec![self.values; others]);
        choices
    }
    fn held_out(&self) -> HeldOut {
        HeldOut::ByHash
    }
    fn question_len(&self, n: usize) -> usize {
        2 * n + 2
    }
    fn answer_len(&self, _: usize) -> usize {
        1
    }
    fn row(&self, n: usize, choices: &[u64]) -> Row {
        let own = self.own(n);
        let (asked, rest) = (choices[0], &choices[1..]);
        let (places, rest) = rest.split_at(own);
        let (values, rest) = rest.split_at(own);
        let (keys, other_values) = rest.split_at(n - own);
        let mut places = distinct(places);
        places.sort_unstable();
        let mut values = distinct(values).into_iter();
        let mut others = keys.iter().zip(other_values);
        let mut question = Vec::with_capacity(2 * n + 2);
        let mut answer = 0;
        for place in 0..n as u64 {
            let (key, value) = match places.contains(&place) {
                true => {
                    answer = values.next().unwrap_or_default();
                    (asked, answer)
                }
                false => {
                    let (&key, &value) = others.next().unwrap_or((&0, &0));
                    // Any key but the one asked for.
                    (key + u64::from(key >= asked), value)
                }
            };
            question.extend([self.key(key), value as i32]);
        }
        question.extend([self.key(self.keys), self.key(asked)]);
        Row::new(question, vec![answer as i32])
    }
    fn guess(&self) -> f64 {
        1.0 / self.values as f64
    }
    fn name(&self, symbol: i32) -> String {
        match symbol - self.values as i32 {
            mark if mark == self.keys as i32 => "?".to_owned(),
            key @ 0..26 => char::from(b'a' + key as u8).to_string(),
            key @ 26.. => format!("k{key}"),
            _ => symbol.to_string(),
        }
    }
}

/// `kind = "dup_key_recall"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct DupKeyRecallConfig {
    /// Number of different keys, 2 to 4096.
    #[default = 26]
    pub keys: u64,
    /// Number of different values, 2 to 4096.
    #[default = 10]
    pub values: u64,
    /// How often the key asked for occurs in a row, 1 to 16, and at most `values` and the shortest
    /// length; 1 asks for content alone.
    #[default = 2]
    pub occurrences: u64,
    /// Number of test rows at each length, 1 to 1000000.
    #[default = 256]
    pub test_rows: u64,
}

impl TaskSpec for DupKeyRecallConfig {
    const SUMMARY: &'static str = "the later value of a key that occurs twice";
    fn examples() -> Vec<String> {
        let row = |occurrences, choices: &[u64]| {
            let rule = DupKeyRecall {
                keys: 26,
                values: 10,
                occurrences,
            };
            show(&rule, &rule.row(4, choices))
        };
        vec![
            row(2, &[0, 0, 1, 3, 8, 0, 1, 7, 1]),
            row(1, &[1, 1, 7, 0, 1, 2, 3, 1, 4]),
        ]
    }
    fn build(&self, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
        in_range("keys", self.keys, 2..=4096, "the number of different keys")?;
        let hint = "the number of different values";
        in_range("values", self.values, 2..=4096, hint)?;
        let hint = "the values of the key asked for all differ";
        let most = self.values.min(16);
        in_range("occurrences", self.occurrences, 1..=most, hint)?;
        let occurrences = self.occurrences as usize;
        let rule = DupKeyRecall {
            keys: self.keys,
            values: self.values,
            occurrences,
        };
        SymbolTask::boxed(rule, self.test_rows, ctx)
    }
}
