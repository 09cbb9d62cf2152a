//! The checks of the fuzz targets. Each module is self-contained, so that ordinary tests replay the
//! seeds with the same code.

pub mod checkpoints;
pub mod corpus;
pub mod memory;
/// The name that `longreach` uses for the crate; its tests include `plans`.
extern crate longreach_tasks as tasks;

#[cfg(feature = "longreach")]
pub mod plans;
