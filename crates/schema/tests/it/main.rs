//! Errors, ranges, tagged tables and harmless text, as other crates use them.

mod tagged_tables;
mod values;
