//! Stack manipulation: a stack of bits and actions on it; the answer is the stack they leave, from
//! its top.
//!
//! Example: `BOS 0 1 1 0 4 2 2 SEP | 1 1 0 2 0 0 0 0 EOS`: the stack `0 1 1 0` (bottom first), push
//! 1 (4), pop (2), pop (2). 3 pushes a 0, and a pop of the empty stack does nothing. Length n is
//! stack and actions together: at least one bit, and where n allows at least one action, each split
//! equally likely. The answer has n + 1 symbols: the stack, the end marker 2, zeros, so that all
//! rows of a length have the same number of tokens. Only the stack and its end marker count: the
//! zeros and EOS follow from the end marker.
//!
//! Held out: by hash (stacks and actions have different numbers of values).
//!
//! Source: stack manipulation of Ruoss et al. 2023 (arXiv 2305.16843).

use crate::symbols::{Counted, HeldOut, Row, Rule, SymbolTask, show};
use crate::{BuildContext, Task, TaskError, TaskSpec};
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

const POP: i32 = 2;
const PUSH_0: i32 = 3;
const END: i32 = 2;

struct StackManipulation;

/// The row of a stack, bottom first, and actions.
fn row(stack: &[i32], actions: &[i32]) -> Row {
    let (question, len) = ([stack, actions].concat(), stack.len() + actions.len() + 1);
    let mut left = stack.to_vec();
    for &action in actions {
        if action == POP {
            // On an empty stack this does nothing.
            left.pop();
        } else {
            left.push(action - PUSH_0);
        }
    }
    let scored = Some(left.len() + 1);
    let mut answer: Vec<i32> = left.into_iter().rev().chain([END]).collect();
    // All rows of a length have the same number of tokens; the zeros are not scored.
    answer.resize(len, 0);
    Row {
        question,
        answer,
        scored,
    }
}

impl Rule for StackManipulation {
    fn kind(&self) -> &'static str {
        "stack_manipulation"
    }
    fn symbols(&self) -> u64 {
        5
    }
    /// How many bits the stack has beyond the first; then for every symbol a number that is a bit
    /// modulo 2 and an action modulo 3.
    fn choices(&self, n: usize) -> Vec<u64> {
        let mut choices = vec![6; n + 1];
        choices[0] = (n as u64 - 1).max(1);
        choices
    }
    fn held_out(&self) -> HeldOut {
        HeldOut::ByHash
    }
    fn answer_len(&self, n: usize) -> usize {
        n + 1
    }
    fn row(&self, _: usize, choices: &[u64]) -> Row {
        let (stack, actions) = choices[1..].split_at(1 + choices[0] as usize);
        let stack: Vec<i32> = stack.iter().map(|&choice| (choice % 2) as i32).collect();
        let actions: Vec<i32> = actions
            .iter()
            .map(|&choice| POP + (choice % 3) as i32)
            .collect();
        row(&stack, &actions)
    }
    fn guess(&self) -> f64 {
        1.0 / 3.0
    }
    fn counted(&self) -> Counted {
        Counted {
            whole: "scored tokens are",
            tokens: "answer tokens, end marker included and the zeros and EOS after it not,",
            blanks: "answer tokens, end marker included and the zeros after it not,",
            ..Counted::ANSWER
        }
    }
}

/// `kind = "stack_manipulation"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct StackManipulationConfig {
    /// Number of test rows at each length, 1 to 1000000.
    #[default = 256]
    pub test_rows: u64,
}

impl TaskSpec for StackManipulationConfig {
    const SUMMARY: &'static str = "the stack that pushes and pops leave";
    fn examples() -> Vec<String> {
        let example =
            |stack: &[i32], actions: &[i32]| show(&StackManipulation, &row(stack, actions));
        vec![
            example(&[0, 1, 1, 0], &[4, 2, 2]),
            example(&[1, 1, 0], &[2, 2, 2, 2]),
        ]
    }
    fn build(&self, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
        SymbolTask::boxed(StackManipulation, self.test_rows, ctx)
    }
}
