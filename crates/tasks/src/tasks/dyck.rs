//! Dyck: whether a word of brackets of k kinds is balanced, or how deep a balanced word nests.
//!
//! Examples (2 kinds): `BOS ( [ ] ) SEP | 1 EOS`, `BOS ( [ ) ) SEP | 0 EOS`, and with `answer =
//! "depth"` `BOS ( [ ] ) SEP | 2 EOS`. Length n is the number of pairs, so the question has 2n
//! brackets. Balanced words have a shape drawn uniformly among all shapes of n pairs. Half of the
//! words asked about are balanced; the others are such words with one bracket replaced by
//! another, which is never balanced (with one kind, counting is enough to see it). A depth is a
//! decimal number with as many digits as n has, so that all rows of a length have the same number
//! of tokens.
//!
//! Held out: by hash (several draws make one word).
//!
//! Source: the Dyck languages of formal-language studies of transformers (for one, Yao et al. 2021,
//! arXiv 2105.11115); the shape, the replaced bracket and both answers are this project's choice.

use crate::symbols::{HeldOut, Row, Rule, SymbolTask, digits, digits_len, show};
use crate::{BuildContext, Task, TaskError, TaskSpec};
use schema::in_range;
use serde::{Deserialize, Serialize};

/// What is asked about a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DyckAnswer {
    /// 1 if it is balanced, 0 otherwise.
    Valid,
    /// Its greatest depth; all words are balanced.
    Depth,
}

struct Dyck {
    kinds: u64,
    answer: DyckAnswer,
}

impl Dyck {
    /// Symbol of the first bracket: symbols before are those of answers. Opening brackets are even
    /// from there on, closing ones odd.
    fn first(&self) -> i32 {
        match self.answer {
            DyckAnswer::Valid => 2,
            DyckAnswer::Depth => 10,
        }
    }
}

/// Whether each bracket opens, from `2n` choices that shuffle n opening and n + 1 closing brackets.
/// By the cycle lemma exactly one rotation of these is a balanced word and one more closing
/// bracket, so every balanced shape has the same chance.
fn shape(n: usize, choices: &[u64]) -> Vec<bool> {
    let mut opens: Vec<bool> = (0..=2 * n).map(|i| i < n).collect();
    for (last, &choice) in (1..=2 * n).rev().zip(choices) {
        opens.swap(last, choice as usize);
    }
    let (mut height, mut lowest, mut start) = (0i64, 0i64, 0);
    for (i, &open) in opens.iter().enumerate() {
        height += if open { 1 } else { -1 };
        // Started after the first lowest point, no height is below 0 before the last bracket.
        if height < lowest {
            (lowest, start) = (height, i + 1);
        }
    }
    opens.rotate_left(start % (2 * n + 1));
    opens.truncate(2 * n);
    opens
}

impl Rule for Dyck {
    fn kind(&self) -> &'static str {
        "dyck"
    }
    fn unit(&self) -> &'static str {
        "pairs"
    }
    fn symbols(&self) -> u64 {
        self.first() as u64 + 2 * self.kinds
    }
    /// The kinds of the opening brackets; the shape; and where validity is asked, whether to spoil
    /// the word, where, and by what.
    fn choices(&self, n: usize) -> Vec<u64> {
        let mut choices = vec![self.kinds; n];
        choices.extend((2..=2 * n as u64 + 1).rev());
        if self.answer == DyckAnswer::Valid {
            choices.extend([2, 2 * n as u64, 2 * self.kinds - 1]);
        }
        choices
    }
    fn held_out(&self) -> HeldOut {
        HeldOut::ByHash
    }
    fn question_len(&self, n: usize) -> usize {
        2 * n
    }
    fn answer_len(&self, n: usize) -> usize {
        match self.answer {
            DyckAnswer::Valid => 1,
            DyckAnswer::Depth => digits_len(n),
        }
    }
    fn row(&self, n: usize, choices: &[u64]) -> Row {
        let (mut kinds, mut open, mut depth) = (choices[..n].iter(), vec![], 0);
        let mut word: Vec<i32> = Vec::with_capacity(2 * n);
        for opens in shape(n, &choices[n..3 * n]) {
            if opens {
                open.push(2 * *kinds.next().expect("n brackets open") as i32);
                depth = depth.max(open.len());
                word.extend(open.last());
            } else {
                // A closing bracket's number is its opening one's plus 1.
                word.push(open.pop().expect("the shape is balanced") + 1);
            }
        }
        let answer = match (self.answer, &choices[3 * n..]) {
            (DyckAnswer::Valid, &[spoil, place, other]) => {
                let bracket = &mut word[place as usize];
                if spoil == 1 {
                    // Any of the other brackets.
                    *bracket = (*bracket + 1 + other as i32) % (2 * self.kinds as i32);
                }
                vec![1 - spoil as i32]
            }
            _ => digits(depth, digits_len(n)),
        };
        Row::new(
            word.into_iter()
                .map(|bracket| self.first() + bracket)
                .collect(),
            answer,
        )
    }
    fn guess(&self) -> f64 {
        match self.answer {
            DyckAnswer::Valid => 0.5,
            DyckAnswer::Depth => 0.1,
        }
    }
    fn name(&self, symbol: i32) -> String {
        match symbol - self.first() {
            bracket @ 0..8 => {
                ["(", ")", "[", "]", "{", "}", "<", ">"][bracket as usize].to_string()
            }
            bracket if bracket >= 8 => format!(
                "{}{}",
                if bracket % 2 == 0 { "open" } else { "close" },
                bracket / 2
            ),
            _ => symbol.to_string(),
        }
    }
}

/// `kind = "dyck"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DyckConfig {
    /// Number of kinds of brackets, 1 to 2048.
    pub kinds: u64,
    /// What is asked about a word.
    pub answer: DyckAnswer,
    /// Number of test rows at each length, 1 to 1000000.
    pub test_rows: u64,
}

impl Default for DyckConfig {
    fn default() -> Self {
        Self {
            kinds: 2,
            answer: DyckAnswer::Valid,
            test_rows: 256,
        }
    }
}

impl TaskSpec for DyckConfig {
    const SUMMARY: &'static str = "whether brackets are balanced, or how deep they nest";
    fn examples() -> Vec<String> {
        let example = |answer, choices: &[u64]| {
            let rule = Dyck { kinds: 2, answer };
            show(&rule, &rule.row(2, choices))
        };
        let nested = [0, 1, 4, 3, 2, 1];
        vec![
            example(DyckAnswer::Valid, &[&nested[..], &[0, 0, 0]].concat()),
            example(DyckAnswer::Valid, &[&nested[..], &[1, 2, 1]].concat()),
            example(DyckAnswer::Depth, &nested),
        ]
    }
    fn build(&self, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
        in_range(
            "kinds",
            self.kinds,
            1..=2048,
            "the number of kinds of brackets",
        )?;
        SymbolTask::boxed(
            Dyck {
                kinds: self.kinds,
                answer: self.answer,
            },
            self.test_rows,
            ctx,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// All shuffles of 3 pairs: 5 balanced shapes, each as often as any other.
    #[test]
    fn shapes_are_uniform() {
        let mut counts = BTreeMap::new();
        for number in 0..7 * 6 * 5 * 4 * 3 * 2u64 {
            let mut rest = number;
            let choices: Vec<u64> = (2..=7)
                .rev()
                .map(|size| {
                    let choice = rest % size;
                    rest /= size;
                    choice
                })
                .collect();
            *counts.entry(shape(3, &choices)).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 5);
        assert!(
            counts.values().all(|count| *count == 5040 / 5),
            "{counts:?}"
        );
        for shape in counts.keys() {
            let heights: Vec<i32> = shape
                .iter()
                .scan(0, |h, open| {
                    *h += if *open { 1 } else { -1 };
                    Some(*h)
                })
                .collect();
            assert!(heights.iter().all(|h| *h >= 0) && heights.last() == Some(&0));
        }
    }
}
