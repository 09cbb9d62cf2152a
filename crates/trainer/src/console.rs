//! What is said to people. A reader that left early (`| head`, a closed terminal) is no error and ends no run.

use std::io::Write;

/// A line on standard output: results.
pub fn print(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
}

/// A line on standard error: progress, notes, errors.
pub fn tell(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
