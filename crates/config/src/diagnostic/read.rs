//! Strict types read from a table. What serde refused becomes a [`Diagnostic`] that points at the
//! line, the axis or the argument that the value came from.

use super::de::{ReadError, Reader};
use super::foreign;
use super::{Diagnostic, Problem, TableName, closest, describe_value, quoted, type_name};
use crate::key_path::{AXES, KeyPath};
use crate::origins::{Origin, Origins};
use crate::value::{friendly, rewrite};
use serde::de::DeserializeOwned;
use toml::{Table, Value};

/// Keys that say which type a table has.
const TAGS: [&str; 2] = ["kind", "by"];

/// The hint for a name that is like no other.
const LATER: &str = concat!(
    "longreach ",
    env!("CARGO_PKG_VERSION"),
    " does not know it; a config written for a later version needs that version"
);

/// Moves `kind`, or else `by`, to the front of every table, in place and at any depth: types tagged
/// by it are read as a stream.
pub fn normalise(table: &mut Table) {
    for (_, value) in table.iter_mut() {
        normalise_value(value);
    }
    let Some(tag) = TAGS.into_iter().find(|tag| table.contains_key(*tag)) else {
        return;
    };
    if table.keys().next().is_some_and(|first| first == tag) {
        return;
    }
    // Tables keep the order in which keys are put in, so the tag goes in first.
    if let Some(kind) = table.remove(tag) {
        let rest = std::mem::take(table);
        table.insert(tag.to_owned(), kind);
        table.extend(rest);
    }
}

/// A JSON object as a TOML table; absent keys instead of null.
pub fn table_without_null(value: &serde_json::Value) -> Option<Table> {
    fn convert(value: &serde_json::Value) -> Option<Value> {
        Some(match value {
            // TOML has no null.
            serde_json::Value::Null => return None,
            serde_json::Value::Object(map) => Value::Table(
                map.iter()
                    .filter_map(|(key, value)| Some((key.clone(), convert(value)?)))
                    .collect(),
            ),
            serde_json::Value::Array(items) => {
                Value::Array(items.iter().filter_map(convert).collect())
            }
            other => Value::try_from(other).ok()?,
        })
    }
    let mut table = convert(value)?.as_table().cloned()?;
    normalise(&mut table);
    Some(table)
}

fn normalise_value(value: &mut Value) {
    match value {
        Value::Table(table) => normalise(table),
        Value::Array(array) => array.iter_mut().for_each(normalise_value),
        _ => {}
    }
}

/// Reads a table into a strict type, after [`normalise`].
pub fn deserialize<T: DeserializeOwned>(table: &Table, origins: &Origins) -> Result<T, Diagnostic> {
    deserialize_at(table, &KeyPath::default(), origins)
}

/// Like [`deserialize`] for the value at a path of the table, which must be there.
pub fn deserialize_at<T: DeserializeOwned>(
    table: &Table,
    at: &KeyPath,
    origins: &Origins,
) -> Result<T, Diagnostic> {
    let value = if at.is_root() {
        Some(Value::Table(table.clone()))
    } else {
        at.find(table).cloned()
    };
    let mut value = value.unwrap_or_else(|| Value::Table(Table::new()));
    normalise_value(&mut value);
    let read = serde_path_to_error::deserialize(Reader(&value));
    read.map_err(|error| {
        let mut table = table.clone();
        normalise(&mut table);
        Refusal {
            path: resolve(&table, at, error.path()),
            table: &table,
            origins,
        }
        .caused(error.inner())
    })
}

/// The keys of a table tagged by `kind`, `kind` itself left out; none if there is no such kind.
pub fn known_keys<T: DeserializeOwned>(kind: &str) -> Vec<String> {
    // No table has this key, so that serde names those it has.
    const PROBE: &str = "\u{1}probe";
    let mut table = Table::new();
    table.insert("kind".to_owned(), Value::String(kind.to_owned()));
    table.insert(PROBE.to_owned(), Value::Boolean(true));
    match T::deserialize(Reader(&Value::Table(table))) {
        Err(ReadError::UnknownField { known, .. }) => {
            known.iter().map(|key| (*key).to_owned()).collect()
        }
        _ => Vec::new(),
    }
}

/// The part of serde's path below `at` that exists in the table.
fn resolve(table: &Table, at: &KeyPath, path: &serde_path_to_error::Path) -> KeyPath {
    let mut out = at.clone();
    for segment in path.iter() {
        let next = match segment {
            serde_path_to_error::Segment::Seq { index } => out.child(index.to_string()),
            serde_path_to_error::Segment::Map { key } => out.child(key),
            serde_path_to_error::Segment::Enum { variant } => out.child(variant),
            serde_path_to_error::Segment::Unknown => continue,
        };
        // Names of variants and keys that are missing are not part of the table.
        if next.find(table).is_some() {
            out = next;
        }
    }
    out
}

/// A table that serde refused, and how far it got.
struct Refusal<'a> {
    path: KeyPath,
    table: &'a Table,
    origins: &'a Origins,
}

impl Refusal<'_> {
    fn caused(&self, error: &ReadError) -> Diagnostic {
        let name = TableName::from(&self.path);
        match error {
            ReadError::UnknownField { name, known } => self.unknown_key(name, known),
            ReadError::UnknownVariant { name, known } => self.unknown_variant(name, known),
            ReadError::MissingField(name) => self.missing_key(name),
            ReadError::WrongType { expected } => self.wrong_type(expected),
            ReadError::WrongValue { expected } => {
                let value = self.value();
                self.value_error(Problem::WrongValue { key: name, value })
                    .with_allowed(friendly(expected))
            }
            ReadError::WrongLength { len, expected } => {
                let len = *len;
                self.value_error(Problem::WrongLength { key: name, len })
                    .with_allowed(friendly(expected))
            }
            ReadError::Other(message) => self.value_error(format!("{name}: {message}")),
        }
    }

    /// The value refused, as TOML.
    fn value(&self) -> String {
        let value = self.path.find(self.table);
        value.map(describe_value).unwrap_or_default()
    }

    fn value_error(&self, problem: impl Into<Problem>) -> Diagnostic {
        let found = self.origins.find(&self.path);
        Diagnostic::new(self.origins.value_place(&found), problem)
            .with_key(self.path.to_string())
            .with_value(self.value())
            .with_axis(&found)
    }

    fn unknown_key(&self, name: &str, known: &[&str]) -> Diagnostic {
        let known: Vec<String> = known.iter().map(|key| (*key).to_owned()).collect();
        // serde's path ends at the unknown key or at the table around it.
        let own = self.path.last() == name
            && self
                .path
                .parent()
                .find_table(self.table)
                .is_some_and(|t| t.contains_key(name));
        let path = if own {
            self.path.clone()
        } else {
            self.path.child(name)
        };
        let above = path.parent();
        let found = self.origins.find(&path);
        let list = if known.is_empty() {
            "no keys".to_owned()
        } else {
            known.join(", ")
        };
        let stale = self.stale_kind(&above, &path);
        let exact = stale.or_else(|| foreign::key_help(name, &known));
        let near = || Some(format!("did you mean `{}`?", closest(name, &known)?));
        let later = || if known.is_empty() { "" } else { LATER }.to_owned();
        let help = near()
            .or_else(|| self.uneven_axis(&above, &found))
            .unwrap_or_else(later);
        let problem = Problem::UnknownKey {
            name: name.to_owned(),
            table: TableName::from(&above),
            known,
        };
        let error = Diagnostic::new(self.origins.key_place(&found), problem)
            .with_key(path.to_string())
            .with_allowed(list)
            .with_axis(&found);
        match exact {
            Some(help) => error.with_exact_help(help),
            None => error.with_help(help),
        }
    }

    /// A hint for a table whose only key set by an override or an axis is `kind`, so that other
    /// keys of it belong to another kind.
    fn stale_kind(&self, table: &KeyPath, key: &KeyPath) -> Option<String> {
        let kind = self.origins.find(&table.child("kind"));
        let whole = self.origins.find(table);
        let key = self.origins.find(key);
        let value = describe_value(table.child("kind").find(self.table)?);
        if table.is_root() || !kind.exact {
            return None;
        }
        if kind.axis.is_some() && kind.axis != whole.axis {
            return Some(format!(
                "`kind` is set by an axis; use whole tables: {AXES}.{} = [{{ kind = {value} }}, \
                 ...]",
                quoted(&table.to_string())
            ));
        }
        let argument = kind.argument.filter(|argument| {
            whole.argument.as_ref() != Some(argument) && key.argument.as_ref() != Some(argument)
        })?;
        Some(format!(
            "`{argument}` sets `kind` only; replace the whole table: {table}={{kind={value}}}"
        ))
    }

    /// A hint for an axis inside the tables of another one, some of which have no such key.
    fn uneven_axis(&self, table: &KeyPath, key: &Origin) -> Option<String> {
        let (outer, ..) = self.origins.find(table).axis?;
        let (inner, ..) = key.axis.as_ref().filter(|(inner, ..)| *inner != outer)?;
        Some(format!(
            "axis `{inner}` does not fit every value of axis `{outer}`: write its values inside \
             those that have the key"
        ))
    }

    fn missing_key(&self, name: &str) -> Diagnostic {
        let found = self.origins.find(&self.path);
        let place = if self.path.is_root() {
            self.origins.document().whole()
        } else {
            self.origins.table_place(&found)
        };
        let problem = Problem::MissingKey {
            name: name.to_owned(),
            table: TableName::from(&self.path),
        };
        let siblings = self
            .path
            .find_table(self.table)
            .map(|table| table.keys().cloned().collect::<Vec<_>>())
            .unwrap_or_default();
        let is_foreign = |word: &&String| {
            foreign::key(word).is_some_and(|foreign| foreign.key.rsplit('.').next() == Some(name))
        };
        let sibling = siblings.iter().find(is_foreign).map(String::as_str);
        let sibling = sibling.or_else(|| closest(name, &siblings));
        let help = match (sibling, self.path.is_root()) {
            (Some(sibling), _) => format!("is `{sibling}` meant to be `{name}`?"),
            (None, true) => {
                format!("add `{name} = ...` above the first table, or a table [{name}]")
            }
            (None, false) => format!("add `{name} = ...` to `{}`", self.path),
        };
        let help = self
            .stale_kind(&self.path, &self.path.child(name))
            .unwrap_or(help);
        let missing = Diagnostic::new(place, problem)
            .with_key(self.path.child(name).to_string())
            .with_axis(&found);
        match sibling {
            Some(_) => missing.with_exact_help(help),
            None => missing.with_help(help),
        }
    }

    fn unknown_variant(&self, name: &str, known: &[&str]) -> Diagnostic {
        let known: Vec<String> = known.iter().map(|name| (*name).to_owned()).collect();
        let kind = self.path.child("kind");
        // An unknown `kind` is refused at its table; the message is to point at the tag.
        let is_tag = kind.find(self.table).and_then(Value::as_str) == Some(name);
        let refusal = Refusal {
            path: if is_tag { kind } else { self.path.clone() },
            ..*self
        };
        let above = refusal.path.parent();
        let name = name.to_owned();
        let of_scaling = above.last() == "scaling";
        let exact = foreign::kind_help(&name, &known, of_scaling);
        let help = closest(&name, &known).map_or_else(
            || LATER.to_owned(),
            |meant| format!("did you mean `{meant}`?"),
        );
        let problem = if refusal.path.last() == "kind" && !above.is_root() {
            Problem::UnknownKind { name, table: above }
        } else {
            let key = TableName::from(&refusal.path);
            Problem::UnknownName { name, key }
        };
        let error = refusal.value_error(problem).with_allowed(known.join(", "));
        match exact {
            Some(help) => error.with_exact_help(help),
            None => error.with_help(help),
        }
    }

    /// How several values are compared, where a list is in the place of one.
    fn axis_help(&self, value: &Value, allowed: &str) -> Option<String> {
        let path = self.path.to_string();
        let sections = ["model.", "train.", "task.", "eval."];
        let can_vary = sections.iter().any(|section| path.starts_with(section));
        let is_element = path.split('.').any(|part| part.parse::<usize>().is_ok());
        let is_list = matches!(value, Value::Array(values) if !values.is_empty());
        let is_axis = is_list && can_vary && !is_element && !allowed.starts_with("a list");
        is_axis.then(|| {
            let values = describe_value(value);
            format!(
                "to compare values, put them on an axis: [axes] and below it \"{path}\" = {values}"
            )
        })
    }

    fn wrong_type(&self, expected: &str) -> Diagnostic {
        let allowed = friendly(expected);
        let key = TableName::from(&self.path);
        let Some(value) = self.path.find(self.table) else {
            let (wanted, found) = (allowed, None);
            return self.value_error(Problem::WrongType { key, wanted, found });
        };
        let axis = self.axis_help(value, &allowed);
        let help = axis.or_else(|| rewrite(value, expected, self.path.last()));
        let help = help.unwrap_or_default();
        // The names and the range are in `allowed`.
        let wanted = match allowed.split(',').next() {
            Some(first) if first.starts_with("one of ") => "a string",
            first => first.unwrap_or(&allowed),
        };
        let problem = Problem::WrongType {
            key,
            wanted: wanted.to_owned(),
            found: Some(type_name(value)),
        };
        self.value_error(problem)
            .with_allowed(allowed)
            .with_help(help)
    }
}
