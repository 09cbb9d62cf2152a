//! Strings of strangers, made fit to be shown: nothing in them steers a terminal, hides, turns the
//! line around or fills a page.

use std::collections::{BTreeMap, BTreeSet};

/// Longest text shown anywhere, in characters; a caption of ours is a tenth of it.
const LONGEST: usize = 4000;

/// White space that breaks a line becomes a space; every other character that controls or hides is
/// spelled out, as `\u{1b}`.
pub(crate) fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len().min(2 * LONGEST));
    for c in shorten(text, LONGEST).chars() {
        match c {
            '\t' | '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}' => {
                out.push(' ')
            }
            c if c.is_control() || is_invisible(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

/// A name: [`shown`], at most `most` characters of it.
pub(crate) fn name(text: &str, most: usize) -> String {
    shorten(&shown(&shorten(text, most)), most)
}

/// The beginning and the end, which is where names of one family differ.
pub(crate) fn shorten(text: &str, most: usize) -> String {
    if text.len() <= most || text.chars().nth(most).is_none() {
        return text.into();
    }
    let tail = most / 3;
    let head: String = text.chars().take(most - tail - 1).collect();
    let end: Vec<char> = text.chars().rev().take(tail).collect();
    head + "…" + &end.into_iter().rev().collect::<String>()
}

/// Characters without a picture of their own: zero-width ones, those that set the direction of
/// writing, tags, non-characters.
pub(crate) fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
        | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{fffe}' | '\u{ffff}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Names safe in paths, anchors and labels, each given once.
#[derive(Default)]
pub(crate) struct Slugs {
    taken: BTreeSet<String>,
    next: BTreeMap<String, usize>,
}

impl Slugs {
    /// Lower-case letters, digits and single hyphens, at most 100 of them; numbered where the name
    /// is taken.
    pub(crate) fn take(&mut self, text: &str) -> String {
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
    fn what_controls_or_hides_is_spelled_out() {
        assert_eq!(shown("\u{1b}[2J\0a\nb\tc"), "\\u{1b}[2J\\u{0}a b c");
        assert_eq!(
            shown("ro\u{200b}pe \u{202e}evil\u{feff}"),
            "ro\\u{200b}pe \\u{202e}evil\\u{feff}"
        );
        assert_eq!(shown("π ± ≥ 4,6x é שלום 中"), "π ± ≥ 4,6x é שלום 中");
    }

    #[test]
    fn long_texts_keep_their_ends() {
        assert_eq!(shorten("abcdefghij", 10), "abcdefghij");
        assert_eq!(shorten("abcdefghijk", 10), "abcdef…ijk");
        assert_eq!(shorten("ééééé", 5), "ééééé");
        assert_eq!(name(&"\u{202e}".repeat(50), 20).chars().count(), 20);
        assert_eq!(shown(&"x".repeat(100_000)).chars().count(), LONGEST);
    }

    #[test]
    fn slugs_are_told_apart() {
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
                let text = shown(text);
                prop_assert!(!text.chars().any(|c| c.is_control() || is_invisible(c)));
                let slug = slugs.take(&text);
                prop_assert!(slug.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'));
                prop_assert!(!slug.is_empty() && !slug.starts_with('-') && slug.len() < 110);
                prop_assert!(seen.insert(slug));
            }
        }
    }
}
