//! Splitting a text into words, inside of which pairs are merged.

use regex_automata::{Input, PatternID, meta::Regex};

/// The words of ASCII as a regular expression over bytes: letters, digits or other signs with the
/// space before them, and white space. Every byte of a character outside ASCII is a letter, so that
/// any bytes can be read.
pub(in crate::text) const ASCII: &str = concat!(
    r" ?[^\x00-@\[-`{-\x7F]+",
    r"| ?[0-9]+",
    r"| ?[\x00-\x08\x0E-\x1F!-/:-@\[-`{-\x7F]+",
    r"|[\t-\r ]+(?![^\t-\r ])",
    r"|[\t-\r ]+",
);

/// The words of GPT-2 (Radford et al. 2019), of any script; `ByteLevel` in Hugging Face's
/// tokenizers.
pub(in crate::text) const GPT_2: &str =
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// How every published pattern ends: white space except for the last sign, which goes with what
/// follows.
const SPACES: &str = r"|\s+(?!\S)|\s+";

/// How a text is split.
pub(in crate::text) enum Words {
    /// [`ASCII`], by hand: it reads any bytes.
    Ascii,
    /// Every piece is split by the next pattern.
    Patterns(Vec<Pattern>),
}

/// A regular expression; what it does not match is a word too.
pub(in crate::text) struct Pattern {
    /// The expression, and white space if it ends with [`SPACES`].
    regex: Regex,
}

impl Pattern {
    /// Compiles an expression as published tokenizers have them: [`SPACES`] at the end is the only
    /// place where it may look ahead.
    pub fn new(pattern: &str) -> Result<Self, String> {
        let parts = match pattern.strip_suffix(SPACES) {
            Some(head) => vec![head, r"\s+"],
            None => vec![pattern],
        };
        let regex = Regex::new_many(&parts).map_err(|error| {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            cause.unwrap_or_else(|| error.to_string())
        })?;
        match regex.is_match("") {
            true => Err("it matches the empty text".to_owned()),
            false => Ok(Self { regex }),
        }
    }

    /// The words of a piece of text.
    fn split<'a>(&self, text: &'a [u8]) -> Vec<&'a [u8]> {
        let (mut words, mut at) = (Vec::new(), 0);
        while let Some(found) = self.regex.find(Input::new(text).range(at..)) {
            let (start, mut end) = (found.start(), found.end());
            if found.pattern() == PatternID::must(1) && end < text.len() {
                let last = start + last_character(&text[start..end]);
                // One sign alone is a word.
                end = if last > start { last } else { end };
            }
            words.extend([&text[at..start], &text[start..end]]);
            at = end;
        }
        words.push(&text[at..]);
        words.retain(|word| !word.is_empty());
        words
    }
}

/// Where the last character begins.
fn last_character(text: &[u8]) -> usize {
    let continues = |byte: &u8| byte & 0b1100_0000 == 0b1000_0000;
    let more = text.iter().rev().take_while(|byte| continues(byte)).count();
    text.len() - (more + 1).min(text.len())
}

impl Words {
    /// The words of GPT-2.
    pub fn gpt_2() -> Result<Self, String> {
        Ok(Self::Patterns(vec![Pattern::new(GPT_2)?]))
    }

    /// Hands out the words of a text in their order.
    pub fn each<'a>(&self, text: &'a [u8], mut hand: impl FnMut(&'a [u8])) {
        match self {
            Self::Ascii => {
                let mut rest = text;
                while !rest.is_empty() {
                    let (first, after) = rest.split_at(word(rest));
                    rest = after;
                    hand(first);
                }
            }
            Self::Patterns(patterns) => {
                let split = |words: Vec<&'a [u8]>, pattern: &Pattern| {
                    let words = words.into_iter();
                    words.flat_map(|word| pattern.split(word)).collect()
                };
                let words = patterns.iter().fold(vec![text], split);
                words.into_iter().for_each(hand);
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Letter,
    Digit,
    Space,
    Other,
}

fn class(byte: u8) -> Class {
    match byte {
        b'A'..=b'Z' | b'a'..=b'z' | 0x80.. => Class::Letter,
        b'0'..=b'9' => Class::Digit,
        b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r' => Class::Space,
        _ => Class::Other,
    }
}

/// Where the word of [`ASCII`] that begins the text ends.
fn word(text: &[u8]) -> usize {
    let run = |from: usize, of: Class| {
        let rest = text[from..].iter();
        from + rest.take_while(|byte| class(**byte) == of).count()
    };
    let first = class(text[0]);
    if first != Class::Space {
        return run(0, first);
    }
    let spaces = run(0, Class::Space);
    match (spaces, text.get(spaces)) {
        (_, None) => spaces,
        // A space goes with what follows, other white space is a separate word.
        (1, Some(next)) if text[0] == b' ' => run(1, class(*next)),
        (1, Some(_)) => 1,
        // The last one is left to what follows.
        (_, Some(_)) => spaces - 1,
    }
}

/// Texts that are tokens of their own wherever they occur, such as `<|endoftext|>`.
pub(in crate::text) struct Added {
    regex: Regex,
    ids: Vec<u32>,
}

impl Added {
    /// None where there are none.
    pub fn new(mut texts: Vec<(String, u32)>) -> Option<Self> {
        // Of two that begin at one place the longer one is meant.
        texts.sort_by_key(|(text, _)| std::cmp::Reverse(text.len()));
        let escaped = texts.iter().map(|(text, _)| {
            let signs = text.chars().map(|c| match c {
                '<' | '>' => c.to_string(),
                c if c.is_ascii_punctuation() => format!("\\{c}"),
                c => c.to_string(),
            });
            signs.collect::<String>()
        });
        let regex = Regex::new_many(&escaped.collect::<Vec<_>>()).ok()?;
        let ids: Vec<u32> = texts.into_iter().map(|(_, id)| id).collect();
        (!ids.is_empty()).then_some(Self { regex, ids })
    }

    /// The first one of a text: where it begins and ends, and its token.
    pub fn first(&self, text: &[u8]) -> Option<(usize, usize, u32)> {
        let found = self.regex.find(text)?;
        Some((
            found.start(),
            found.end(),
            self.ids[found.pattern().as_usize()],
        ))
    }
}
