//! The directories of runs: which runs are there, which config they belong to, and whether their
//! records are still what was written.

pub mod belonging;
pub mod changes;
pub mod files;
pub mod hold;
pub mod integrity;
pub mod kept_configs;
mod named;
pub mod recorded;
pub mod selection;
pub mod starts;
pub mod state;
pub mod survey;
pub mod timings;
pub mod walk;
