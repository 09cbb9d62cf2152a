//! The memory an input allocates, by an allocator that counts. The fuzzer's own limit is checked once
//! a second, which misses short peaks.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, counted; a target makes it the global one.
pub struct Meter;

fn more(bytes: usize) {
    let held = HELD.fetch_add(bytes, Relaxed) + bytes;
    PEAK.fetch_max(held, Relaxed);
}

// SAFETY: every call is passed to the system's allocator.
unsafe impl GlobalAlloc for Meter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        more(layout.size());
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        more(layout.size());
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        more(size);
        HELD.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Runs a check whose memory must stay below 64 times its input and 1 MiB, where [`Meter`] is the global allocator.
///
/// # Panics
/// If it took more.
pub fn bounded<T>(data: &[u8], check: impl FnOnce() -> T) -> T {
    let before = HELD.load(Relaxed);
    PEAK.store(before, Relaxed);
    let result = check();
    let most = PEAK.load(Relaxed).saturating_sub(before);
    assert!(most <= 64 * data.len() + (1 << 20), "{most} bytes of memory for {} of input", data.len());
    result
}
