//! Longreach: from a TOML file to trained runs, their evaluations at longer lengths, and a report.
//!
//! ```text
//! config (TOML) -> cells (axes) -> RunSpec (no default left)
//!     -> worker process (train, evaluate, record) -> report
//! ```
//!
//! This crate holds the command line. `config` reads files, `experiment` resolves them to runs and
//! executes one in one process, `sweep` starts many, here and on clusters, `inspect` shows one
//! encoding, `report` makes reports of records.
#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(not(test), warn(clippy::too_many_lines, clippy::print_stdout))]

pub mod cli;
pub mod commands;

/// The Rust code of the README, as a doctest.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
