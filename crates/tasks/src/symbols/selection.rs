//! Rows for selection, disjoint from the test rows where possible.

use super::layout::Row;
use super::questions::Questions;
use super::rule::{HeldOut, Rule};
use super::task::{Plan, SymbolTask, TRIES};
use crate::{Permutation, Rows, Stream};
use std::sync::Arc;

impl<R: Rule> SymbolTask<R> {
    /// How many values of the training side are kept for selection: none where the held-out part
    /// has rows left beside the test rows.
    pub(super) fn borrowed(&self, part: u64) -> u64 {
        let is_enough = self.rows == Rows::Test || part - self.test_rows >= self.test_rows;
        if is_enough { 0 } else { self.test_rows }
    }

    /// Number of rows for selection at a length whose rows can be enumerated: as many as test
    /// rows. Where fewer are left, and nothing is held out, those that are left; where all rows
    /// are test rows, all rows.
    pub(super) fn selection_rows(&self, plan: &Plan) -> u64 {
        match plan.values.saturating_sub(self.test_rows) {
            0 => plan.values,
            left => left.min(self.test_rows),
        }
    }

    /// Row `row` for selection. Where rows can be enumerated, the places of the test's permutation
    /// after those of the test rows; where the held-out part ends before, values that are then no
    /// longer trained on. Where rows are held out by their hash, drawn until it is not a test row.
    pub(super) fn selection_row(&self, length: usize, plan: &Plan, row: u64) -> Row {
        let purpose = format!("{}/{length}", self.test_purpose);
        if self.rule.held_out() == HeldOut::ByHash {
            let tested = self.test_questions(length, plan);
            let mut stream = Stream::new(self.eval_seed, &format!("selection/{purpose}"), row);
            let mut drawn = self.row_on_side(length, plan, true, &mut stream);
            for _ in 0..TRIES {
                if !tested.contains(&drawn.question) {
                    break;
                }
                drawn = self.row_on_side(length, plan, true, &mut stream);
            }
            return drawn;
        }
        let mut stream = Stream::new(self.eval_seed, &purpose, self.test_rows + row);
        let order =
            |among| Permutation::new(self.eval_seed, &self.test_purpose, length as u64, among);
        let number = match &plan.kept {
            Some((split, part)) if self.borrowed(*part) > 0 => split.get(part + row),
            Some((split, part)) => split.get(order(*part).get(self.test_rows + row)),
            None if plan.values > self.test_rows => order(plan.values).get(self.test_rows + row),
            None => order(plan.values).get(row),
        };
        self.complete(length, plan, Some(number), &mut stream)
    }

    fn test_questions(&self, length: usize, plan: &Plan) -> Arc<Questions> {
        self.tested.of(length, || {
            let rows = 0..self.test_rows;
            Questions::of(rows.map(|row| self.test_row(length, plan, row).question))
        })
    }

    /// The rows, for definitions.
    pub(super) fn selection_rows_in_words(&self) -> String {
        let at_most = self.test_rows;
        let kept = match self.rule.held_out() {
            HeldOut::No => "not kept out of training",
            HeldOut::ByChoices => "kept out of training where test rows are",
            HeldOut::ByHash => "kept out of training by the hash of their question",
        };
        format!(
            "{at_most} rows for selection per length, none of them a test row wherever there are \
             other rows, {kept}"
        )
    }
}
