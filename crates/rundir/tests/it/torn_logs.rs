//! A step log that was cut at any byte, or written over, is gone on from if the checkpoint's part
//! of it is whole, and never otherwise.

use crate::common::{Quick, resume, save, step};
use longreach_rundir::steplog::{self, LOG_FILE, StepLog};
use std::path::Path;

/// A checkpoint at step 4 and a log that has come to step 7; its bytes, and how many belong to the
/// checkpoint.
fn prepared(directory: &Path) -> (Vec<u8>, usize) {
    let mut log = StepLog::create(&Quick, directory).expect("a log");
    (1..=4).for_each(|done| log.append(&step(done)).expect("appended"));
    let state = save(&Quick, directory, &mut log, 4).expect("saved");
    (5..=7).for_each(|done| log.append(&step(done)).expect("appended"));
    log.sync().expect("synced");
    (
        std::fs::read(directory.join(LOG_FILE)).expect("written"),
        state.log_bytes as usize,
    )
}

#[test]
fn cut_at_every_byte() {
    let directory = tempfile::tempdir().expect("a directory");
    let (whole, committed) = prepared(directory.path());
    let path = directory.path().join(LOG_FILE);
    for cut in 0..=whole.len() {
        std::fs::write(&path, &whole[..cut]).expect("writable");
        let found = resume(&Quick, directory.path());
        match found.state {
            None => assert!(
                cut < committed && found.notes[0].contains("shorter than the checkpoint"),
                "{cut}: {:?}",
                found.notes
            ),
            Some((state, mut log)) => {
                assert!(cut >= committed && state.step == 4, "{cut}");
                (5..=7).for_each(|done| log.append(&step(done)).expect("appended"));
                log.sync().expect("synced");
                assert_eq!(std::fs::read(&path).expect("there"), whole, "{cut}");
            }
        }
        // Without a checkpoint to say how much is whole, a torn line is an error.
        let lines = whole[..cut].iter().filter(|byte| **byte == b'\n').count();
        match steplog::parse(&whole[..cut]) {
            Ok(steps) => assert!(
                steps.len() == lines && (cut == 0 || whole[cut - 1] == b'\n'),
                "{cut}"
            ),
            Err(error) => assert!(
                error.to_string().contains(&format!("line {}", lines + 1)),
                "{cut}: {error:#}"
            ),
        }
    }
}

#[test]
fn changed_at_every_byte() {
    let directory = tempfile::tempdir().expect("a directory");
    let (whole, committed) = prepared(directory.path());
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 4;
        std::fs::write(directory.path().join(LOG_FILE), &changed).expect("writable");
        let found = resume(&Quick, directory.path());
        assert_eq!(
            found.state.is_some(),
            at >= committed,
            "{at}: {:?}",
            found.notes
        );
    }
}

#[test]
fn something_else_that_writes_to_it_is_noticed() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut log = StepLog::create(&Quick, directory.path()).expect("a log");
    std::fs::write(directory.path().join(LOG_FILE), "not ours").expect("writable");
    log.append(&step(1)).expect("held back");
    let error = log.sync().expect_err("another's bytes").to_string();
    assert!(error.contains("8 bytes instead of 0"), "{error}");
}
