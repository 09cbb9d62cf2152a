//! What every configuration type of Longreach shares: the error of a value, range checks, tables
//! tagged by `kind`, and text that is safe to print.
//!
//! ```text
//! invalid.rs  Invalid: key, value, problem, allowed, hint
//! check.rs    in_range, one_of: uniform wording of problems and of what is allowed
//! file.rs     files opened so that nobody waits for them
//! tagged.rs   tagged!: an enum read from a table whose first key is `kind`
//! text.rs     text of unknown origin made safe for a terminal, a report or a file
//! ```
//!
//! A leaf: every crate of the workspace may use it, and it uses none of them.
#![cfg_attr(not(test), warn(clippy::too_many_lines, clippy::print_stdout))]

mod check;
pub mod file;
mod invalid;
pub mod tagged;
pub mod text;

pub use check::{Number, allowed, in_range, one_of};
pub use invalid::Invalid;

/// Whether a value equals its type's default, for `#[serde(skip_serializing_if = "is_default")]`.
///
/// An option that is left out at its default can be added later without changing the serialized
/// form, and so the identity, of older runs.
pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
