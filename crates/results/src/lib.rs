//! What runs leave behind, and what is made of it: records and their store, statistics over seeds,
//! tables, plots and reports.
//!
//! ```text
//! runs/<experiment>/<run_id>/record.json ──find_records──▶ Vec<RunRecord> ──report──▶ report.md report.html results.csv tables.tex *.svg
//! ```
//!
//! [`gather_jsonl`] makes one file of a directory of runs, [`read_jsonl`] reads it. Records come
//! from strangers as well: what is read has a bound, what is damaged is listed and hides no other,
//! and no name in a record is markup, a formula or a path.
//!
//! A report is a pure function of records and a [`ReportSpec`]: it reads no clock, environment,
//! network or device, and the order of the records does not matter. The crate does not link the
//! tensor library.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod against;
mod analysis;
pub mod assertions;
pub mod claims;
pub mod compare;
mod conditions;
mod figures;
mod groups;
mod identity;
mod methods;
pub mod metric;
mod naming;
mod order;
pub mod plot;
mod ranking;
pub mod record;
mod render;
mod report;
pub mod stats;
pub mod store;
pub mod table;
mod text;
mod toml_text;

pub use claims::Claims;
pub use record::RunRecord;
pub use report::{FIRST_METHOD, Format, Report, ReportError, ReportFile, ReportSpec, report};
pub use store::{
    Conflict, Excluded, Found, Place, StoreError, find_records, find_records_within, gather_found,
    gather_jsonl, read_jsonl, read_record, write_jsonl,
};
