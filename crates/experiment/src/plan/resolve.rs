//! Training and model of a cell, checked and resolved: the same rules for a configuration and for a
//! job that is read back as one.

use super::before::{StartingRun, TrainedBefore};
use super::frozen::Frozen;
use super::model;
use super::ranges::refused;
use super::sections::Experiment;
use super::stages;
use super::train::train;
use crate::spec::{LengthCurriculum, ModelSpec, TrainSpec};
use config::axes::Cell;
use config::diagnostic::Diagnostic;
use posenc::Lengths;
use tasks::Task;
use tiny_transformer::Mask;

/// What a cell describes, without its variants.
pub(super) struct Described {
    pub(super) train: TrainSpec,
    pub(super) model: ModelSpec,
    /// Trainable numbers of the model.
    pub(super) parameters: u64,
    /// The length trained on before the encoding of the model came in, in tokens.
    pub(super) before: usize,
    /// What lengths that are left out mean, where a reader may think otherwise.
    pub(super) notes: Vec<String>,
}

/// Resolves a cell. `start`: the run whose weights its training starts from.
///
/// # Errors
///
/// The first value that cannot be used, at its key.
pub(super) fn describe(
    cell: &Cell,
    written: &Experiment,
    task: &dyn Task,
    start: Option<&StartingRun>,
) -> Result<Described, Diagnostic> {
    let transformer = model::transformer(cell, &written.model, task.vocab_size())?;
    model::check_sees_no_answer(cell, &transformer, task)?;
    let ranges = written.eval.test_lens.check(task);
    ranges.map_err(|error| refused(cell, "eval", &error))?;
    let scores = written.eval.scores().check(&transformer, task);
    scores.map_err(|error| refused(cell, "eval", &error))?;
    let mut train = train(cell, written, task)?;
    let during = written.eval.check_during(train.steps);
    during.map_err(|error| refused(cell, "eval", &error))?;
    let test_lens = &written.eval.test_lens;
    let pe = stages::last_encoding(cell, written);
    let before = TrainedBefore::new(&train, &written.model.pe, start);
    let model = model::resolve(
        cell,
        &written.model,
        &pe,
        transformer,
        (&train, &before),
        task,
        test_lens,
    )?;
    check_padding(cell, train.length, &model)?;
    let parameters = model::check_parameters(cell, &model)?;
    let frozen = Frozen {
        pe: &pe.1,
        positions: &written.model.positions,
        lengths: Lengths {
            train_len: train.seq_len,
            trained_len: before.encoding(&pe.1),
            test_len: model::longest_test(task, test_lens),
        },
    };
    let whole = (&mut train, &before);
    stages::resolve(cell, whole, written, &model, task)?;
    Ok(Described {
        before: before.encoding(&pe.1),
        notes: [before.notes(), frozen.notes(&model)].concat(),
        train,
        model,
        parameters,
    })
}

/// Refuses padded rows where tokens see what comes after them.
fn check_padding(
    cell: &Cell,
    length: LengthCurriculum,
    model: &ModelSpec,
) -> Result<(), Diagnostic> {
    if length != LengthCurriculum::Mixed || model.transformer.mask == Mask::Causal {
        return Ok(());
    }
    let problem = "pads rows at their end, which a bidirectional mask would show to their tokens";
    let help = "draw one length per batch, or set model.mask = \"causal\"";
    let allowed = "fixed, uniform, staged";
    Err(cell.error("train.length", problem, allowed, help))
}
