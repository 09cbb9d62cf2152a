//! `[train]`: steps, batches, the optimizer, and the stages of a training.

use super::check::{MAX_BATCH_TOKENS, MAX_LENGTH};
use super::ranges::whole;
use super::sections::Experiment;
use super::stopping;
use super::task::check_drawn;
use crate::spec::train::TrainSection;
use crate::spec::{LengthCurriculum, Stage, TrainSpec};
use config::axes::Cell;
use config::diagnostic::Diagnostic;
use tasks::Task;

/// The training with its defaults filled in.
pub(super) fn train(
    cell: &Cell,
    written: &Experiment,
    task: &dyn Task,
) -> Result<TrainSpec, Diagnostic> {
    let train = &written.train;
    train.check_ranges(cell)?;
    train.adamw.check_ranges(cell)?;
    // A twentieth of the steps is customary for small models.
    let warmup_steps = train.warmup_steps.unwrap_or(train.steps / 20);
    let help = "warm-up ends before the training does";
    whole(
        cell,
        "train.warmup_steps",
        warmup_steps,
        0,
        train.steps,
        help,
    )?;
    check_sequences(cell, written, task)?;
    if matches!(
        train.length,
        LengthCurriculum::Uniform | LengthCurriculum::Mixed
    ) {
        check_drawn(cell, "train.min_len", train.min_len, train.train_len, task)?;
    }
    stopping::check(
        cell,
        train.stop.as_ref(),
        (train.steps, train.train_len),
        task,
    )?;
    let seq_len = task.seq_len(train.train_len);
    if train.batch_size.saturating_mul(seq_len) > MAX_BATCH_TOKENS {
        let problem = format!("rows of {seq_len} tokens are more than {MAX_BATCH_TOKENS} tokens");
        let high = MAX_BATCH_TOKENS / seq_len.max(1);
        let error = cell.error(
            "train.batch_size",
            &problem,
            &format!("a whole number from 1 to {high}"),
            "or lower train.train_len",
        );
        return Err(error.with_value(train.batch_size));
    }
    Ok(train.resolved(seq_len, warmup_steps, stages(cell, train, task)?))
}

/// Refuses lengths whose sequences are too long.
fn check_sequences(cell: &Cell, written: &Experiment, task: &dyn Task) -> Result<(), Diagnostic> {
    let tests = written
        .eval
        .test_lens
        .iter()
        .enumerate()
        .map(|(index, length)| (format!("eval.test_lens.{index}"), *length));
    for (key, length) in tests.chain([("train.train_len".to_owned(), written.train.train_len)]) {
        let tokens = task.seq_len(length);
        if tokens > MAX_LENGTH {
            let allowed = format!("lengths of at most {MAX_LENGTH} tokens");
            let problem = format!("asks for a sequence of {tokens} tokens");
            return Err(cell.error(
                &key,
                &problem,
                &allowed,
                "positions beyond are not exact in f32",
            ));
        }
    }
    Ok(())
}

/// Refuses a length of a stage that is too long, or that the task has no rows of.
fn check_stage_len(
    cell: &Cell,
    key: &str,
    length: usize,
    train: &TrainSection,
    task: &dyn Task,
) -> Result<(), Diagnostic> {
    let help = "train.train_len is the longest length";
    whole(cell, key, length as u64, 1, train.train_len as u64, help)?;
    if task.has_rows(length) {
        return Ok(());
    }
    let problem = format!("is a length that task `{}` has no rows of", task.kind());
    let allowed = "lengths with room for what the keys of the task ask for";
    Err(cell.error(key, &problem, allowed, "use a longer one"))
}

/// The stages of a training, which must fill its steps and come to its longest length.
fn stages(cell: &Cell, train: &TrainSection, task: &dyn Task) -> Result<Vec<Stage>, Diagnostic> {
    let staged = train.length == LengthCurriculum::Staged;
    // One of the two without the other.
    if staged == train.stages.is_empty() {
        let (key, problem) = if staged {
            ("train.length", "needs train.stages")
        } else {
            ("train.stages", "need train.length = \"staged\"")
        };
        let help = "write length = \"staged\" and stages = [{ steps = 900, train_len = 32 }, { \
                    steps = 100, train_len = 64, batch_size = 8 }]";
        return Err(cell.error(
            key,
            problem,
            "train.length = \"staged\" with train.stages, or neither",
            help,
        ));
    }
    let mut stages = Vec::new();
    for (index, written) in train.stages.iter().enumerate() {
        let key = |name: &str| format!("train.stages.{index}.{name}");
        let batch_size = written.batch_size.unwrap_or(train.batch_size);
        whole(
            cell,
            &key("steps"),
            written.steps,
            1,
            train.steps,
            "a stage has at least one step, and no more than the training",
        )?;
        check_stage_len(cell, &key("train_len"), written.train_len, train, task)?;
        let seq_len = task.seq_len(written.train_len);
        let most = (MAX_BATCH_TOKENS / seq_len.max(1)).min(1 << 16) as u64;
        whole(
            cell,
            &key("batch_size"),
            batch_size as u64,
            1,
            most,
            "train.batch_size unless given",
        )?;
        stages.push(Stage {
            steps: written.steps,
            train_len: written.train_len,
            seq_len,
            batch_size,
            // Resolved with the model.
            positions: written.positions.clone(),
            pe: written.pe.clone(),
        });
    }
    if staged {
        check_whole(cell, train, &stages)?;
    }
    Ok(stages)
}

/// Refuses stages that leave steps over or do not reach the training length.
fn check_whole(cell: &Cell, train: &TrainSection, stages: &[Stage]) -> Result<(), Diagnostic> {
    let total = stages
        .iter()
        .map(|stage| stage.steps)
        .fold(0, u64::saturating_add);
    if total != train.steps {
        let (what, by) = if total < train.steps {
            ("a hole", train.steps - total)
        } else {
            ("an overlap", total - train.steps)
        };
        let problem = format!(
            "have {total} steps together, and the training {}: {what} of {by}",
            train.steps
        );
        let allowed = format!("stages of {} steps together", train.steps);
        let help = format!("set train.steps to {total}, or change the steps of a stage");
        return Err(cell.error("train.stages", &problem, &allowed, &help));
    }
    let lengths = stages.iter().map(|stage| stage.train_len);
    let longest = lengths.max().unwrap_or(0);
    if longest == train.train_len {
        return Ok(());
    }
    let problem = format!("is longer than every stage: the longest has {longest}");
    let help = "results are compared with this length";
    let error = cell.error("train.train_len", &problem, &longest.to_string(), help);
    Err(error.with_value(train.train_len))
}
