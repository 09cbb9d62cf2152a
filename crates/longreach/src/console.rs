//! Output for people: lines, tables, JSON. A reader that left early (`| head`, a closed terminal)
//! is not an error and ends no run.

use crate::exit::Failure;
use comfy_table::{ContentArrangement, LineStyle, Table, TableStyle};
use serde::Serialize;
use std::io::Write;
use std::path::Path;

/// A line on standard output: results.
pub fn print(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
}

/// A line on standard error: progress, notes, errors. Control characters are shown as [`plain`]
/// shows them.
pub fn tell(text: &str) {
    let _ = writeln!(std::io::stderr(), "{}", plain(text));
}

/// A failure on standard error.
pub fn error(failure: &Failure) {
    tell(&format!("error: {failure}"));
}

/// Notes on standard error, a line each.
pub fn notes(notes: &[String]) {
    for note in notes {
        tell(&format!("note: {note}"));
    }
}

/// A run that failed, on standard error: its name, its directory and why.
pub fn failed(name: &str, directory: &Path, failure: &Failure) {
    tell(&format!(
        "\nfailed: {name} ({})\n  {}",
        directory.display(),
        indented(&failure.message)
    ));
}

/// A message whose lines after the first are indented under it.
pub fn indented(message: &str) -> String {
    message.replace('\n', "\n  ")
}

/// A value as indented JSON.
///
/// # Errors
///
/// [`Exit::Bug`](crate::exit::Exit::Bug) if it cannot be serialized.
pub fn json(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string_pretty(value).map_err(Failure::bug)
}

/// A text made harmless for a terminal: control characters other than line breaks and tabs, and
/// marks that change the direction of writing, become U+FFFD.
pub fn plain(text: &str) -> String {
    let obeyed = |c: char| {
        c.is_control() && !matches!(c, '\n' | '\t')
            || matches!(c, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
    };
    text.chars()
        .map(|c| if obeyed(c) { '\u{FFFD}' } else { c })
        .collect()
}

/// A table with rules above, below and under the header, as wide as the terminal.
pub fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    let rule = LineStyle::none().fill('─').junction('─');
    table.load_style(
        TableStyle::new()
            .top_border(rule)
            .header_separator(rule)
            .bottom_border(rule),
    );
    table
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(header);
    table
}

#[cfg(test)]
mod tests {
    #[test]
    fn nothing_is_left_that_a_terminal_obeys() {
        let shown = super::plain("a\tb\n\u{1b}[2Jc\u{7}\u{9b}d\u{202e}e\u{2066}ü");
        assert_eq!(
            shown,
            "a\tb\n\u{fffd}[2Jc\u{fffd}\u{fffd}d\u{fffd}e\u{fffd}ü"
        );
    }
}
