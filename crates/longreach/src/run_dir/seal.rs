//! `timings.json` and the seal in it: a hash that shows whether a record was edited.

use crate::exit::Failure;
use crate::run_dir::files::{RECORD_FILE, TIMINGS_FILE};
use results::RunRecord;
use rundir::Disk;
use schema::is_default;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Largest file that is read, in bytes.
const MAX_TIMINGS_BYTES: u64 = 1 << 20;

/// Wall-clock figures of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timings {
    /// Seconds of training, without the scores taken on the way.
    pub train_secs: f64,
    /// Seconds of those scores.
    #[serde(default, skip_serializing_if = "is_default")]
    pub score_secs: f64,
    /// Tokens trained on per second.
    pub train_tokens_per_sec: f64,
    /// Seconds of evaluation.
    pub eval_secs: f64,
    /// Each evaluation.
    pub evals: Vec<EvalTiming>,
    /// Largest resident memory in training, if the system reports it.
    pub train_peak_memory_bytes: Option<u64>,
    /// Estimate of the same.
    pub train_estimated_memory_bytes: u64,
    /// What changed on the way: a resume under another program, checkpoints that were skipped.
    pub notes: Vec<String>,
    /// The device, with its number.
    pub device: String,
    /// Threads of the CPU backend.
    pub threads: usize,
    /// The seal of the record: the BLAKE3 of the bytes of `record.json`. Two while a record is
    /// replaced; none in older runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub record_blake3: Vec<String>,
}

/// Wall-clock figures of one evaluation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EvalTiming {
    /// The variant.
    pub variant: String,
    /// The length, in the task's unit.
    pub test_len: usize,
    /// Seconds.
    pub secs: f64,
    /// Largest resident memory during it, if the system reports it.
    pub peak_memory_bytes: Option<u64>,
    /// Estimate of the same.
    pub estimated_memory_bytes: u64,
}

/// Replaces a record atomically, and its seal; `timings` replace the old ones. A record that does
/// not match its seal gets no new one, so [`seal_holds`] still returns false.
///
/// # Errors
///
/// [`crate::exit::Exit::Resources`] if the directory cannot be written.
pub fn replace_record(
    disk: &dyn Disk,
    directory: &Path,
    record: &RunRecord,
    timings: Option<Timings>,
) -> Result<(), Failure> {
    let write = |timings: &Timings| {
        let json = serde_json::to_vec_pretty(timings).map_err(Failure::bug)?;
        disk.write_whole(&directory.join(TIMINGS_FILE), &json)
            .map_err(Failure::resources)
    };
    let text = record_text(directory, record)?;
    // Before anything is written: an edited record must not be sealed by replacing it.
    let sealed = seal_holds(directory) == Some(true);
    let mut timings = if sealed {
        timings.or_else(|| self::timings(directory))
    } else {
        timings
    };
    if let Some(timings) = &mut timings {
        if sealed {
            // With both hashes valid, a crash between the two files cannot make a record look
            // edited.
            timings.record_blake3.push(seal(text.as_bytes()));
        }
        write(timings)?;
    }
    disk.write_whole(&directory.join(RECORD_FILE), text.as_bytes())
        .map_err(Failure::resources)?;
    // The old record is gone, and its hash with it.
    if let Some(timings) = timings.as_mut().filter(|_| sealed) {
        timings.record_blake3 = vec![seal(text.as_bytes())];
        write(timings)?;
    }
    Ok(())
}

/// Whether the record of a run is unchanged since it was written. `None` without a record or a
/// seal.
pub fn seal_holds(directory: &Path) -> Option<bool> {
    let seals = timings(directory)?.record_blake3;
    let record = rundir::read::bounded(
        &directory.join(RECORD_FILE),
        results::store::MAX_RECORD_BYTES,
    )
    .ok()?;
    (!seals.is_empty()).then(|| seals.contains(&seal(&record)))
}

/// The hash of a record's bytes.
pub fn seal(record: &[u8]) -> String {
    blake3::hash(record).to_hex().to_string()
}

/// A record as it is written.
///
/// # Errors
///
/// [`crate::exit::Exit::Bug`] if it cannot be serialized.
pub fn record_text(directory: &Path, record: &RunRecord) -> Result<String, Failure> {
    results::store::record_text(&directory.join(RECORD_FILE), record).map_err(Failure::bug)
}

/// The timings of a run, if they can be read.
pub fn timings(directory: &Path) -> Option<Timings> {
    let bytes = rundir::read::bounded(&directory.join(TIMINGS_FILE), MAX_TIMINGS_BYTES).ok()?;
    serde_json::from_slice(&bytes).ok()
}
