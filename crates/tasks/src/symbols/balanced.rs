//! The rows of two rules that together are one task: as many of one as of the other.

use super::rule::Rule;
use super::task::{Plan, SymbolTask};
use crate::{Batch, BuildContext, Scoring, Stream, Task, TaskError};
use std::collections::BTreeMap;

/// Two rules that agree in all but their rows. Every training row is of either with equal chance;
/// test rows take turns. At a length where a rule has fewer rows than its half, they repeat in
/// order, and where it has none ([`Rule::choices`] begins with 0), all rows are the other's half.
pub(crate) struct Balanced<R> {
    kind: &'static str,
    sides: [SymbolTask<R>; 2],
    test_rows: u64,
    memory_bytes: u64,
}

impl<R: Rule> Balanced<R> {
    /// The task `kind` of two rules whose kinds name their streams of draws.
    pub(crate) fn new(
        kind: &'static str,
        rules: [R; 2],
        test_rows: u64,
        memory_bytes: u64,
        ctx: &BuildContext<'_>,
    ) -> Result<Self, TaskError> {
        // Checked before it is halved, so that an error names the value as given.
        schema::in_range(
            "test_rows",
            test_rows,
            1..=1_000_000,
            "words at each length",
        )?;
        let [one, other] = rules.map(|rule| SymbolTask::new(rule, test_rows.div_ceil(2), ctx));
        Ok(Self {
            kind,
            sides: [one?, other?],
            test_rows,
            memory_bytes,
        })
    }

    /// The rules that have rows of this length.
    fn plans(&self, length: usize) -> Vec<(&SymbolTask<R>, Plan)> {
        let sides = self.sides.iter();
        let has_rows = |side: &&SymbolTask<R>| side.rule.choices(length)[0] > 0;
        sides
            .filter(has_rows)
            .map(|side| (side, side.plan(length)))
            .collect()
    }
}

impl<R: Rule> Task for Balanced<R> {
    fn kind(&self) -> &'static str {
        self.kind
    }
    fn vocab_size(&self) -> usize {
        self.sides[0].vocab_size()
    }
    fn tokens(&self) -> Vec<String> {
        self.sides[0].tokens()
    }
    fn unit(&self) -> &str {
        self.sides[0].unit()
    }
    fn seq_len(&self, length: usize) -> usize {
        self.sides[0].seq_len(length)
    }
    fn train_batch(&self, length: usize, rows: usize, seed: u64, step: u64) -> Batch {
        let plans = self.plans(length);
        let mut stream = Stream::new(seed, &format!("train-data/{}", self.kind), step);
        let mut batch = Batch::with_capacity(rows, self.seq_len(length));
        for _ in 0..rows {
            let (side, plan) = &plans[stream.below(plans.len() as u64) as usize];
            side.push(&mut batch, &side.train_row(length, plan, &mut stream));
        }
        batch
    }
    fn test_rows(&self, length: usize) -> usize {
        let plans = self.plans(length);
        let rows = plans.iter().map(|(side, _)| side.test_rows(length));
        let in_turn = rows.max().unwrap_or(0) * plans.len();
        in_turn.min(self.test_rows as usize)
    }
    fn test_batch(&self, length: usize, first_row: usize, rows: usize) -> Batch {
        let (end, all) = (first_row + rows, self.test_rows(length));
        assert!(end <= all, "test rows {first_row}..{end} of {all}");
        let plans = self.plans(length);
        let mut batch = Batch::with_capacity(rows, self.seq_len(length));
        for row in first_row..end {
            let (side, plan) = &plans[row % plans.len()];
            let own = row / plans.len() % side.test_rows(length);
            side.push(&mut batch, &side.asked_row(length, plan, own as u64));
        }
        batch
    }
    fn reads_its_answers(&self) -> bool {
        self.sides[0].reads_its_answers()
    }
    fn hides_answers(&self) -> bool {
        self.sides[0].hides_answers()
    }
    fn scoring(&self) -> Scoring {
        self.sides[0].scoring()
    }
    fn primary_metric(&self) -> &'static str {
        self.sides[0].primary_metric()
    }
    fn definitions(&self, answers: &str) -> BTreeMap<String, String> {
        self.sides[0].definitions(answers)
    }
    fn chance(&self) -> BTreeMap<String, f64> {
        self.sides[0].chance()
    }
    fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }
}
