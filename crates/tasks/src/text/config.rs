//! The table of the text task.

use super::bpe::WordKind;
use super::ids::Ids;
use super::level::Level;
use super::origin::{CorpusKind, DEFAULT_CRATES};
use super::published::check_source;
use crate::{BuildContext, TaskError};
use schema::{Invalid, in_range, is_default, tagged};
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;
use std::ops::Bound::Excluded;

/// `kind = "text"`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "Table")]
pub struct TextConfig {
    /// What a token is, and what lengths, windows and `eval_tokens` count.
    #[serde(skip_serializing_if = "is_default")]
    pub level: Level,
    /// For files of ids: how many ids the tokenizer has, 2 to 16777216. For `level = "bpe"`: how
    /// many tokens it gets, 257 to 65536, the 256 bytes among them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vocab: Option<usize>,
    /// For `level = "bpe"`: how a text is split into words, inside of which pairs are merged.
    #[serde(skip_serializing_if = "is_default")]
    pub words: WordKind,
    /// For `level = "tokenizer"`: a `tokenizer.json` of byte-level BPE, relative to the
    /// configuration's directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<String>,
    /// For files of ids: bytes of text that a token stands for, on average, above 0 and at most
    /// 1000; without it there are no bits per byte.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_token: Option<f64>,
    /// Which text it is; when absent, `"files"` if `files` is given and `"rust-2026"` otherwise.
    pub corpus: CorpusKind,
    /// Paths and globs (`*`, `?`, `[...]`, `**` for any directories), relative ones against the
    /// configuration's directory.
    pub files: Vec<String>,
    /// For `corpus = "cargo"`: names of registry packages, `name` or `name@version`. When absent,
    /// those of `"rust-2026"`.
    pub crates: Vec<String>,
    /// What is held out for testing; when absent, every 10th file of `"cargo"`, the last tenth of
    /// the bytes of `"files"`, the published split of a published corpus.
    pub split: Split,
    /// Most tokens scored at each test length, at least the longest: cut to what the validation
    /// split has and to a common multiple of the lengths, or of each alone where that is more.
    /// When absent, all of the validation split but its last eighth (262144 tokens at most), which
    /// is kept for selection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eval_tokens: Option<usize>,
    /// How test windows are laid over the text that is scored.
    pub windows: Windows,
    /// Largest corpus accepted, in bytes, 1 to 4294967296; when absent, 67108864, and 1073741824
    /// for published corpora.
    pub max_bytes: u64,
    /// Texts that end a segment, such as a sentence or a line: every token that ends with one of
    /// them does. Tokens then have coordinates on two axes for `coordinates = "task"`: the place in
    /// the segment, and the number of the segment.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub segment_ends: Vec<String>,
    /// The same for files of ids: the ids of tokens that end a segment.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub segment_end_ids: Vec<u32>,
}

/// The table as written: an absent key differs from an empty one.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Table {
    pub level: Level,
    pub vocab: Option<usize>,
    pub words: WordKind,
    pub tokenizer: Option<String>,
    pub bytes_per_token: Option<f64>,
    pub corpus: Option<CorpusKind>,
    pub files: Option<Vec<String>>,
    pub crates: Option<Vec<String>>,
    pub split: Option<Split>,
    pub eval_tokens: Option<usize>,
    pub windows: Windows,
    pub max_bytes: Option<u64>,
    pub segment_ends: Vec<String>,
    pub segment_end_ids: Vec<u32>,
}

/// The default of `max_bytes`: published corpora are as large as they are.
fn default_max_bytes(corpus: CorpusKind) -> u64 {
    match corpus.is_published() {
        true => 1 << 30,
        false => 64 << 20,
    }
}

impl From<Table> for TextConfig {
    fn from(table: Table) -> Self {
        let Table {
            level,
            vocab,
            words,
            tokenizer,
            bytes_per_token,
            corpus,
            files,
            crates,
            split,
            eval_tokens,
            windows,
            max_bytes,
            segment_ends,
            segment_end_ids,
        } = table;
        // An empty list is a list of files all the same, and refused as one.
        let corpus = corpus.unwrap_or(if files.is_none() {
            CorpusKind::Cargo
        } else {
            CorpusKind::Files
        });
        let files = files.unwrap_or_default();
        // `rust-2026` is the default cargo corpus; with `files` or `crates`, it is refused.
        let corpus = match corpus {
            CorpusKind::Rust2026 if files.is_empty() && crates.is_none() => CorpusKind::Cargo,
            corpus => corpus,
        };
        let crates = crates.unwrap_or_else(|| match corpus {
            CorpusKind::Cargo => DEFAULT_CRATES.map(String::from).to_vec(),
            _ => vec![],
        });
        // Files that people name are often one or two, of which no tenth can be held out.
        let split = split.unwrap_or_else(|| match corpus {
            CorpusKind::Cargo | CorpusKind::Rust2026 => Split::default(),
            CorpusKind::Files => Split::Range(HeldOutRange::default()),
            _ => Split::Published(Published {}),
        });
        let max_bytes = max_bytes.unwrap_or_else(|| default_max_bytes(corpus));
        Self {
            level,
            vocab,
            words,
            tokenizer,
            bytes_per_token,
            corpus,
            files,
            crates,
            split,
            eval_tokens,
            windows,
            max_bytes,
            segment_ends,
            segment_end_ids,
        }
    }
}

impl Default for TextConfig {
    fn default() -> Self {
        Self::from(Table::default())
    }
}

tagged! {
    /// What is held out for testing.
    #[derive(Debug, Clone, PartialEq)]
    pub enum Split by "by" {
        /// One file in `every`, in sorted order.
        "file" => File(EveryFile),
        /// The last `valid_fraction` of the concatenated bytes.
        "range" => Range(HeldOutRange),
        /// The files that `valid` names.
        "files" => Files(HeldOutFiles),
        /// The split that a published corpus has.
        "published" => Published(Published),
    }
}

impl Default for Split {
    fn default() -> Self {
        Self::File(EveryFile::default())
    }
}

/// `{ by = "file" }`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct EveryFile {
    /// One file in this many is held out, the last of each such group; 2 to 1000000.
    #[default = 10]
    pub every: usize,
}

/// `{ by = "range" }`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct HeldOutRange {
    /// Share of the bytes held out at the end, rounded down to whole bytes, above 0 and below 1.
    #[default = 0.1]
    pub valid_fraction: f64,
}

/// `{ by = "files" }`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldOutFiles {
    /// Paths and globs of the files held out. With `files` they are found like those and need not
    /// be among them; with the cargo corpus they are matched against names such as
    /// `burn-nn-0.22.1/src/lib.rs`.
    pub valid: Vec<String>,
}

/// `{ by = "published" }`, without further keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {}

tagged! {
    /// How test windows are laid over the validation split.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Windows {
        /// One after the other; tokens early in a window are predicted from little context.
        "non_overlapping" => NonOverlapping(NonOverlapping),
        /// Each window scores its last `stride` tokens, the first one all.
        "sliding" => Sliding(Sliding),
    }
}

impl Default for Windows {
    fn default() -> Self {
        Self::NonOverlapping(NonOverlapping {})
    }
}

/// `{ kind = "non_overlapping" }`, without further keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NonOverlapping {}

/// `{ kind = "sliding" }`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
pub struct Sliding {
    /// Number of tokens from one window to the next, 1 to the shortest test length.
    #[default = 64]
    pub stride: usize,
}

impl TextConfig {
    /// How the files are read, where they hold ids.
    pub(super) fn ids(&self) -> Option<Ids> {
        Some(Ids {
            level: self.level,
            width: self.level.id_bytes()?,
            vocab: self.vocab?,
        })
    }

    /// Checks everything that needs no file.
    pub(super) fn check(&self, ctx: &BuildContext<'_>) -> Result<(), TaskError> {
        check_source(self.corpus, &self.files, &self.crates)?;
        self.check_named()?;
        self.check_ids()?;
        self.check_segments()?;
        self.check_split()?;
        let hint = "the corpus is held in memory";
        in_range("max_bytes", self.max_bytes, 1..=1 << 32, hint)?;
        let longest = ctx.test_lens.iter().copied().max().unwrap_or(1);
        if let Some(tokens) = self.eval_tokens {
            let hint = "at least one window of the longest test length must be scored; without \
                        the key the whole validation split is";
            in_range("eval_tokens", tokens, longest.max(1)..=(1 << 31) - 1, hint)?;
        }
        if let Windows::Sliding(sliding) = self.windows {
            let shortest = ctx.test_lens.iter().copied().min().unwrap_or(1);
            let hint = "a stride above the shortest test length would leave bytes unscored";
            in_range("windows.stride", sliding.stride, 1..=shortest.max(1), hint)?;
        }
        Ok(())
    }

    /// Checks that the keys of ids are given where the files hold ids, and only there; a tokenizer
    /// that is trained has a size too.
    fn check_ids(&self) -> Result<(), Invalid> {
        let absent = |key: &str, value: String| {
            let problem = "is for files of token ids";
            let help = "remove it, or set level = \"u16\", \"u32\" or \"u64\"";
            Err(Invalid::new(key, value, problem, "absent", help))
        };
        let ids = self.level.id_bytes().is_some();
        self.check_tokenizer()?;
        match self.vocab {
            Some(vocab) if self.level == Level::Bpe => {
                let hint = "the 256 bytes and at least one pair; 512 suits small models";
                in_range("vocab", vocab, 257..=1 << 16, hint)?;
            }
            None if self.level == Level::Bpe => {
                return Err(Invalid::new(
                    "vocab",
                    "",
                    "is missing: how many tokens the byte-pair encoding gets",
                    "a whole number from 257 to 65536",
                    "the 256 bytes and at least one pair; 512 suits small models",
                ));
            }
            Some(vocab) if !ids => {
                let problem = "is for files of token ids, and for byte pairs";
                let help = "remove it, or set level = \"bpe\", \"u16\", \"u32\" or \"u64\"";
                return Err(Invalid::new("vocab", vocab, problem, "absent", help));
            }
            Some(vocab) => {
                let hint = "the number of ids of the tokenizer; GPT-2's has 50257";
                in_range("vocab", vocab, 2..=1 << 24, hint)?;
            }
            None if ids => {
                return Err(Invalid::new(
                    "vocab",
                    "",
                    "is missing: files of token ids do not say how many there are",
                    "a whole number from 2 to 16777216",
                    "the number of ids of the tokenizer; GPT-2's has 50257",
                ));
            }
            None => {}
        }
        match self.bytes_per_token {
            Some(bytes) if !ids => absent("bytes_per_token", bytes.to_string()),
            Some(bytes) => {
                let range = (Excluded(0.0), std::ops::Bound::Included(1000.0));
                let hint = "bytes of the text divided by its tokens, about 4 for English";
                in_range("bytes_per_token", bytes, range, hint)
            }
            None => Ok(()),
        }
    }

    /// Checks that what belongs to one kind of byte pairs is given with it.
    fn check_tokenizer(&self) -> Result<(), Invalid> {
        let named = self.tokenizer.as_deref();
        if self.words != WordKind::default() && self.level != Level::Bpe {
            let (problem, hint) = (
                "is for byte pairs that are trained here",
                "remove it, or set level = \"bpe\"",
            );
            return Err(Invalid::new(
                "words",
                "\"unicode\"",
                problem,
                "absent",
                hint,
            ));
        }
        match (named, self.level == Level::Tokenizer) {
            (Some(named), false) => Err(Invalid::new(
                "tokenizer",
                format!("{named:?}"),
                "is read with level = \"tokenizer\" only",
                "absent",
                "remove it, or set level = \"tokenizer\"",
            )),
            (None, true) => Err(Invalid::new(
                "tokenizer",
                "",
                "is missing: which tokenizer reads the text",
                "a tokenizer.json of byte-level BPE",
                "write tokenizer = \"tokenizer.json\"",
            )),
            _ => Ok(()),
        }
    }

    /// Checks that ends of segments are written as the tokens are.
    fn check_segments(&self) -> Result<(), Invalid> {
        let ids = self.level.id_bytes().is_some();
        if ids && !self.segment_ends.is_empty() {
            return Err(Invalid::new(
                "segment_ends",
                format!("{:?}", self.segment_ends),
                "are texts, and the files hold ids whose texts are not known",
                "absent",
                "write their ids: segment_end_ids = [13]",
            ));
        }
        if !ids && !self.segment_end_ids.is_empty() {
            return Err(Invalid::new(
                "segment_end_ids",
                format!("{:?}", self.segment_end_ids),
                "is for files of token ids",
                "absent",
                "write texts: segment_ends = [\".\", \"\\n\"]",
            ));
        }
        Ok(())
    }

    fn check_split(&self) -> Result<(), Invalid> {
        match &self.split {
            Split::File(by) => {
                let hint = "one file in this many is held out";
                in_range("split.every", by.every, 2..=1_000_000, hint)
            }
            Split::Range(by) => {
                let open = (Excluded(0.0), Excluded(1.0));
                let hint = "0.1 holds out the last tenth";
                in_range("split.valid_fraction", by.valid_fraction, open, hint)
            }
            Split::Files(by) if by.valid.is_empty() => Err(Invalid::new(
                "split.valid",
                "[]",
                "names no file to hold out",
                "at least one path or glob",
                "name the validation files",
            )),
            Split::Files(_) => Ok(()),
            Split::Published(_) if self.corpus.is_published() => Ok(()),
            Split::Published(_) => Err(Invalid::new(
                "split.by",
                "\"published\"",
                "is for published corpora, which have a split",
                "\"file\", \"range\" or \"files\"",
                "remove `split`, or name the corpus: corpus = \"text8\"",
            )),
        }
    }

    /// Checks what a published corpus settles itself.
    fn check_named(&self) -> Result<(), Invalid> {
        if !self.corpus.is_published() {
            return Ok(());
        }
        let name = self.corpus.name();
        if !matches!(self.split, Split::Published(_)) {
            let problem =
                format!("cannot be given with corpus = {name:?}, which has its own split");
            let hint = "remove `split`; corpus = \"files\" holds out what you say";
            return Err(Invalid::new("split", "", problem, "absent", hint));
        }
        if self.level.id_bytes().is_some() {
            let problem = format!("reads ids, and {name} is text");
            let allowed = "\"bytes\", \"chars\" or \"bpe\"";
            let hint = "corpus = \"files\" reads ids that a tokenizer made of it";
            return Err(Invalid::new("level", "", problem, allowed, hint));
        }
        Ok(())
    }
}
