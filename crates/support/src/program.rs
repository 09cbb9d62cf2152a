//! The file of this process's program, to start it again or to read it.

use crate::exit::{Exit, Failure};
use std::path::PathBuf;

/// The file of this process's program; on Linux also after another one has replaced it.
///
/// # Errors
///
/// [`Exit::SomeFailed`] if the system does not tell.
pub fn this_program() -> Result<PathBuf, Failure> {
    // A program that is started by this name instead is shown as `exe` by `ps` and by locks.
    let replaced = PathBuf::from("/proc/self/exe");
    match std::env::current_exe() {
        Ok(file) if file.exists() || !replaced.exists() => Ok(file),
        Ok(_) => Ok(replaced),
        Err(error) => {
            let message = format!("cannot find this program: {error}");
            Err(Failure::new(Exit::SomeFailed, message))
        }
    }
}
