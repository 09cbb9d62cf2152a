//! Coordinates of tokens on axes: where they come from, and what refuses them.

use super::ranges::whole;
use crate::config::axes::Cell;
use crate::config::diagnostic::Diagnostic;
use posenc::{Axis, ConfigError, Facts, Positions, PositionsConfig};
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

/// Refuses a shift of coordinates that there are none of, and coordinates of training that pass the
/// encoding's end, moved or not.
pub(super) fn check_shift(
    cell: &Cell,
    coordinates: Coordinates,
    shift: usize,
    (pe_key, facts): (&str, &Facts),
    task: &dyn Task,
    train_len: usize,
) -> Result<(), Diagnostic> {
    let key = "model.coordinate_shift";
    let help = "Abacus is trained with 99; 0 moves nothing";
    whole(cell, key, shift as u64, 0, 1_000_000, help)?;
    if coordinates == Coordinates::Positions {
        if shift == 0 {
            return Ok(());
        }
        let problem = "moves the task's coordinates, and model.coordinates are positions";
        let help = "remove it, or set model.coordinates = \"task\"";
        return Err(cell.error(key, problem, "0", help).with_value(shift));
    }
    if shift > 0 && task.axes(train_len).is_empty() {
        let problem = "moves the numbers of digits, and the task's coordinates are of another kind";
        let help = "remove it";
        return Err(cell.error(key, problem, "0", help).with_value(shift));
    }
    let largest = task.axis_facts(train_len).into_iter();
    let largest: Vec<f64> = largest.map(|axis| axis.largest + shift as f64).collect();
    let Some((axis, reach, end)) = past_end(facts, &largest) else {
        return Ok(());
    };
    if shift > 0 {
        let problem =
            format!("moves coordinates up to {reach}, and the encoding ends before {end}");
        let allowed = format!("coordinates and shift below {end} together");
        let help = "lower it, or raise max_position of the encoding";
        return Err(cell.error(key, &problem, &allowed, help).with_value(shift));
    }
    let problem = format!(
        "reads axis {axis}, whose coordinates reach {reach} in training, and ends before {end}"
    );
    let allowed = format!("max_position = {} or more", reach + 1.0);
    let help = "raise max_position of the encoding on that axis";
    Err(cell.error(pe_key, &problem, &allowed, help))
}

/// Refuses the task's coordinates where it has none, where nothing reads them, or where positions
/// bring their own. Keys are those of `[model]`.
pub(super) fn check_coordinates(
    coordinates: Coordinates,
    positions: &PositionsConfig,
    facts: &Facts,
    task: &dyn Task,
) -> Result<(), ConfigError> {
    if coordinates == Coordinates::Positions {
        let given = matches!(positions, PositionsConfig::Grid(_));
        if !facts.needs_axes() || given {
            return Ok(());
        }
        return Err(ConfigError::new(
            "coordinates",
            "positions",
            "leave tokens without coordinates, and the encoding reads one",
            "task",
            "set model.coordinates = \"task\", for a task that has coordinates",
        ));
    }
    let (axes, kind) = (task.axis_facts(1), task.kind());
    let falls = |axis: usize| axes.get(axis).is_some_and(|axis| !axis.rises);
    let rising = facts.axis_reads.iter();
    let falling = rising.filter(|read| read.rising).map(|read| read.axis);
    let falling = falling.clone().find(|axis| falls(*axis));
    let axes = axes.len();
    let (problem, allowed, help) = if axes == 0 {
        (
            format!("come from the task, and `{kind}` has none"),
            "positions",
            "remove it, or use task.kind = \"grid\", \"multiplication\", \"addition\" with \
             operands = \"equal\" and without hints, or \"text\" with segment_ends",
        )
    } else if matches!(positions, PositionsConfig::Grid(_)) {
        (
            "come from the task, and from model.positions too".to_owned(),
            "one of the two",
            "remove model.positions",
        )
    } else if facts.axes > axes {
        let read = facts.axes;
        (
            format!("have {axes} axes in task `{kind}`, and the encoding reads {read}"),
            "positions",
            "read axes below that: model.pe.axes = 2, or a smaller model.pe.axis",
        )
    } else if let Some(axis) = falling {
        (
            format!(
                "fall along the sequence on axis {axis} in task `{kind}`, and the encoding's bias \
                 needs coordinates that never do"
            ),
            "an encoding without a bias by position on that axis",
            "use `rope` or `learned` on it; a bias can stand beside `on_axis` in a `stack`",
        )
    } else {
        return Ok(());
    };
    Err(ConfigError::new(
        "coordinates",
        "task",
        problem,
        allowed,
        help,
    ))
}
