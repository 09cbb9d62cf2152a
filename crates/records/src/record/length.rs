//! Test lengths and ranges of them, as people write them.

use super::EvalRow;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A test length or a range of them, in the task's unit: `100`, or `"51..100"`, of which each test
/// row drew its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "RawTestLength", into = "RawTestLength")]
pub struct TestLength {
    /// The length; of a range its upper end.
    pub to: usize,
    /// The lower end of a range.
    pub from: Option<usize>,
}

impl TestLength {
    /// A length, or the range that begins at `from`.
    ///
    /// # Errors
    ///
    /// What is wrong with a length of 0, or with ends that do not rise.
    pub fn new(from: Option<usize>, to: usize) -> Result<Self, String> {
        match from {
            None if to == 0 => Err("a length of 0".into()),
            Some(from) if from == 0 || from >= to => Err(refused(&length_text(Some(from), to))),
            from => Ok(Self { to, from }),
        }
    }

    /// The lengths `times` as long, rounded.
    pub fn times(self, times: f64) -> Self {
        let scaled = |length: usize| (length as f64 * times).round() as usize;
        Self {
            to: scaled(self.to),
            from: self.from.map(scaled),
        }
    }
}

impl fmt::Display for TestLength {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&length_text(self.from, self.to))
    }
}

#[derive(Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "is not a test length; allowed: 512, \"51..100\""
)]
enum RawTestLength {
    Number(usize),
    Text(String),
}

impl TryFrom<RawTestLength> for TestLength {
    type Error = String;

    fn try_from(raw: RawTestLength) -> Result<Self, String> {
        let (from, to) = match raw {
            RawTestLength::Number(to) => (None, to),
            RawTestLength::Text(text) => {
                let ends = length_range(&text).map(|(from, to)| (Some(from), to));
                ends.ok_or_else(|| refused(&text))?
            }
        };
        Self::new(from, to)
    }
}

fn refused(text: &str) -> String {
    let text = crate::text::name(text, 40);
    format!("{text:?} is not a test length; allowed: 512, \"51..100\"")
}

impl From<TestLength> for RawTestLength {
    fn from(length: TestLength) -> Self {
        match length.from {
            None => RawTestLength::Number(length.to),
            Some(_) => RawTestLength::Text(length.to_string()),
        }
    }
}

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
