//! From records to settings, methods and points: which runs are compared, and the numbers behind
//! each cell of a table.
//!
//! A *setting* is a task at one training length on one corpus: what is comparable. A *method* is a
//! group of runs that differ only by seed, under one variant.
//!
//! ```text
//! comparable.rs    which runs share a table
//! identity.rs      which runs are seeds of one method
//! naming.rs        names of methods
//! groups.rs        runs pooled into methods; later evaluations attached to their runs
//! variant.rs       variants of a method; which one a later evaluation continues
//! setting.rs       comparable methods, their lengths and metrics
//! definition.rs    what a metric is for each of them
//! setting_name.rs  names of settings, and of their files
//! point.rs         the values behind a cell, their estimate, and its text
//! measure.rs       scores, ratios and differences of methods
//! roles.rs         results, runs with half the steps, runs of selection sweeps
//! learning.rs      whether scores still move with more steps
//! learned.rs       which seeds have learned their task
//! outcome.rs       reach, the best method
//! by_seed.rs       reach of each seed
//! varied.rs        what rows differ in besides the method
//! looks.rs         which line of the figures a run's is
//! base_sweep.rs    methods that differ only in the rotary base
//! ```

pub mod base_sweep;
mod by_seed;
mod comparable;
mod definition;
pub mod groups;
pub mod identity;
pub mod learned;
mod learning;
pub mod looks;
pub mod measure;
mod naming;
pub mod outcome;
pub mod point;
pub mod roles;
pub mod setting;
mod setting_name;
mod variant;
mod varied;

pub use naming::in_words;
