//! Directories in the system's place for temporary files, and the removal of those that killed
//! processes left behind.

use crate::exit::Failure;
use rundir::scratch;
use std::path::Path;
use tempfile::TempDir;

/// The stem of their names.
const STEM: &str = "longreach";

/// A new directory that only this user can read, removed when the result is dropped.
///
/// # Errors
///
/// [`Exit::Resources`](crate::exit::Exit::Resources) if it cannot be created.
pub fn directory() -> Result<TempDir, Failure> {
    let place = std::env::temp_dir();
    remove_abandoned(&place);
    let path = scratch::beside(&place.join(STEM));
    let name = path.file_name().unwrap_or_default();
    tempfile::Builder::new()
        .prefix(name)
        .rand_bytes(0)
        .tempdir_in(&place)
        .map_err(|error| {
            let help = "TMPDIR names another place for temporary files";
            let place = place.display();
            Failure::resources(format!("cannot create a directory in {place}: {error}"))
                .with_help(help)
        })
}

/// Removes directories of processes that were killed: those of this user, since the place is shared
/// and whoever owns a directory could put a link into it while it is removed.
fn remove_abandoned(place: &Path) {
    for path in scratch::abandoned(place) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(&format!(".{STEM}.")) && is_own_directory(&path) {
            let _ = std::fs::remove_dir_all(&path);
        }
    }
}

#[cfg(unix)]
fn is_own_directory(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let own = rustix::process::geteuid().as_raw();
    path.symlink_metadata()
        .is_ok_and(|found| found.is_dir() && found.uid() == own)
}

#[cfg(not(unix))]
fn is_own_directory(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| found.is_dir())
}
