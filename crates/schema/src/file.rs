//! Opens files of unknown origin, regular ones non-blocking.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// Opens a file for reading. A read of a file that never ends and has nothing to give, such as
/// `/proc/kmsg`, is an error and does not wait. Pipes wait for their writers, as always.
///
/// # Errors
///
/// If it is not there or cannot be read.
pub fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(target_os = "linux")]
    if path.metadata().is_ok_and(|found| found.is_file()) {
        use std::os::unix::fs::OpenOptionsExt;
        // O_NONBLOCK, which files on a disk ignore.
        options.custom_flags(0o4000);
    }
    options.open(path)
}
