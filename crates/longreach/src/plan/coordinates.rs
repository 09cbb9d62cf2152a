//! Coordinates of tokens on axes: where they come from, and what refuses them.

use super::ranges::whole;
use crate::config::axes::Cell;
use crate::config::diagnostic::Diagnostic;
use posenc::{Axis, ConfigError, Facts, Positions, PositionsConfig};
use serde::{Deserialize, Serialize};
use tasks::Task;

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
    /// Positions of the first tokens of a row of this length, with their coordinates.
    pub fn of(self, task: &dyn Task, length: usize, positions: Positions) -> Positions {
        self.moved(task, length, positions, 0)
    }

    /// As [`of`](Self::of), with every coordinate of the task but 0, which stands for none, moved by
    /// `shift`.
    pub fn moved(
        self,
        task: &dyn Task,
        length: usize,
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
            for coordinate in all.iter_mut().filter(|coordinate| **coordinate != 0.0) {
                *coordinate += shift as f64;
            }
            Axis {
                queries: all.clone(),
                keys: all,
            }
        };
        positions.with_axes(task.axes(length).into_iter().map(axis).collect())
    }
}

/// Refuses a shift of coordinates that there are none of, or that moves them past the encoding's
/// end.
pub(super) fn check_shift(
    cell: &Cell,
    coordinates: Coordinates,
    shift: usize,
    facts: &Facts,
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
    let largest = task.axes(train_len).into_iter().flatten();
    let largest = largest.fold(0.0, f64::max) + shift as f64;
    match facts.max_position {
        Some(limit) if facts.needs_axes && largest >= limit as f64 => {
            let problem =
                format!("moves coordinates up to {largest}, and the encoding ends before {limit}");
            let allowed = format!("coordinates and shift below {limit} together");
            let help = "lower it, or raise max_position of the encoding";
            Err(cell.error(key, &problem, &allowed, help).with_value(shift))
        }
        _ => Ok(()),
    }
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
        if !facts.needs_axes || given {
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
    let (axes, kind) = (task.axes(1).len(), task.kind());
    let (problem, allowed, help) = if axes == 0 {
        (
            format!("come from the task, and `{kind}` has none"),
            "positions",
            "remove it, or use task.kind = \"grid\", \"multiplication\", or \"addition\" with \
             operands = \"equal\" and without hints",
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
