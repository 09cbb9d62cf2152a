//! Masked text: some bytes of real files are hidden, and a model that sees both sides says what
//! they were.
//!
//! Example: read `f ? _ m a i ? (` and answer `n` in the place of each `?`. Of every 100 bytes 15
//! are chosen; of the chosen, 80 in 100 are read as token 256, 10 as a byte drawn uniformly from
//! all, 10 as they are. Only chosen bytes count. Files, splits and windows are those of `text`;
//! windows do not overlap.
//!
//! A training window of n bytes has round(`rate` n) chosen ones, at least one, every set as likely
//! as any other. In the test each byte of the validation split is chosen by an independent draw
//! for its offset, so that at every length, and for every method and seed, the same bytes are
//! hidden in the same way: only what is visible around them grows.
//!
//! Source: Devlin et al. 2018, BERT (arXiv 1810.04805), section 3.1; RoFormer (arXiv 2104.09864) is
//! trained so. Words there, bytes here.

use super::config::{Split, Table, TextConfig};
use super::corpus;
use super::origin::CorpusKind;
use super::stretch::ValidSplit;
use super::windows::Plan;
use crate::{
    Batch, BuildContext, CorpusFacts, ScoredText, Scoring, Stream, Task, TaskError, TaskSpec,
};
use schema::{Invalid, in_range};
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;
use std::collections::BTreeMap;
use std::f64::consts::LN_2;
use std::ops::Bound::{Excluded, Included};

/// What is read in the place of a hidden byte.
const MASK: i32 = 256;
const VOCAB_SIZE: usize = 257;

/// `kind = "masked_text"`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "MaskedTable")]
pub struct MaskedTextConfig {
    /// As in the task `text`.
    pub corpus: CorpusKind,
    /// As in the task `text`.
    pub files: Vec<String>,
    /// As in the task `text`.
    pub crates: Vec<String>,
    /// As in the task `text`.
    pub split: Split,
    /// Bytes read at each test length, at most: cut to what the validation split has and to a
    /// common multiple of the lengths, or of each alone where that is more. When absent, all of it
    /// but what `text` keeps for selection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eval_tokens: Option<usize>,
    /// As in the task `text`.
    pub max_bytes: u64,
    /// Share of the bytes that are chosen to be predicted, above 0 and at most 1.
    pub rate: f64,
    /// Share of the chosen that are read as the mask token, 0 to 1.
    pub mask: f64,
    /// Share of the chosen that are read as a random byte, 0 to 1, and at most 1 with `mask`; the
    /// rest are read as they are.
    pub random: f64,
}

/// The table as written.
#[derive(Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
struct MaskedTable {
    corpus: Option<CorpusKind>,
    files: Option<Vec<String>>,
    crates: Option<Vec<String>>,
    split: Option<Split>,
    eval_tokens: Option<usize>,
    max_bytes: Option<u64>,
    #[default = 0.15]
    rate: f64,
    #[default = 0.8]
    mask: f64,
    #[default = 0.1]
    random: f64,
}

impl From<MaskedTable> for MaskedTextConfig {
    fn from(table: MaskedTable) -> Self {
        let MaskedTable {
            corpus,
            files,
            crates,
            split,
            eval_tokens,
            max_bytes,
            rate,
            mask,
            random,
        } = table;
        let text = TextConfig::from(Table {
            corpus,
            files,
            crates,
            split,
            eval_tokens,
            max_bytes,
            ..Table::default()
        });
        let TextConfig {
            corpus,
            files,
            crates,
            split,
            eval_tokens,
            max_bytes,
            ..
        } = text;
        Self {
            corpus,
            files,
            crates,
            split,
            eval_tokens,
            max_bytes,
            rate,
            mask,
            random,
        }
    }
}

impl Default for MaskedTextConfig {
    fn default() -> Self {
        Self::from(MaskedTable::default())
    }
}

impl MaskedTextConfig {
    /// The text that is masked.
    fn text(&self) -> TextConfig {
        let Self {
            corpus,
            files,
            crates,
            split,
            eval_tokens,
            max_bytes,
            ..
        } = self.clone();
        TextConfig {
            corpus,
            files,
            crates,
            split,
            eval_tokens,
            max_bytes,
            ..TextConfig::default()
        }
    }

    fn check(&self) -> Result<(), Invalid> {
        let above_zero = (Excluded(0.0), Included(1.0));
        in_range("rate", self.rate, above_zero, "BERT has 0.15")?;
        in_range("mask", self.mask, 0.0..=1.0, "BERT has 0.8")?;
        let hint = "BERT has 0.1, and keeps the rest as they are";
        in_range("random", self.random, 0.0..=1.0, hint)?;
        // Shares such as 0.9 and 0.1 may add up to a little more than 1.
        if self.mask + self.random > 1.0 + 1e-12 {
            let problem = format!("is more than `mask` = {} leaves", self.mask);
            // Rounded, because 1 - 0.8 in f64 is 0.19999999999999996.
            let rest = ((1.0 - self.mask) * 1e12).round() / 1e12;
            let allowed = format!("0 to {rest}");
            return Err(Invalid::new("random", self.random, problem, allowed, hint));
        }
        Ok(())
    }
}

impl TaskSpec for MaskedTextConfig {
    const SUMMARY: &'static str =
        "say what the hidden bytes of real files were; for mask = \"bidirectional\"";
    fn examples() -> Vec<String> {
        vec!["f ? _ m a i ? ( | n n".into()]
    }
    fn build(&self, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
        self.check()?;
        let text = self.text();
        text.check(ctx)?;
        let corpus = corpus::load(&text, ctx)?;
        corpus::check_long_enough(
            &corpus,
            ctx.train_len,
            ctx.test_lens.iter().copied().max().unwrap_or(1),
        )?;
        let split = ValidSplit {
            tokens: corpus.valid.bytes.len(),
            unit: "bytes",
            context: 0,
            is_apart: corpus.is_apart,
            first: &corpus.first,
        };
        let plan = split.plan(&text, ctx)?;
        let corpus::Corpus {
            train,
            valid,
            facts,
            ..
        } = corpus;
        let task = MaskedText {
            config: self.clone(),
            train: train.bytes,
            valid: valid.bytes,
            plan,
            facts,
            eval_seed: ctx.eval_seed,
        };
        let lengths = ctx.test_lens.iter();
        let read = lengths.map(|&length| task.plan.scored_at(length)).min();
        let first = task.plan.first();
        // Without a test length nothing is scored.
        if let Some(read) = read
            && !(first..first + read).any(|place| task.tested(place).is_some())
        {
            let problem =
                format!("chooses none of the {read} bytes that are read at a test length");
            let hint = "raise `rate` or `eval_tokens`, or hold out more text";
            let allowed = "enough for one byte to be chosen";
            return Err(Invalid::new("rate", self.rate, problem, allowed, hint).into());
        }
        Ok(Box::new(task))
    }
}

struct MaskedText {
    config: MaskedTextConfig,
    train: Vec<u8>,
    valid: Vec<u8>,
    plan: Plan,
    facts: CorpusFacts,
    eval_seed: u64,
}

impl MaskedText {
    /// What a chosen byte is read as; two words of the stream where it is read as another.
    fn read(&self, byte: u8, stream: &mut Stream) -> i32 {
        let draw = stream.unit_f64();
        if draw < self.config.mask {
            MASK
        } else if draw < self.config.mask + self.config.random {
            stream.below(256) as i32
        } else {
            i32::from(byte)
        }
    }

    /// What byte `place` of the validation split is read as in the test, if it is chosen.
    fn tested(&self, place: usize) -> Option<i32> {
        let mut stream = Stream::new(self.eval_seed, "test-mask", place as u64);
        stream
            .bernoulli(self.config.rate)
            .then(|| self.read(self.valid[place], &mut stream))
    }
}

/// Appends a row: what `read` gives for a place of the window is read there and counts, other bytes
/// are read as they are.
fn push_row(batch: &mut Batch, window: &[u8], mut read: impl FnMut(usize) -> Option<i32>) {
    for (place, &byte) in window.iter().enumerate() {
        let read = read(place);
        batch.inputs.push(read.unwrap_or(i32::from(byte)));
        batch.targets.push(i32::from(byte));
        batch.counted.push(read.is_some());
    }
}

impl Task for MaskedText {
    fn kind(&self) -> &'static str {
        "masked_text"
    }
    fn vocab_size(&self) -> usize {
        VOCAB_SIZE
    }
    fn unit(&self) -> &'static str {
        "bytes"
    }
    fn seq_len(&self, length: usize) -> usize {
        length
    }
    /// # Panics
    /// If the training split has no window of `length` bytes; building the task checked
    /// `train_len`.
    fn train_batch(&self, length: usize, rows: usize, seed: u64, step: u64) -> Batch {
        let starts = (self.train.len() - length + 1) as u64;
        // Two streams: which windows are read does not depend on how they are masked.
        let (mut windows, mut masks) = (
            Stream::new(seed, "train-data", step),
            Stream::new(seed, "train-mask", step),
        );
        let chosen = ((self.config.rate * length as f64).round() as usize).clamp(1, length);
        let mut batch = Batch::with_capacity(rows, length);
        for _ in 0..rows {
            let start = windows.below(starts) as usize;
            let window = &self.train[start..start + length];
            let mut places: Vec<usize> = (0..length).collect();
            // A shuffle stopped after `chosen` places: every set is as likely as any other.
            for first in 0..chosen {
                places.swap(first, first + masks.below((length - first) as u64) as usize);
            }
            let mut read = vec![None; length];
            for &place in &places[..chosen] {
                read[place] = Some(self.read(window[place], &mut masks));
            }
            push_row(&mut batch, window, |place| read[place]);
        }
        batch
    }
    fn test_rows(&self, length: usize) -> usize {
        self.plan.rows(length)
    }
    fn test_batch(&self, length: usize, first_row: usize, rows: usize) -> Batch {
        let mut batch = Batch::with_capacity(rows, length);
        for (start, first_counted) in self.plan.part(length, first_row, rows) {
            let before = batch.counted.len();
            push_row(&mut batch, &self.valid[start..start + length], |place| {
                self.tested(start + place)
            });
            // The window before has scored these.
            batch.counted[before..before + first_counted].fill(false);
        }
        batch
    }
    fn bytes_per_token(&self) -> Option<f64> {
        Some(1.0)
    }
    /// The bytes that are read: the hidden ones among them count.
    fn scored_text(&self) -> Option<ScoredText> {
        let text = self.plan.scored_text(Some(1.0));
        text.map(|text| ScoredText {
            block: None,
            ..text
        })
    }
    fn hides_answers(&self) -> bool {
        true
    }
    fn scoring(&self) -> Scoring {
        Scoring::Masked
    }
    fn primary_metric(&self) -> &'static str {
        "loss_nats"
    }
    fn definitions(&self, _: &str) -> BTreeMap<String, String> {
        let Self {
            config: MaskedTextConfig {
                rate, mask, random, ..
            },
            plan,
            ..
        } = self;
        [
            (
                "loss_nats",
                "mean negative log-likelihood in nats per chosen byte",
            ),
            ("perplexity", "exp of loss_nats, per chosen byte"),
            ("bits_per_byte", "loss_nats / ln 2"),
            (
                "token_accuracy",
                "share of the chosen bytes that are the most likely token of 257",
            ),
        ]
        .map(|(metric, meaning)| {
            let how = format!(
                "{meaning}; every byte is chosen with probability {rate}, and of the chosen \
                 {mask} are read as a mask, {random} as a random byte, the rest as they are; \
                 chosen and read alike for every method and length; {}.",
                plan.read_in_words()
            );
            (metric.to_string(), how)
        })
        .into()
    }
    /// A uniform guess over 256 bytes.
    fn chance(&self) -> BTreeMap<String, f64> {
        [
            ("loss_nats", 8.0 * LN_2),
            ("perplexity", 256.0),
            ("bits_per_byte", 8.0),
            ("token_accuracy", 1.0 / 256.0),
        ]
        .map(|(metric, v)| (metric.to_string(), v))
        .into()
    }
    fn memory_bytes(&self) -> u64 {
        self.facts.train_bytes + self.facts.valid_bytes
    }
    fn corpus(&self) -> Option<&CorpusFacts> {
        Some(&self.facts)
    }
}
