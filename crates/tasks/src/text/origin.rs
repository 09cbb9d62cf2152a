//! Where a text comes from.

use serde::{Deserialize, Serialize};

/// The crates of the text `rust-2026`, which the program carries in their versions of 2026: direct
/// dependencies of Longreach, and the parts of Burn. About 9 MB of Rust with much prose in its
/// comments.
pub const DEFAULT_CRATES: [&str; 12] = [
    "burn-autodiff",
    "burn-backend",
    "burn-core",
    "burn-flex",
    "burn-nn",
    "burn-std",
    "burn-tensor",
    "clap_builder",
    "minijinja",
    "rayon",
    "serde_json",
    "statrs",
];

/// Where the text comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CorpusKind {
    /// `**/*.rs` of the listed `crates`, in the versions of Cargo.lock, as Cargo unpacked them.
    Cargo,
    /// The listed `files`.
    Files,
    /// The text that the program carries: twelve crates in their versions of 2026.
    #[serde(rename = "rust-2026")]
    Rust2026,
    /// The first 10^8 letters and spaces of Wikipedia; `files` names its file.
    Text8,
    /// The first 10^8 bytes of Wikipedia; `files` names its file.
    Enwik8,
    /// WikiText-2; `files` names its three files.
    #[serde(rename = "wikitext-2")]
    Wikitext2,
    /// WikiText-103; `files` names its three files.
    #[serde(rename = "wikitext-103")]
    Wikitext103,
    /// Tiny Shakespeare; `files` names its file.
    Tinyshakespeare,
}

impl CorpusKind {
    /// Whether it is a published corpus, with a size and a split.
    pub(super) fn is_published(self) -> bool {
        !matches!(self, Self::Cargo | Self::Files | Self::Rust2026)
    }

    /// As in a configuration.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Cargo => "cargo",
            Self::Files => "files",
            Self::Rust2026 => "rust-2026",
            Self::Text8 => "text8",
            Self::Enwik8 => "enwik8",
            Self::Wikitext2 => "wikitext-2",
            Self::Wikitext103 => "wikitext-103",
            Self::Tinyshakespeare => "tinyshakespeare",
        }
    }
}
