//! From typed sections of a config to resolved runs and their cost.

pub mod cost;
pub mod memory;
pub mod planner;
pub mod spec;
pub mod variants;
