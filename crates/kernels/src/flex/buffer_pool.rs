//! A pool of buffers: the memory of one training step is reused, still mapped, by the next.
//!
//! A new buffer holds arbitrary old numbers: callers write before they read. Dropping a buffer
//! returns it to the pool, so that steps after the first allocate nothing from the system.
//!
//! What is kept has a bound that depends on the work at hand and not on what was done before: free
//! buffers and those in use together are at most half as much again as was ever in use at once.
//! Sizes are rounded up, so that operations of almost the same size share buffers: the blocks of a
//! long sequence, each with a few keys more, and the steps of a decoder.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

/// The most numbers the pool keeps, 512 MiB; buffers returned beyond that are freed.
const CAPACITY: usize = 1 << 27;
/// Below this many numbers in all, 4 MiB, nothing is freed.
const SMALL: usize = 1 << 20;
/// Numbers per cache line; buffers start at one.
const LINE: usize = 16;

/// Free buffers of one size.
#[derive(Default)]
struct Shelf {
    buffers: Vec<Vec<f32>>,
    /// When a buffer of this size was last taken or returned.
    used: u64,
}

/// Free buffers by size, and sums of sizes.
struct Pool {
    free: BTreeMap<usize, Shelf>,
    held: usize,
    in_use: usize,
    most_in_use: usize,
    /// Counts what was taken and returned.
    now: u64,
}

static POOL: Mutex<Pool> = Mutex::new(Pool::new());

impl Pool {
    const fn new() -> Self {
        Self {
            free: BTreeMap::new(),
            held: 0,
            in_use: 0,
            most_in_use: 0,
            now: 0,
        }
    }

    /// A free buffer of this size, or the buffers to free before a new one is allocated.
    fn take(&mut self, size: usize) -> Result<Vec<f32>, Vec<Vec<f32>>> {
        self.now += 1;
        self.in_use += size;
        self.most_in_use = self.most_in_use.max(self.in_use);
        let now = self.now;
        let found = self.free.get_mut(&size).and_then(|shelf| {
            shelf.used = now;
            shelf.buffers.pop()
        });
        match found {
            Some(values) => {
                self.held -= size;
                Ok(values)
            }
            None => Err(self.superfluous()),
        }
    }

    /// Takes out what the pool holds beyond its bound, the sizes first that were not used for the
    /// longest time.
    fn superfluous(&mut self) -> Vec<Vec<f32>> {
        let most = (self.most_in_use + self.most_in_use / 2).max(SMALL);
        let mut freed = Vec::new();
        while self.held > 0 && self.in_use + self.held > most {
            let oldest = self.free.iter().min_by_key(|(_, shelf)| shelf.used);
            let Some(size) = oldest.map(|(size, _)| *size) else {
                break;
            };
            let Some(shelf) = self.free.get_mut(&size) else {
                break;
            };
            match shelf.buffers.pop() {
                Some(values) => {
                    self.held -= size;
                    freed.push(values);
                }
                None => {
                    self.free.remove(&size);
                }
            }
        }
        freed
    }

    /// Takes a buffer back; returns it if the pool is full.
    fn put(&mut self, values: Vec<f32>) -> Option<Vec<f32>> {
        let size = values.len();
        self.now += 1;
        self.in_use -= size;
        if self.held + size > CAPACITY {
            return Some(values);
        }
        self.held += size;
        let shelf = self.free.entry(size).or_default();
        shelf.used = self.now;
        shelf.buffers.push(values);
        None
    }

    /// Takes out every free buffer and forgets how much was in use.
    fn clear(&mut self) -> BTreeMap<usize, Shelf> {
        self.held = 0;
        self.most_in_use = self.in_use;
        std::mem::take(&mut self.free)
    }
}

/// Frees all buffers that are not in use. Called between kinds of work: what the next one needs has
/// other sizes.
pub(crate) fn clear() {
    let freed = POOL.lock().unwrap_or_else(PoisonError::into_inner).clear();
    // Outside the lock.
    drop(freed);
}

/// A size of at least `len` with room to move the start to a cache line, as a `Vec<f32>` is aligned
/// to 4 bytes only; one of eight sizes between powers of two.
fn rounded(len: usize) -> usize {
    let least = len + LINE;
    let step = (least.next_power_of_two() / 16).max(LINE);
    least.next_multiple_of(step)
}

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
        let size = rounded(len);
        // The lock covers the lookup only: vectors are allocated and freed outside it.
        let taken = POOL
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take(size);
        let values = taken.unwrap_or_else(|superfluous| {
            drop(superfluous);
            vec![0.0; size]
        });
        // `align_offset` may give up with `usize::MAX`. Then the start is just not aligned.
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
        let refused = POOL
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .put(values);
        drop(refused);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(pool: &mut Pool, len: usize) -> Vec<f32> {
        let size = rounded(len);
        pool.take(size).unwrap_or_else(|_| vec![0.0; size])
    }

    #[test]
    fn sizes_are_rounded_up_by_an_eighth_at_most() {
        for len in (1..5000).chain([1 << 20, (1 << 20) + 1, 12_345_678]) {
            let size = rounded(len);
            assert!(size >= len + LINE, "{len}: {size}");
            assert!(size <= (len + LINE) * 9 / 8 + LINE, "{len}: {size}");
        }
    }

    #[test]
    fn growing_sizes_do_not_pile_up() {
        let mut pool = Pool::new();
        let (mut most, step) = (0, 10_000);
        for blocks in 1..400 {
            let values = taken(&mut pool, blocks * step);
            most = most.max(pool.held + pool.in_use);
            assert!(pool.put(values).is_none());
        }
        // The largest is 4 million numbers; all of them together are 800 million.
        assert!(most <= rounded(399 * step) * 3 / 2, "{most}");
    }

    #[test]
    fn a_step_that_is_repeated_allocates_once() {
        let mut pool = Pool::new();
        let sizes = [50_000, 300_000, 70_000, 1_000_000, 300_000];
        let mut missed = [0; 3];
        for missed in &mut missed {
            let held: Vec<_> = sizes
                .iter()
                .map(|len| {
                    let size = rounded(*len);
                    pool.take(size).unwrap_or_else(|_| {
                        *missed += 1;
                        vec![0.0; size]
                    })
                })
                .collect();
            for values in held {
                assert!(pool.put(values).is_none());
            }
        }
        assert_eq!(missed, [5, 0, 0]);
        pool.clear();
        assert_eq!((pool.held, pool.in_use, pool.most_in_use), (0, 0, 0));
    }
}
