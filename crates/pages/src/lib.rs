//! Writes the pages of `docs/` that follow from the program and from committed records. Not part of
//! the program.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod catalogue;
mod config_page;
pub mod docs;

pub use config_page::page as config_page;
