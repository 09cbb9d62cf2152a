//! Prompts and answers from files of JSON lines: a task without Rust.
//!
//! Example (words): `{"prompt": "two plus three", "answer": "five"}` is
//! `BOS two plus three SEP | five EOS`. Numbers are read as they are written, lists as words. A
//! file may also be one JSON array of such objects.
//!
//! A length counts the tokens of a prompt: characters, or words between white space; or `length`
//! names the field that holds it. Training at length n draws from all prompts of at most length n;
//! a test set is the prompts of length n, or of the `bucket` lengths that end with n.
//!
//! Rows of different lengths share a batch: shorter ones are filled with EOS on the right, which
//! nothing before them sees and nothing counts.
//!
//! Held out: by file. A prompt that is in both files is refused, or left out of the training with
//! `overlap = "drop"`. With `[select]`, values are chosen on the files of `select`, whose prompts are
//! in neither.
//!
//! Tokens are those of the training file in order of code points, and one for all others.

pub use crate::text::Overlap;
use crate::text::{Keys, Line, line_notes};
use crate::{Batch, BuildContext, CorpusFacts, Rows, Scoring, Stream, TEACHER_FORCED};
use crate::{Task, TaskError, TaskSpec};
use schema::{Invalid, in_range, is_default};
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;
use std::collections::{BTreeMap, BTreeSet, HashMap};

const BOS: i32 = 0;
const SEP: i32 = 1;
const EOS: i32 = 2;
/// Every token that the training file lacks.
const OTHER: i32 = 3;
const FIRST: i32 = 4;

/// Most different tokens of the training file.
const MOST_TOKENS: usize = 1 << 16;

/// What a token is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JsonlTokens {
    /// A character.
    #[default]
    Chars,
    /// What is between white space.
    Words,
}

/// `kind = "jsonl"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct JsonlConfig {
    /// Files to train on: paths and globs, relative ones against the configuration's directory.
    #[default(vec!["train.jsonl".to_owned()])]
    pub train: Vec<String>,
    /// Files to test on, as `train`.
    #[default(vec!["test.jsonl".to_owned()])]
    pub test: Vec<String>,
    /// Files to choose values on with `[select]`, as `train`; no result is scored on them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub select: Vec<String>,
    /// What a token of a prompt or an answer is.
    pub tokens: JsonlTokens,
    /// Key of the prompt in every line.
    #[default("prompt".to_owned())]
    pub prompt: String,
    /// Key of the answer in every line.
    #[default("answer".to_owned())]
    pub answer: String,
    /// Key of a whole number that is the length of a line, instead of the tokens of its prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length: Option<String>,
    /// What becomes of prompts that are in the training and in the test files.
    #[serde(skip_serializing_if = "is_default")]
    pub overlap: Overlap,
    /// Number of lengths of prompts that a test set spans, those up to the test length; 1 to
    /// 4194304.
    #[default = 1]
    pub bucket: usize,
    /// Most bytes of all files together, 1 to 4294967296.
    #[default(64 << 20)]
    pub max_bytes: u64,
}

impl TaskSpec for JsonlConfig {
    const SUMMARY: &'static str = "answers to prompts from your own files";

    fn examples() -> Vec<String> {
        let example = |prompt: &str, answer: &str| format!("BOS {prompt} SEP | {answer} EOS");
        vec![
            example("two plus three", "five"),
            example("1 2 + 3 4 =", "4 6"),
        ]
    }

    #[expect(clippy::too_many_lines, reason = "one check after the other")]
    fn build(&self, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
        for (key, files) in [("train", &self.train), ("test", &self.test)] {
            if files.is_empty() {
                return Err(Invalid::new(
                    key,
                    "[]",
                    "names no file",
                    "at least one path or glob",
                    format!("write {key} = [\"{key}.jsonl\"]"),
                )
                .into());
            }
        }
        let hint = "1 tests prompts of exactly the test length";
        in_range("bucket", self.bucket, 1..=1 << 22, hint)?;
        let hint = "the files are held in memory";
        in_range("max_bytes", self.max_bytes, 1..=1 << 32, hint)?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"longreach jsonl v1");
        let keys = Keys {
            prompt: &self.prompt,
            answer: &self.answer,
            length: self.length.as_deref(),
            words: self.tokens == JsonlTokens::Words,
            max_bytes: self.max_bytes,
        };
        keys.check()?;
        let mut read = |key: &str, patterns: &[String]| keys.read(key, patterns, ctx, &mut hasher);
        let (mut train, test) = (read("train", &self.train)?, read("test", &self.test)?);
        let mut select = match self.select[..] {
            [] => None,
            _ => Some(read("select", &self.select)?),
        };
        let select_lines = select.as_mut().map(|part| &mut part.lines);
        let length = |line: &Line| {
            let tokens = || self.tokens.split(&line.prompt).len();
            line.length.unwrap_or_else(tokens)
        };
        let lines = (&mut train.lines, &test.lines[..], select_lines);
        let dropped = self.overlap.part(lines, keys.words, length)?;
        let files = train.files + test.files + select.as_ref().map_or(0, |part| part.files);
        let test = match (ctx.rows, select) {
            (Rows::Selection, Some(select)) => select,
            (Rows::Selection, None) => return Err(no_selection().into()),
            (Rows::Test, _) => test,
        };
        let vocabulary = Vocabulary::of(&train.lines, self.tokens)?;
        let mut task = JsonlTask {
            train: vocabulary.rows(&train.lines),
            test: vocabulary.rows(&test.lines),
            vocab_size: FIRST as usize + vocabulary.ids.len(),
            unknown: vocabulary.unknown(&test.lines),
            dropped,
            tokens: self.tokens,
            field: self.length.clone(),
            bucket: self.bucket,
            corpus: CorpusFacts {
                source: format!(
                    "files: {}",
                    [&self.train[..], &self.test, &self.select]
                        .concat()
                        .join(", ")
                ),
                files,
                train_bytes: train.bytes,
                valid_bytes: test.bytes,
                blake3: hasher.finalize().to_hex().to_string(),
                notes: Vec::new(),
            },
        };
        task.check_lengths(ctx)?;
        let is_new = |line: &Line| vocabulary.ids(&line.answer).contains(&OTHER);
        task.corpus.notes = line_notes(&train.lines, &test.lines, is_new);
        task.corpus.notes.extend(task.note(ctx.train_len));
        Ok(Box::new(task))
    }
}

/// What is missing where values are to be chosen.
fn no_selection() -> Invalid {
    let hint = "write task.select = [\"select.jsonl\"]: lines of neither the training nor the test \
                files";
    let problem = "is missing: [select], train.stop and eval.rows = \"selection\" score rows that no \
                   result is scored on";
    Invalid::new("select", "", problem, "at least one path or glob", hint)
}

impl JsonlTokens {
    fn split(self, text: &str) -> Vec<&str> {
        match self {
            Self::Chars => {
                let ends = text
                    .char_indices()
                    .map(|(at, c)| &text[at..at + c.len_utf8()]);
                ends.collect()
            }
            Self::Words => text.split_whitespace().collect(),
        }
    }

    /// What a length counts.
    fn unit(self) -> &'static str {
        match self {
            Self::Chars => "characters",
            Self::Words => "words",
        }
    }
}

/// The tokens of the training file.
struct Vocabulary {
    tokens: JsonlTokens,
    ids: HashMap<String, i32>,
}

impl Vocabulary {
    fn of(lines: &[Line], tokens: JsonlTokens) -> Result<Self, TaskError> {
        let texts = lines.iter().flat_map(|line| [&line.prompt, &line.answer]);
        // Sorted: ids must not depend on the order of a hash table.
        let known: BTreeSet<&str> = texts.flat_map(|text| tokens.split(text)).collect();
        if known.len() > MOST_TOKENS {
            let problem = format!(
                "makes {} different tokens of the training files, more than {MOST_TOKENS}",
                known.len()
            );
            let hint = "tokens = \"chars\" makes fewer";
            return Err(Invalid::new("tokens", tokens.unit(), problem, "", hint).into());
        }
        let ids = known.into_iter().map(str::to_owned).zip(FIRST..).collect();
        Ok(Self { tokens, ids })
    }

    fn ids(&self, text: &str) -> Vec<i32> {
        let tokens = self.tokens.split(text).into_iter();
        tokens
            .map(|token| self.ids.get(token).copied().unwrap_or(OTHER))
            .collect()
    }

    /// The lines as tokens, by the length of their prompts; lines of one length as in the files.
    fn rows(&self, lines: &[Line]) -> Vec<Row> {
        let row = |line: &Line| {
            let prompt = self.ids(&line.prompt);
            Row {
                length: line.length.unwrap_or(prompt.len()),
                prompt,
                answer: self.ids(&line.answer),
            }
        };
        let mut rows: Vec<Row> = lines.iter().map(row).collect();
        rows.sort_by_key(|row| row.length);
        rows
    }

    /// How many tokens of answers the training files lack, which no model can give.
    fn unknown(&self, lines: &[Line]) -> usize {
        let answers = lines.iter().flat_map(|line| self.ids(&line.answer));
        answers.filter(|id| *id == OTHER).count()
    }
}

struct Row {
    /// That of its prompt, or what its field says.
    length: usize,
    prompt: Vec<i32>,
    answer: Vec<i32>,
}

impl Row {
    /// Tokens that the model reads.
    fn seq_len(&self) -> usize {
        self.prompt.len() + self.answer.len() + 2
    }
}

struct JsonlTask {
    /// By length.
    train: Vec<Row>,
    test: Vec<Row>,
    vocab_size: usize,
    /// Tokens of test answers that the training files lack.
    unknown: usize,
    /// Lines of the training files that were left out.
    dropped: usize,
    tokens: JsonlTokens,
    /// The field that lengths are read from.
    field: Option<String>,
    bucket: usize,
    corpus: CorpusFacts,
}

/// The rows of at most this length.
fn up_to(rows: &[Row], length: usize) -> &[Row] {
    &rows[..rows.partition_point(|row| row.length <= length)]
}

impl JsonlTask {
    /// The rows trained on at a length; the shortest where none is short enough.
    fn trained(&self, length: usize) -> &[Row] {
        let shortest = self.train.first().map_or(0, |row| row.length);
        up_to(&self.train, length.max(shortest))
    }

    /// The test set of a length.
    fn tested(&self, length: usize) -> &[Row] {
        let rows = up_to(&self.test, length);
        let shorter = up_to(rows, length.saturating_sub(self.bucket));
        &rows[shorter.len()..]
    }

    /// Refuses lengths at which there is nothing to train or to test.
    fn check_lengths(&self, ctx: &BuildContext<'_>) -> Result<(), TaskError> {
        let unit = self.unit();
        if self.train.is_empty() {
            let lines = self.dropped;
            let problem = format!("holds no prompt that is not tested too, in {lines} lines");
            let hint = "overlap = \"drop\" leaves these out: give more lines to train on";
            return Err(Invalid::new("train", "", problem, "", hint).into());
        }
        let span = |rows: &[Row]| {
            let ends = [rows.first(), rows.last()].map(|row| row.map_or(0, |row| row.length));
            format!("{} to {}", ends[0], ends[1])
        };
        if up_to(&self.train, ctx.train_len).is_empty() {
            let length = ctx.train_len;
            let problem =
                format!("holds no prompt of at most {length} {unit}, the training length");
            let hint = format!(
                "its prompts have {} {unit}: raise train.train_len",
                span(&self.train)
            );
            return Err(Invalid::new("train", "", problem, "", hint).into());
        }
        let key = match ctx.rows {
            Rows::Test => "test",
            Rows::Selection => "select",
        };
        for length in &ctx.test_lens {
            if !self.tested(*length).is_empty() {
                continue;
            }
            let problem = match self.bucket {
                1 => format!("holds no prompt of {length} {unit}, a test length"),
                bucket => format!(
                    "holds no prompt of {} to {length} {unit}, a test length with bucket = {bucket}",
                    length.saturating_sub(bucket) + 1
                ),
            };
            let lengths: BTreeSet<usize> = self.test.iter().map(|row| row.length).collect();
            let shown: Vec<String> = lengths.iter().take(20).map(usize::to_string).collect();
            let more = if lengths.len() > 20 { ", ..." } else { "" };
            let allowed = format!("prompts of {}{more} {unit}", shown.join(", "));
            let hint = "choose other eval.test_lens, or a larger task.bucket";
            return Err(Invalid::new(key, "", problem, allowed, hint).into());
        }
        Ok(())
    }

    /// A training length that no prompt has.
    fn note(&self, train_len: usize) -> Option<String> {
        let (unit, longest) = (self.unit(), self.train.last()?.length);
        (longest < train_len).then(|| {
            format!(
                "train.train_len is {train_len}, and the longest prompt to train on has {longest} \
                 {unit}: reports count longer prompts, up to {train_len}, as trained on"
            )
        })
    }

    fn push(&self, batch: &mut Batch, row: &Row) {
        let mut tokens = vec![BOS];
        tokens.extend(&row.prompt);
        tokens.push(SEP);
        tokens.extend(&row.answer);
        // The answer's own end, and the padding after it.
        tokens.resize(batch.seq_len + 1, EOS);
        batch.inputs.extend(&tokens[..batch.seq_len]);
        batch.targets.extend(&tokens[1..]);
        // Target i is token i + 1, so the first answer token is the target at SEP.
        let first = row.prompt.len() + 1;
        let counted = first..first + row.answer.len() + 1;
        batch
            .counted
            .extend((0..batch.seq_len).map(|i| counted.contains(&i)));
    }
}

impl Task for JsonlTask {
    fn kind(&self) -> &'static str {
        "jsonl"
    }
    fn vocab_size(&self) -> usize {
        self.vocab_size
    }
    fn unit(&self) -> &str {
        self.field.as_deref().unwrap_or(self.tokens.unit())
    }
    fn has_rows(&self, length: usize) -> bool {
        !up_to(&self.train, length).is_empty()
    }
    /// Tokens of the longest row of at most this length.
    fn seq_len(&self, length: usize) -> usize {
        let rows = self.trained(length).iter().chain(up_to(&self.test, length));
        rows.map(Row::seq_len).max().unwrap_or(1)
    }
    fn train_batch(&self, length: usize, rows: usize, seed: u64, step: u64) -> Batch {
        let mut stream = Stream::new(seed, "train-data/jsonl", step);
        let mut batch = Batch::with_capacity(rows, self.seq_len(length));
        let trained = self.trained(length);
        for _ in 0..rows {
            let row = stream.below(trained.len() as u64) as usize;
            self.push(&mut batch, &trained[row]);
        }
        batch
    }
    fn test_rows(&self, length: usize) -> usize {
        self.tested(length).len()
    }
    fn test_batch(&self, length: usize, first_row: usize, rows: usize) -> Batch {
        let mut batch = Batch::with_capacity(rows, self.seq_len(length));
        for row in &self.tested(length)[first_row..first_row + rows] {
            self.push(&mut batch, row);
        }
        batch
    }
    fn row_len(&self, length: usize, row: usize) -> usize {
        self.tested(length)[row].seq_len()
    }
    fn scoring(&self) -> Scoring {
        Scoring::Answer
    }
    fn primary_metric(&self) -> &'static str {
        "exact_match"
    }
    fn definitions(&self, answers: &str) -> BTreeMap<String, String> {
        let unit = self.unit();
        let less = self.bucket - 1;
        let prompts = match (&self.field, less) {
            (Some(field), 0) => format!("the test prompts whose {field} is the length"),
            (Some(field), _) => {
                format!("the test prompts whose {field} is the length, or up to {less} less")
            }
            (None, 0) => format!("the test prompts of exactly this many {unit}"),
            (None, _) => format!("the test prompts of this many {unit}, or up to {less} fewer"),
        };
        let dropped = match self.dropped {
            0 => String::new(),
            count => format!(
                "; {count} lines of the training files, whose prompts are also tested, were left \
                 out"
            ),
        };
        let unknown = match self.unknown {
            0 => String::new(),
            count => format!("; {count} tokens of the test answers are not in the training files"),
        };
        let what = [
            (
                "exact_match",
                answers,
                "share of test rows whose answer tokens and EOS are all predicted right",
            ),
            (
                "token_accuracy",
                answers,
                "share of answer tokens, EOS included, predicted right, every token of every row \
                 weighing the same",
            ),
            (
                "loss_nats",
                TEACHER_FORCED,
                "mean negative log-likelihood in nats of the answer tokens, EOS included, every \
                 token weighing the same",
            ),
        ];
        what.map(|(metric, mode, meaning)| {
            let text = format!("{meaning}; {mode}; over {prompts}{unknown}{dropped}.");
            (metric.to_owned(), text)
        })
        .into()
    }
    /// A uniform guess over the tokens of the training files, EOS not considered, and over all ids.
    fn chance(&self) -> BTreeMap<String, f64> {
        let symbols = (self.vocab_size - FIRST as usize).max(1);
        [
            ("token_accuracy".to_owned(), 1.0 / symbols as f64),
            ("loss_nats".to_owned(), libm::log(self.vocab_size as f64)),
        ]
        .into()
    }
    /// Ids of 4 bytes in two lists for each row, and the lines while they are read.
    fn memory_bytes(&self) -> u64 {
        let rows = self.train.iter().chain(&self.test);
        let ids: usize = rows.map(|row| size_of::<Row>() + 4 * row.seq_len()).sum();
        ids as u64 + 2 * (self.corpus.train_bytes + self.corpus.valid_bytes)
    }
    fn corpus(&self) -> Option<&CorpusFacts> {
        Some(&self.corpus)
    }
}
