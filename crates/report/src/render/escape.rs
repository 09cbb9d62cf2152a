//! One escaper for each markup. Input is printable text, output is markup that shows it.

use records::text::printable;
use std::fmt::Write as _;

/// Escapes what Markdown, HTML or GitHub (mathematics, bare addresses) would read as markup.
pub(crate) fn markdown(text: &str) -> String {
    let chars: Vec<char> = printable(text).chars().collect();
    let mut out = String::with_capacity(text.len());
    for (i, &c) in chars.iter().enumerate() {
        // Inside a word an underscore is itself, and metric names are full of them.
        let inside = |at: Option<usize>| {
            at.and_then(|at| chars.get(at))
                .is_some_and(|c| c.is_alphanumeric())
        };
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            ':' if chars[i + 1..].starts_with(&['/', '/']) => out.push_str("\\:"),
            '.' if is_www(&chars[..i]) => out.push_str("\\."),
            '_' if inside(i.checked_sub(1)) && inside(Some(i + 1)) => out.push('_'),
            '\\' | '|' | '*' | '_' | '`' | '[' | ']' | '#' | '~' | '$' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}

fn is_www(before: &[char]) -> bool {
    before.len() >= 3
        && before[before.len() - 3..]
            .iter()
            .all(|c| c.eq_ignore_ascii_case(&'w'))
}

/// Escapes LaTeX's special characters and sets the few signs we use in mathematics.
pub(super) fn latex(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in printable(text).chars() {
        match c {
            '\\' => out.push_str("\\textbackslash{}"),
            '~' => out.push_str("\\textasciitilde{}"),
            '^' => out.push_str("\\textasciicircum{}"),
            '<' => out.push_str("\\textless{}"),
            '>' => out.push_str("\\textgreater{}"),
            '|' => out.push_str("\\textbar{}"),
            '"' => out.push_str("\\textquotedbl{}"),
            '&' | '%' | '$' | '#' | '_' | '{' | '}' => {
                out.push('\\');
                out.push(c);
            }
            '±' => out.push_str("$\\pm$"),
            '≥' => out.push_str("$\\geq$"),
            '✓' => out.push_str("$\\surd$"),
            '✗' => out.push_str("$\\times$"),
            'π' => out.push_str("$\\pi$"),
            c => out.push(c),
        }
    }
    // The quotation mark of T1 needs that font encoding; two primes do not.
    out.replace("\\textquotedbl{}", "''")
}

/// Text in a LaTeX comment: on one line, so the comment does not end, and without backslashes.
pub(super) fn latex_comment(text: &str) -> String {
    printable(text).replace('\\', "/")
}

/// A place on the same page, `#name`, or a relative link.
pub(super) fn link(href: &str) -> String {
    match href.strip_prefix('#') {
        Some(anchor) => format!("#{}", address(anchor)),
        None => address(href),
    }
}

/// A relative link: everything but the characters of plain names is percent-encoded, so that no
/// scheme, quote or bracket is left.
pub(super) fn address(link: &str) -> String {
    let mut out = String::with_capacity(link.len());
    for byte in link.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' => {
                out.push(char::from(byte))
            }
            byte => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    // Two slashes at the start would name another host.
    if out.starts_with("//") {
        format!(".{out}")
    } else {
        out
    }
}

/// JSON as the content of a script element, where no `<` may stand.
pub(crate) fn script_text(json: &serde_json::Value) -> String {
    let text = json.to_string();
    text.replace('<', "\\u003c").replace('&', "\\u0026")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latex_specials_are_escaped() {
        assert_eq!(
            latex(r"a_b & 50% {x} \ ~^ ±"),
            r"a\_b \& 50\% \{x\} \textbackslash{} \textasciitilde{}\textasciicircum{} $\pm$"
        );
    }

    #[test]
    fn markdown_specials_are_escaped() {
        assert_eq!(
            markdown("exact_match | _x_ <b>\n*"),
            "exact_match \\| \\_x\\_ &lt;b&gt; \\*"
        );
        assert_eq!(
            markdown("[a](http://b.c) $x$ Www.d"),
            "\\[a\\](http\\://b.c) \\$x\\$ Www\\.d"
        );
    }
}
