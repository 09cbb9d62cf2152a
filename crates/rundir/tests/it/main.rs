//! Crashes, power cuts, torn logs and hostile checkpoints, on a run without a model.

mod common;
mod faults;
mod mutants;
mod power_cut;
mod torn_logs;
