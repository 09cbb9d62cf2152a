//! The commands of `longreach`, one module each: arguments, help and `run`.

pub mod check;
pub mod cluster_status;
pub mod compare;
pub mod completions;
pub mod config_show;
pub mod eval;
pub mod export;
pub mod export_rows;
pub mod gather;
pub mod inspect;
pub mod list;
pub mod logs;
pub mod new;
mod numbers;
pub mod probe;
pub mod records;
mod replace;
pub mod report;
pub mod run;
pub mod schema;
pub mod status;
pub mod submit;
pub mod verify;
pub mod worker;
