//! Errors of files that are no TOML, and the key that such an error belongs to.

use super::diagnostic::{Diagnostic, quoted};
use super::key_path::{KeyPath, split_argument};
use super::origins::{Document, Spot, convert_table};
use std::ops::Range;

/// What is wrong with a file that the parser refused.
pub(super) fn syntax_error(document: &Document, error: &toml_edit::TomlError) -> Diagnostic {
    let span = error.span().unwrap_or(0..0);
    let place = document.place(&span);
    let word = document.text().get(span.clone()).unwrap_or("");
    let message = error.message();
    if message.starts_with("duplicate key") {
        let problem = Diagnostic::new(place, format!("`{word}` is set twice"));
        let first = first_definition(document, &span);
        let note = first.map(|(path, line)| {
            (
                format!("`{path}` was first set in line {line}"),
                path.to_string(),
            )
        });
        let diagnostic = match note {
            Some((note, key)) => problem.with_key(key).with_note(note),
            None => problem,
        };
        return diagnostic.with_help("keep one of the two");
    }
    let before = document.text().get(..span.start).unwrap_or("").trim_end();
    let (problem, help) = match before.ends_with(':') && message.contains("expected `=`") {
        true => (
            "not valid TOML: `:` after a key".to_owned(),
            "write = in place of the :",
        ),
        false => caused(message, word),
    };
    let key = key_at(document, span.start)
        .map(|path| path.to_string())
        .unwrap_or_default();
    Diagnostic::new(place, problem)
        .with_key(key)
        .with_value(word)
        .with_help(help)
}

/// What the parser's message means for the text it points at, and what to do. The parser gives its
/// errors as text only.
fn caused(message: &str, word: &str) -> (String, &'static str) {
    if message.starts_with("integer number overflowed") {
        (
            "this whole number is too large".to_owned(),
            "whole numbers go from -9223372036854775808 to 9223372036854775807",
        )
    } else if message.starts_with("floating-point number overflowed") {
        (
            "this number is too large".to_owned(),
            "write a finite number",
        )
    } else if message.starts_with("string values must be quoted") {
        match word {
            "" => (
                "a value is missing or not written as TOML".to_owned(),
                "write a number, true, false, \"text\", [list] or { table }",
            ),
            _ => (
                format!("`{word}` is not a TOML value"),
                "strings need quotes: \"text\"",
            ),
        }
    } else if message.starts_with("invalid boolean") {
        let truth = matches!(word.to_ascii_lowercase().as_str(), "true" | "false");
        let help = if truth {
            "write true or false in small letters"
        } else {
            "strings need quotes: \"text\""
        };
        (format!("`{word}` is not a TOML value"), help)
    } else if message.starts_with("invalid basic string") && word.is_empty() {
        (
            format!("not valid TOML: {message}"),
            "close the text with \" on the line it began",
        )
    } else if message.starts_with("carriage return") {
        (
            "a carriage return without a line feed".to_owned(),
            "save the file with Unix or Windows line ends",
        )
    } else {
        (format!("not valid TOML: {message}"), "")
    }
}

/// The key whose value, or the table whose header, stands around `offset` in a file that cannot be
/// parsed: the text before the line it began in is valid, so it can be asked.
fn key_at(document: &Document, offset: usize) -> Option<KeyPath> {
    /// Lines that a list may have gone on for, and the longest file that is parsed once for each of
    /// them.
    const LINES: usize = 100;
    const SMALL: usize = 1 << 16;
    // A value may have begun on an earlier line, so go up until the text before a line parses.
    let last = document.line(offset);
    let looked_at = if document.text.len() <= SMALL {
        LINES
    } else {
        1
    };
    (1..=last).rev().take(looked_at).find_map(|number| {
        let start = document.starts.get(number - 1).copied()?;
        let (before, line) = document.text.split_at_checked(start)?;
        let line = line.lines().next()?.trim();
        // A header names its table itself; a key belongs to the table that is open before it.
        if let Some(header) = line.strip_prefix('[') {
            probe_path(before, PROBE)?;
            return KeyPath::parse(header.trim_start_matches('[').split(']').next()?).ok();
        }
        let written = split_argument(line).or_else(|| line.split_once(':'));
        let key = KeyPath::parse(written.map_or(line, |(key, _)| key).trim()).ok()?;
        let above = probe_path(before, PROBE)?;
        Some(above.join(key))
    })
}

/// A key that no file holds.
const PROBE: &str = "\u{1}probe";

/// Where the key that is repeated at `span` was set first: the text before its line is valid, so it
/// can be asked.
fn first_definition(document: &Document, span: &Range<usize>) -> Option<(KeyPath, usize)> {
    let start = document
        .starts
        .get(document.line(span.start) - 1)
        .copied()?;
    let before = document.text.get(..start)?;
    let line = document.text.get(start..)?.lines().next()?;
    let prefix = document.text.get(start..span.end)?;
    let (above, written) = match prefix.trim_start().trim_start_matches('[') {
        // Headers are written from the root, keys from the table that is open.
        header if line.trim_start().starts_with('[') => (KeyPath::default(), header),
        key => (probe_path(before, PROBE)?, key),
    };
    let key = KeyPath::parse(written).ok()?;
    let path = above.join(key);
    let parsed = toml_edit::Document::parse(before).ok()?;
    let mut spot = Spot::default();
    convert_table(parsed.as_table(), &mut spot);
    let (found, _) = spot.walk(path.parts());
    let at = found.key.filter(|_| found.exact)?;
    Some((path, document.line(at.start)))
}

/// The table that a key written after `before` belongs to.
fn probe_path(before: &str, probe: &str) -> Option<KeyPath> {
    let text = format!("{before}{} = 0\n", quoted(probe));
    let parsed = toml_edit::Document::parse(text.as_str()).ok()?;
    let mut spot = Spot::default();
    convert_table(parsed.as_table(), &mut spot);
    // The probe comes last in the text, so at each level it is inside what was written last.
    let mut path = KeyPath::default();
    while !spot.children.contains_key(probe) {
        let latest = spot
            .children
            .into_iter()
            .max_by_key(|(_, child)| last_offset(child))?;
        path = path.child(latest.0);
        spot = latest.1;
    }
    Some(path)
}

fn last_offset(spot: &Spot) -> usize {
    let own = spot
        .key
        .as_ref()
        .or(spot.value.as_ref())
        .map_or(0, |span| span.start);
    spot.children
        .values()
        .map(last_offset)
        .fold(own, usize::max)
}
