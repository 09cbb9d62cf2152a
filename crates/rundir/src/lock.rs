//! One process per run: a lock of the operating system, which dies with its holder.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

/// Held by the process that has the run; its text says who that is.
pub const LOCK_FILE: &str = "lock";

/// Why a run could not be taken.
#[derive(Debug)]
pub enum Taken {
    /// Another process has it; this says which.
    By(String),
    /// The lock's file cannot be written, or the file system knows no locks.
    Refused(io::Error),
}

/// Takes a run for this process, until the file is dropped or the process ends, however it ends.
///
/// # Errors
///
/// If another process has it, or there can be no lock.
pub fn take(directory: &Path) -> Result<File, Taken> {
    let path = directory.join(LOCK_FILE);
    if path.symlink_metadata().is_ok_and(|found| !found.is_file()) {
        return Err(Taken::Refused(io::Error::new(io::ErrorKind::InvalidInput, format!("{} is not a file", path.display()))));
    }
    let opened = OpenOptions::new().create(true).truncate(false).write(true).read(true).open(&path);
    let mut file = opened.map_err(Taken::Refused)?;
    for attempt in 0..5 {
        // Who only looks holds it for an instant.
        if attempt > 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        match file.try_lock() {
            Ok(()) => {
                let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
                let host = if host.trim().is_empty() { String::new() } else { format!(" on {}", host.trim()) };
                // The text is for people; what counts is the lock.
                let _ = file.set_len(0).and_then(|()| write!(file, "process {}{host}", std::process::id()));
                return Ok(file);
            }
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(Taken::Refused(error)),
        }
    }
    Err(Taken::By(holder(directory).unwrap_or_else(|| "another process".to_owned())))
}

/// Who has a run, if anybody does.
pub fn holder(directory: &Path) -> Option<String> {
    let path = directory.join(LOCK_FILE);
    let file = File::open(&path).ok()?;
    if file.try_lock_shared().is_ok() {
        return None;
    }
    let said = crate::read::bounded(&path, 1024).ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
    let said: String = said.chars().filter(|c| !c.is_control()).collect();
    Some(if said.is_empty() { "another process".to_owned() } else { said })
}
