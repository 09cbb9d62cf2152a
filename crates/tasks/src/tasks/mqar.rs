//! MQAR, multi-query associative recall: keys with their values, then every key once more, where
//! its value must be predicted.
//!
//! Example (2 pairs at length 10, vocabulary 20): `5 14 3 11 0 0 3 0 5 0 | _ _ _ _ _ _ 11 _ 14 _`,
//! where `_` does not count and 0 is filler. There is no BOS, SEP or EOS: a row has exactly n
//! tokens, and a value is predicted at its query's own token. Keys are ids from 1 up to half of the
//! vocabulary, values the other half; both are distinct within a row. A query is at 2 * pairs +
//! 2 * gap, gaps distinct and drawn with weight (gap + 1)^(power - 1), so that most queries come
//! soon after the pairs. Lengths below 4 * pairs are refused. At odd lengths the last token may be
//! a query too.
//!
//! Held out: by hash (several draws make one row).
//!
//! Source: `multiquery_ar` of HazyResearch/zoology (Arora et al. 2023, arXiv 2312.04927), from its
//! code: vocabulary 8192, power 0.01, 4 to 64 pairs. Its filler is random by default; here it is 0
//! unless `random_filler`.

use crate::symbols::{
    Counted, HeldOut, Row, RowLayout, Rule, SymbolTask, UNSCORED, check_fits, distinct,
};
use crate::{BuildContext, Task, TaskError, TaskSpec};
use schema::{Invalid, in_range};
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// Values of a choice that stands for a number in `[0, 1)`.
const UNIT: u64 = 1 << 53;

struct Mqar {
    vocab: u64,
    pairs: usize,
    power: f64,
    random_filler: bool,
}

impl Mqar {
    fn len(n: usize) -> usize {
        n.max(3)
    }
    fn pairs(&self, n: usize) -> usize {
        self.pairs.min(Self::len(n) / 4).max(1)
    }
    fn keys(&self) -> u64 {
        self.vocab / 2 - 1
    }
}

/// Which gap each number in `[0, 1)` picks among those that the earlier ones left, by weight.
fn gaps(space: usize, power: f64, numbers: &[f64]) -> Vec<usize> {
    let mut weights: Vec<f64> = (0..space)
        .map(|gap| libm::pow((gap + 1) as f64, power - 1.0))
        .collect();
    let mut picked = Vec::with_capacity(numbers.len());
    for number in numbers {
        let mut left = number * weights.iter().sum::<f64>();
        let mut gap = None;
        for (candidate, &weight) in weights
            .iter()
            .enumerate()
            .filter(|(_, weight)| **weight > 0.0)
        {
            gap = Some(candidate);
            if left < weight {
                break;
            }
            left -= weight;
        }
        // Where rounding leaves a remainder, the last gap with a weight is taken.
        let gap = gap.expect("there are at least as many gaps as queries");
        // Gaps are distinct: a picked one is out for later queries.
        weights[gap] = 0.0;
        picked.push(gap);
    }
    picked
}

impl Rule for Mqar {
    fn kind(&self) -> &'static str {
        "mqar"
    }
    fn unit(&self) -> &'static str {
        "tokens"
    }
    fn symbols(&self) -> u64 {
        self.vocab
    }
    fn check_len(&self, n: usize) -> Result<(), Invalid> {
        check_fits("pairs", self.pairs, 4, n)
    }
    /// Keys, values, gaps, and the filler if it is random.
    fn choices(&self, n: usize) -> Vec<u64> {
        let (pairs, values) = (self.pairs(n), self.vocab - self.vocab / 2);
        // Without replacement: every choice is among one fewer (`distinct` turns them into ids).
        let mut choices: Vec<u64> = (0..pairs as u64).map(|taken| self.keys() - taken).collect();
        choices.extend((0..pairs as u64).map(|taken| values - taken));
        choices.extend(vec![UNIT; pairs]);
        if self.random_filler {
            choices.extend(vec![self.vocab; Self::len(n) - 2 * pairs]);
        }
        choices
    }
    fn held_out(&self) -> HeldOut {
        HeldOut::ByHash
    }
    fn question_len(&self, n: usize) -> usize {
        Self::len(n)
    }
    fn answer_len(&self, n: usize) -> usize {
        Self::len(n)
    }
    /// The question is what is read, the answer one label for every token.
    fn row(&self, n: usize, choices: &[u64]) -> Row {
        let (len, pairs) = (Self::len(n), self.pairs(n));
        let keys: Vec<i32> = distinct(&choices[..pairs])
            .into_iter()
            .map(|key| 1 + key as i32)
            .collect();
        let values: Vec<i32> = distinct(&choices[pairs..2 * pairs])
            .into_iter()
            .map(|value| (self.vocab / 2 + value) as i32)
            .collect();
        let numbers: Vec<f64> = choices[2 * pairs..3 * pairs]
            .iter()
            .map(|&number| number as f64 / UNIT as f64)
            .collect();
        let (mut read, mut labels) = (Vec::with_capacity(len), vec![UNSCORED; len]);
        keys.iter()
            .zip(&values)
            .for_each(|(&key, &value)| read.extend([key, value]));
        if self.random_filler {
            read.extend(choices[3 * pairs..].iter().map(|&filler| filler as i32));
        } else {
            read.resize(len, 0);
        }
        for (pair, gap) in gaps((len - 2 * pairs).div_ceil(2), self.power, &numbers)
            .into_iter()
            .enumerate()
        {
            let place = 2 * (pairs + gap);
            read[place] = keys[pair];
            labels[place] = values[pair];
        }
        Row::new(read, labels)
    }
    fn guess(&self) -> f64 {
        1.0 / (self.vocab - self.vocab / 2) as f64
    }
    fn layout(&self) -> RowLayout {
        RowLayout::InPlace
    }
    fn primary_metric(&self) -> &'static str {
        "token_accuracy"
    }
    fn counted(&self) -> Counted {
        Counted {
            whole: "scored tokens are",
            tokens: "values asked for,",
            first: "each is scored at its query's own token",
            ..Counted::ANSWER
        }
    }
    fn remark(&self) -> Option<String> {
        Some(format!(
            "{} pairs in every row of at least {} tokens",
            self.pairs,
            4 * self.pairs
        ))
    }
}

/// `kind = "mqar"`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct MqarConfig {
    /// Number of token ids, 8 to 65536: filler, keys and values.
    #[default = 8192]
    pub vocab: u64,
    /// Number of pairs, 1 to a quarter of the shortest length trained or tested on, and at most as
    /// many as there are keys.
    #[default = 4]
    pub pairs: u64,
    /// Exponent of the gaps, 0 to 1: 1 is uniform, and the smaller the sooner queries come.
    #[default = 0.01]
    pub power: f64,
    /// Whether filler is any token id, drawn for each place, instead of 0.
    pub random_filler: bool,
    /// Number of test rows at each length, 1 to 1000000.
    #[default = 256]
    pub test_rows: u64,
}

impl TaskSpec for MqarConfig {
    const SUMMARY: &'static str = "key-value pairs, then the value of every key asked for";
    fn examples() -> Vec<String> {
        let rule = Mqar {
            vocab: 20,
            pairs: 2,
            power: 1.0,
            random_filler: false,
        };
        let row = rule.row(10, &[4, 2, 4, 1, UNIT / 4 * 3, UNIT / 2]);
        let words = |ids: &[i32]| {
            ids.iter()
                .map(|&id| {
                    if id == UNSCORED {
                        "_".to_string()
                    } else {
                        id.to_string()
                    }
                })
                .collect::<Vec<_>>()
                .join(" ")
        };
        vec![format!("{} | {}", words(&row.question), words(&row.answer))]
    }
    fn build(&self, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
        in_range(
            "vocab",
            self.vocab,
            8..=65_536,
            "half of the token ids are keys, half are values",
        )?;
        in_range(
            "pairs",
            self.pairs,
            1..=self.vocab / 2 - 1,
            "the keys of a row's pairs are distinct ids below half of `vocab`",
        )?;
        let hint = "1 spreads queries evenly, smaller values bring them forward; zoology has 0.01";
        in_range("power", self.power, 0.0..=1.0, hint)?;
        let &Self {
            vocab,
            pairs,
            power,
            random_filler,
            ..
        } = self;
        SymbolTask::boxed(
            Mqar {
                vocab,
                pairs: pairs as usize,
                power,
                random_filler,
            },
            self.test_rows,
            ctx,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Stream;

    #[test]
    fn gaps_follow_their_weights_and_never_repeat() {
        let (space, power, mut stream) = (6, 0.25, Stream::new(0, "gaps", 0));
        let mut counts = [0u32; 6];
        for _ in 0..20_000 {
            let picked = gaps(
                space,
                power,
                &[stream.unit_f64(), stream.unit_f64(), stream.unit_f64()],
            );
            assert!(picked[0] != picked[1] && picked[1] != picked[2] && picked[0] != picked[2]);
            counts[picked[0]] += 1;
        }
        let weights: Vec<f64> = (1..=6).map(|i| f64::from(i).powf(power - 1.0)).collect();
        let total: f64 = weights.iter().sum();
        for (count, weight) in counts.into_iter().zip(weights) {
            let expected = 20_000.0 * weight / total;
            assert!(
                (f64::from(count) - expected).abs() < 5.0 * expected.sqrt(),
                "{count} {expected}"
            );
        }
        let mut all = gaps(5, 0.01, &[0.999_999_999; 5]);
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3, 4]);
    }
}
