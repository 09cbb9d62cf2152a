//! Parity: the answer to a string of bits is 1 if its number of ones is odd, 0 otherwise.
//!
//! Example: `BOS 1 0 1 0 1 0 0 SEP | 1 EOS`. Bits are uniform unless `draw = "balanced"`: then the
//! number of zeros is uniform, and their places are.
//!
//! Held out: by choices (the string itself); balanced by hash, because several draws make one
//! string.
//!
//! Sources: parity check of Ruoss et al. 2023 (arXiv 2305.16843), uniform; balanced as in Huang et
//! al. 2025 (arXiv 2410.02140).

use super::majority::BitDraw;
use crate::symbols::{
    HeldOut, Row, Rule, StringRule, SymbolTask, example, shuffle_choices, shuffled_bits,
};
use crate::{BuildContext, Task, TaskError, TaskSpec};
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

fn parity(bits: &[i32]) -> Vec<i32> {
    vec![bits.iter().sum::<i32>() % 2]
}

fn rule() -> StringRule {
    StringRule {
        answer_len: |_| 1,
        ..StringRule::new("parity", 2, parity)
    }
}

/// Strings with a uniform number of zeros.
struct Balanced;

impl Rule for Balanced {
    fn kind(&self) -> &'static str {
        "parity"
    }
    fn symbols(&self) -> u64 {
        2
    }
    /// The number of zeros, and how places are shuffled.
    fn choices(&self, n: usize) -> Vec<u64> {
        [n as u64 + 1]
            .into_iter()
            .chain(shuffle_choices(n))
            .collect()
    }
    fn held_out(&self) -> HeldOut {
        HeldOut::ByHash
    }
    fn answer_len(&self, _: usize) -> usize {
        1
    }
    fn row(&self, n: usize, choices: &[u64]) -> Row {
        let bits = shuffled_bits(n, choices[0] as usize, &choices[1..]);
        let answer = parity(&bits);
        Row::new(bits, answer)
    }
    fn guess(&self) -> f64 {
        0.5
    }
}

/// `kind = "parity"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct ParityConfig {
    /// How strings are drawn.
    #[serde(skip_serializing_if = "schema::is_default")]
    #[default(BitDraw::Uniform)]
    pub draw: BitDraw,
    /// Number of test rows at each length, 1 to 1000000; all rows of a length where there are
    /// fewer and bits are uniform.
    #[default = 256]
    pub test_rows: u64,
}

impl TaskSpec for ParityConfig {
    const SUMMARY: &'static str = "whether the number of ones is odd";
    fn examples() -> Vec<String> {
        vec![
            example(&rule(), &[1, 0, 1, 0, 1, 0, 0]),
            example(&rule(), &[0, 1, 1, 1, 1]),
        ]
    }
    fn build(&self, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
        Ok(match self.draw {
            BitDraw::Uniform => Box::new(SymbolTask::new(rule(), self.test_rows, ctx)?),
            BitDraw::Balanced => Box::new(SymbolTask::new(Balanced, self.test_rows, ctx)?),
        })
    }
}
