//! The commands of `longreach`, one module each.

pub mod catalogue_page;
pub mod check;
pub mod eval;
pub mod inspect;
pub mod list;
pub mod report;
pub mod status;
pub mod verify;
