//! One run in one process: from a resolved spec to a record.

pub mod attention_distance;
pub mod carry;
pub mod evaluate;
pub mod greedy;
pub mod member;
pub mod model;
pub mod numbers;
pub mod optimizer;
pub mod parameters;
pub mod protocol;
pub mod record;
pub mod rope_scores;
pub mod score;
pub mod side_by_side;
pub mod step;
pub mod step_scores;
pub mod task;
pub mod test_rows;
pub mod train;
pub mod watcher;
pub mod worker;
