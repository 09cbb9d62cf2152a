//! The two traits of every task, and the values that cross them.

use crate::TaskError;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{collections::BTreeMap, path::PathBuf};

/// Rows of equal length, row-major. `targets[i]` is what the model must predict at `inputs[i]`; it
/// counts iff `counted[i]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Number of rows.
    pub rows: usize,
    /// Tokens per row.
    pub seq_len: usize,
    /// Token ids the model reads, `rows * seq_len`.
    pub inputs: Vec<i32>,
    /// Token ids the model must predict, `rows * seq_len`.
    pub targets: Vec<i32>,
    /// Whether the loss and the metrics count a target, `rows * seq_len`.
    pub counted: Vec<bool>,
}

impl Batch {
    pub(crate) fn with_capacity(rows: usize, seq_len: usize) -> Self {
        let tokens = rows * seq_len;
        let (inputs, targets, counted) = (
            Vec::with_capacity(tokens),
            Vec::with_capacity(tokens),
            Vec::with_capacity(tokens),
        );
        Self {
            rows,
            seq_len,
            inputs,
            targets,
            counted,
        }
    }
}

/// How results of a task are scored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scoring {
    /// Loss by token, perplexity, bits per byte.
    LanguageModel,
    /// Token accuracy, exact match per row, loss, over the counted tokens of an answer.
    Answer,
    /// Loss and token accuracy over hidden tokens: a target is the token at its own place, which
    /// the inputs do not show, so that the model may see what comes after.
    Masked,
}

/// Which text a task read. Holds no absolute path of the machine unless the configuration names one
/// in `files`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CorpusFacts {
    /// `cargo: ` and the crates with their versions, or `files: ` and the patterns of the
    /// configuration.
    pub source: String,
    /// Number of files read, both splits together.
    pub files: usize,
    /// Bytes of the training split.
    pub train_bytes: u64,
    /// Bytes of the validation split.
    pub valid_bytes: u64,
    /// BLAKE3 over (relative name, length, bytes) of every piece of both splits, lower-case hex.
    pub blake3: String,
    /// What the author of a configuration may not expect of the files, a sentence each.
    pub notes: Vec<String>,
}

/// The text that a task scores, where that is all it can score: each token once at every length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScoredText {
    /// Number of consecutive tokens of the validation split.
    pub tokens: u64,
    /// The bytes that they are, where they are known.
    pub bytes: Option<u64>,
    /// Tokens of each of the consecutive, equally long blocks that it is divided into; `None` where
    /// there are too few, or where not every token counts.
    pub block: Option<usize>,
}

/// A text that the program carries, in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CarriedText {
    /// Its crates as `NAME VERSION`, sorted.
    pub packages: Vec<String>,
    /// Names of its files, `NAME-VERSION/src/lib.rs`, and their sizes in bytes, sorted by name.
    pub files: Vec<(String, usize)>,
    /// The files one after the other.
    pub bytes: Vec<u8>,
}

/// What a task says of one axis of its coordinates at a length.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AxisFacts {
    /// No token has a larger coordinate.
    pub largest: f64,
    /// Whether coordinates never fall along a row.
    pub rises: bool,
}

/// Which rows a task tests on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rows {
    /// The rows that results are scored on.
    #[default]
    Test,
    /// Rows that no result is scored on, to choose rates and to stop by.
    Selection,
}

/// What a task may know beyond its own table. Lengths must be at least 1: the trainer checks them,
/// with their own keys.
#[derive(Debug, Clone)]
pub struct BuildContext<'a> {
    /// Directory of the configuration file. Relative paths and globs of a task are resolved
    /// against it and never against the process's current directory, so that a configuration
    /// means the same wherever it is started from.
    pub config_dir: PathBuf,
    /// Text of the Cargo.lock that the program was built with.
    pub lock: &'a str,
    /// Cargo's home directory, where there is one.
    pub cargo_home: Option<PathBuf>,
    /// Longest length trained on, in the task's unit.
    pub train_len: usize,
    /// Lengths tested, in the task's unit; not empty.
    pub test_lens: Vec<usize>,
    /// Seed of the test sets.
    pub eval_seed: u64,
    /// Which rows are tested on.
    pub rows: Rows,
    /// Whether the model reads a row in both directions, so that answers are not among what it
    /// reads.
    pub bidirectional: bool,
    /// Gives the text `rust-2026`, where the program carries it; Cargo's directory has the same
    /// text as long as Cargo.lock names the same versions.
    pub carried: Option<fn() -> CarriedText>,
}

/// Answer tokens are predictions given the true tokens before them.
pub const TEACHER_FORCED: &str = "teacher-forced";

/// A task: what is trained on and what is tested, at any length. Every method is a pure function of
/// its arguments.
pub trait Task: Send + Sync {
    /// The tag of this task in a configuration.
    fn kind(&self) -> &'static str;
    /// Number of token ids: ids are `0..vocab_size`.
    fn vocab_size(&self) -> usize;
    /// What each token id stands for; empty where ids are bytes or tokens of a text.
    fn tokens(&self) -> Vec<String> {
        Vec::new()
    }
    /// What a length counts, plural: `"symbols"`, `"bytes"`; or the name of what it is.
    fn unit(&self) -> &str;
    /// Tokens the model sees at this length.
    fn seq_len(&self, length: usize) -> usize;
    /// The training batch of `step` for a run's `seed`, all rows of exactly this length. A larger
    /// `rows` only appends rows.
    fn train_batch(&self, length: usize, rows: usize, seed: u64, step: u64) -> Batch;
    /// Whether rows of this length have room for what the task's keys ask for. Other lengths have
    /// rows too, with less in them.
    fn has_rows(&self, length: usize) -> bool {
        let _ = length;
        true
    }
    /// How many rows the test set of this length has.
    fn test_rows(&self, length: usize) -> usize;
    /// Rows `first_row .. first_row + rows` of the test set; the same rows in whatever order and
    /// grouping they are asked for.
    ///
    /// # Panics
    /// If the test set has fewer rows.
    fn test_batch(&self, length: usize, first_row: usize, rows: usize) -> Batch;
    /// Tokens of a row of the test set of this length, without padding at its end.
    fn row_len(&self, length: usize, row: usize) -> usize {
        let _ = row;
        self.seq_len(length)
    }
    /// Whether a counted target is also the next token read, so that a model that answers token by
    /// token reads its own answers.
    fn reads_its_answers(&self) -> bool {
        true
    }
    /// Whether no counted target is read at its place or after it, so that a model may see what
    /// comes after a token.
    fn hides_answers(&self) -> bool {
        false
    }
    /// Coordinates of the tokens read at this length on axes that the task defines, a list for each
    /// axis; none where a row is a line, or where coordinates depend on the tokens.
    fn axes(&self, length: usize) -> Vec<Vec<f64>> {
        let _ = length;
        Vec::new()
    }
    /// Coordinates of the tokens of one row, a list for each axis, where they depend on the tokens;
    /// else none. They depend on the tokens up to each one only.
    fn row_axes(&self, row: &[i32]) -> Vec<Vec<f64>> {
        let _ = row;
        Vec::new()
    }
    /// What is known of every axis of [`axes`](Self::axes) or [`row_axes`](Self::row_axes).
    fn axis_facts(&self, length: usize) -> Vec<AxisFacts> {
        let facts = self.axes(length).into_iter().map(|axis| AxisFacts {
            rises: axis.is_sorted(),
            largest: axis.into_iter().fold(0.0, f64::max),
        });
        facts.collect()
    }
    /// Groups of test rows that are also scored on their own: the ending of their metric's name,
    /// and what they are.
    fn groups(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    /// The group of a row of the test set of this length, as an index into
    /// [`groups`](Self::groups).
    fn group(&self, length: usize, row: usize) -> Option<usize> {
        let _ = (length, row);
        None
    }
    /// The text that is scored, where all of it is.
    fn scored_text(&self) -> Option<ScoredText> {
        None
    }
    /// The place in [`scored_text`](Self::scored_text) of the target at the first position of a test
    /// row; targets that follow have the next places.
    fn scored_place(&self, length: usize, row: usize) -> usize {
        let _ = (length, row);
        0
    }
    /// How to score it.
    fn scoring(&self) -> Scoring;
    /// The metric a report shows first.
    fn primary_metric(&self) -> &'static str;
    /// Each metric in one sentence: what is averaged, what is counted, under which conditions.
    /// `answers`: how the tokens of scored answers are produced, [`TEACHER_FORCED`] or a phrase
    /// that says how they are decoded; ignored by tasks without answers.
    fn definitions(&self, answers: &str) -> BTreeMap<String, String>;
    /// What guessing scores, by metric; a metric whose chance level depends on the length is
    /// absent.
    fn chance(&self) -> BTreeMap<String, f64>;
    /// Bytes of text that a scored token stands for, on average, where bits per byte make sense.
    fn bytes_per_token(&self) -> Option<f64> {
        None
    }
    /// The tokenizer that was trained for the task, as the `tokenizer.json` of Hugging Face's
    /// tokenizers.
    fn tokenizer(&self) -> Option<serde_json::Value> {
        None
    }
    /// Bytes of memory that the task holds, or needs while it is built if that is more.
    fn memory_bytes(&self) -> u64 {
        0
    }
    /// Bytes of memory that the task holds once it is built.
    fn held_bytes(&self) -> u64 {
        self.memory_bytes()
    }
    /// The corpus behind the task, if it reads one.
    fn corpus(&self) -> Option<&CorpusFacts> {
        None
    }
}

/// A task's table in a configuration: its serde form, its defaults, and how to build the task from
/// it.
pub trait TaskSpec: Clone + Default + PartialEq + Serialize + DeserializeOwned {
    /// One line for `longreach list tasks`.
    const SUMMARY: &'static str;
    /// A few rows, `what is read | what must be answered`.
    fn examples() -> Vec<String>;
    /// Checks the values against each other and the context, reads what must be read, and builds
    /// the task.
    ///
    /// # Errors
    /// [`TaskError::Config`] for a value that cannot work, [`TaskError::Input`] for a corpus that
    /// cannot be used.
    fn build(&self, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError>;
}

/// A test set at one length: fixed for (task, length, evaluation seed), the same for every method,
/// generated row by row.
#[derive(Clone, Copy)]
pub struct TestSet<'a> {
    task: &'a dyn Task,
    length: usize,
}

impl<'a> TestSet<'a> {
    /// The test set of `task` at `length`.
    pub fn new(task: &'a dyn Task, length: usize) -> Self {
        Self { task, length }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.task.test_rows(self.length)
    }

    /// All rows in order, `batch_rows` at a time; the last batch may be smaller. `batch_rows` 0 is
    /// taken as 1.
    pub fn batches(self, batch_rows: usize) -> impl Iterator<Item = Batch> + use<'a> {
        let (total, size) = (self.rows(), batch_rows.max(1));
        (0..total).step_by(size).map(move |first| {
            self.task
                .test_batch(self.length, first, size.min(total - first))
        })
    }
}
