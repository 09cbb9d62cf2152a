//! What the fuzz targets check. Each module stands on its own, so that ordinary tests replay the seeds with the same code.

pub mod checkpoints;
pub mod corpus;
pub mod memory;
#[cfg(feature = "longreach")]
pub mod plans;
