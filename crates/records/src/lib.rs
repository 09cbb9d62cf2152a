//! What runs leave behind: records, their store, statistics over seeds, and claims.
//!
//! [`gather_found`] makes one file of a directory of runs, [`read_jsonl`] reads it. Records may be
//! of unknown origin: every read is bounded, damaged records are listed and hide no others, and
//! no name in a record becomes markup, a formula or a path.
//!
//! Nothing here reads a clock, the environment, the network or a device, and the order of the
//! records does not matter. The crate does not link the tensor library.
//!
//! ```text
//! record.rs       the record of one run
//! store/          reading, searching and writing records
//! compare/        two sets of records, equal or within a tolerance
//! scaling.rs      scalings that a test-time variant replaces
//! seal.rs         the seal of a record
//! denominators.rs counts of small denominators of linear attention
//! task_facts.rs   what a record says of its task
//! selected.rs     what a choice of [select] says
//! metric.rs       the metric registry
//! names.rs        names of methods in a reader's words
//! number.rs       numbers as people read them
//! range.rs        the range of every number of a record
//! stats/          means, intervals and rank correlation over seeds
//! spec.rs         resolved specs as JSON
//! analysis/       settings, methods and the numbers behind a cell
//! claims/         claims of sources and committed assertions
//! timings.rs      what a run took on its machine
//! tensorboard.rs  a run as an event file of TensorBoard
//! order.rs        canonical order of records
//! palette.rs      colours of methods
//! text.rs         printable text, lists in words, slugs
//! toml_text.rs    JSON as TOML on one line
//! ```
#![cfg_attr(not(test), warn(clippy::too_many_lines, clippy::print_stdout))]

pub mod analysis;
pub mod claims;
pub mod compare;
pub mod denominators;
pub mod metric;
pub mod names;
pub mod number;
pub mod order;
pub mod palette;
pub mod range;
pub mod record;
pub mod scaling;
pub mod seal;
pub mod selected;
pub mod spec;
pub mod stats;
pub mod store;
pub mod task_facts;
pub mod tensorboard;
pub mod text;
pub mod timings;
pub mod toml_text;

pub use claims::Claims;
pub use record::{RunRecord, Seal};
pub use store::{
    Conflict, Excluded, Found, RecordLocation, StoreError, find_records, find_records_within,
    gather_found, read_jsonl, read_record, write_jsonl,
};
pub use text::ruled_table;
