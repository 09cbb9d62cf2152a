//! Bytes as the files of a text corpus: built or refused, never a panic, and a built task satisfies
//! the laws of a task.
//!
//! The first eight bytes choose the table, so that small changes of an input reach every branch;
//! the rest is text.
//!
//! | byte | chooses |
//! | --- | --- |
//! | 0 | files that the text is cut into: 1 to 4 |
//! | 1 | split: by file, by named files, or by a range |
//! | 2 | the split's number: `every`, which file is named, or the fraction |
//! | 3 | training length |
//! | 4, 5 | test lengths |
//! | 6 | windows: non-overlapping below 128, sliding above, with this stride |
//! | 7 | `eval_tokens`; above 250, also a `max_bytes` below the size of the corpus |

use longreach_tasks::{BuildContext, TEACHER_FORCED, Task, TaskConfig, TaskError, TestSet};
use std::path::{Path, PathBuf};

/// Longest input: files are written at every run, and longer ones reach no other code.
const MAX_LEN: usize = 8 << 10;

/// Directory for the files of an input; a RAM disk is best.
pub struct Scratch(PathBuf);

impl Scratch {
    /// A directory of this process's own below the system's temporary directory.
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn new(name: &str) -> Self {
        let dir =
            std::env::temp_dir().join(format!("longreach-fuzz-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a temporary directory can be made");
        Self(dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Whether the input was of use.
///
/// # Panics
/// If a promise of the task is broken.
pub fn check(data: &[u8], scratch: &Scratch) -> bool {
    let Some((&[count, split, number, train_len, short, long, stride, rest], text)) =
        data.split_first_chunk::<8>()
    else {
        return false;
    };
    if data.len() > MAX_LEN {
        return false;
    }
    let dir = &scratch.0;
    let count = usize::from(count % 4) + 1;
    // Files of different sizes, the last one with what is left: empty files come of short texts.
    let mut left = text;
    for i in 0..4 {
        let path = dir.join(format!("{i}.txt"));
        if i >= count {
            let _ = std::fs::remove_file(path);
            continue;
        }
        let (head, tail) = left.split_at(if i + 1 == count {
            left.len()
        } else {
            left.len() / 3
        });
        std::fs::write(path, head).expect("scratch files can be written");
        left = tail;
    }
    let split = match split % 4 {
        0 => format!("{{ by = \"file\", every = {} }}", number % 8),
        1 => format!("{{ by = \"files\", valid = [\"{}.txt\"] }}", number % 8),
        2 => format!("{{ by = \"files\", valid = [\"[{}-9].txt\"] }}", number % 8),
        // From below 0 to above 1, and often near the ends.
        _ => format!(
            "{{ by = \"range\", valid_fraction = {:?} }}",
            (f64::from(number) - 2.0) / 250.0
        ),
    };
    let windows = match stride {
        0..128 => "{ kind = \"non_overlapping\" }".to_owned(),
        _ => format!("{{ kind = \"sliding\", stride = {} }}", stride - 128),
    };
    let mut table =
        format!("kind = \"text\"\nfiles = [\"*.txt\"]\nsplit = {split}\nwindows = {windows}\n");
    table += &format!("eval_tokens = {}\n", usize::from(rest) * 4);
    if rest > 250 {
        table += &format!(
            "max_bytes = {}\n",
            text.len().saturating_sub(usize::from(rest - 251))
        );
    }
    let config: TaskConfig = toml_table(&table);
    // Lengths of 0 are refused by the trainer before any task is built.
    let test_lens = vec![usize::from(short) + 1, usize::from(long) * 2 + 1];
    let ctx = context(dir, usize::from(train_len) + 1, &test_lens);
    match config.build(&ctx) {
        Ok(task) => built(task.as_ref(), text.len(), &ctx, config.build(&ctx)),
        Err(error) => refused(&error),
    }
    true
}

fn toml_table(text: &str) -> TaskConfig {
    toml::from_str(text).expect("a table made here can be read")
}

fn context(dir: &Path, train_len: usize, test_lens: &[usize]) -> BuildContext<'static> {
    BuildContext {
        config_dir: dir.to_owned(),
        lock: "",
        cargo_home: None,
        train_len,
        test_lens: test_lens.to_vec(),
        eval_seed: 0,
        rows: longreach_tasks::Rows::Test,
        bidirectional: false,
        carried: None,
    }
}

/// A refusal says what is wrong and what to do.
fn refused(error: &TaskError) {
    let (problem, hint) = match error {
        TaskError::Config(invalid) => {
            assert!(
                !invalid.key.is_empty() && !invalid.allowed.is_empty(),
                "{error:?}"
            );
            (&invalid.problem, &invalid.hint)
        }
        TaskError::Input { problem, hint, .. } => (problem, hint),
    };
    assert!(
        !problem.trim().is_empty() && !hint.trim().is_empty() && !error.to_string().is_empty(),
        "{error:?}"
    );
}

/// Sizes add up, ids are bytes, targets are inputs shifted by one, and every grouping of the test
/// rows gives the same rows.
fn built(
    task: &dyn Task,
    bytes: usize,
    ctx: &BuildContext<'_>,
    again: Result<Box<dyn Task>, TaskError>,
) {
    let facts = task.corpus().expect("a text task has a corpus");
    assert_eq!(facts.train_bytes + facts.valid_bytes, bytes as u64);
    assert_eq!(
        Some(facts),
        again.expect("built once, built twice").corpus()
    );
    for step in 0..3 {
        let batch = task.train_batch(ctx.train_len, 3, 7, step);
        assert_eq!(
            (batch.rows, batch.seq_len, batch.inputs.len()),
            (3, ctx.train_len, 3 * ctx.train_len)
        );
        assert!(batch.counted.iter().all(|counted| *counted));
        shifted(&batch);
    }
    let mut scored = vec![];
    for &length in &ctx.test_lens {
        let all = task.test_batch(length, 0, task.test_rows(length));
        assert!(all.rows > 0, "a test length without rows");
        shifted(&all);
        // Rows may overlap, but no byte is scored twice: there are at most as many as the split has
        // after its first.
        let counted = all.counted.iter().filter(|counted| **counted).count() as u64;
        assert!(
            counted > 0 && counted < facts.valid_bytes,
            "{counted} scored of {}",
            facts.valid_bytes
        );
        scored.push(counted);
        let mut rows = 0;
        for batch in TestSet::new(task, length).batches(3) {
            let at = rows * length..(rows + batch.rows) * length;
            assert_eq!(batch.inputs, all.inputs[at.clone()]);
            assert_eq!(batch.counted, all.counted[at]);
            rows += batch.rows;
        }
        assert_eq!(rows, all.rows);
    }
    let definitions = task.definitions(TEACHER_FORCED);
    assert!(!definitions.is_empty());
    // What a report says of the windows is what was scored.
    if definitions
        .values()
        .any(|text| text.contains("bytes at every test length"))
    {
        assert!(
            scored.windows(2).all(|pair| pair[0] == pair[1]),
            "{scored:?} bytes scored, {definitions:?}"
        );
        assert!(
            definitions
                .values()
                .all(|text| text.contains(&format!("the same {} bytes", scored[0]))),
            "{scored:?}, {definitions:?}"
        );
    }
}

fn shifted(batch: &longreach_tasks::Batch) {
    let tokens = batch.rows * batch.seq_len;
    assert_eq!(
        (batch.inputs.len(), batch.targets.len(), batch.counted.len()),
        (tokens, tokens, tokens)
    );
    assert!(
        batch
            .inputs
            .iter()
            .chain(&batch.targets)
            .all(|id| (0..256).contains(id))
    );
    for (inputs, targets) in batch
        .inputs
        .chunks(batch.seq_len)
        .zip(batch.targets.chunks(batch.seq_len))
    {
        assert_eq!(inputs[1..], targets[..targets.len() - 1]);
    }
}
