//! Which files a command may replace.

use std::path::Path;
use support::exit::Failure;

/// Refuses to replace a file that the command did not write, by what it holds. Empty files and
/// those that are no regular ones may be written.
///
/// # Errors
///
/// [`Exit::Config`](support::exit::Exit::Config).
pub fn check_replaced(path: &Path, is_ours: impl Fn(&Path) -> bool) -> Result<(), Failure> {
    let holds_something = path.is_file() && path.metadata().is_ok_and(|file| file.len() > 0);
    if !holds_something || is_ours(path) {
        return Ok(());
    }
    let problem = format!(
        "{} already exists, and holds something other than what would be written\n  = help: give \
         --out another name, or move that file",
        path.display()
    );
    Err(Failure::config(problem))
}
