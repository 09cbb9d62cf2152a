//! What is known about one key of a configuration.

use toml::Value;

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Dotted path; `N` stands for a place in a list.
    pub path: &'static str,
    /// What is allowed there.
    pub kind: Kind,
    /// What holds where the key is left out; `None` if it must be there.
    pub default: Option<&'static str>,
    /// A value as TOML.
    pub example: &'static str,
    /// One line.
    pub meaning: &'static str,
}

impl Key {
    /// The default, where it is a value and not words.
    pub fn default_value(&self) -> Option<Value> {
        self.default.and_then(value_of)
    }

    /// [`Self::example`] as a value.
    pub fn example_value(&self) -> Option<Value> {
        value_of(self.example)
    }
}

fn value_of(text: &str) -> Option<Value> {
    let mut table: toml::Table = format!("x = {text}").parse().ok()?;
    table.remove("x")
}

/// What is allowed at a key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A text.
    Text,
    /// `true` or `false`.
    Truth,
    /// A whole number from the first to the second.
    Whole(u64, u64),
    /// A number from the first to the second.
    Number(f64, f64),
    /// One of these names.
    Name(&'static [&'static str]),
    /// A list of whole numbers in this range.
    Wholes(u64, u64),
    /// A list of whole numbers in this range, and of ranges of them such as `"51..100"`.
    Lengths(u64, u64),
    /// A table whose `kind` chooses its other keys.
    Task,
    /// As [`Kind::Task`].
    Encoding,
    /// A table of keys of an encoding, `kind` included.
    EncodingKeys,
    /// An encoding's table, or a list of them.
    Encodings,
    /// As [`Kind::Task`].
    Positions,
    /// A table of lists of values, by quoted dotted key.
    Axes,
}

impl Kind {
    /// The range of a number in words; `None` where another type is allowed.
    pub fn range(self) -> Option<String> {
        match self {
            Self::Whole(low, high) => Some(schema::allowed(&(low..=high))),
            Self::Number(low, high) => Some(schema::allowed(&(low..=high))),
            _ => None,
        }
    }

    /// Whether a value has the type and the range of this kind, as far as they depend on nothing
    /// else.
    pub fn admits(self, value: &Value) -> bool {
        let whole = |value: &Value, low: u64, high: u64| {
            let number = value
                .as_integer()
                .and_then(|number| u64::try_from(number).ok());
            number.is_some_and(|number| (low..=high).contains(&number))
        };
        match self {
            Self::Text => value.is_str(),
            Self::Truth => value.is_bool(),
            Self::Whole(low, high) => whole(value, low, high),
            Self::Number(low, high) => {
                let number = value
                    .as_float()
                    .or(value.as_integer().map(|whole| whole as f64));
                number.is_some_and(|number| (low..=high).contains(&number))
            }
            Self::Name(names) => value.as_str().is_some_and(|name| names.contains(&name)),
            Self::Wholes(low, high) => value
                .as_array()
                .is_some_and(|list| list.iter().all(|value| whole(value, low, high))),
            Self::Lengths(low, high) => value.as_array().is_some_and(|list| {
                list.iter()
                    .all(|value| value.is_str() || whole(value, low, high))
            }),
            Self::Task
            | Self::Encoding
            | Self::EncodingKeys
            | Self::Encodings
            | Self::Positions
            | Self::Axes => true,
        }
    }
}
