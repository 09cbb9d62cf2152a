//! What tests share: what a task is built with, its rows, and tables of cases in text.

use longreach_tasks::{Batch, BuildContext, Task, TaskConfig, TaskError};
use schema::Invalid;
use std::path::PathBuf;
use tempfile::TempDir;

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

/// These files in a directory of their own.
pub fn corpus(files: &[(&str, &[u8])]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    dir
}

/// What a text must say.
pub trait MustHave {
    /// Fails with the whole text where `part` is not in it.
    fn must_have(&self, part: &str);
}

impl MustHave for str {
    #[track_caller]
    fn must_have(&self, part: &str) {
        // Every text has an empty part.
        assert!(
            !part.is_empty() && self.contains(part),
            "`{part}` is missing:\n{self}"
        );
    }
}

/// The rows of a table in text: its lines, except empty ones and comments.
pub fn lines(table: &str) -> impl Iterator<Item = &str> {
    let lines = table.lines();
    lines.filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// The cells of a row of a table in text, between ` | `.
pub fn cells<const N: usize>(row: &str) -> [&str; N] {
    let cells: Vec<&str> = row.split(" | ").collect();
    cells
        .try_into()
        .unwrap_or_else(|_| panic!("{N} cells wanted: {row}"))
}

/// A cell of several lines, which `; ` separates.
pub fn by_lines(cell: &str) -> String {
    cell.replace("; ", "\n")
}

/// An array of tuples, `a, b; c, d;`. rustfmt leaves macros alone, so that a tuple stays on one line.
macro_rules! cases {
    ($($($cell:expr),+;)*) => { [$(($($cell),+)),*] };
}
pub(crate) use cases;

/// Why a table of keys is refused.
#[track_caller]
pub fn invalid(table: &str, built: Result<Box<dyn Task>, TaskError>) -> Invalid {
    match built.err() {
        Some(TaskError::Config(error)) => error,
        other => panic!("{table}: {other:?}"),
    }
}

/// Adds to a hash what a batch reads and predicts, and what of it counts.
pub fn hash(hasher: &mut blake3::Hasher, batch: &Batch) {
    let ids = batch.inputs.iter().chain(&batch.targets);
    let ids: Vec<u8> = ids.flat_map(|id| id.to_le_bytes()).collect();
    let counted: Vec<u8> = batch.counted.iter().map(|c| u8::from(*c)).collect();
    hasher.update(&ids).update(&counted);
}

/// What a row reads, what it must predict, and whether that counts.
pub fn row(batch: &Batch, row: usize) -> (&[i32], &[i32], &[bool]) {
    let at = row * batch.seq_len..(row + 1) * batch.seq_len;
    let (inputs, targets) = (&batch.inputs[at.clone()], &batch.targets[at.clone()]);
    (inputs, targets, &batch.counted[at])
}

/// The same of a row that is read token by token: its targets are its inputs one token later.
pub fn causal_row(batch: &Batch, at: usize) -> (&[i32], &[i32], &[bool]) {
    let (inputs, targets, counted) = row(batch, at);
    let last = targets.len() - 1;
    assert_eq!(inputs[1..], targets[..last], "targets are one token later");
    (inputs, targets, counted)
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
            let (inputs, targets, counted) = causal_row(&batch, row);
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
