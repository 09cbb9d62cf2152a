//! A run's directory: what must survive a crash, and how it is read back when it did not survive
//! whole.
//!
//! ```text
//! disk.rs        the only way anything is written: named operations, one after the other
//! checkpoint.rs  all that the next step depends on, whole or not at all
//! steplog.rs     a line per step
//! weights.rs     parameters by path, and their file
//! lock.rs        one process per run
//! read.rs        files of unknown origin, read under a bound
//! fault.rs       disks that fail on request (feature `faults`)
//! ```
//!
//! Every write is an [`Op`] applied by a [`Disk`], so that tests can cut the power after any of
//! them, let any of them fail, or name each of them. Nothing here knows a tensor library: the
//! readers build and are fuzzed in seconds.
#![forbid(unsafe_code)]

pub mod checkpoint;
pub mod disk;
#[cfg(all(unix, feature = "faults"))]
pub mod fault;
pub mod lock;
pub mod read;
pub mod steplog;
pub mod weights;

pub use disk::{Disk, Op, System, system};
pub use weights::{HostTensor, Weights};
