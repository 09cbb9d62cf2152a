//! Reads files of unknown origin with a bound on their size.

use anyhow::{Context, Result, ensure};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// Opens a plain file for reading. A link, a pipe or a device is refused, and one that takes the
/// place of a file meanwhile makes nobody wait.
///
/// # Errors
///
/// If it is not there, not a plain file, or cannot be read.
pub fn open(path: &Path) -> io::Result<File> {
    let plain = |is_file: bool| {
        let problem = format!("{} is not a plain file", path.display());
        is_file
            .then_some(())
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, problem))
    };
    plain(path.symlink_metadata()?.is_file())?;
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::fs::OpenOptionsExt;
        // O_NONBLOCK: opening a pipe does not wait for its other end.
        options.custom_flags(0o4000);
    }
    let file = options.open(path)?;
    plain(file.metadata()?.is_file())?;
    Ok(file)
}

/// All bytes of a plain file that has at most `max` of them. Nothing is mapped into memory, so a
/// file that shrinks meanwhile is an error and not a crash; a link, a pipe or a device is refused.
///
/// # Errors
///
/// If it is not there, not a plain file, too large, or cannot be read.
pub fn bounded(path: &Path, max: u64) -> Result<Vec<u8>> {
    let shown = || path.display().to_string();
    let found = path.symlink_metadata().with_context(shown)?;
    ensure!(found.is_file(), "{} is not a plain file", path.display());
    ensure!(
        found.len() <= max,
        "{} has {} bytes, more than {max}",
        path.display(),
        found.len()
    );
    let mut bytes = Vec::with_capacity(found.len() as usize);
    // One byte more than allowed, so that a file that has grown since is noticed.
    open(path)
        .with_context(shown)?
        .take(max.saturating_add(1))
        .read_to_end(&mut bytes)
        .with_context(shown)?;
    ensure!(
        bytes.len() as u64 <= max,
        "{} grew beyond {max} bytes",
        path.display()
    );
    Ok(bytes)
}

/// The first `count` bytes of a plain file, or all of them if it has less.
///
/// # Errors
///
/// If it is not there, not a plain file, or cannot be read.
pub fn start(path: &Path, count: u64) -> Result<Vec<u8>> {
    part(path, |_| 0, count)
}

/// The last `count` bytes of a plain file, or all of them if it has less.
///
/// # Errors
///
/// As [`start`].
pub fn end(path: &Path, count: u64) -> Result<Vec<u8>> {
    part(path, |length| length.saturating_sub(count), count)
}

/// `count` bytes of a plain file from a place that its length decides.
fn part(path: &Path, from: impl FnOnce(u64) -> u64, count: u64) -> Result<Vec<u8>> {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(from(length)))?;
        let mut bytes = Vec::with_capacity(length.min(count) as usize);
        file.take(count).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    read().with_context(|| path.display().to_string())
}
