//! What a token of a text is.

use serde::{Deserialize, Serialize};

/// What a token is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// A byte, of 256.
    #[default]
    Bytes,
    /// A character of the training split, or the one token for all others.
    Chars,
    /// An id of 16 bits, little-endian: the files are text that a tokenizer has turned into ids.
    U16,
    /// The same with 32 bits.
    U32,
    /// The same with 64 bits.
    U64,
    /// A token of a byte-pair encoding that is trained on the training split.
    Bpe,
    /// A token of the tokenizer that `tokenizer` names.
    Tokenizer,
}

impl Level {
    /// Bytes of an id in the files, where they hold ids.
    pub(super) fn id_bytes(self) -> Option<usize> {
        match self {
            Self::Bytes | Self::Chars | Self::Bpe | Self::Tokenizer => None,
            Self::U16 => Some(2),
            Self::U32 => Some(4),
            Self::U64 => Some(8),
        }
    }

    /// The level of ids of this many bytes.
    pub(super) fn of_ids(bytes: usize) -> Option<Self> {
        let mut levels = [Self::U16, Self::U32, Self::U64].into_iter();
        levels.find(|level| level.id_bytes() == Some(bytes))
    }

    /// As in a configuration.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Chars => "chars",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::Bpe => "bpe",
            Self::Tokenizer => "tokenizer",
        }
    }
}
