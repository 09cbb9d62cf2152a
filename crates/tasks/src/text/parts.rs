//! Splits of a corpus in memory, their identity, and reading files into them.
//!
//! Identity: BLAKE3 over `longreach corpus v1`, then for each split its name and number of pieces,
//! then for each piece its length of name, name, number of bytes, bytes (numbers as 8 bytes,
//! little-endian). A piece is a file, or the part of a file in that split.

use super::sources::{self, Found};
use crate::TaskError;
use schema::{Invalid, allowed};
use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

/// One half of a corpus: concatenated bytes and where they came from.
#[derive(Debug, Default)]
pub(crate) struct Part {
    pub bytes: Vec<u8>,
    /// Names of the files and how many of their bytes are in this split.
    pub pieces: Vec<(String, usize)>,
}

/// Both splits as they were read.
pub(super) struct Splits {
    pub train: Part,
    pub valid: Part,
    /// BLAKE3 of all splits.
    pub hash: String,
    pub is_apart: bool,
    pub cuts: [bool; 2],
}

impl Splits {
    /// The identity of a corpus: of its training split and those after it.
    pub(super) fn hash(train: &Part, others: &[Part]) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"longreach corpus v1");
        train.hash("train", &mut hasher);
        for (part, name) in others.iter().zip(["valid", "test"]) {
            part.hash(name, &mut hasher);
        }
        hasher.finalize().to_hex().to_string()
    }
}

impl Part {
    /// The text of these files.
    pub(super) fn of(files: Vec<(String, Vec<u8>)>) -> Self {
        let mut part = Self::default();
        for (name, text) in files {
            part.pieces.push((name, text.len()));
            // A text that is one file is not copied.
            match part.bytes.is_empty() {
                true => part.bytes = text,
                false => part.bytes.extend(text),
            }
        }
        part
    }

    /// Files of another part with the same bytes as one of this: the names of the first pair, and
    /// how many of the other part there are. Empty files are alike and not counted.
    pub(super) fn twins(&self, other: &Self) -> Option<(String, String, usize)> {
        let own: HashMap<&[u8], &str> = self.files().map(|(name, bytes)| (bytes, name)).collect();
        let mut twins = other
            .files()
            .filter(|(_, bytes)| !bytes.is_empty())
            .filter_map(|(name, bytes)| Some((*own.get(bytes)?, name)));
        let (train, valid) = twins.next()?;
        Some((train.to_owned(), valid.to_owned(), 1 + twins.count()))
    }

    /// The files, by name, and their bytes.
    fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let mut at = 0;
        self.pieces.iter().map(move |(name, len)| {
            at += len;
            (name.as_str(), &self.bytes[at - len..at])
        })
    }

    /// The name of the file that a byte is from.
    pub(super) fn name_at(&self, at: usize) -> Option<&str> {
        let mut end = 0;
        let holds = |(_, bytes): &&(String, usize)| {
            end += bytes;
            at < end
        };
        let piece = self.pieces.iter().find(holds);
        piece.map(|(name, _)| name.as_str())
    }

    fn hash(&self, name: &str, hasher: &mut blake3::Hasher) {
        // Lengths come before contents, so that no two corpora give the same bytes to hash.
        let number = |n: usize| (n as u64).to_le_bytes();
        hasher
            .update(name.as_bytes())
            .update(&number(self.pieces.len()));
        let mut at = 0;
        for (name, len) in &self.pieces {
            hasher
                .update(&number(name.len()))
                .update(name.as_bytes())
                .update(&number(*len))
                .update(&self.bytes[at..at + len]);
            at += len;
        }
    }
}

/// Reads files, at most `max_bytes` together. Sizes are checked first, so that a corpus that is too
/// large is refused before it is read. Reading has the same bound, because a file may grow
/// meanwhile. If a file shrinks, the corpus holds and hashes the bytes that were read.
pub(super) struct Reader<'a> {
    files: &'a [Found],
    sizes: Vec<u64>,
    max_bytes: u64,
    left: u64,
}

const NAME_A_FILE: &str = "name a regular file that can be read";

impl<'a> Reader<'a> {
    pub(super) fn new(files: &'a [Found], max_bytes: u64) -> Result<Self, TaskError> {
        let (mut total, mut largest) = (0u64, (0, Path::new("")));
        let mut sizes = Vec::with_capacity(files.len());
        for file in files {
            let meta = std::fs::metadata(&file.path)
                .map_err(|e| sources::unreadable(&file.path, &e, NAME_A_FILE))?;
            // Checked before opening: opening a pipe waits for its writer, and a device has no end.
            if !meta.is_file() {
                let problem = "is not a regular file";
                return Err(TaskError::input(&file.path, problem, NAME_A_FILE));
            }
            total = total.saturating_add(meta.len());
            largest = largest.max((meta.len(), &file.path));
            sizes.push(meta.len());
        }
        if total > max_bytes {
            let (bytes, path) = largest;
            let what = format!(
                "is too small: the corpus has {total} bytes in {} files, the largest {path:?} with \
                 {bytes}",
                files.len()
            );
            return Err(too_large(max_bytes, what, total));
        }
        Ok(Self {
            files,
            sizes,
            max_bytes,
            left: max_bytes,
        })
    }

    /// Bytes of the files that `chosen` chooses, by their sizes, and a little room to find their
    /// end.
    pub(super) fn expected(&self, chosen: impl Fn(&Found) -> bool) -> usize {
        let sizes = self.files.iter().zip(&self.sizes);
        let sizes = sizes.filter(|(file, _)| chosen(file)).map(|(_, size)| size);
        sizes.sum::<u64>() as usize + 64
    }

    /// Appends a file to `bytes` and returns how many it has.
    pub(super) fn read(&mut self, file: &Found, bytes: &mut Vec<u8>) -> Result<usize, TaskError> {
        // One byte more than is left, so that a file that grew is noticed.
        let read = schema::file::open(&file.path)
            .and_then(|open| open.take(self.left + 1).read_to_end(bytes))
            .map_err(|e| sources::unreadable(&file.path, &e, NAME_A_FILE))?;
        let grown = || {
            let what = format!(
                "is too small: {:?} is larger than its size says, or grew while it was read",
                file.path
            );
            too_large(self.max_bytes, what, self.max_bytes + 1)
        };
        self.left = self.left.checked_sub(read as u64).ok_or_else(grown)?;
        Ok(read)
    }
}

pub(super) fn too_large(max_bytes: u64, what: String, least: u64) -> TaskError {
    let (allowed, hint) = (
        allowed(&(least..=1 << 32)),
        "raise `max_bytes` or name fewer files",
    );
    Invalid::new("max_bytes", max_bytes, what, allowed, hint).into()
}
