//! Memory that is used again: what one step works in, the next one finds warm.
//!
//! A buffer holds whatever was left in it. Nothing here is ever read before it is written, and
//! every buffer goes back when it is dropped, so that a training step after the first asks the
//! system for nothing.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

/// Numbers kept for the next step at most, 512 MiB of them; what comes back beyond that is freed.
const KEPT: usize = 1 << 27;
/// Numbers that fill a cache line: buffers start at one.
const LINE: usize = 16;

/// Buffers nobody uses, by length, and how many numbers they hold together.
struct Pool {
    free: BTreeMap<usize, Vec<Vec<f32>>>,
    held: usize,
}

static POOL: Mutex<Pool> = Mutex::new(Pool {
    free: BTreeMap::new(),
    held: 0,
});

/// Some numbers, of whatever value, from the start of a cache line on.
pub(crate) struct Buffer {
    values: Vec<f32>,
    start: usize,
    len: usize,
}

impl Buffer {
    pub(crate) fn new(len: usize) -> Self {
        if len == 0 {
            return Self {
                values: Vec::new(),
                start: 0,
                len,
            };
        }
        let size = len + LINE;
        let recycled = {
            let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
            let found = pool.free.get_mut(&size).and_then(Vec::pop);
            pool.held -= found.as_ref().map_or(0, Vec::len);
            found
        };
        let values = recycled.unwrap_or_else(|| vec![0.0; size]);
        let start = values
            .as_ptr()
            .align_offset(LINE * size_of::<f32>())
            .min(LINE);
        Self { values, start, len }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.len == 0 {
            return;
        }
        let values = std::mem::take(&mut self.values);
        let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
        if pool.held + values.len() <= KEPT {
            pool.held += values.len();
            pool.free.entry(values.len()).or_default().push(values);
        }
    }
}

impl Deref for Buffer {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.values[self.start..self.start + self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.values[self.start..self.start + self.len]
    }
}
