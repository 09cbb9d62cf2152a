//! The files of a training run: crash-safe writes, and readers that survive damaged files.
//!
//! ```text
//! disk.rs        every write as a named operation on a Disk; atomic writes
//! scratch.rs     names of files that are being written, and the removal of abandoned ones
//! process.rs     which process this is, and whether another one has ended
//! checkpoint.rs  everything the next training step depends on
//! steplog.rs     one JSON line per training step
//! weights.rs     parameters by path, and their safetensors file
//! lock.rs        one process per run
//! lock_table.rs  which processes hold a lock on a file
//! lease.rs       the same where locks do not reach other machines
//! read.rs        reading files of unknown origin with a bound on their size
//! fault.rs       a disk that fails on request (feature `faults`)
//! ```
//!
//! Every write is an [`Op`] applied by a [`Disk`]. Tests replace the disk and cut the power after
//! each operation, or let each of them fail. Nothing here links the tensor library, so the readers
//! build and are fuzzed in seconds.
#![cfg_attr(not(test), warn(clippy::too_many_lines, clippy::print_stdout))]

pub mod checkpoint;
pub mod disk;
#[cfg(all(unix, feature = "faults"))]
pub mod fault;
pub mod lease;
pub mod lock;
mod lock_table;
pub mod process;
pub mod read;
pub mod scratch;
pub mod steplog;
pub mod weights;

pub use disk::{Disk, Op, System, directory_of, system};
pub use weights::{HostTensor, Weights};
