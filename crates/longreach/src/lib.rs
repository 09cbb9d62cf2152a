//! Longreach: from a TOML file to trained runs, their evaluations at longer lengths, and a report.
//!
//! ```text
//! config (TOML) -> cells (axes) -> RunSpec (no default left) -> worker process: train, evaluate, record -> report
//! ```
//!
//! [`config`] decides what to run, [`worker`] runs one, [`sweep`] runs many in processes of their
//! own, [`cli`] is what people type.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod catalogue;
pub mod changes;
pub mod cli;
pub mod config;
pub mod configs;
pub mod console;
pub mod decode;
pub mod device;
pub mod evaluate;
pub mod exit;
pub mod inspect;
pub mod integrity;
pub mod list;
pub mod memory;
pub mod optimizer;
pub mod plan;
pub mod profile;
pub mod reevaluate;
pub mod reporting;
pub mod selection;
pub mod signals;
pub mod spec;
pub mod status;
pub mod survey;
pub mod sweep;
pub mod train;
pub mod verify;
pub mod weights;
pub mod worker;
