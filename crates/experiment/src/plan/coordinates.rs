//! `model.coordinates` and `model.coordinate_shift`: what refuses them.

use super::ranges::whole;
use crate::spec::coordinates::{Coordinates, past_end};
use config::axes::Cell;
use config::diagnostic::Diagnostic;
use posenc::{ConfigError, Facts, PositionsConfig};
use tasks::Task;

/// Refuses a shift with nothing to move, and training coordinates that pass the encoding's end,
/// shifted or not.
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

/// Refuses the task's coordinates where it has none, where the encoding reads other axes or needs
/// rising ones, or where positions bring their own. Keys are those of `[model]`.
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
            "set model.coordinates = \"task\", for a task that has coordinates, or use positions of \
             kind `grid`",
        ));
    }
    // Not 1: in a grid of one cell no axis falls.
    let (axes, kind) = (task.axis_facts(2), task.kind());
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
            "come from the task, and from positions of kind `grid` too".to_owned(),
            "one of the two",
            "use other positions",
        )
    } else if facts.axes > axes {
        let read = facts.axes;
        (
            format!("have {axes} axes in task `{kind}`, and the encoding reads {read}"),
            "a task with as many axes",
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
