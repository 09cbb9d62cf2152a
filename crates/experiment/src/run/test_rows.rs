//! Which rows a test has: those of one length, or of a range of lengths.

use std::collections::{BTreeMap, HashSet};
use tasks::{Batch, Scoring, Stream, Task};

/// The rows of a test by length. Every row of a range draws its length evenly from all between the
/// ends, the ends included; rows of a length are the first of the task's test set of this length,
/// from the beginning again where it has fewer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestRows(BTreeMap<usize, usize>);

/// Rows that are made at once to be counted.
const AT_ONCE: usize = 64;

impl TestRows {
    /// The rows of a test at a length, or from a lower end up to it. A range has as many rows as
    /// the test set of its upper end. `seed` is that of the test sets.
    pub fn new(task: &dyn Task, (from, to): (Option<usize>, usize), seed: u64) -> Self {
        let all = task.test_rows(to);
        let Some(from) = from else {
            return Self(BTreeMap::from([(to, all)]));
        };
        let mut stream = Stream::new(seed, &format!("test-lengths {from}..{to}"), 0);
        let mut rows = BTreeMap::new();
        for _ in 0..all {
            let length = from + stream.below((to - from + 1) as u64) as usize;
            *rows.entry(length).or_default() += 1;
        }
        Self(rows)
    }

    /// How many rows there are.
    pub fn count(&self) -> usize {
        self.0.values().sum()
    }

    /// How many rows there are of each length, ascending.
    pub fn by_length(&self) -> &BTreeMap<usize, usize> {
        &self.0
    }

    /// The rows in batches of about this many tokens, each of one length: the length, the number of
    /// the batch among those of the length, its first row in the task's test set, and the batch.
    pub fn batches(
        self,
        task: &dyn Task,
        batch_tokens: usize,
    ) -> impl Iterator<Item = (usize, u64, usize, Batch)> {
        self.0.into_iter().flat_map(move |(length, rows)| {
            let size = (batch_tokens / task.seq_len(length).max(1)).max(1);
            let parts = parts(rows, task.test_rows(length), size).into_iter();
            parts.zip(0..).map(move |((first, rows), index)| {
                (length, index, first, task.test_batch(length, first, rows))
            })
        })
    }

    /// How many rows differ, of a task with answers, where some are equal.
    pub fn distinct(&self, task: &dyn Task) -> Option<u64> {
        if task.scoring() != Scoring::Answer {
            return None;
        }
        let mut seen = HashSet::new();
        for (length, rows) in &self.0 {
            for (first, rows) in parts(*rows, task.test_rows(*length), AT_ONCE) {
                let batch = task.test_batch(*length, first, rows);
                let read = batch.inputs.chunks(batch.seq_len);
                for (read, answer) in read.zip(batch.targets.chunks(batch.seq_len)) {
                    let mut hasher = blake3::Hasher::new();
                    for id in read.iter().chain(answer) {
                        hasher.update(&id.to_le_bytes());
                    }
                    seen.insert(*hasher.finalize().as_bytes());
                }
            }
        }
        Some(seen.len() as u64).filter(|distinct| *distinct < self.count() as u64)
    }
}

/// First row and rows of every batch of `rows` rows of a test set that has `there`.
fn parts(rows: usize, there: usize, size: usize) -> Vec<(usize, usize)> {
    let there = there.max(1);
    let mut parts = Vec::new();
    let mut begun = 0;
    while begun < rows {
        let first = begun % there;
        let taken = size.min(there - first).min(rows - begun);
        parts.push((first, taken));
        begun += taken;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::parts;

    #[test]
    fn parts_are_the_rows_in_order_and_from_the_beginning_again() {
        for (rows, there, size) in [(7, 10, 3), (7, 7, 3), (9, 4, 3), (5, 1, 2), (0, 3, 2)] {
            let parts = parts(rows, there, size);
            assert!(parts.iter().all(|(_, taken)| (1..=size).contains(taken)));
            let flat: Vec<usize> = parts
                .iter()
                .flat_map(|(first, taken)| *first..first + taken)
                .collect();
            let expected: Vec<usize> = (0..rows).map(|row| row % there).collect();
            assert_eq!(flat, expected);
        }
    }
}
