//! The file of this process's program, to start it again or to read it.

use crate::exit::{Exit, Failure};
use std::path::PathBuf;

/// A link to what a process runs, on Linux.
const RUNNING: &str = "/proc/self/exe";

/// What this process runs, to read it: another file may have its name by now.
///
/// # Errors
///
/// [`Exit::SomeFailed`] if the system does not tell.
pub fn running_program() -> Result<PathBuf, Failure> {
    let linux = PathBuf::from(RUNNING);
    if linux.exists() {
        Ok(linux)
    } else {
        this_program()
    }
}

/// The file of this process's program, to start it; on Linux also after another one has replaced
/// it.
///
/// # Errors
///
/// [`Exit::SomeFailed`] if the system does not tell.
pub fn this_program() -> Result<PathBuf, Failure> {
    // A program that is started by this name instead is shown as `exe` by `ps` and by locks.
    let replaced = PathBuf::from(RUNNING);
    match std::env::current_exe() {
        Ok(file) if file.exists() || !replaced.exists() => Ok(file),
        Ok(_) => Ok(replaced),
        Err(error) => {
            let message = format!("cannot find this program: {error}");
            Err(Failure::new(Exit::SomeFailed, message))
        }
    }
}
