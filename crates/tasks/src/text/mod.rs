//! Text: language modelling over real files, by bytes, by characters or by the ids of a tokenizer.
//!
//! Example: read `fn main` and predict ` n main(` shifted by one, token id = byte value. The files
//! are concatenated in order without a separator, so windows cross file boundaries; nothing is
//! decoded, so invalid UTF-8 and NUL are bytes like any other. With `level = "chars"` a token is a
//! character, and so is what lengths count. With `level = "u16"`, `"u32"` or `"u64"` the files hold
//! token ids, which a tokenizer wrote. With `level = "bpe"` a byte-pair encoding is trained on the
//! training split and gives the tokens of both splits; with `level = "tokenizer"` it is read from a
//! `tokenizer.json`. Training windows start anywhere in the training split with equal probability;
//! test windows are laid over the validation split except for its last eighth, which is kept for
//! selection, or over its first `eval_tokens` + 1 bytes: the same for every method, seed and
//! evaluation seed. With `segment_ends`, such as "." and "\n", tokens have coordinates on two axes
//! for `coordinates = "task"`.
//!
//! It stands in for published settings: enwik8 and WikiText bytes (ALiBi, arXiv 2108.12409; KERPLE,
//! arXiv 2205.09921). The default corpus is source code that the program carries.

mod bpe;
mod byte_pairs;
mod chars;
mod config;
mod corpus;
mod first_bytes;
mod haystack;
mod ids;
mod level;
mod masked;
mod origin;
mod parts;
mod prompts;
mod published;
mod segments;
mod sources;
mod stretch;
mod tokenizer_json;
mod windows;

pub use bpe::WordKind;
pub use config::{
    EveryFile, HeldOutFiles, HeldOutRange, NonOverlapping, Published, Sliding, Split, TextConfig,
    Windows,
};
pub use first_bytes::begins_as;
pub use haystack::Haystack;
pub use level::Level;
pub use masked::MaskedTextConfig;
pub use origin::{CorpusKind, DEFAULT_CRATES};
pub use prompts::Overlap;
pub(crate) use prompts::{Keys, Line, line_notes};

use crate::{
    AxisFacts, Batch, BuildContext, CorpusFacts, ScoredText, Scoring, Stream, TEACHER_FORCED, Task,
    TaskError, TaskSpec,
};
use bpe::Bpe;
use segments::{Segments, Written};
use std::{
    collections::{BTreeMap, BTreeSet},
    f64::consts::LN_2,
};
use stretch::ValidSplit;
use windows::Plan;

impl TaskSpec for TextConfig {
    const SUMMARY: &'static str = "predict the next byte of real files; without `files`, of the \
                                   Rust sources that the program carries";
    fn examples() -> Vec<String> {
        vec!["f n _ m a i n | n _ m a i n (".into()]
    }
    fn build(&self, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
        self.check(ctx)?;
        let corpus = corpus::load(self, ctx)?;
        let longest = ctx.test_lens.iter().copied().max().unwrap_or(1);
        corpus::check_long_enough(&corpus, ctx.train_len, longest)?;
        let (first, is_apart) = (corpus.first.clone(), corpus.is_apart);
        let plan = |tokens: usize, unit: &str| {
            let split = ValidSplit {
                tokens,
                unit,
                context: 1,
                is_apart,
                first: &first,
            };
            split.plan(self, ctx)
        };
        if self.level == Level::Bytes {
            let plan = plan(corpus.valid.bytes.len(), "bytes")?;
            let splits = [corpus.train.bytes, corpus.valid.bytes];
            let text = |id| vec![id as u8];
            return self.task(splits, plan, corpus.facts, BYTES, (ctx, &text));
        }
        if matches!(self.level, Level::Bpe | Level::Tokenizer) {
            return byte_pairs::task(self, corpus, ctx, &plan);
        }
        let cuts = corpus.cuts;
        if let Some(ids::Ids { width, vocab, .. }) = self.ids() {
            let splits = token_ids(&corpus, width, vocab, cuts[0])?;
            check_tokens(&corpus, "tokens", [splits[0].len(), splits[1].len()], ctx)?;
            let plan = plan(splits[1].len(), "tokens")?;
            let tokens = Tokens {
                unit: "tokens",
                one: "token",
                vocab_size: vocab,
                bytes_per_token: self.bytes_per_token,
                is_counted: false,
                note: read_past(&corpus.seen.formats),
                bpe: None,
            };
            let text = |_| Vec::new();
            return self.task(splits, plan, corpus.facts, tokens, (ctx, &text));
        }
        let text = chars::decode(&corpus.train, &corpus.valid, &corpus.first, cuts)?;
        let counts = [text.train.len(), text.valid.len()];
        check_tokens(&corpus, "characters", counts, ctx)?;
        let plan = plan(text.valid.len(), "characters")?;
        let tokens = characters(&text, &plan);
        let known = text.known;
        // Id 0 stands for any character that is not known.
        let text_of = |id: usize| {
            let character = id.checked_sub(1).map(|at| known[at]);
            character.map_or_else(Vec::new, |character| character.to_string().into_bytes())
        };
        let splits = [text.train, text.valid];
        self.task(splits, plan, corpus.facts, tokens, (ctx, &text_of))
    }
}

impl TextConfig {
    /// The task over tokens; `text` is the text of an id, where texts are known.
    fn task<T: Copy + Into<i32> + Send + Sync + 'static>(
        &self,
        [train, valid]: [Vec<T>; 2],
        plan: Plan,
        facts: CorpusFacts,
        tokens: Tokens,
        (ctx, text): (&BuildContext<'_>, &dyn Fn(usize) -> Vec<u8>),
    ) -> Result<Box<dyn Task>, TaskError> {
        let written = Written {
            texts: &self.segment_ends,
            ids: &self.segment_end_ids,
        };
        let segments = Segments::new(written, tokens.vocab_size, text)?;
        let lengths = [&ctx.test_lens[..], &[ctx.train_len]].concat();
        let segments = segments.map(|segments| segments.measured(&lengths, &[&train, &valid]));
        Ok(Box::new(Text {
            train,
            valid,
            plan,
            facts,
            tokens,
            segments,
        }))
    }
}

/// That headers were left out, where files have some.
fn read_past(formats: &BTreeSet<&str>) -> Option<String> {
    let names: Vec<&str> = formats.iter().copied().collect();
    (!names.is_empty()).then(|| {
        format!(
            "the files are {}, read past their headers",
            names.join(" and ")
        )
    })
}

/// Refuses splits with fewer tokens than one window.
fn check_tokens(
    corpus: &corpus::Corpus,
    unit: &str,
    counts: [usize; 2],
    ctx: &BuildContext<'_>,
) -> Result<(), TaskError> {
    let longest = ctx.test_lens.iter().copied().max().unwrap_or(1);
    let splits = ["training", "validation"].into_iter().zip(counts);
    for ((split, have), length) in splits.zip([ctx.train_len, longest]) {
        if have <= length {
            let problem = format!(
                "the {split} split has {have} {unit}, and one window of length {length} needs {}",
                length + 1
            );
            let hint = "add files, or use shorter lengths";
            return Err(TaskError::input(&corpus.first, problem, hint));
        }
    }
    Ok(())
}

/// Both splits of files of ids.
fn token_ids(
    corpus: &corpus::Corpus,
    width: usize,
    vocab: usize,
    cut: bool,
) -> Result<[Vec<i32>; 2], TaskError> {
    // A file that is cut has a piece in both splits.
    let mut files: BTreeMap<String, usize> = BTreeMap::new();
    for (name, bytes) in corpus.train.pieces.iter().chain(&corpus.valid.pieces) {
        *files.entry(name.clone()).or_default() += bytes;
    }
    ids::check_whole(files.into_iter(), width, &corpus.first)?;
    let split = |part, before, name| ids::decode(part, width, vocab, before, &corpus.first, name);
    let over = corpus.train.bytes.len() % width;
    let before = if cut && over > 0 { width - over } else { 0 };
    Ok([
        split(&corpus.train, 0, "training")?,
        split(&corpus.valid, before, "validation")?,
    ])
}

/// Characters as tokens, with what the scored ones say about the vocabulary.
fn characters(text: &chars::Characters, plan: &Plan) -> Tokens {
    let scored = plan.scored();
    let bytes: usize = text.valid_bytes[scored.clone()]
        .iter()
        .map(|&n| usize::from(n))
        .sum();
    let unknown = text.valid[scored.clone()]
        .iter()
        .filter(|id| **id == 0)
        .count();
    let note = format!(
        "the vocabulary is the {} characters of the training split; {unknown} of the {} scored \
         characters are none of them and count as one token",
        text.known.len(),
        scored.len()
    );
    Tokens {
        unit: "characters",
        one: "character",
        vocab_size: text.known.len() + 1,
        bytes_per_token: Some(bytes as f64 / scored.len() as f64),
        is_counted: true,
        note: Some(note),
        bpe: None,
    }
}

/// What a token is.
struct Tokens {
    unit: &'static str,
    one: &'static str,
    vocab_size: usize,
    /// Bytes of text per token, where it is known.
    bytes_per_token: Option<f64>,
    /// Whether it was counted over the scored tokens.
    is_counted: bool,
    /// A sentence for every definition.
    note: Option<String>,
    /// What made them, if it was trained here.
    bpe: Option<(Bpe, WordKind)>,
}

const BYTES: Tokens = Tokens {
    unit: "bytes",
    one: "byte",
    vocab_size: 256,
    bytes_per_token: Some(1.0),
    is_counted: true,
    note: None,
    bpe: None,
};

struct Text<T> {
    train: Vec<T>,
    valid: Vec<T>,
    plan: Plan,
    facts: CorpusFacts,
    tokens: Tokens,
    segments: Option<Segments>,
}

/// Appends the row whose inputs are `window` but its last token, and whose counted targets start at
/// `first_counted`.
fn push_window<T: Copy + Into<i32>>(batch: &mut Batch, window: &[T], first_counted: usize) {
    let seq_len = window.len() - 1;
    batch
        .inputs
        .extend(window[..seq_len].iter().map(|&token| token.into()));
    batch
        .targets
        .extend(window[1..].iter().map(|&token| token.into()));
    batch
        .counted
        .extend((0..seq_len).map(|i| i >= first_counted));
}

impl<T: Copy + Into<i32> + Send + Sync> Task for Text<T> {
    fn kind(&self) -> &'static str {
        "text"
    }
    fn vocab_size(&self) -> usize {
        self.tokens.vocab_size
    }
    fn unit(&self) -> &'static str {
        self.tokens.unit
    }
    fn seq_len(&self, length: usize) -> usize {
        length
    }
    /// # Panics
    /// If the training split has no window of `length` + 1 tokens; building the task checked
    /// `train_len`.
    fn train_batch(&self, length: usize, rows: usize, seed: u64, step: u64) -> Batch {
        let starts = self.train.len().saturating_sub(length) as u64;
        let mut stream = Stream::new(seed, "train-data", step);
        let mut batch = Batch::with_capacity(rows, length);
        for _ in 0..rows {
            let start = stream.below(starts) as usize;
            push_window(&mut batch, &self.train[start..=start + length], 0);
        }
        batch
    }
    fn test_rows(&self, length: usize) -> usize {
        self.plan.rows(length)
    }
    fn test_batch(&self, length: usize, first_row: usize, rows: usize) -> Batch {
        let mut batch = Batch::with_capacity(rows, length);
        for (start, first_counted) in self.plan.part(length, first_row, rows) {
            push_window(
                &mut batch,
                &self.valid[start..=start + length],
                first_counted,
            );
        }
        batch
    }
    fn row_axes(&self, row: &[i32]) -> Vec<Vec<f64>> {
        let segments = self.segments.as_ref();
        segments.map_or_else(Vec::new, |segments| segments.axes(row))
    }
    fn axis_facts(&self, length: usize) -> Vec<AxisFacts> {
        let splits = [&self.train[..], &self.valid[..]];
        let segments = self.segments.as_ref();
        segments.map_or_else(Vec::new, |segments| segments.facts(length, &splits))
    }
    fn scored_text(&self) -> Option<ScoredText> {
        let counted = self
            .tokens
            .bytes_per_token
            .filter(|_| self.tokens.is_counted);
        self.plan.scored_text(counted)
    }
    fn scored_place(&self, length: usize, row: usize) -> usize {
        self.plan.row(length, row).0 - self.plan.first()
    }
    fn scoring(&self) -> Scoring {
        Scoring::LanguageModel
    }
    fn primary_metric(&self) -> &'static str {
        "loss_nats"
    }
    fn definitions(&self, _: &str) -> BTreeMap<String, String> {
        let Tokens {
            one,
            bytes_per_token,
            ref note,
            ..
        } = self.tokens;
        let bits = bytes_per_token.map(|bytes| {
            let bits = if one == "byte" {
                "loss_nats / ln 2".to_owned()
            } else {
                format!("loss_nats / ln 2 / {bytes:.4} bytes")
            };
            ("bits_per_byte", bits)
        });
        let note = note
            .as_ref()
            .map_or_else(String::new, |note| format!("; {note}"));
        [
            (
                "loss_nats",
                format!("mean negative log-likelihood in nats per {one}"),
            ),
            ("perplexity", format!("exp of loss_nats, per {one}")),
        ]
        .into_iter()
        .chain(bits)
        .map(|(metric, meaning)| {
            let windows = self.plan.describe(one);
            let how = format!(
                "{meaning}; every scored {one} weighs the same; {TEACHER_FORCED}; {windows}{note}."
            );
            (metric.to_string(), how)
        })
        .collect()
    }
    /// A uniform guess over all tokens.
    fn chance(&self) -> BTreeMap<String, f64> {
        let nats = if self.tokens.vocab_size == 256 {
            8.0 * LN_2
        } else {
            libm::log(self.tokens.vocab_size as f64)
        };
        let bits = self.tokens.bytes_per_token;
        let bits = bits.map(|bytes| ("bits_per_byte", nats / LN_2 / bytes));
        let plain = [
            ("loss_nats", nats),
            ("perplexity", self.tokens.vocab_size as f64),
        ];
        plain
            .into_iter()
            .chain(bits)
            .map(|(metric, v)| (metric.to_string(), v))
            .collect()
    }
    fn bytes_per_token(&self) -> Option<f64> {
        self.tokens.bytes_per_token
    }
    fn tokenizer(&self) -> Option<serde_json::Value> {
        let (bpe, words) = self.tokens.bpe.as_ref()?;
        Some(tokenizer_json::tokenizer_json(bpe, *words))
    }
    /// Tokens, and the bytes that they were made of where these are two things.
    fn memory_bytes(&self) -> u64 {
        let tokens = (self.train.len() + self.valid.len()) as u64;
        let bytes = self.facts.train_bytes + self.facts.valid_bytes;
        match size_of::<T>() as u64 {
            1 => bytes,
            size => size * tokens + bytes,
        }
    }
    fn held_bytes(&self) -> u64 {
        let tokens = (self.train.len() + self.valid.len()) as u64;
        self.memory_bytes().min(size_of::<T>() as u64 * tokens)
    }
    fn corpus(&self) -> Option<&CorpusFacts> {
        Some(&self.facts)
    }
}
