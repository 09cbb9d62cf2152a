//! The commands of `longreach`, one module each: arguments, help and `run`.

pub mod catalogue_page;
pub mod check;
pub mod cluster_status;
pub mod compare;
pub mod completions;
pub mod config_page;
pub mod config_show;
pub mod docs;
pub mod eval;
pub mod export;
pub mod export_rows;
pub mod gather;
pub mod inspect;
pub mod list;
pub mod logs;
pub mod new;
pub mod probe;
pub mod records;
pub mod report;
pub mod run;
pub mod status;
pub mod submit;
pub mod verify;
pub mod worker;
