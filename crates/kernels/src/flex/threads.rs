//! Splitting work over the thread pool, in a way that never changes a result.

use super::recording;
use rayon::prelude::*;
use std::cell::Cell;
use std::error::Error;
use std::io;

thread_local! {
    /// Whether this thread runs a task of [`for_each`] or [`map`].
    static BUSY: Cell<bool> = const { Cell::new(false) };
}

/// Sets [`BUSY`] until it is dropped, also by a panic.
struct Busy;

impl Busy {
    fn new() -> Self {
        BUSY.set(true);
        Self
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        BUSY.set(false);
    }
}

/// The number of threads to cut work for.
pub(super) fn threads() -> usize {
    recording::threads().unwrap_or_else(rayon::current_num_threads)
}

/// Whether `elements` of work, about a nanosecond each, are worth waking other threads for. Never
/// inside a task: the other threads are busy with other tasks.
pub(super) fn parallel(elements: usize) -> bool {
    elements >= 1 << 15 && !BUSY.get() && threads() > 1
}

/// Runs `f` on every task, on several threads if there is enough work.
#[track_caller]
pub(super) fn for_each<T: Send>(tasks: Vec<T>, elements: usize, f: impl Fn(T) + Sync + Send) {
    if !parallel(elements) {
        return tasks.into_iter().for_each(f);
    }
    let f = |task| {
        let _busy = Busy::new();
        f(task);
    };
    if recording::threads().is_some() {
        recording::run(tasks, f);
    } else {
        tasks.into_par_iter().for_each(f);
    }
}

/// The results of `f` for all tasks, in order, on several threads if there is enough work.
#[track_caller]
pub(super) fn map<T: Send, R: Send>(
    tasks: Vec<T>,
    elements: usize,
    f: impl Fn(T) -> R + Sync + Send,
) -> Vec<R> {
    if !parallel(elements) {
        return tasks.into_iter().map(f).collect();
    }
    let f = |task| {
        let _busy = Busy::new();
        f(task)
    };
    if recording::threads().is_some() {
        recording::run(tasks, f)
    } else {
        tasks.into_par_iter().map(f).collect()
    }
}

/// Whether this number of equal tasks keeps all threads busy. With others, threads wait for the
/// last round.
pub(super) fn balanced(tasks: usize) -> bool {
    let threads = threads();
    tasks.is_multiple_of(threads) || tasks >= 4 * threads
}

/// [`for_each`] for a few large tasks that use [`for_each`] inside: in parallel where that keeps
/// all threads busy, else one after the other, each on all threads.
#[track_caller]
pub(super) fn for_each_large<T: Send>(tasks: Vec<T>, elements: usize, f: impl Fn(T) + Sync + Send) {
    if balanced(tasks.len()) {
        for_each(tasks, elements, f);
    } else {
        tasks.into_iter().for_each(f);
    }
}

/// Stack of a worker in bytes: that of the main thread on common systems.
const STACK: usize = 8 << 20;

/// Runs `f` on a worker of the pool that [`for_each`] uses.
pub(crate) fn on_threads<R: Send>(f: impl FnOnce() -> R + Send) -> io::Result<R> {
    let pool = rayon::ThreadPoolBuilder::new().stack_size(STACK);
    let refused = pool.build_global().err();
    // There is no cause where the pool exists already, whose creator has chosen the stack.
    let cause = refused.as_ref().and_then(Error::source);
    match cause.and_then(|cause| cause.downcast_ref::<io::Error>()) {
        Some(error) => Err(io::Error::new(error.kind(), error.to_string())),
        None => Ok(rayon::scope(|_| f())),
    }
}

/// A vector of `n` numbers, made `BLOCK` at a time: `write` receives the index of a block's first
/// number and the block. Several threads work if there is enough work, `elements`.
///
/// New memory is written once; a vector of zeros would be written twice.
#[track_caller]
pub(super) fn fill<const BLOCK: usize>(
    n: usize,
    elements: usize,
    write: impl Fn(usize, &mut [f32]) + Sync + Send,
) -> Vec<f32> {
    let mut values = if parallel(elements) {
        let block = |index: usize| {
            let mut block = [0.0; BLOCK];
            write(index * BLOCK, &mut block[..BLOCK.min(n - index * BLOCK)]);
            block
        };
        let blocks = 0..n.div_ceil(BLOCK);
        let blocks: Vec<[f32; BLOCK]> = if recording::threads().is_some() {
            recording::run(blocks.collect(), block)
        } else {
            blocks.into_par_iter().map(block).collect()
        };
        blocks.into_flattened()
    } else {
        let (mut values, mut block) = (Vec::with_capacity(n), [0.0; BLOCK]);
        for start in (0..n).step_by(BLOCK) {
            let block = &mut block[..BLOCK.min(n - start)];
            write(start, block);
            values.extend_from_slice(block);
        }
        values
    };
    values.truncate(n);
    values
}

/// A copy, made by several threads if it is large.
#[track_caller]
pub(super) fn copy_of(x: &[f32]) -> Vec<f32> {
    fill::<1024>(x.len(), x.len(), |first, block| {
        block.copy_from_slice(&x[first..][..block.len()])
    })
}
