//! One run: from a config to its resolved specification, and from that to a record.
//!
//! ```text
//! spec/          a run, resolved: no default left. Its hash is the identity of the run
//! plan/          from the tables of a config to specifications, with every check
//! run/           from a specification to a record: train, evaluate
//! runs_on_disk/  the directories of runs: who may write them, and what is in them
//! device/        the hardware that computes
//! host.rs        numbers of tensors on the host
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(not(test), warn(clippy::too_many_lines, clippy::print_stdout))]

pub mod device;
pub mod host;
pub mod plan;
pub mod run;
pub mod runs_on_disk;
pub mod spec;

use plan::mistakes::Mistakes;
use plan::planned::Plan;
use runs_on_disk::recorded::Recorded;
use std::path::{Path, PathBuf};
use support::exit::Failure;

/// Reads, expands, checks and resolves a config. Nothing is written and nothing trained.
///
/// # Errors
///
/// Its mistakes, each with its place: all that do not follow from others.
pub fn plan(path: &Path, overrides: &[String]) -> Result<Plan, Mistakes> {
    plan::planner::plan(path, overrides, runs_on_disk::files::runs_of_seed)
}

/// Reads files of records whose runs count as done.
///
/// # Errors
///
/// As [`Recorded::read`].
pub fn recorded(files: &[PathBuf]) -> Result<Recorded, Failure> {
    Recorded::read(files, run::numbers::problem_of)
}
