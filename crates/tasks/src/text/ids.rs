//! Token ids from files: numbers of 16, 32 or 64 bits, little-endian, one after the other, as
//! nanoGPT writes them, behind the header of llm.c's shards, or as a NumPy array. A file is what it
//! says itself; one that says nothing is refused if its bytes look like ids of another width.

use super::first_bytes::{FirstBytes, is_plain_text};
use super::level::Level;
use super::parts::Part;
use crate::TaskError;
use schema::{Invalid, text};
use std::path::Path;

/// Bytes of the header of llm.c's shards: 256 numbers of 32 bits, of which the first is the magic
/// number, the second the version and the third the number of ids.
const SHARD_HEADER: usize = 1024;

/// Magic numbers of llm.c's shards, and bytes of an id.
const SHARDS: [(u32, usize); 2] = [(20_240_520, 2), (20_240_801, 4)];

/// Versions of their headers: that of GPT-2's tokens and that of Llama 3's.
const SHARD_VERSIONS: [u64; 2] = [1, 7];

/// What a file of ids says of itself.
struct Header {
    /// What such files are, plural.
    format: &'static str,
    /// Its length in bytes.
    bytes: usize,
    /// Bytes of an id.
    width: usize,
    /// How many ids follow.
    count: usize,
}

/// What the ids are read as.
pub(super) struct Ids {
    pub level: Level,
    /// Bytes of an id.
    pub width: usize,
    pub vocab: usize,
}

impl Ids {
    /// Takes away the header of the file that begins at `from`, and checks that its ids have the
    /// width that the configuration says. Returns what such files are, if it has a header.
    pub fn unwrap(
        &self,
        bytes: &mut Vec<u8>,
        from: usize,
        path: &Path,
    ) -> Result<Option<&'static str>, TaskError> {
        let file = &bytes[from..];
        let Some(header) =
            header(file).map_err(|(problem, hint)| TaskError::input(path, problem, hint))?
        else {
            self.check_bytes(file, path)?;
            return Ok(None);
        };
        let Header {
            format,
            bytes: skipped,
            width,
            count,
        } = header;
        if width != self.width {
            let what = format!("says ids of {} bits", 8 * width);
            return Err(self.refused(path, &what, width));
        }
        let has = file.len() - skipped;
        if has != count * width {
            let problem = format!(
                "its header says {count} ids of {} bits, {} bytes, and {has} bytes follow",
                8 * width,
                count * width
            );
            return Err(TaskError::input(
                path,
                problem,
                "the file is not whole: get it again",
            ));
        }
        bytes.drain(from..from + skipped);
        Ok(Some(format))
    }

    /// Refuses a file without a header whose bytes are packed, text, or ids of another width.
    fn check_bytes(&self, file: &[u8], path: &Path) -> Result<(), TaskError> {
        if let Some(found) = FirstBytes::of(file).filter(|found| found.is_packed()) {
            let (problem, hint) = found.refused("token ids");
            return Err(TaskError::input(path, problem, hint));
        }
        if is_plain_text(file) {
            let hint = "level = \"bytes\", \"chars\" or \"bpe\" reads text";
            return Err(TaskError::input(
                path,
                "begins as text, not as token ids",
                hint,
            ));
        }
        let other = [8, 4, 2].into_iter().filter(|width| *width != self.width);
        let Some(width) = other
            .into_iter()
            .find(|width| self.looks_like(file, *width))
        else {
            return Ok(());
        };
        let what = match width > self.width {
            true => format!(
                "looks like ids of {} bits: nearly all of its numbers are 0 in their upper part",
                8 * width
            ),
            false => format!(
                "looks like ids of {} bits: as such all are below `task.vocab` = {}",
                8 * width,
                self.vocab
            ),
        };
        Err(self.refused(path, &what, width))
    }

    /// Whether the bytes are rather ids of another width.
    fn looks_like(&self, file: &[u8], width: usize) -> bool {
        let (own, count) = (self.width, file.len() / width.max(self.width));
        if count < 32 || !file.len().is_multiple_of(width.max(own)) {
            return false;
        }
        let share = |size: usize, fits: &dyn Fn(&[u8]) -> bool| {
            let found = file.chunks_exact(size).filter(|bytes| fits(bytes)).count();
            found as f64 / (file.len() / size) as f64
        };
        if width < own {
            let vocab = self.vocab as u64;
            let small = |size: usize| share(size, &|bytes| number(bytes) < vocab);
            return small(own) < 0.5 && small(width) >= 1.0;
        }
        // Ids above 65,535 are small numbers in their upper half.
        let upper = |most: u64| share(width, &|bytes| number(&bytes[own..]) <= most);
        let lower = share(width, &|bytes| number(&bytes[..own]) <= 15);
        upper(15) >= 0.98 && upper(0) >= 0.5 && lower < 0.5
    }

    fn refused(&self, path: &Path, what: &str, width: usize) -> TaskError {
        let Some(level) = Level::of_ids(width) else {
            let hint = "numpy.save writes ids of 16, 32 or 64 bits: .astype(\"<u2\")";
            return TaskError::input(path, what, hint);
        };
        let name = text::escaped(&path.file_name().unwrap_or_default().to_string_lossy());
        let problem = format!("is {} bits, and {name} {what}", 8 * self.width);
        let allowed = format!("{:?}", level.name());
        let mut hint = format!("write level = {:?}", level.name());
        if width > self.width {
            hint += "; a NumPy array of ids says its width itself";
        }
        let own = format!("{:?}", self.level.name());
        Invalid::new("level", own, problem, allowed, hint).into()
    }
}

/// A number of up to eight bytes, little-endian.
fn number(bytes: &[u8]) -> u64 {
    let mut wide = [0u8; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(wide)
}

/// The header of a file, if it has one; or why it cannot be read, and what to do.
fn header(file: &[u8]) -> Result<Option<Header>, (String, &'static str)> {
    if file.starts_with(b"\x93NUMPY") {
        return numpy(file).map(Some);
    }
    let word = |at: usize| number(&file[4 * at..4 * at + 4]);
    let shard = SHARDS
        .iter()
        .find(|(magic, _)| file.len() >= SHARD_HEADER && word(0) == u64::from(*magic));
    if shard.is_some() && !SHARD_VERSIONS.contains(&word(1)) {
        let problem = format!("is a shard of llm.c of version {}; known: 1 and 7", word(1));
        return Err((
            problem,
            "write its ids alone, or with a header of version 1",
        ));
    }
    Ok(shard.map(|(_, width)| Header {
        format: "shards of llm.c",
        bytes: SHARD_HEADER,
        width: *width,
        count: word(2) as usize,
    }))
}

/// The header of a NumPy array: a version, the length of a dictionary, and the dictionary as text.
fn numpy(file: &[u8]) -> Result<Header, (String, &'static str)> {
    const SAVE: &str = "numpy.save(FILE, ids.astype(\"<u2\").ravel()) writes it as it is read here";
    let wrong = |problem: String| (problem, SAVE);
    let not_whole = || wrong("is a NumPy array whose header is not whole".to_owned());
    let size = match file.get(6) {
        Some(1) => 2,
        Some(version @ (0 | 4..)) => {
            return Err(wrong(format!(
                "is a NumPy array of version {version}; known: 1 to 3"
            )));
        }
        _ => 4,
    };
    let length = file.get(8..8 + size).ok_or_else(not_whole)?;
    let start = 8 + size;
    let bytes = start.saturating_add(number(length) as usize);
    let text = file.get(start..bytes).ok_or_else(not_whole)?;
    let text = std::str::from_utf8(text).map_err(|_| not_whole())?;
    let value = |key: &str| Some(text.split_once(&format!("'{key}':"))?.1.trim_start());
    let quoted = |text: &str| Some(text.strip_prefix('\'')?.split_once('\'')?.0.to_owned());
    let kind = value("descr").and_then(quoted).unwrap_or_default();
    let width = match (kind.get(..2), kind.get(2..).map(str::parse)) {
        (Some("<u" | "<i" | "|u" | "|i"), Some(Ok(width @ (1 | 2 | 4 | 8)))) => width,
        _ => return Err(wrong(format!("is a NumPy array of `{kind}`, not of ids"))),
    };
    let shape = value("shape").and_then(|text| text.strip_prefix('(')?.split_once(')'));
    let sizes = shape.ok_or_else(not_whole)?.0.split(',').map(str::trim);
    let sizes: Result<Vec<usize>, _> = sizes
        .filter(|size| !size.is_empty())
        .map(str::parse)
        .collect();
    let sizes = sizes.map_err(|_| not_whole())?;
    let by_columns = value("fortran_order").is_some_and(|text| text.starts_with("True"));
    if by_columns && sizes.len() > 1 {
        return Err(wrong(
            "is a NumPy array that is stored by columns".to_owned(),
        ));
    }
    let count = sizes
        .iter()
        .try_fold(1usize, |all, size| all.checked_mul(*size));
    Ok(Header {
        format: "NumPy arrays",
        bytes,
        width,
        count: count
            .filter(|count| *count < usize::MAX / 8)
            .ok_or_else(not_whole)?,
    })
}

/// The ids of one split.
///
/// A cut between the splits may lie inside an id, which then belongs to neither: `cut_before` says
/// how many bytes of it lead this split.
pub(super) fn decode(
    part: &Part,
    width: usize,
    vocab: usize,
    cut_before: usize,
    first: &Path,
    split: &str,
) -> Result<Vec<i32>, TaskError> {
    let ids = part.bytes[cut_before..].chunks_exact(width).map(number);
    if let Some((at, id)) = ids.clone().enumerate().find(|(_, id)| *id >= vocab as u64) {
        let problem = format!(
            "token {at} of the {split} split is {id}, and `task.vocab` = {vocab} has ids below it"
        );
        let hint = "raise `vocab`, or check that the ids have as many bits as `level` says";
        let name = part.name_at(cut_before + at * width);
        let file = name.map_or_else(|| first.to_owned(), |name| first.with_file_name(name));
        return Err(TaskError::input(file, problem, hint));
    }
    // `vocab` is at most 2^24, so every id fits.
    Ok(ids.map(|id| id as i32).collect())
}

/// Refuses files that end inside an id.
pub(super) fn check_whole(
    files: impl Iterator<Item = (String, usize)>,
    width: usize,
    first: &Path,
) -> Result<(), TaskError> {
    for (name, bytes) in files {
        if !bytes.is_multiple_of(width) {
            let problem = format!(
                "{name} has {bytes} bytes, which are not a whole number of ids of {} bits",
                8 * width
            );
            let hint = "write the `level` that the ids have, or check that the file is whole";
            return Err(TaskError::input(first, problem, hint));
        }
    }
    Ok(())
}
