//! From a TOML file and overrides to resolved runs.
//!
//! [`source`] reads the file and remembers where every value stands, [`axes`] expands one table per
//! combination, [`crate::plan::planner`] reads each into strict types, checks values against each other and
//! resolves every default, and [`diagnose`] turns whatever is wrong into an error with file, line,
//! key, value, what is allowed and the likely fix.

pub mod axes;
pub mod claims;
pub mod diagnose;
pub mod source;
#[cfg(test)]
mod tests;
