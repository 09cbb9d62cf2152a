//! `timings.json` of a run.

use crate::runs_on_disk::files::TIMINGS_FILE;
use records::timings::Timings;
use std::path::Path;

/// Largest file that is read, in bytes.
const MAX_TIMINGS_BYTES: u64 = 1 << 20;

/// The timings of a run, if they can be read.
pub fn timings(directory: &Path) -> Option<Timings> {
    let bytes = rundir::read::bounded(&directory.join(TIMINGS_FILE), MAX_TIMINGS_BYTES).ok()?;
    serde_json::from_slice(&bytes).ok()
}
