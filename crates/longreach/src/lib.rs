//! Longreach: from a TOML file to trained runs, their evaluations at longer lengths, and a report.
//!
//! ```text
//! config (TOML) -> cells (axes) -> RunSpec (no default left)
//!     -> worker process (train, evaluate, record) -> report
//! ```
//!
//! [`config`] reads files, [`plan`] resolves them to runs, [`run`] executes one run in one process,
//! [`sweep`] starts many, [`cluster`] hands them to engines, [`run_dir`] reads and writes their
//! directories, [`commands`] holds the command line.
#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(not(test), warn(clippy::too_many_lines, clippy::print_stdout))]

pub mod cli;
pub mod cluster;
pub mod commands;
pub mod config;
pub mod console;
pub mod device;
pub mod exit;
mod limits;
pub mod live;
pub mod plan;
pub mod run;
pub mod run_dir;
pub mod signals;
pub mod sweep;
mod temporary;
pub mod units;

/// The Rust code of the README, as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
