//! Square root: the answer to a binary number is the whole part of its square root, in binary.
//!
//! Example: `BOS 1 0 0 1 0 1 SEP | 1 1 0 EOS` (37 and 6). Most significant bit first. Length n is
//! the number of bits, leading zeros included; the answer has half as many, rounded up.
//!
//! Held out: by choices (the number itself).
//!
//! Source: `compute_sqrt` of google-deepmind/neural_networks_chomsky_hierarchy (Deletang et al.
//! 2023, arXiv 2207.02098), which never draws 0. Its docstring gives 101 for 37; its code gives
//! 110.

use crate::symbols::{StringRule, SymbolTask, example};
use crate::{BuildContext, Task, TaskError, TaskSpec};
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

fn rule() -> StringRule {
    StringRule {
        answer_len: |n| n.div_ceil(2),
        ..StringRule::new("compute_sqrt", 2, root)
    }
}

/// The whole part of the square root, a bit for every two bits of the number: the method of long
/// division, for numbers of any size. Most significant bit first.
fn root(bits: &[i32]) -> Vec<i32> {
    let padding = vec![0; bits.len() % 2];
    let (mut root, mut rest) = (Vec::with_capacity(bits.len().div_ceil(2)), Vec::new());
    for pair in [padding.as_slice(), bits].concat().chunks(2) {
        rest.extend_from_slice(pair);
        // (2 r + 1)^2 - (2 r)^2 = 4 r + 1.
        let next = [root.as_slice(), &[0, 1]].concat();
        let less = minus(&rest, &next);
        root.push(i32::from(less.is_some()));
        rest = less.unwrap_or(rest);
    }
    root
}

/// `a - b` without leading zeros, if it is not below 0.
fn minus(a: &[i32], b: &[i32]) -> Option<Vec<i32>> {
    let len = a.len().max(b.len());
    let bit = |number: &[i32], place: usize| {
        let from_end = number.len().checked_sub(place + 1);
        from_end.map_or(0, |at| number[at])
    };
    let (mut borrow, mut difference) = (0, Vec::with_capacity(len));
    // From the least significant bit.
    for place in 0..len {
        let left = bit(a, place) - bit(b, place) - borrow;
        borrow = i32::from(left < 0);
        difference.push(left + 2 * borrow);
    }
    while difference.last() == Some(&0) {
        difference.pop();
    }
    difference.reverse();
    (borrow == 0).then_some(difference)
}

/// `kind = "compute_sqrt"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct ComputeSqrtConfig {
    /// Number of test rows at each length, 1 to 1000000; all rows of a length where there are
    /// fewer.
    #[default = 256]
    pub test_rows: u64,
}

impl TaskSpec for ComputeSqrtConfig {
    const SUMMARY: &'static str = "the whole part of the square root of a binary number";
    fn examples() -> Vec<String> {
        vec![
            example(&rule(), &[1, 0, 0, 1, 0, 1]),
            example(&rule(), &[1, 1, 1]),
        ]
    }
    fn build(&self, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
        SymbolTask::boxed(rule(), self.test_rows, ctx)
    }
}
