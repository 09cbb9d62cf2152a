//! Text as characters: the vocabulary is what the training split holds, sorted by code point, and
//! one token for everything else.

use super::parts::Part;
use crate::TaskError;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;

/// Both splits as token ids. Id 0 is a character that the training split lacks.
pub(super) struct Characters {
    pub train: Vec<i32>,
    pub valid: Vec<i32>,
    /// The characters of the ids from 1.
    pub known: Vec<char>,
    /// Bytes of each character of the validation split.
    pub valid_bytes: Vec<u8>,
}

/// Decodes both splits. A cut between them, or at the end of the second, may lie inside a
/// character, which then belongs to neither side.
pub(super) fn decode(
    train: &Part,
    valid: &Part,
    first: &Path,
    cuts: [bool; 2],
) -> Result<Characters, TaskError> {
    let [train, valid] = strs(train, valid, first, cuts)?;
    // Sorted: ids go by code point, not by the order of a hash table.
    let known: BTreeSet<char> = train.chars().collect();
    let ids: HashMap<char, i32> = known.iter().copied().zip(1..).collect();
    let encode = |text: &str| {
        // Reserved in full: a list that grows is held twice while it is copied.
        let mut tokens = Vec::with_capacity(text.chars().count());
        tokens.extend(text.chars().map(|c| ids.get(&c).copied().unwrap_or(0)));
        tokens
    };
    let valid_bytes = valid.chars().map(|c| c.len_utf8() as u8).collect();
    Ok(Characters {
        train: encode(train),
        valid: encode(valid),
        known: known.into_iter().collect(),
        valid_bytes,
    })
}

fn strs<'a>(
    train: &'a Part,
    valid: &'a Part,
    first: &Path,
    [cut, end_cut]: [bool; 2],
) -> Result<[&'a str; 2], TaskError> {
    let of =
        |bytes, ends: [bool; 2], split| text(bytes, ends).map_err(|at| refused(first, split, at));
    Ok([
        of(&train.bytes, [false, cut], "training")?,
        of(&valid.bytes, [cut, end_cut], "validation")?,
    ])
}

/// Both splits as bytes of text, without what is cut of a character between them.
pub(super) fn texts<'a>(
    train: &'a Part,
    valid: &'a Part,
    first: &Path,
    cuts: [bool; 2],
) -> Result<[&'a [u8]; 2], TaskError> {
    Ok(strs(train, valid, first, cuts)?.map(str::as_bytes))
}

/// Bytes as text, or the place of the first byte that is none. At an end that was cut, up to three
/// bytes of a character are left out.
fn text(bytes: &[u8], [cut_before, cut_after]: [bool; 2]) -> Result<&str, usize> {
    let continues = |byte: &&u8| **byte & 0b1100_0000 == 0b1000_0000;
    let skipped = if cut_before {
        // A character has at most four bytes, three of which continue it.
        bytes.iter().take(3).take_while(continues).count()
    } else {
        0
    };
    match std::str::from_utf8(&bytes[skipped..]) {
        Ok(text) => Ok(text),
        // No length: the text ends inside a character, as at a cut it may.
        Err(error) if cut_after && error.error_len().is_none() => Ok(std::str::from_utf8(
            &bytes[skipped..skipped + error.valid_up_to()],
        )
        .unwrap_or_default()),
        Err(error) => Err(skipped + error.valid_up_to()),
    }
}

fn refused(first: &Path, split: &str, at: usize) -> TaskError {
    let problem = format!("the {split} split is not UTF-8: byte {at} begins no character");
    TaskError::input(
        first,
        problem,
        "name text files, or use level = \"bytes\", which reads any bytes",
    )
}
