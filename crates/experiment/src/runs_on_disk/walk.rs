//! Walks directories of runs.

use std::io;
use std::path::{Path, PathBuf};

/// The directories in a directory, sorted by name; neither links nor hidden directories.
///
/// # Errors
///
/// If the directory cannot be read.
pub fn directories_in(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs_err::read_dir(directory)? {
        let entry = entry?;
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        if !hidden && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.push(entry.path());
        }
    }
    // The order of a directory's entries differs between file systems.
    found.sort();
    Ok(found)
}

/// The directories in a directory that hold a file of this name; none if it cannot be read.
pub fn directories_with(directory: &Path, file: &str) -> Vec<PathBuf> {
    let mut found = directories_in(directory).unwrap_or_default();
    found.retain(|path| path.join(file).is_file());
    found
}
