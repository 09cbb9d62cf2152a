//! Sets of questions by their hashes, one for each length that was asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

/// Questions by the first half of their hash.
pub(super) struct Questions(BTreeSet<[u8; 16]>);

impl Questions {
    pub(super) fn of(questions: impl Iterator<Item = Vec<i32>>) -> Self {
        Self(questions.map(|question| name(&question)).collect())
    }

    pub(super) fn contains(&self, question: &[i32]) -> bool {
        self.0.contains(&name(question))
    }
}

fn name(question: &[i32]) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    for symbol in question {
        hasher.update(&symbol.to_le_bytes());
    }
    let mut name = [0; 16];
    name.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    name
}

/// Sets by length, each made once.
#[derive(Default)]
pub(super) struct ByLength(Mutex<BTreeMap<usize, Arc<Questions>>>);

impl ByLength {
    /// The set of a length, which `make` makes where it is not there yet.
    pub(super) fn of(&self, length: usize, make: impl FnOnce() -> Questions) -> Arc<Questions> {
        // A set is whole once it is there: a panic while one is made leaves the others whole.
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known
            .entry(length)
            .or_insert_with(|| Arc::new(make()))
            .clone()
    }
}
