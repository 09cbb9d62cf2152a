//! What is wrong with a configuration, as data.

use super::super::key_path::KeyPath;
use std::fmt;

/// What is wrong. Its text is one line without the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// A key that its table does not have.
    UnknownKey {
        /// The key as written.
        name: String,
        /// The table it is in.
        table: TableName,
        /// The keys the table has.
        known: Vec<String>,
    },
    /// A key without a default that is not there.
    MissingKey {
        /// The key.
        name: String,
        /// The table it belongs to.
        table: TableName,
    },
    /// A `kind` that does not exist.
    UnknownKind {
        /// The kind as written.
        name: String,
        /// The table whose `kind` it is.
        table: KeyPath,
    },
    /// A text that is not among the names allowed.
    UnknownName {
        /// The text.
        name: String,
        /// Its key.
        key: TableName,
    },
    /// A value of another type.
    WrongType {
        /// Its key.
        key: TableName,
        /// The type in words, with its article.
        wanted: String,
        /// What was found, unless nothing was.
        found: Option<&'static str>,
    },
    /// A list with too many or too few elements.
    WrongLength {
        /// Its key.
        key: TableName,
        /// How many elements it has.
        len: usize,
    },
    /// A value of the right type that the type cannot hold.
    WrongValue {
        /// Its key.
        key: TableName,
        /// The value as TOML.
        value: String,
    },
    /// A value that was refused after reading.
    Value {
        /// Its key.
        key: KeyPath,
        /// What is wrong, as a continuation of the key: `is out of range`.
        problem: String,
    },
    /// Anything that no key belongs to.
    Other(String),
}

/// A table or a value as a message names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableName {
    /// The whole document.
    Document,
    /// The value at a key.
    Key(KeyPath),
    /// A value with another name, such as "encoding `rope`".
    Named(String),
}

impl From<&KeyPath> for TableName {
    fn from(path: &KeyPath) -> Self {
        if path.is_root() {
            Self::Document
        } else {
            Self::Key(path.clone())
        }
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Document => f.write_str("the configuration"),
            Self::Key(key) => write!(f, "`{key}`"),
            Self::Named(name) => f.write_str(name),
        }
    }
}

impl From<String> for Problem {
    fn from(text: String) -> Self {
        Self::Other(text)
    }
}

impl From<&str> for Problem {
    fn from(text: &str) -> Self {
        Self::Other(text.to_owned())
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownKey { name, table, .. } => match table {
                TableName::Document => write!(f, "unknown key `{name}` at the top level"),
                TableName::Key(_) => write!(f, "unknown key `{name}` in {table}"),
                TableName::Named(_) => write!(f, "unknown key `{name}` of {table}"),
            },
            Self::MissingKey { name, table } => match table {
                TableName::Named(_) => write!(f, "missing key `{name}` of {table}"),
                _ => write!(f, "missing key `{name}` in {table}"),
            },
            Self::UnknownKind { name, table } => write!(f, "unknown kind `{name}` in `{table}`"),
            Self::UnknownName { name, key } => write!(f, "{key} cannot be `{name}`"),
            Self::WrongType { key, wanted, found } => {
                write!(f, "{key} must be {wanted}")?;
                found.map_or(Ok(()), |found| write!(f, ", not {found}"))
            }
            Self::WrongLength { key, len } => write!(f, "{key} has the wrong length {len}"),
            Self::WrongValue { key, value } => write!(f, "{key} cannot be {value}"),
            Self::Value { key, problem } => write!(f, "`{key}` {problem}"),
            Self::Other(text) => f.write_str(text),
        }
    }
}
