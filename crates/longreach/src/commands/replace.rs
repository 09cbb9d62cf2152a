//! Which files a command may replace.

use std::path::Path;
use support::exit::Failure;

/// Refuses to replace a file that the command did not write, by what it holds. Files that are empty
/// or not regular may be written.
///
/// # Errors
///
/// [`Exit::Config`](support::exit::Exit::Config).
pub fn check_replaced(path: &Path, is_ours: impl Fn(&Path) -> bool) -> Result<(), Failure> {
    let holds_something = path.is_file() && path.metadata().is_ok_and(|file| file.len() > 0);
    if !holds_something || is_ours(path) {
        return Ok(());
    }
    Err(Failure::config(format!(
        "{} already exists, and holds something other than what would be written",
        path.display()
    ))
    .with_help("give --out another name, or move that file"))
}
