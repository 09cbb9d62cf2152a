//! The frame of all tasks that ask a question in symbols.
//!
//! ```text
//! rule.rs       Rule: what distinguishes one task from another; StringRule for strings
//! layout.rs     RowLayout: question and answer as tokens, and which of them count
//! task.rs       SymbolTask: training batches, test sets, and how test rows are held out
//! balanced.rs   two rules that share a task
//! selection.rs  rows to choose values by, apart from the test rows
//! questions.rs  sets of questions, by length
//! draw.rs       distinct numbers, shuffled bits and decimal digits from free choices
//! ```
//!
//! A row is `BOS question SEP answer EOS`. The inputs are all tokens but the last, the targets all
//! but the first, and the answer and EOS count. A length n is the length of the question unless the
//! task says otherwise. All rows of a length have the same number of tokens, so nothing is padded.
//! For a model that reads in both directions the same row is `question BLANK ... BLANK`: every
//! answer token is predicted at a blank.
//!
//! A row is a function of a list of free choices ([`Rule::choices`], [`Rule::row`]). How test rows
//! are held out of training: [`HeldOut`].

mod balanced;
mod draw;
mod layout;
mod questions;
mod rule;
mod selection;
mod task;
#[cfg(test)]
mod tests;

pub(crate) use balanced::Balanced;
pub(crate) use draw::{digits, digits_len, distinct, shuffle_choices, shuffled_bits};
pub(crate) use layout::{Row, RowLayout, UNSCORED};
pub(crate) use rule::{
    Counted, HeldOut, Rule, StringRule, check_alphabet, check_distinct, check_fits, check_shortest,
    example, show,
};
pub(crate) use task::SymbolTask;
