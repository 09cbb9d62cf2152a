//! TOML values read into strict types, with an error that keeps the parts serde gives: the name,
//! the names expected, the length.

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{self, Expected, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use std::fmt;
use toml::Value;

/// What serde refused. `expected` is in serde's words.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReadError {
    UnknownField {
        name: String,
        known: &'static [&'static str],
    },
    UnknownVariant {
        name: String,
        known: &'static [&'static str],
    },
    MissingField(&'static str),
    WrongType {
        expected: String,
    },
    WrongValue {
        expected: String,
    },
    WrongLength {
        len: usize,
        expected: String,
    },
    Other(String),
}

impl de::Error for ReadError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::Other(message.to_string())
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::WrongType {
            expected: expected.to_string(),
        }
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::WrongValue {
            expected: expected.to_string(),
        }
    }

    fn invalid_length(len: usize, expected: &dyn Expected) -> Self {
        Self::WrongLength {
            len,
            expected: expected.to_string(),
        }
    }

    fn unknown_variant(name: &str, known: &'static [&'static str]) -> Self {
        Self::UnknownVariant {
            name: name.to_owned(),
            known,
        }
    }

    fn unknown_field(name: &str, known: &'static [&'static str]) -> Self {
        Self::UnknownField {
            name: name.to_owned(),
            known,
        }
    }

    fn missing_field(field: &'static str) -> Self {
        Self::MissingField(field)
    }
}

impl std::error::Error for ReadError {}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownField { name, .. } => write!(f, "unknown key `{name}`"),
            Self::UnknownVariant { name, .. } => write!(f, "unknown name `{name}`"),
            Self::MissingField(name) => write!(f, "missing key `{name}`"),
            Self::WrongType { expected } => write!(f, "not {expected}"),
            Self::WrongValue { expected } => write!(f, "out of range of {expected}"),
            Self::WrongLength { len, expected } => write!(f, "length {len}, not {expected}"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

/// Reads a TOML value. Unlike the reader of the `toml` crate, its errors are [`ReadError`]s.
pub(super) struct Reader<'a>(pub(super) &'a Value);

impl IntoDeserializer<'_, ReadError> for Reader<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> de::Deserializer<'de> for Reader<'_> {
    type Error = ReadError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        match self.0 {
            Value::Boolean(truth) => visitor.visit_bool(*truth),
            Value::Integer(number) => visitor.visit_i64(*number),
            Value::Float(number) => visitor.visit_f64(*number),
            Value::String(text) => visitor.visit_str(text),
            Value::Datetime(date) => visitor.visit_string(date.to_string()),
            Value::Array(array) => {
                let len = array.len();
                let mut elements = SeqDeserializer::new(array.iter().map(Reader));
                let value = visitor.visit_seq(&mut elements)?;
                // Elements that were not asked for are one error for the list, not for the last.
                let rest = elements.end();
                rest.map_err(|_| de::Error::invalid_length(len, &"fewer elements in array"))?;
                Ok(value)
            }
            Value::Table(table) => {
                let entries = table
                    .iter()
                    .map(|(key, value)| (key.as_str(), Reader(value)));
                let mut entries = MapDeserializer::new(entries);
                let value = visitor.visit_map(&mut entries)?;
                // As for lists: keys that were not asked for are one error for the table.
                let rest = entries.end();
                let len = table.len();
                rest.map_err(|_| de::Error::invalid_length(len, &"fewer elements in map"))?;
                Ok(value)
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ReadError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        visitor.visit_newtype_struct(self)
    }

    /// Only names: an enum that holds more is a table tagged by a key.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ReadError> {
        match self.0 {
            Value::String(name) => visitor.visit_enum(name.as_str().into_deserializer()),
            _ => Err(ReadError::WrongType {
                expected: format!("one of `{}`", names.join("`, `")),
            }),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}
