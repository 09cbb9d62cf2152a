//! What every part of the program needs.
//!
//! ```text
//! exit.rs      exit codes, and the error that carries one
//! console.rs   output for people: lines, tables, JSON
//! units.rs     numbers in words: counts, durations, sizes
//! limits.rs    memory and processors that the system grants
//! program.rs   the file of this program
//! signals.rs   requests to stop
//! temporary.rs scratch directories
//! build.rs     version and commit of this program
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(not(test), warn(clippy::too_many_lines, clippy::print_stdout))]

pub mod build;
pub mod console;
pub mod exit;
pub mod limits;
pub mod program;
pub mod signals;
pub mod temporary;
pub mod units;
