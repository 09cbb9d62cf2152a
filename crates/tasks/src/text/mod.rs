//! Text: byte-level language modelling over real files.
//!
//! Example: read `fn main` and predict ` n main(` shifted by one, token id = byte value. The files are concatenated in order without
//! a separator, so windows cross file boundaries; nothing is decoded, so invalid UTF-8 and NUL are bytes like any other. Training
//! windows start anywhere in the training split with equal probability; test windows are laid over the first `eval_tokens` + 1
//! bytes of the validation split (`windows.rs`), the same for every method, seed and evaluation seed.
//!
//! Published settings this stands in for: enwik8 and WikiText bytes (ALiBi, arXiv 2108.12409; KERPLE, arXiv 2205.09921). The default
//! corpus is the source code of crates that building Longreach has already brought onto the machine.

mod config;
mod corpus;
mod masked;
mod sources;
mod windows;

pub use config::{CorpusKind, DEFAULT_CRATES, EveryFile, HeldOutFiles, HeldOutRange, NonOverlapping, Sliding, Split, TextConfig, Windows};
pub use masked::MaskedTextConfig;

use crate::{Batch, BuildContext, CorpusFacts, Scoring, Stream, Task, TaskError, TaskSpec};
use std::{collections::BTreeMap, f64::consts::LN_2};
use windows::Plan;

const VOCAB_SIZE: usize = 256;

impl TaskSpec for TextConfig {
    const SUMMARY: &'static str = "predict the next byte of real files; without `files`, of the Rust sources Cargo has fetched";
    fn examples() -> Vec<String> {
        vec!["f n _ m a i n | n _ m a i n (".into()]
    }
    fn build(&self, ctx: &BuildContext<'_>) -> Result<Box<dyn Task>, TaskError> {
        self.check(ctx)?;
        let corpus = corpus::load(self, ctx)?;
        corpus::check_long_enough(&corpus, ctx.train_len, ctx.test_lens.iter().copied().max().unwrap_or(1))?;
        let corpus::Corpus { train, valid, facts, .. } = corpus;
        let plan = Plan::new(self.windows, self.eval_tokens.min(valid.bytes.len() - 1), &ctx.test_lens);
        Ok(Box::new(Text { train: train.bytes, valid: valid.bytes, plan, facts }))
    }
}

struct Text {
    train: Vec<u8>,
    valid: Vec<u8>,
    plan: Plan,
    facts: CorpusFacts,
}

/// Appends the row whose inputs are `window` but its last byte, and whose counted targets start at `first_counted`.
fn push_window(batch: &mut Batch, window: &[u8], first_counted: usize) {
    let seq_len = window.len() - 1;
    batch.inputs.extend(window[..seq_len].iter().map(|&byte| i32::from(byte)));
    batch.targets.extend(window[1..].iter().map(|&byte| i32::from(byte)));
    batch.counted.extend((0..seq_len).map(|i| i >= first_counted));
}

impl Task for Text {
    fn kind(&self) -> &'static str {
        "text"
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
    /// If the training split has no window of `length` + 1 bytes; building the task checked `train_len`.
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
        let end = first_row + rows;
        assert!(end <= self.test_rows(length), "test rows {first_row}..{end} of {}", self.test_rows(length));
        let mut batch = Batch::with_capacity(rows, length);
        for row in first_row..end {
            let (start, first_counted) = self.plan.row(length, row);
            push_window(&mut batch, &self.valid[start..=start + length], first_counted);
        }
        batch
    }
    fn scoring(&self) -> Scoring {
        Scoring::LanguageModel
    }
    fn primary_metric(&self) -> &'static str {
        "loss_nats"
    }
    fn definitions(&self) -> BTreeMap<String, String> {
        [
            ("loss_nats", "mean negative log-likelihood in nats per byte"),
            ("perplexity", "exp of loss_nats, per byte"),
            ("bits_per_byte", "loss_nats / ln 2"),
        ]
        .map(|(metric, meaning)| {
            let how = format!("{meaning}; every scored byte weighs the same; teacher-forced; {}.", self.plan.describe());
            (metric.to_string(), how)
        })
        .into()
    }
    /// A uniform guess over 256 bytes.
    fn chance(&self) -> BTreeMap<String, f64> {
        [("loss_nats", 8.0 * LN_2), ("perplexity", 256.0), ("bits_per_byte", 8.0)].map(|(metric, v)| (metric.to_string(), v)).into()
    }
    fn corpus(&self) -> Option<&CorpusFacts> {
        Some(&self.facts)
    }
}
