//! Test lengths: single ones, and ranges from which every test row draws its own.

use posenc::ConfigError;
use records::record::{length_range, length_text};
use serde::de::{Error, IntoDeserializer, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::ops::Deref;
use std::str::FromStr;
use tasks::{Scoring, Task};

/// Lengths of a range that a task is checked at, from its lower end on.
pub const MOST_OF_RANGE: usize = 10_000;

/// A test length as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TestLen {
    /// Every row has it.
    One(usize),
    /// Every row draws its own, from the first to the second.
    Range(usize, usize),
    /// A text that is neither, which checks refuse.
    Other(String),
}

impl TestLen {
    /// The length itself, or the upper end of a range, which names it.
    pub fn to(&self) -> usize {
        match self {
            Self::One(to) | Self::Range(_, to) => *to,
            Self::Other(_) => 0,
        }
    }

    /// The lower end of a range.
    pub fn from(&self) -> Option<usize> {
        match self {
            Self::Range(from, _) => Some(*from),
            Self::One(_) | Self::Other(_) => None,
        }
    }

    /// What is wrong with it, if anything is: a problem, what is allowed, and help.
    pub fn mistake(&self) -> Option<(&'static str, String, String)> {
        let allowed = "a whole number, or a range such as \"51..100\"".to_owned();
        match self {
            Self::One(_) => None,
            Self::Range(from, to) if from > to => {
                let help = format!("write \"{to}..{from}\"");
                Some((
                    "ends below its beginning",
                    "the lower length first".to_owned(),
                    help,
                ))
            }
            Self::Range(from, to) if from == to => {
                let help = format!("write {to}");
                Some(("is a single length", allowed, help))
            }
            Self::Range(0, to) => {
                let help = format!("write \"1..{to}\"");
                Some(("begins below 1", "lengths from 1 on".to_owned(), help))
            }
            Self::Range(..) => None,
            Self::Other(text) => {
                let help = match text.trim().parse::<usize>() {
                    Ok(number) => format!("write {number} without quotes"),
                    Err(_) => "write \"51..100\" for all lengths from 51 to 100".to_owned(),
                };
                Some(("is not a length", allowed, help))
            }
        }
    }
}

impl fmt::Display for TestLen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other(text) => write!(f, "{text:?}"),
            known => write!(f, "{}", length_text(known.from(), known.to())),
        }
    }
}

impl FromStr for TestLen {
    type Err = String;

    /// A length of the command line: `100`, or `51..100`.
    fn from_str(text: &str) -> Result<Self, String> {
        let length = match (text.parse(), length_range(text)) {
            (Ok(number), _) => Self::One(number),
            (_, Some((from, to))) => Self::Range(from, to),
            _ => Self::Other(text.to_owned()),
        };
        match length.mistake() {
            None => Ok(length),
            Some((problem, allowed, help)) => Err(format!("{problem}; allowed: {allowed}; {help}")),
        }
    }
}

impl Serialize for TestLen {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::One(length) => serializer.serialize_u64(*length as u64),
            Self::Range(..) => serializer.collect_str(self),
            Self::Other(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for TestLen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Written;

        impl Visitor<'_> for Written {
            type Value = TestLen;

            // A type to `config`, which says it in words.
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("length or range")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<TestLen, E> {
                usize::deserialize(number.into_deserializer()).map(TestLen::One)
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<TestLen, E> {
                usize::deserialize(number.into_deserializer()).map(TestLen::One)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<TestLen, E> {
                Ok(match length_range(text) {
                    Some((from, to)) => TestLen::Range(from, to),
                    None => TestLen::Other(text.to_owned()),
                })
            }
        }

        deserializer.deserialize_any(Written)
    }
}

/// Whether a task has test rows that draw their own lengths: one that makes them.
pub fn draws_lengths(task: &dyn Task) -> bool {
    task.scoring() == Scoring::Answer && task.corpus().is_none()
}

/// Test lengths in the order of a config. As a slice they are the lengths, of ranges the upper
/// ends: no two are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TestLens {
    written: Vec<TestLen>,
    to: Vec<usize>,
}

impl TestLens {
    /// As written.
    pub fn written(&self) -> &[TestLen] {
        &self.written
    }

    /// The lower end of the range at a place, if one is there.
    pub fn from(&self, index: usize) -> Option<usize> {
        self.written.get(index)?.from()
    }

    /// All lengths that rows may have, of a range at most [`MOST_OF_RANGE`]: a task has rows of
    /// each.
    pub fn of_rows(&self) -> Vec<usize> {
        let mut lengths = self.to.clone();
        let ranges = self
            .written
            .iter()
            .filter_map(|len| Some(len.from()?..len.to()));
        lengths.extend(ranges.flat_map(|range| range.take(MOST_OF_RANGE)));
        lengths
    }

    /// Refuses a range where a task's rows have lengths of their own. Keys are those of `[eval]`.
    ///
    /// # Errors
    ///
    /// The first range.
    pub fn check(&self, task: &dyn Task) -> Result<(), ConfigError> {
        let is_made = draws_lengths(task);
        let mut written = self.written.iter().enumerate();
        let range = written.find(|(_, length)| length.from().is_some());
        let Some((index, range)) = range.filter(|_| !is_made) else {
            return Ok(());
        };
        let problem = format!(
            "is a range of lengths, and rows of task `{}` have one length here",
            task.kind()
        );
        let help = match task.kind() {
            "jsonl" => "task.bucket tests rows of several lengths together",
            _ => "write single lengths",
        };
        let key = format!("test_lens.{index}");
        Err(ConfigError::new(key, range, problem, "whole numbers", help))
    }
}

impl Deref for TestLens {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        &self.to
    }
}

impl From<Vec<TestLen>> for TestLens {
    fn from(written: Vec<TestLen>) -> Self {
        let to = written.iter().map(TestLen::to).collect();
        Self { written, to }
    }
}

impl FromIterator<usize> for TestLens {
    fn from_iter<I: IntoIterator<Item = usize>>(lengths: I) -> Self {
        let one = lengths.into_iter().map(TestLen::One);
        one.collect::<Vec<_>>().into()
    }
}

impl<'a> IntoIterator for &'a TestLens {
    type Item = &'a usize;
    type IntoIter = std::slice::Iter<'a, usize>;

    fn into_iter(self) -> Self::IntoIter {
        self.to.iter()
    }
}

impl Serialize for TestLens {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.written.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for TestLens {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::<TestLen>::deserialize(deserializer).map(Into::into)
    }
}
