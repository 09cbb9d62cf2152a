//! A pool of buffers: the memory of one training step is reused, still mapped, by the next.
//!
//! A new buffer holds arbitrary old numbers: callers write before they read. Dropping a buffer
//! returns it to the pool, so that steps after the first allocate nothing from the system.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

/// The most numbers the pool keeps, 512 MiB; buffers returned beyond that are freed.
const CAPACITY: usize = 1 << 27;
/// Numbers per cache line; buffers start at one.
const LINE: usize = 16;

/// Free buffers by length, and their total length.
struct Pool {
    free: BTreeMap<usize, Vec<Vec<f32>>>,
    held: usize,
}

static POOL: Mutex<Pool> = Mutex::new(Pool {
    free: BTreeMap::new(),
    held: 0,
});

/// Numbers of arbitrary value, aligned to a cache line.
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
        // Room to move the start to a cache line: a `Vec<f32>` is aligned to 4 bytes only.
        let size = len + LINE;
        // The lock covers the lookup only: a new vector is allocated outside it.
        let recycled = {
            let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
            let found = pool.free.get_mut(&size).and_then(Vec::pop);
            pool.held -= found.as_ref().map_or(0, Vec::len);
            found
        };
        let values = recycled.unwrap_or_else(|| vec![0.0; size]);
        // `align_offset` may give up with `usize::MAX`. Then the start is only not aligned.
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
        if pool.held + values.len() <= CAPACITY {
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
