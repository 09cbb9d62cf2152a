//! Writes the pages of `docs/` that follow from the program and from committed records. Not part of
//! the program.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod catalogue;
mod config_page;
pub mod docs;
pub mod keys_of_kinds;
pub mod markdown;
pub mod sources;
mod tasks_page;

pub use config_page::page as config_page;
pub use tasks_page::page as tasks_page;
