//! The lines of a message: the problem, the line of the file with the part underlined, and the
//! facts below it.

use super::{Diagnostic, Location};
use schema::text::{one_line, replaced};
use std::fmt;

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&one_line(&self.problem.to_string(), 400))?;
        let mut pad = "  ".to_owned();
        match &self.place {
            Location::Nowhere => {}
            Location::File { file } => write!(f, "\n{pad}--> {}", one_line(file, 400))?,
            Location::CommandLine { argument } => {
                write!(f, "\n{pad}--> command line: {}", one_line(argument, 200))?
            }
            Location::Line {
                file,
                line,
                column,
                text,
                width,
            } => {
                // The bars line up, whatever the width of the line number.
                pad = " ".repeat(line.to_string().len());
                let (text, before, width) = window(text, *column, *width);
                write!(f, "\n{pad}--> {}:{line}:{column}", one_line(file, 400))?;
                write!(
                    f,
                    "\n{pad} |\n{line} | {text}\n{pad} | {}{}",
                    " ".repeat(before),
                    "^".repeat(width)
                )?;
            }
        }
        let allowed = self.allowed.as_deref().map(|text| ("allowed", text, 1000));
        let value = match (&self.value, self.is_default) {
            (Some(value), true) => Some(format!("{value} (default value)")),
            (None, true) => Some("(default value)".to_owned()),
            (value, false) => value.clone(),
        };
        let lines = [
            self.key.as_deref().map(|text| ("key", text, 200)),
            value.as_deref().map(|text| ("value", text, 200)),
            allowed,
        ];
        let notes = self.notes.iter().map(|text| ("note", text.as_str(), 400));
        let help = self.help.as_deref().map(|text| ("help", text, 400));
        for (name, text, longest) in lines.into_iter().flatten().chain(notes).chain(help) {
            write!(f, "\n{pad} = {name}: {}", one_line(text, longest))?;
        }
        Ok(())
    }
}

/// The part of a line around a column, the characters before the column in it, and how many to
/// underline.
fn window(text: &str, column: usize, width: usize) -> (String, usize, usize) {
    const SHOWN: usize = 120;
    const LEAD: usize = 40;
    let column = column.saturating_sub(1);
    let skipped = if column >= SHOWN - LEAD {
        column - LEAD
    } else {
        0
    };
    let mut out = String::from(if skipped > 0 { "..." } else { "" });
    // "..." is ASCII: bytes are characters.
    let before = column - skipped + out.len();
    out.extend(text.chars().skip(skipped).take(SHOWN).map(replaced));
    if text.chars().nth(skipped + SHOWN).is_some() {
        out.push_str("...");
    }
    let room = out.chars().count().saturating_sub(before).max(1);
    (out, before, width.clamp(1, room))
}
