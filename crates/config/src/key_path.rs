//! Dotted keys, and values put at them.

use super::value::{describe_value, quoted, type_name};
use std::fmt;
use toml::{Table, Value};

/// Name of the top-level table of axes.
pub const AXES: &str = "axes";

/// Top-level key that bounds the number of runs.
pub const MAX_RUNS: &str = "max_runs";

/// Top-level table that chooses values for every method.
pub const SELECT: &str = "select";

/// Its table of what is tried.
pub const OVER: &str = "over";

/// Most parts of a dotted key: deeper values would have to be walked, copied and dropped by deep
/// recursion.
pub const MAX_PARTS: usize = 64;

/// Path to a value: keys, and decimal indices into arrays.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyPath(Vec<String>);

impl KeyPath {
    /// Reads a dotted TOML key such as `model.pe.parts.1.base` or `axes."model.pe"`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let keys = toml_edit::Key::parse(text).map_err(|error| error.message().to_owned())?;
        if keys.len() > MAX_PARTS {
            return Err(format!(
                "it has {} parts, more than {MAX_PARTS}",
                keys.len()
            ));
        }
        Ok(Self(keys.iter().map(|key| key.get().to_owned()).collect()))
    }

    /// Path of these parts.
    pub fn new<S: Into<String>>(parts: impl IntoIterator<Item = S>) -> Self {
        Self(parts.into_iter().map(Into::into).collect())
    }

    /// Keys and indices from the root down.
    pub fn parts(&self) -> &[String] {
        &self.0
    }

    /// Whether this is the whole document.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Path one step further down.
    pub fn child(&self, part: impl Into<String>) -> Self {
        let mut parts = self.0.clone();
        parts.push(part.into());
        Self(parts)
    }

    /// Path of `rest` below this one.
    pub(super) fn join(mut self, rest: Self) -> Self {
        self.0.extend(rest.0);
        self
    }

    /// Path one step up; the root is its own parent.
    pub fn parent(&self) -> Self {
        Self(
            self.0
                .split_last()
                .map(|(_, rest)| rest.to_vec())
                .unwrap_or_default(),
        )
    }

    /// Last key or index, empty at the root.
    pub fn last(&self) -> &str {
        self.0.last().map_or("", String::as_str)
    }

    /// The rest of this path below `prefix`, if it lies at or below it.
    pub fn below(&self, prefix: &Self) -> Option<&[String]> {
        self.0.strip_prefix(prefix.0.as_slice())
    }

    /// Value at this path.
    pub fn find<'a>(&self, table: &'a Table) -> Option<&'a Value> {
        let (first, rest) = self.0.split_first()?;
        rest.iter()
            .try_fold(table.get(first)?, |value, part| match value {
                Value::Table(table) => table.get(part),
                Value::Array(array) => part
                    .parse::<usize>()
                    .ok()
                    .and_then(|index| array.get(index)),
                _ => None,
            })
    }

    /// Table at this path; the root is the table itself.
    pub fn find_table<'a>(&self, table: &'a Table) -> Option<&'a Table> {
        if self.is_root() {
            Some(table)
        } else {
            self.find(table)?.as_table()
        }
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, part) in self.0.iter().enumerate() {
            let dot = if i == 0 { "" } else { "." };
            // TOML allows only these characters in a key without quotes.
            let bare = !part.is_empty()
                && part
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
            if bare {
                write!(f, "{dot}{part}")?
            } else {
                write!(f, "{dot}{}", quoted(part))?
            }
        }
        Ok(())
    }
}

/// Why a value could not be put at a path.
#[derive(Debug)]
pub enum Blocked {
    /// Something above the value is not a table.
    NotATable {
        /// Its path.
        at: Vec<String>,
        /// Its type in words.
        found: String,
    },
    /// A list above the value has no such element.
    NoElement {
        /// Path of the list.
        at: Vec<String>,
        /// Its length.
        len: usize,
    },
    /// The path is empty.
    Nothing,
}

/// Puts a value at a path, making the tables above it where there is nothing yet.
pub fn set(table: &mut Table, path: &[String], value: Value) -> Result<(), Blocked> {
    let Some((first, rest)) = path.split_first() else {
        return Err(Blocked::Nothing);
    };
    if rest.is_empty() {
        table.insert(first.clone(), value);
        return Ok(());
    }
    let slot = table
        .entry(first.clone())
        .or_insert_with(|| Value::Table(Table::new()));
    set_below(slot, path, 1, value)
}

/// Like [`set`] inside a value at the first `done` parts of `path`.
pub(super) fn set_below(
    slot: &mut Value,
    path: &[String],
    done: usize,
    value: Value,
) -> Result<(), Blocked> {
    let (above, rest) = path.split_at(done.min(path.len()));
    let Some(part) = rest.first() else {
        *slot = value;
        return Ok(());
    };
    let child = match slot {
        Value::Table(table) if rest.len() == 1 => {
            table.insert(part.clone(), value);
            return Ok(());
        }
        Value::Table(table) => table
            .entry(part.clone())
            .or_insert_with(|| Value::Table(Table::new())),
        // A list keeps its length: an index names an element that is there.
        Value::Array(array) => {
            let len = array.len();
            let element = part
                .parse::<usize>()
                .ok()
                .and_then(|index| array.get_mut(index));
            element.ok_or_else(|| Blocked::NoElement {
                at: above.to_vec(),
                len,
            })?
        }
        other => {
            let found = format!("{} ({})", type_name(other), describe_value(other));
            return Err(Blocked::NotATable {
                at: above.to_vec(),
                found,
            });
        }
    };
    set_below(child, path, done + 1, value)
}

/// Splits at the first `=` that is not inside quotes.
pub(super) fn split_argument(text: &str) -> Option<(&str, &str)> {
    let mut quote = None;
    let mut escaped = false;
    for (i, c) in text.char_indices() {
        match (quote, c) {
            // Only double quotes know escapes; in single quotes a backslash is a backslash.
            (Some('"'), '\\') if !escaped => {
                escaped = true;
                continue;
            }
            (Some(open), c) if c == open && !escaped => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '=') => return Some((text.get(..i)?, text.get(i + 1..)?)),
            _ => {}
        }
        escaped = false;
    }
    None
}
