//! Token ids from files: numbers of 16 or 32 bits, little-endian, one after the other, as nanoGPT,
//! llm.c and other trainers write them.

use super::parts::Part;
use crate::TaskError;
use std::path::Path;

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
    let ids = part.bytes[cut_before..].chunks_exact(width).map(|bytes| {
        let mut wide = [0u8; 4];
        wide[..width].copy_from_slice(bytes);
        u32::from_le_bytes(wide)
    });
    let ids: Vec<u32> = ids.collect();
    if let Some(at) = ids.iter().position(|&id| id as usize >= vocab) {
        let id = ids[at];
        let problem = format!(
            "token {at} of the {split} split is {id}, and `task.vocab` = {vocab} has ids below it"
        );
        let hint = "raise `vocab`, or check that the ids have as many bits as `level` says";
        return Err(TaskError::input(first, problem, hint));
    }
    // `vocab` is at most 2^24, so every id fits.
    Ok(ids.into_iter().map(|id| id as i32).collect())
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
                "{name} has {bytes} bytes, which are no whole number of ids of {} bits",
                8 * width
            );
            let hint = "use the other of level = \"u16\" and \"u32\", or files without a header";
            return Err(TaskError::input(first, problem, hint));
        }
    }
    Ok(())
}
