//! Any operation of a run fails, or the process dies there: the next attempt ends as a calm run
//! does.

use crate::common::{self, Quick, calm, files, train};
use longreach_rundir::{Disk, Op, System};
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicU64, Ordering};

/// What happens at the operation with this number.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// It fails, once.
    Error,
    /// The process dies before it: nothing after it happens.
    Death,
    /// No more room: it is done in part, and everything that needs room fails from there on.
    Full,
}

struct Faulty {
    fault: Fault,
    at: u64,
    done: AtomicU64,
}

impl Disk for Faulty {
    fn apply(&self, op: &Op<'_>) -> io::Result<()> {
        let number = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        match (self.fault, *op) {
            (Fault::Error, _) if number == self.at => Err(io::Error::other("a planted error")),
            (Fault::Death, _) if number >= self.at => Err(io::Error::other("dead")),
            (Fault::Full, Op::Write(path, bytes)) if number >= self.at => {
                Quick.apply(&Op::Write(path, &bytes[..bytes.len() / 2]))?;
                Err(ErrorKind::StorageFull.into())
            }
            (Fault::Full, Op::Append { path, at, bytes }) if number >= self.at => {
                Quick.apply(&Op::Append {
                    path,
                    at,
                    bytes: &bytes[..bytes.len() / 2],
                })?;
                Err(ErrorKind::StorageFull.into())
            }
            (Fault::Full, Op::CreateDir(_)) if number >= self.at => {
                Err(ErrorKind::StorageFull.into())
            }
            (_, op) => Quick.apply(&op),
        }
    }
}

#[test]
fn a_fault_at_any_operation_leaves_a_run_that_ends_as_a_calm_one() {
    let calm = calm();
    for fault in [Fault::Error, Fault::Death, Fault::Full] {
        let mut attempts = 0;
        for at in 1.. {
            let directory = tempfile::tempdir().expect("a directory");
            let run = directory.path().join("run");
            let disk = Faulty {
                fault,
                at,
                done: AtomicU64::new(0),
            };
            let mut saved = 0;
            let ended = train(&disk, &run, &mut |step| saved = step);
            let reached = disk.done.load(Ordering::Relaxed) >= at;
            if let Err(error) = &ended {
                assert!(
                    reached && !format!("{error:#}").is_empty(),
                    "{fault:?} at {at}: {error:#}"
                );
            }
            if matches!(fault, Fault::Full) && run.exists() {
                let scratch = files(&run).into_iter().find(|(path, _)| {
                    path.to_string_lossy()
                        .split('/')
                        .any(|part| part.starts_with('.'))
                });
                assert!(
                    scratch.is_none(),
                    "full at {at}: {scratch:?} takes up the room that there is not"
                );
            }
            let from = train(&Quick, &run, &mut |_| ())
                .unwrap_or_else(|error| panic!("{fault:?} at {at}: {error:#}"));
            assert!(
                from >= saved.min(common::STEPS),
                "{fault:?} at {at}: {saved} was saved, went on from {from}"
            );
            assert!(
                files(&run) == calm,
                "{fault:?} at {at}: other files than a calm run's"
            );
            attempts += 1;
            if !reached {
                break;
            }
        }
        println!("{fault:?}: {attempts} attempts");
        assert!(attempts > 60, "{fault:?}: {attempts} attempts");
    }
}

#[test]
fn failures_name_their_place_and_what_to_do() {
    let directory = tempfile::tempdir().expect("a directory");
    let full = Faulty {
        fault: Fault::Full,
        at: 1,
        done: AtomicU64::new(0),
    };
    let disk: &dyn Disk = &full;
    let said = disk
        .write_whole(&directory.path().join("record.json"), b"12345678")
        .expect_err("no room")
        .to_string();
    assert!(
        said.contains("cannot write")
            && said.contains("record.json:")
            && !said.contains("scratch")
            && said.contains("(8 bytes)")
            && said.contains("make room"),
        "{said}"
    );
    assert_eq!(
        std::fs::read_dir(directory.path())
            .expect("a directory")
            .count(),
        0,
        "the scratch file is removed"
    );
    let nowhere: &dyn Disk = &System;
    let said = nowhere
        .probe(&directory.path().join("a/b"))
        .map(|()| directory.path().join("a/b").is_dir());
    assert!(said.expect("it can be created"));
    std::fs::write(directory.path().join("file"), b"").expect("writable");
    assert!(nowhere.probe(&directory.path().join("file/b")).is_err());
    assert_eq!(
        std::fs::read_dir(directory.path().join("a/b"))
            .expect("a directory")
            .count(),
        0,
        "a probe leaves nothing"
    );
}
