//! Coordinates of tokens on axes: where they come from.

use posenc::{Axis, Facts, Positions, PositionsConfig};
use serde::{Deserialize, Serialize};
use tasks::{Batch, Task};

/// Where the coordinates of encodings of several axes come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Coordinates {
    /// The positions: those of a grid, or on every axis the place in the sequence.
    #[default]
    Positions,
    /// The task, which knows where its tokens stand.
    Task,
}

impl Coordinates {
    /// Positions of the first tokens of the rows of a batch of this length, with their coordinates.
    pub fn of(
        self,
        task: &dyn Task,
        length: usize,
        batch: &Batch,
        positions: Positions,
    ) -> Positions {
        self.moved(task, length, batch, positions, 0)
    }

    /// As [`of`](Self::of), with every coordinate of the task but 0, which stands for none, moved by
    /// `shift`.
    pub fn moved(
        self,
        task: &dyn Task,
        length: usize,
        batch: &Batch,
        positions: Positions,
        shift: u64,
    ) -> Positions {
        if self == Self::Positions {
            return positions;
        }
        let count = positions.queries().len();
        let axis = |mut all: Vec<f64>| {
            // A decoder asks for the beginning of a row.
            all.truncate(count);
            shifted(all, shift)
        };
        let shared = task.axes(length);
        if !shared.is_empty() {
            return positions.with_axes(shared.into_iter().map(axis).collect());
        }
        let rows = batch.inputs.chunks_exact(batch.seq_len);
        let rows = rows.map(|row| task.row_axes(row).into_iter().map(axis).collect());
        positions.with_axes_by_row(rows.collect())
    }

    /// As [`moved`](Self::moved), for rows of these lengths that are padded at their end to
    /// `seq_len` tokens; the coordinates of padding are 0.
    pub fn of_padded(
        self,
        task: &dyn Task,
        rows: &[(usize, Batch)],
        positions: Positions,
        shift: u64,
    ) -> Positions {
        if self == Self::Positions {
            return positions;
        }
        let count = positions.queries().len();
        let padded = |(length, row): &(usize, Batch)| -> Vec<Axis> {
            let shared = task.axes(*length);
            let own = match shared.is_empty() {
                true => task.row_axes(&row.inputs),
                false => shared,
            };
            let axis = |mut all: Vec<f64>| {
                all.resize(count, 0.0);
                shifted(all, shift)
            };
            own.into_iter().map(axis).collect()
        };
        positions.with_axes_by_row(rows.iter().map(padded).collect())
    }

    /// No token of a row of this length has a larger coordinate, by axis; empty where tokens have
    /// none. `positions` are those of tests.
    pub fn largest(self, task: &dyn Task, length: usize, positions: &PositionsConfig) -> Vec<f64> {
        if self == Self::Task {
            let facts = task.axis_facts(length).into_iter();
            return facts.map(|axis| axis.largest).collect();
        }
        if !matches!(positions, PositionsConfig::Grid(_)) {
            return Vec::new();
        }
        // Coordinates of a grid are not drawn.
        let grid = positions.sample_test(task.seq_len(length), &mut |_| 0);
        let largest = |axis| grid.axis(axis).0.iter().copied().fold(0.0, f64::max);
        (0..grid.num_axes()).map(largest).collect()
    }
}

/// An axis whose coordinates but 0 are moved.
fn shifted(mut all: Vec<f64>, shift: u64) -> Axis {
    for coordinate in all.iter_mut().filter(|coordinate| **coordinate != 0.0) {
        *coordinate += shift as f64;
    }
    Axis {
        queries: all.clone(),
        keys: all,
    }
}

/// The axis whose coordinates, which reach up to `largest`, pass the end of the encoding, with the
/// largest coordinate and the end.
pub fn past_end(facts: &Facts, largest: &[f64]) -> Option<(usize, f64, usize)> {
    facts.axis_reads.iter().find_map(|read| {
        let (reach, end) = (*largest.get(read.axis)?, read.end?);
        (reach >= end as f64).then_some((read.axis, reach, end))
    })
}
