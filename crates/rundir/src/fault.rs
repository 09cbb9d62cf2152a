//! A disk that fails on request: it kills the process, or returns an error, at an operation named
//! in the environment.
//!
//! `LONGREACH_FAULT` is one of
//!
//! ```text
//! kill before OPERATION N     kill -9 before the Nth time of an operation like `rename step-N`
//! kill after OPERATION N
//! error N                     the Nth operation of this process fails (EIO), no other does
//! full N                      from the Nth on, operations that need space fail (ENOSPC), and
//!                             writes are cut in half
//! ```
//!
//! and `LONGREACH_OPERATIONS` names a file to which the name of every operation is appended.

use crate::disk::{Disk, Op, System};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock};

/// The fault that the environment asks for.
pub struct Faulty {
    fault: Option<Fault>,
    operations: Option<PathBuf>,
    seen: Mutex<(u64, BTreeMap<String, u64>)>,
}

enum Fault {
    Kill {
        before: bool,
        name: String,
        hit: u64,
    },
    Error(u64),
    Full(u64),
}

/// The disk that the environment asks for, for [`crate::disk::choose`]. An environment that cannot
/// be parsed ends the process, because a proof that tests nothing must not pass.
pub fn from_environment() -> &'static dyn Disk {
    static DISK: OnceLock<Faulty> = OnceLock::new();
    DISK.get_or_init(|| {
        let asked = std::env::var("LONGREACH_FAULT").unwrap_or_default();
        let fault = parse(&asked).unwrap_or_else(|| {
            eprintln!("error: LONGREACH_FAULT={asked:?} is not a fault");
            std::process::exit(2)
        });
        Faulty {
            fault,
            operations: std::env::var_os("LONGREACH_OPERATIONS").map(PathBuf::from),
            seen: Mutex::default(),
        }
    })
}

fn parse(text: &str) -> Option<Option<Fault>> {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words.as_slice() {
        [] => Some(None),
        ["error", n] => Some(Some(Fault::Error(n.parse().ok()?))),
        ["full", n] => Some(Some(Fault::Full(n.parse().ok()?))),
        ["kill", when @ ("before" | "after"), name @ .., hit] if !name.is_empty() => {
            Some(Some(Fault::Kill {
                before: *when == "before",
                name: name.join(" "),
                hit: hit.parse().ok()?,
            }))
        }
        _ => None,
    }
}

/// Ends this process as kill -9 does.
fn die() -> ! {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    std::process::abort()
}

impl Disk for Faulty {
    fn apply(&self, op: &Op<'_>) -> io::Result<()> {
        let name = op.name();
        let (count, hit) = {
            let mut seen = self
                .seen
                .lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner());
            seen.0 += 1;
            let hit = seen.1.entry(name.clone()).or_default();
            *hit += 1;
            let hit = *hit;
            (seen.0, hit)
        };
        // Before the operation, so that the list ends with the one that a kill prevents.
        if let Some(path) = &self.operations {
            let mut file = std::fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(path)?;
            file.write_all(format!("{name}\n").as_bytes())?;
        }
        let kill = |when: bool| match &self.fault {
            Some(Fault::Kill {
                before,
                name: at,
                hit: n,
            }) => *before == when && *at == name && *n == hit,
            _ => false,
        };
        if kill(true) {
            die();
        }
        match (&self.fault, *op) {
            (Some(Fault::Error(at)), _) if *at == count => return Err(Errno::IO.into()),
            (Some(Fault::Full(at)), op) if *at <= count => {
                match op {
                    // A disk that fills up during a write has taken a part of it.
                    Op::Write(path, bytes) => {
                        System.apply(&Op::Write(path, &bytes[..bytes.len() / 2]))?
                    }
                    Op::Append { path, at, bytes } => System.apply(&Op::Append {
                        path,
                        at,
                        bytes: &bytes[..bytes.len() / 2],
                    })?,
                    // A directory is created or not; there is no half of it.
                    Op::CreateDir(_) => {}
                    // Other operations need no space and succeed on a full disk.
                    _ => return System.apply(&op),
                }
                return Err(Errno::NOSPC.into());
            }
            _ => {}
        }
        System.apply(op)?;
        if kill(false) {
            die();
        }
        Ok(())
    }
}
