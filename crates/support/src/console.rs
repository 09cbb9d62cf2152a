//! Output for people: lines, tables, JSON. A reader that left early (`| head`, a closed terminal)
//! is not an error and ends no run. Output that a full disk lost is an error at the end.

use crate::exit::Failure;
use comfy_table::{Cell, ColumnConstraint, ContentArrangement, Table, Width};
use serde::Serialize;
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::sync::OnceLock;

/// Why a part of the results could not be printed.
static LOST: OnceLock<String> = OnceLock::new();

/// A line on standard output: results. Control characters are shown as [`plain`] shows them: names
/// of directories and texts in files may hold any.
pub fn print(text: &str) {
    print_colored(&plain(text));
}

/// A line on standard output whose colours a terminal obeys: what it is made of is [`plain`].
pub fn print_colored(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let printed = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
    let is_full = |kind| {
        use ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        matches!(kind, StorageFull | QuotaExceeded | FileTooLarge)
    };
    if let Some(error) = printed.err().filter(|error| is_full(error.kind())) {
        let _ = LOST.set(error.to_string());
    }
}

/// The failure of a command whose results are not all on standard output.
pub fn lost() -> Option<Failure> {
    let why = LOST.get()?;
    let help = "make room, and run the command again";
    let problem = format!("standard output: {why}; what was printed is not complete");
    Some(Failure::resources(problem).with_help(help))
}

/// Whether standard output is a terminal whose user did not refuse colours (no-color.org).
pub fn has_colors() -> bool {
    width().is_some() && wants_colors()
}

/// The same of standard error.
pub fn tells_colors() -> bool {
    std::io::stderr().is_terminal() && wants_colors()
}

fn wants_colors() -> bool {
    let says = |name: &str| std::env::var_os(name).unwrap_or_default();
    says("NO_COLOR").is_empty() && says("TERM") != "dumb"
}

/// The columns of the terminal on standard output; none where it is not a terminal.
pub fn width() -> Option<usize> {
    Table::new().width().map(usize::from)
}

/// Clears the screen of a terminal, for what is printed again and again.
pub fn clear_screen() {
    let mut stdout = std::io::stdout().lock();
    let _ = write!(stdout, "\x1b[2J\x1b[H").and_then(|()| stdout.flush());
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

/// A value as indented JSON in which everything that a terminal obeys is escaped.
///
/// # Errors
///
/// [`Exit::Bug`](crate::exit::Exit::Bug) if it cannot be serialized.
pub fn json(value: &impl Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(value).map_err(Failure::bug)?;
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        // Outside strings JSON has none of them. All lie below U+FFFF: four digits are enough.
        if is_obeyed(c) {
            out.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            out.push(c);
        }
    }
    Ok(out)
}

/// Whether a terminal obeys a character instead of showing it: control characters other than line
/// breaks and tabs, and marks that change the direction of writing.
fn is_obeyed(c: char) -> bool {
    c.is_control() && !matches!(c, '\n' | '\t')
        || matches!(c, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

/// A text made harmless for a terminal: what one obeys becomes U+FFFD.
pub fn plain(text: &str) -> String {
    text.chars()
        .map(|c| if is_obeyed(c) { '\u{FFFD}' } else { c })
        .collect()
}

/// A table with rules above, below and under the header, as wide as the terminal; in a pipe or a
/// file as wide as `piped_width`.
pub fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = records::ruled_table();
    table
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(header);
    if !table.is_tty() {
        table.set_width(piped_width(std::env::var("COLUMNS").ok().as_deref()));
    }
    table
}

/// Keeps the words of a table whole where its width has room for them, and those of one column
/// always: ids and names that people copy and `grep` looks for. Hides columns without a word.
pub fn keep_words(table: &mut Table, always: usize) {
    /// Spaces around a cell.
    const PADDING: usize = 2;
    let longest = |cell: &Cell| {
        let content = cell.content();
        let words = content.split_whitespace().map(|word| word.chars().count());
        words.max().unwrap_or(0)
    };
    let mut words = vec![0; table.column_count()];
    for row in table.header().into_iter().chain(table.row_iter()) {
        for (most, cell) in words.iter_mut().zip(row.cell_iter()) {
            *most = longest(cell).max(*most);
        }
    }
    // Columns have a border between them.
    let shown = words.iter().filter(|word| **word > 0);
    let needed: usize = shown.map(|word| word + PADDING + 1).sum();
    let fits = table
        .width()
        .is_none_or(|width| needed <= usize::from(width));
    for (at, column) in table.column_iter_mut().enumerate() {
        if words[at] == 0 {
            column.set_constraint(ColumnConstraint::Hidden);
        } else if fits || at == always {
            let width = u16::try_from(words[at] + PADDING).unwrap_or(u16::MAX);
            column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(width)));
        }
    }
}

/// Columns of a table where there is no terminal: what `COLUMNS` says, as in other programs, or
/// 100. Without a bound, a table is as wide as its longest sentences.
fn piped_width(columns: Option<&str>) -> u16 {
    let asked = columns.and_then(|columns| columns.trim().parse().ok());
    asked
        .filter(|columns| (40..=2000).contains(columns))
        .unwrap_or(100)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_table_in_a_pipe_has_a_width() {
        use super::piped_width;
        assert_eq!(piped_width(None), 100);
        assert_eq!(piped_width(Some("132")), 132);
        // Nobody reads a table of 3 columns.
        for wrong in ["", "3", "-1", "wide", "99999999"] {
            assert_eq!(piped_width(Some(wrong)), 100, "{wrong}");
        }
    }

    #[test]
    fn words_of_a_table_stay_whole_where_there_is_room() {
        use super::{ContentArrangement, Table, keep_words};
        let shown = |width: u16| {
            let mut table = Table::new();
            table.set_content_arrangement(ContentArrangement::Dynamic);
            table.set_width(width);
            table.set_header(["run", "of the method", "parameters", ""]);
            table.add_row(["0c44beeb", "learned positions", "197 k", ""]);
            keep_words(&mut table, 0);
            table.to_string()
        };
        // The rows of 40 columns have room for every word, those of 25 for the ids.
        let wide = shown(40);
        for word in ["0c44beeb", "learned", "positions", "parameters", "197"] {
            assert!(wide.contains(word), "{word}:\n{wide}");
        }
        let narrow = shown(25);
        assert!(
            narrow.contains("0c44beeb") && !narrow.contains("parameters"),
            "{narrow}"
        );
        // A column without a word is hidden: three are left.
        assert_eq!(
            shown(200)
                .lines()
                .nth(1)
                .unwrap()
                .matches(['|', '┆', '│'])
                .count(),
            4
        );
    }

    #[test]
    fn nothing_is_left_that_a_terminal_obeys() {
        let shown = super::plain("a\tb\n\u{1b}[2Jc\u{7}\u{9b}d\u{202e}e\u{2066}ü");
        assert_eq!(
            shown,
            "a\tb\n\u{fffd}[2Jc\u{fffd}\u{fffd}d\u{fffd}e\u{fffd}ü"
        );
        // In JSON nothing is lost.
        let name = "a\u{1b}[2J\u{9b}\u{7f}\u{202e}\n";
        let json = super::json(&[name]).unwrap();
        assert_eq!(super::plain(&json), json);
        assert_eq!(serde_json::from_str::<[String; 1]>(&json).unwrap(), [name]);
    }
}
