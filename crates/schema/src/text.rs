//! Text of unknown origin made safe to print: nothing in it controls a terminal, hides, changes the
//! direction of writing or fills a page.

/// Whether a character controls something or has no picture: control characters, line and
/// paragraph separators, zero-width characters, direction marks, tags, variation selectors,
/// non-characters.
pub fn is_hidden(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') || is_invisible(c)
}

/// Whether a character has no picture: [`is_hidden`] without controls and separators.
pub fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
        | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Whether a character ends a line or is a tab; on one line it becomes a space.
fn is_break(c: char) -> bool {
    matches!(
        c,
        '\t' | '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}'
    )
}

/// One character for one: breaks become spaces, other hidden characters U+FFFD. Columns stay.
pub fn replaced(c: char) -> char {
    match c {
        c if is_break(c) => ' ',
        c if is_hidden(c) => char::REPLACEMENT_CHARACTER,
        c => c,
    }
}

/// One line of at most `longest` characters, [`replaced`] one by one; `…` is added to what is cut.
pub fn one_line(text: &str, longest: usize) -> String {
    let mut characters = text.chars();
    // `by_ref` leaves the rest in the iterator, which shows whether anything is cut.
    let mut out: String = characters.by_ref().take(longest).map(replaced).collect();
    if characters.next().is_some() {
        out.push('…');
    }
    out
}

/// One line of at most 1000 characters: a message, a path or a name from a file of unknown origin.
pub fn excerpt(text: &str) -> String {
    one_line(text, 1000)
}

/// Any number of lines: line feeds and tabs stay, other hidden characters become U+FFFD.
pub fn lines(text: &str) -> String {
    let kept = |c: char| matches!(c, '\n' | '\t') || !is_hidden(c);
    text.chars()
        .map(|c| {
            if kept(c) {
                c
            } else {
                char::REPLACEMENT_CHARACTER
            }
        })
        .collect()
}

/// One line with nothing lost: breaks become spaces, other hidden characters are spelled out, as
/// `\u{1b}`.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if is_break(c) => out.push(' '),
            c if is_hidden(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

/// At most `longest` characters: the beginning and the end, which is where names of one family
/// differ.
pub fn shorten(text: &str, longest: usize) -> String {
    // Bytes are at least as many as characters, so a short text needs no counting.
    if text.len() <= longest || text.chars().nth(longest).is_none() {
        return text.into();
    }
    let tail = longest / 3;
    let head: String = text.chars().take(longest - tail - 1).collect();
    let end: Vec<char> = text.chars().rev().take(tail).collect();
    head + "…" + &end.into_iter().rev().collect::<String>()
}
