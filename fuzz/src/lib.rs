//! What the fuzz targets check. Each module stands on its own, so that ordinary tests replay the seeds with the same code.

pub mod checkpoints;
pub mod corpus;
pub mod memory;
/// The name under which `longreach` knows the crate: its tests include `plans`.
extern crate longreach_tasks as tasks;

#[cfg(feature = "longreach")]
pub mod plans;
