//! Chapters of a report: what is about all settings together.

pub(crate) mod assertions;
pub(crate) mod board;
pub(crate) mod claims;
pub(crate) mod numbers;
pub(crate) mod overview;
pub(crate) mod prediction;
mod ranks;
