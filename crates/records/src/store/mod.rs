//! Reading and writing records. One bad file never hides the others: it is left out and listed with
//! the reason.
//!
//! ```text
//! found.rs   types, such as Found, Conflict and StoreError; names and bounds of files
//! read.rs    one record from bytes of unknown origin
//! search.rs  the records below directories and in files of many
//! write.rs   one record as text, many records in one file
//! ```

mod found;
mod read;
mod search;
mod write;

pub use found::{
    Conflict, EVALS_DIR, Excluded, Found, JSONL_FILE, MAX_DEPTH, MAX_JSONL_BYTES, MAX_RECORD_BYTES,
    Placed, RECORD_FILE, RecordLocation, SELECTION_FILE, StoreError,
};
pub use read::read_record;
pub use search::{
    LINK, find_records, find_records_within, is_evaluation, linked_runs, read_files, read_jsonl,
};
pub use write::{evaluation_path, gather_found, record_text, run_dir, write_jsonl};
