//! One run in one process: from a resolved spec to a record.

pub mod attention_distance;
pub mod evaluate;
pub mod greedy;
pub mod optimizer;
pub mod parameters;
pub mod train;
pub mod worker;
