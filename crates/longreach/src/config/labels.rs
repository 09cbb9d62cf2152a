//! Labels of an axis's values: as short as possible while distinct.

use super::value::{float_text, quoted};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use toml::{Table, Value};

/// Whether two values mean the same, numbers by size: 10000 and 1e4 do.
pub fn same(a: &Value, b: &Value) -> bool {
    let text = |value: &Value| {
        let mut out = String::new();
        canonical(value, &mut out);
        out
    };
    text(a) == text(b)
}

/// Text that is equal for equal values: numbers by size, tables by sorted key.
pub(super) fn canonical(value: &Value, out: &mut String) {
    // Whole numbers below this are exact in f64; larger ones would fall together.
    const EXACT: u64 = 1 << 53;
    match value {
        Value::Integer(n) if n.unsigned_abs() < EXACT => {
            out.push_str(&(*n as f64 + 0.0).to_string())
        }
        Value::Integer(n) => out.push_str(&n.to_string()),
        // Adding 0 turns -0 into 0.
        Value::Float(x) => out.push_str(&(x + 0.0).to_string()),
        Value::Boolean(truth) => out.push_str(&truth.to_string()),
        Value::Datetime(date) => out.push_str(&date.to_string()),
        Value::String(text) => out.push_str(&quoted(text)),
        Value::Array(array) => {
            out.push('[');
            for element in array {
                canonical(element, out);
                out.push(',');
            }
            out.push(']');
        }
        Value::Table(table) => {
            out.push('{');
            for (key, element) in table.iter().collect::<BTreeMap<_, _>>() {
                out.push_str(&quoted(key));
                out.push('=');
                canonical(element, out);
                out.push(',');
            }
            out.push('}');
        }
    }
}

/// Labels of an axis's values: as short as possible while distinct.
pub(super) fn label(values: &[Value]) -> Vec<String> {
    // A key that has one value in all tables of a kind tells none apart and is left out.
    let mut groups: HashMap<Option<&str>, Vec<&Table>> = HashMap::new();
    for table in values.iter().filter_map(Value::as_table) {
        groups.entry(kind_of(table)).or_default().push(table);
    }
    let common = groups
        .iter()
        .map(|(kind, tables)| (*kind, common_keys(tables)))
        .collect::<HashMap<_, _>>();
    let text = |value: &Value| match value {
        Value::Table(table) => {
            let shared = common.get(&kind_of(table));
            tagged(table, |key| {
                shared.is_none_or(|shared| !shared.contains(key))
            })
        }
        other => plain(other),
    };
    let texts = values.iter().map(text).collect::<Vec<_>>();
    // Texts used twice are written in full: words with quotes, tables with every key.
    let mut uses: HashMap<&str, usize> = HashMap::new();
    for text in &texts {
        *uses.entry(text).or_default() += 1;
    }
    let unique = |(text, value): (&String, &Value)| match (uses.get(text.as_str()), value) {
        (Some(1), _) => text.clone(),
        (_, Value::String(word)) => quoted(word),
        (_, other) => inline(other),
    };
    // What still falls together gets the number of its value.
    let mut taken = HashSet::new();
    let distinct = |(i, text): (usize, String)| {
        let text = if taken.contains(&text) {
            format!("{text} (value {})", i + 1)
        } else {
            text
        };
        taken.insert(text.clone());
        text
    };
    texts
        .iter()
        .zip(values)
        .map(unique)
        .enumerate()
        .map(distinct)
        .collect()
}

fn kind_of(table: &Table) -> Option<&str> {
    table.get("kind").and_then(Value::as_str)
}

/// Keys that every table holds with the same value; all keys of a table that has no fellow.
fn common_keys(tables: &[&Table]) -> BTreeSet<String> {
    let mut seen: HashMap<&str, (usize, String)> = HashMap::new();
    for table in tables {
        for (key, value) in *table {
            let mut text = String::new();
            canonical(value, &mut text);
            let entry = seen.entry(key).or_insert_with(|| (0, text.clone()));
            if entry.1 == text {
                entry.0 += 1;
            }
        }
    }
    seen.into_iter()
        .filter(|(_, (count, _))| *count == tables.len())
        .map(|(key, _)| key.to_owned())
        .collect()
}

/// `kind(key=value, ...)` with the keys that are `shown`; `{key=value}` for a table without kind.
fn tagged(table: &Table, shown: impl Fn(&str) -> bool) -> String {
    let kind = kind_of(table);
    let rest = table
        .iter()
        .filter(|(key, _)| !(kind.is_some() && key.as_str() == "kind"));
    let list = rest
        .filter(|(key, _)| shown(key))
        .map(|(key, value)| format!("{key}={}", plain(value)))
        .collect::<Vec<_>>()
        .join(", ");
    match kind {
        Some(kind) if list.is_empty() => kind.to_owned(),
        Some(kind) => format!("{kind}({list})"),
        None => format!("{{{list}}}"),
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => inline(other),
    }
}

fn inline(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Integer(n) => n.to_string(),
        Value::Float(x) => float_text(*x),
        Value::Boolean(truth) => truth.to_string(),
        Value::Datetime(date) => date.to_string(),
        Value::Array(array) => format!(
            "[{}]",
            array.iter().map(plain).collect::<Vec<_>>().join(", ")
        ),
        Value::Table(table) => tagged(table, |_| true),
    }
}
