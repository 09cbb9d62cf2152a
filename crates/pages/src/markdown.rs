//! Text for the generated pages: doc comments as Markdown on one line, and tables.

use std::fmt::Write as _;

/// The line by which a reader knows that a page is generated.
pub const GENERATED: &str = "<!-- Written by `scripts/pages`; a test compares it. -->";

/// A doc comment on one line: links to other items become their names, which is all that a reader
/// of a page can use.
pub fn plain(doc: &str) -> String {
    let words: Vec<&str> = doc.split_whitespace().collect();
    let text = words.join(" ");
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some((before, link)) = rest.split_once("[`") {
        let Some((name, after)) = link.split_once("`]") else {
            break;
        };
        let _ = write!(out, "{before}`{name}`");
        // The target of a link that has one.
        rest = match after.strip_prefix('(').and_then(|it| it.split_once(')')) {
            Some((_, after)) => after,
            None => after,
        };
    }
    out + rest
}

/// A table; cells may hold anything but line breaks.
pub fn table(heads: &[&str], rows: &[Vec<String>]) -> String {
    let mut out = format!(
        "| {} |\n|{}\n",
        heads.join(" | "),
        "---|".repeat(heads.len())
    );
    for row in rows {
        let cells: Vec<String> = row.iter().map(|cell| escaped(cell)).collect();
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    out
}

/// Bars would end a cell.
pub fn escaped(text: &str) -> String {
    text.replace('|', "\\|")
}

/// Names as code, with commas between them.
pub fn quoted(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_become_names_and_lines_one_line() {
        for (doc, text) in [
            (" See [`Foo`].\n Then `[w]`.", "See `Foo`. Then `[w]`."),
            ("[`Foo`](crate::Foo) and (this)", "`Foo` and (this)"),
            ("a\n\n b [`open", "a b [`open"),
        ] {
            assert_eq!(plain(doc), text);
        }
    }

    #[test]
    fn bars_do_not_end_a_cell() {
        let rows = [vec!["`a`".to_owned(), "x | y".to_owned()]];
        let text = "| key | meaning |\n|---|---|\n| `a` | x \\| y |\n";
        assert_eq!(table(&["key", "meaning"], &rows), text);
    }
}
