//! The text that needles are hidden in: bytes of the training split in training, and of the
//! validation split in tests.

use super::config::{Split, Table, TextConfig};
use super::corpus;
use super::origin::CorpusKind;
use super::stretch::ValidSplit;
use crate::{BuildContext, CorpusFacts, TaskError};
use serde::{Deserialize, Serialize};

/// `text = { corpus = "wikitext-2", files = ["wiki.*.tokens"] }`: the keys of the task `text` that
/// say which text it is and what is held out. Without keys the text is `rust-2026`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct Haystack(TextConfig);

/// The table as written; all of it is as in `text`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    /// As in the task `text`.
    #[serde(skip_serializing_if = "Option::is_none")]
    corpus: Option<CorpusKind>,
    /// As in the task `text`.
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<Vec<String>>,
    /// As in the task `text`.
    #[serde(skip_serializing_if = "Option::is_none")]
    crates: Option<Vec<String>>,
    /// As in the task `text`.
    #[serde(skip_serializing_if = "Option::is_none")]
    split: Option<Split>,
    /// As in the task `text`.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_bytes: Option<u64>,
}

impl From<Written> for Haystack {
    fn from(written: Written) -> Self {
        let Written {
            corpus,
            files,
            crates,
            split,
            max_bytes,
        } = written;
        Self(TextConfig::from(Table {
            corpus,
            files,
            crates,
            split,
            max_bytes,
            ..Table::default()
        }))
    }
}

impl From<Haystack> for Written {
    fn from(Haystack(text): Haystack) -> Self {
        let listed = |list: Vec<String>| (!list.is_empty()).then_some(list);
        Self {
            corpus: Some(text.corpus),
            files: listed(text.files),
            crates: listed(text.crates),
            split: Some(text.split),
            max_bytes: Some(text.max_bytes),
        }
    }
}

/// What rows are cut from.
pub(crate) struct Stretches {
    pub train: Vec<u8>,
    /// The part of the validation split that the rows of the context are tested on.
    pub tested: Vec<u8>,
    pub facts: CorpusFacts,
}

impl Haystack {
    /// Reads the text. Either part holds the longest length of its rows.
    pub(crate) fn read(&self, ctx: &BuildContext<'_>) -> Result<Stretches, TaskError> {
        self.stretches(ctx).map_err(|error| match error {
            TaskError::Config(error) => error.within("text").into(),
            error => error,
        })
    }

    fn stretches(&self, ctx: &BuildContext<'_>) -> Result<Stretches, TaskError> {
        self.0.check(ctx)?;
        let corpus = corpus::load(&self.0, ctx)?;
        let longest = ctx.test_lens.iter().copied().max().unwrap_or(1);
        corpus::check_long_enough(&corpus, ctx.train_len, longest)?;
        let split = ValidSplit {
            tokens: corpus.valid.bytes.len(),
            unit: "bytes",
            context: 0,
            is_apart: corpus.is_apart,
            first: &corpus.first,
        };
        let plan = split.plan(&self.0, ctx)?;
        let mut tested = corpus.valid.bytes;
        tested.truncate(plan.first() + plan.scored_at(longest));
        tested.drain(..plan.first());
        Ok(Stretches {
            train: corpus.train.bytes,
            tested,
            facts: corpus.facts,
        })
    }
}
