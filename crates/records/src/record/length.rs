//! Test lengths and ranges of them, as people write them.

use super::EvalRow;

impl EvalRow {
    /// The length as people write it: `100`, or `51..100` for a range.
    pub fn length(&self) -> String {
        length_text(self.from_len, self.test_len)
    }
}

/// A test length as people write it: `100`, or `51..100` for a range.
pub fn length_text(from: Option<usize>, to: usize) -> String {
    match from {
        Some(from) => format!("{from}..{to}"),
        None => to.to_string(),
    }
}

/// The ends of a range of lengths as people write it, `51..100`.
pub fn length_range(text: &str) -> Option<(usize, usize)> {
    let (from, to) = text.split_once("..")?;
    let whole = |text: &str| {
        let is_plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        is_plain.then(|| text.parse::<usize>().ok()).flatten()
    };
    Some((whole(from)?, whole(to)?))
}
