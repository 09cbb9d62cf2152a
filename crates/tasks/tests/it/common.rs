//! What every test builds a task with.

use longreach_tasks::{BuildContext, Task, TaskConfig, TaskError};
use std::path::PathBuf;

/// Most rows of either kind that [`rows`] returns.
const ROWS: usize = 64;

/// A context without Cargo.
pub fn ctx(
    config_dir: impl Into<PathBuf>,
    train_len: usize,
    test_lens: &[usize],
    eval_seed: u64,
) -> BuildContext<'static> {
    BuildContext {
        config_dir: config_dir.into(),
        lock: "",
        cargo_home: None,
        train_len,
        test_lens: test_lens.to_vec(),
        eval_seed,
        rows: longreach_tasks::Rows::Test,
        bidirectional: false,
        carried: None,
    }
}

pub fn build(table: &str) -> Result<Box<dyn Task>, TaskError> {
    let ctx = ctx("", 64, &[64, 128], 0);
    toml::from_str::<TaskConfig>(table)
        .expect(table)
        .build(&ctx)
}

pub fn task(table: &str) -> Box<dyn Task> {
    build(table).unwrap_or_else(|error| panic!("{table}: {error}"))
}

/// Questions and answers of training and test rows of one length, without BOS, SEP and EOS, symbol
/// 0 as 0.
pub fn rows(task: &dyn Task, n: usize) -> Vec<(Vec<i32>, Vec<i32>)> {
    let tested = task.test_rows(n).min(ROWS);
    let mut rows = vec![];
    for batch in [
        task.train_batch(n, ROWS, 3, 5),
        task.test_batch(n, 0, tested),
    ] {
        for row in 0..batch.rows {
            let at = row * batch.seq_len..(row + 1) * batch.seq_len;
            let (inputs, targets, counted) = (
                &batch.inputs[at.clone()],
                &batch.targets[at.clone()],
                &batch.counted[at],
            );
            assert_eq!(
                inputs[1..],
                targets[..targets.len() - 1],
                "targets are the inputs one token later"
            );
            let sep = inputs.iter().position(|t| *t == 1).expect("SEP");
            assert_eq!((inputs[0], *targets.last().unwrap()), (0, 2), "BOS, EOS");
            // A stack ends at its end marker, symbol 2; zeros follow.
            let stack_end = || {
                targets[sep..]
                    .iter()
                    .position(|t| *t == 5)
                    .map_or(targets.len(), |end| sep + end + 1)
            };
            let end = if task.kind() == "stack_manipulation" {
                stack_end()
            } else {
                targets.len()
            };
            assert!(
                counted
                    .iter()
                    .enumerate()
                    .all(|(i, c)| *c == (sep..end).contains(&i)),
                "what counts is the answer and EOS"
            );
            let symbols = |tokens: &[i32]| -> Vec<i32> { tokens.iter().map(|t| t - 3).collect() };
            let (question, answer) = (
                symbols(&inputs[1..sep]),
                symbols(&targets[sep..targets.len() - 1]),
            );
            assert!(
                question.iter().chain(&answer).all(|s| *s >= 0),
                "BOS, SEP and EOS stand only where they belong"
            );
            rows.push((question, answer));
        }
    }
    rows
}
