//! Writing records: one document, or many in one file.

use super::found::{EVALS_DIR, Found, MAX_JSONL_BYTES, MAX_RECORD_BYTES, StoreError, invalid};
use super::read::parse;
use crate::order;
use crate::record::RunRecord;
use std::path::{Path, PathBuf};

/// Where a record belongs under a directory of runs: `<root>/<experiment>/<run_id>`.
pub fn run_dir(root: &Path, experiment: &str, run_id: &str) -> PathBuf {
    root.join(experiment).join(run_id)
}

/// Where the record of a later evaluation belongs in the directory of its run.
pub fn evaluation_path(run: &Path, id: &str) -> PathBuf {
    run.join(EVALS_DIR).join(format!("{id}.json"))
}

/// The text of a `record.json` that is going to be written to `path`.
///
/// # Errors
///
/// When the record does not survive JSON because a number is not finite, or is too large to be read
/// again.
pub fn record_text(path: &Path, record: &RunRecord) -> Result<String, StoreError> {
    let mut text = serde_json::to_string_pretty(record).map_err(|e| invalid(path, e))?;
    text.push('\n');
    // JSON has no NaN or infinity: they are written as null, which reading back shows.
    check_round_trip(path, &text, record)?;
    if text.len() as u64 > MAX_RECORD_BYTES {
        let bytes = text.len();
        return Err(invalid(
            path,
            format!("the record has {bytes} bytes; at most {MAX_RECORD_BYTES} are read"),
        ));
    }
    Ok(text)
}

/// Writes the records that a search found into one file, one per line; of `loss_by_position` at
/// most `most_bins` bins are kept, if given
/// ([`EvalRow::thin_positions`](crate::record::EvalRow::thin_positions)). Returns what was found,
/// thinned as written. The same records give the same bytes, wherever they lie.
///
/// # Errors
///
/// No record at all, or a file that cannot be written.
pub fn gather_found(
    mut found: Found,
    path: &Path,
    most_bins: Option<usize>,
) -> Result<Found, StoreError> {
    if found.records.is_empty() {
        return Err(invalid(path, "not written: there are no records to gather"));
    }
    if let Some(most) = most_bins {
        found.records.iter_mut().for_each(|record| {
            record.change(|record| {
                for row in &mut record.evals {
                    row.thin_positions(most);
                }
            });
        });
    }
    write_jsonl(path, &found.records)?;
    Ok(found)
}

/// Writes records in canonical order, one per line: the same records give the same bytes. A file
/// is replaced as a whole; a pipe or `/dev/stdout` is written into.
///
/// # Errors
///
/// When a record does not survive JSON, the file would be larger than [`MAX_JSONL_BYTES`] or cannot
/// be written; nothing is written then.
pub fn write_jsonl(path: &Path, records: &[RunRecord]) -> Result<(), StoreError> {
    let text = jsonl_text(path, records, MAX_JSONL_BYTES)?;
    Ok(rundir::system().write_named(path, text.as_bytes())?)
}

/// The lines of records in canonical order, of at most `most` bytes.
fn jsonl_text(path: &Path, records: &[RunRecord], most: u64) -> Result<String, StoreError> {
    let mut sorted: Vec<&RunRecord> = records.iter().collect();
    // The same records give the same bytes, in whatever order they were found.
    sorted.sort_by(|a, b| order::canonical(a, b));
    let mut text = String::new();
    for record in sorted {
        let line = serde_json::to_string(record).map_err(|e| invalid(path, e))?;
        check_round_trip(path, &line, record)?;
        text.push_str(&line);
        text.push('\n');
        if text.len() as u64 > most {
            let reason = format!(
                "not written: the {} records have more than {most} bytes, and no more are read \
                 from a file; keep fewer bins of the loss by position (`gather --bins`), or write \
                 several files",
                records.len()
            );
            return Err(invalid(path, reason));
        }
    }
    Ok(text)
}

/// JSON has no NaN: serde writes null, which reads back as something else or not at all.
fn check_round_trip(path: &Path, text: &str, record: &RunRecord) -> Result<(), StoreError> {
    match parse(text.as_bytes()) {
        Ok(back) if back == *record => Ok(()),
        Ok(_) => Err(invalid(
            path,
            "the record does not survive JSON: a number is not finite",
        )),
        Err(reason) => Err(invalid(
            path,
            format!("the record does not survive JSON (a number that is not finite?): {reason}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_would_not_be_read_is_not_written() {
        let place = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../experiments/001-quickstart/results.jsonl"
        );
        let records = super::super::read_jsonl(Path::new(place)).unwrap().records;
        let out = Path::new("out.jsonl");
        let whole = jsonl_text(out, &records, u64::MAX).unwrap();
        let most = whole.len() as u64;
        assert_eq!(jsonl_text(out, &records, most).unwrap(), whole);
        let refused = jsonl_text(out, &records, most - 1).unwrap_err().to_string();
        assert!(refused.contains("--bins"), "{refused}");
    }
}
