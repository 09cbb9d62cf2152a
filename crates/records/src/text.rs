//! Text of unknown origin made printable, lists and counts in words, names safe in paths, frames of
//! tables on a terminal.

use comfy_table::{LineStyle, Table, TableStyle};
use schema::text::{escaped, shorten};
use std::collections::{BTreeMap, BTreeSet};

/// Longest text shown anywhere, in characters. Captions have a tenth of it.
const LONGEST: usize = 4000;

/// One line without hidden characters: white space that breaks a line becomes a space, characters
/// that control or hide are spelled out, as `\u{1b}`.
pub fn printable(text: &str) -> String {
    escaped(&shorten(text, LONGEST))
}

/// A [`printable`] name of at most `most` characters.
pub fn name(text: &str, most: usize) -> String {
    shorten(&printable(&shorten(text, most)), most)
}

/// An empty table for a terminal, with rules above, below and under the header.
pub fn ruled_table() -> Table {
    let mut table = Table::new();
    let rule = LineStyle::none().fill('─').junction('─');
    table.load_style(
        TableStyle::new()
            .top_border(rule)
            .header_separator(rule)
            .bottom_border(rule),
    );
    table
}

/// Joins the first `most` items by commas, or by semicolons if one of them contains a comma. If
/// there are more, their number follows.
pub fn list(items: &[String], most: usize) -> String {
    let shown = &items[..items.len().min(most)];
    let has_comma = shown.iter().any(|item| item.contains(','));
    let between = if has_comma { "; " } else { ", " };
    let listed = shown.join(between);
    match items.len() > most {
        true => format!("{listed}{between}... ({} in all)", items.len()),
        false => listed,
    }
}

/// `a, b and c`; of more than six the first five and a count.
pub fn and(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        _ if names.len() > 6 => format!("{} and {} others", names[..5].join(", "), names.len() - 5),
        [front @ .., last] => format!("{} and {last}", front.join(", ")),
    }
}

/// Digits in groups of three: `1,234,567`.
pub fn thousands(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// `4x`, `1.5x`
pub fn times(ratio: f64) -> String {
    let text = format!("{ratio:.2}");
    format!("{}x", text.trim_end_matches('0').trim_end_matches('.'))
}

/// The first digits of a hash.
pub fn short_hash(hash: &str) -> &str {
    hash.get(..8).unwrap_or(hash)
}

/// Names safe in paths, anchors and labels, no two equal.
#[derive(Default)]
pub struct Slugs {
    taken: BTreeSet<String>,
    next: BTreeMap<String, usize>,
}

impl Slugs {
    /// Lower-case letters, digits and single hyphens, at most 100 of them; numbered where the name
    /// is taken.
    pub fn take(&mut self, text: &str) -> String {
        let mut slug = String::new();
        for c in text.chars() {
            if c.is_ascii_alphanumeric() {
                slug.push(c.to_ascii_lowercase());
            } else if !slug.is_empty() && !slug.ends_with('-') {
                slug.push('-');
            }
            if slug.len() == 100 {
                break;
            }
        }
        let slug = slug.trim_end_matches('-');
        let slug = if slug.is_empty() { "x" } else { slug };
        let mut name = slug.to_string();
        while !self.taken.insert(name.clone()) {
            let next = self.next.entry(slug.into()).or_insert(2);
            name = format!("{slug}-{next}");
            *next += 1;
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn shown_text_is_bounded() {
        assert_eq!(name(&"\u{202e}".repeat(50), 20).chars().count(), 20);
        assert_eq!(printable(&"x".repeat(100_000)).chars().count(), LONGEST);
    }

    #[test]
    fn grouping_digits() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_234_567), "1,234,567");
    }

    #[test]
    fn equal_slugs_are_numbered() {
        let mut slugs = Slugs::default();
        assert_eq!(slugs.take("../../etc/passwd"), "etc-passwd");
        assert_eq!(slugs.take("etc_passwd"), "etc-passwd-2");
        assert_eq!(slugs.take("etc passwd 2"), "etc-passwd-2-2");
        assert_eq!(slugs.take("ETC-PASSWD"), "etc-passwd-3");
        assert_eq!(
            (slugs.take(""), slugs.take("..")),
            ("x".into(), "x-2".into())
        );
        assert!(slugs.take(&"a/".repeat(50_000)).len() <= 100);
    }

    proptest! {
        #[test]
        fn any_text_is_harmless(texts in proptest::collection::vec(any::<String>(), 1..20)) {
            let mut slugs = Slugs::default();
            let mut seen = BTreeSet::new();
            for text in &texts {
                let text = printable(text);
                prop_assert!(!text.chars().any(schema::text::is_hidden));
                let slug = slugs.take(&text);
                prop_assert!(slug.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'));
                prop_assert!(!slug.is_empty() && !slug.starts_with('-') && slug.len() < 110);
                prop_assert!(seen.insert(slug));
            }
        }
    }
}
