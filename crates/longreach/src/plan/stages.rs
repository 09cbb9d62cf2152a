//! Positions of the stages of a training: defaults filled in and checked against the model.

use super::coordinates::check_coordinates;
use super::model::{check_positions, check_reach, lengths, longest_test};
use super::ranges::refused;
use super::spec::{ModelSpec, TrainSpec};
use crate::config::axes::Cell;
use crate::config::diagnostic::Diagnostic;
use tasks::Task;

/// Resolves the positions that stages ask for.
///
/// # Errors
///
/// The first that the encoding cannot read, or that a stage does not fit into, at its key.
pub(super) fn resolve_positions(
    cell: &Cell,
    train: &mut TrainSpec,
    model: &ModelSpec,
    task: &dyn Task,
    test_lens: &[usize],
) -> Result<(), Diagnostic> {
    let lengths = lengths(train, task, train.train_len);
    let longest = longest_test(task, test_lens);
    let facts = model.pe.facts(&model.transformer.shape());
    for (index, stage) in train.stages.iter_mut().enumerate() {
        let Some(positions) = &mut stage.positions else {
            continue;
        };
        let key = format!("train.stages.{index}.positions");
        positions.resolve(&lengths, longest);
        check_positions(positions, &facts, &model.transformer, stage.seq_len)
            .map_err(|error| refused(cell, &key, &error))?;
        check_coordinates(model.coordinates, positions, &facts, task)
            .map_err(|error| refused(cell, "model", &error))?;
        check_reach(cell, &facts, positions.rows(stage.seq_len), stage.seq_len)?;
    }
    Ok(())
}
