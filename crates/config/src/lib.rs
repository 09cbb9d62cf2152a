//! From text to typed tables: a TOML file, the overrides of the command line, and axes.
//!
//! ```text
//! options.rs     the one declaration of the keys of a table
//! key.rs         what is known about a key
//! key_path.rs    dotted keys, and values put at them
//! source.rs      one file, read under bounds
//! shipped.rs     the configs that come with the program
//! overrides.rs   key=value, and what wins over what
//! syntax.rs      errors of files that are no TOML
//! origins.rs     the line or the argument every value came from
//! axes.rs        one table for each combination of the axes' values
//! axis.rs        one axis: its keys, its entries
//! zipped.rs      several keys that vary together
//! labels.rs      short texts that tell the values of an axis apart
//! claims.rs      a file of claims
//! value.rs       TOML values and their types in words
//! diagnostic/    mistakes as data, and their text
//! ```
//!
//! Nothing here knows a run: `experiment::plan` reads each table into strict types, checks values
//! against each other and resolves every default.
#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(not(test), warn(clippy::too_many_lines, clippy::print_stdout))]

pub mod axes;
mod axis;
pub mod claims;
pub mod diagnostic;
pub mod key;
pub mod key_path;
pub mod labels;
pub mod options;
pub mod origins;
pub mod overrides;
pub mod shipped;
pub mod source;
mod syntax;
mod value;
mod zipped;
