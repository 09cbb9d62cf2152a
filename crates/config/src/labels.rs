//! Labels of an axis's values: as short as possible while distinct.

use super::value::{float_text, quoted};
use schema::text::shorten;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use toml::{Table, Value};

/// A value of one of an axis's keys in a cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Label {
    /// The key as it was written, such as `model.pe`.
    pub key: String,
    /// The value as shown to people, equal for equal values of the axis.
    pub text: String,
    /// The value itself.
    pub value: Value,
}

/// Whether two values mean the same, numbers by size: 10000 and 1e4 do.
pub fn same(a: &Value, b: &Value) -> bool {
    canonical(a) == canonical(b)
}

/// Text that is equal for equal values: numbers by size, tables by sorted key.
pub(super) fn canonical(value: &Value) -> String {
    // Whole numbers below this are exact in f64; larger ones would fall together.
    const EXACT: u64 = 1 << 53;
    match value {
        Value::Integer(n) if n.unsigned_abs() < EXACT => (*n as f64).to_string(),
        Value::Integer(n) => n.to_string(),
        // Adding 0 turns -0 into 0.
        Value::Float(x) => (x + 0.0).to_string(),
        Value::Boolean(truth) => truth.to_string(),
        Value::Datetime(date) => date.to_string(),
        Value::String(text) => quoted(text),
        Value::Array(array) => {
            let elements: Vec<String> = array.iter().map(canonical).collect();
            format!("[{}]", elements.join(","))
        }
        Value::Table(table) => {
            let sorted: BTreeMap<_, _> = table.iter().collect();
            let entry =
                |(key, value): (&String, &Value)| format!("{}={}", quoted(key), canonical(value));
            let entries: Vec<String> = sorted.into_iter().map(entry).collect();
            format!("{{{}}}", entries.join(","))
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
    let mut texts: Vec<String> = texts.iter().zip(values).map(unique).collect();
    shown_apart(&mut texts, values);
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
    texts.into_iter().enumerate().map(distinct).collect()
}

/// Characters of a label that a report shows.
const SHOWN: usize = 80;

/// Labels that a report cuts to the same text are written by what differs: elements that all lists
/// have in one place become `…`.
fn shown_apart(texts: &mut [String], values: &[Value]) {
    let mut by_cut: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, text) in texts.iter().enumerate() {
        by_cut.entry(shorten(text, SHOWN)).or_default().push(index);
    }
    for alike in by_cut.into_values().filter(|alike| alike.len() > 1) {
        let of: Vec<&Value> = alike.iter().map(|index| &values[*index]).collect();
        for index in alike {
            texts[index] = differing(&values[index], &of);
        }
    }
}

/// A value by what differs among values in its place.
fn differing(value: &Value, all: &[&Value]) -> String {
    let is_shared = |of: &dyn Fn(&Value) -> Option<Value>| {
        let mut found = all.iter().map(|other| of(other));
        let first = found.next().flatten();
        first
            .is_some_and(|first| found.all(|other| other.is_some_and(|other| same(&first, &other))))
    };
    let below = |of: &dyn Fn(&Value) -> Option<Value>, own: &Value| {
        let others: Vec<Value> = all.iter().filter_map(|other| of(other)).collect();
        differing(own, &others.iter().collect::<Vec<_>>())
    };
    match value {
        Value::Table(table) => {
            let kind = kind_of(table);
            let keys = table
                .iter()
                .filter(|(key, _)| kind.is_none() || *key != "kind");
            let shown = keys.filter_map(|(key, own)| {
                let of = |other: &Value| other.get(key).cloned();
                (!is_shared(&of)).then(|| format!("{key}={}", below(&of, own)))
            });
            let list = shown.collect::<Vec<_>>().join(", ");
            match kind {
                Some(kind) if list.is_empty() => kind.to_owned(),
                Some(kind) => format!("{kind}({list})"),
                None => format!("{{{list}}}"),
            }
        }
        Value::Array(array) => {
            let is_list = |other: &&Value| other.as_array().map(Vec::len) == Some(array.len());
            if !all.iter().all(is_list) {
                return plain(value);
            }
            let shown = array.iter().enumerate().map(|(at, own)| {
                let of = |other: &Value| other.as_array()?.get(at).cloned();
                if is_shared(&of) {
                    "…".to_owned()
                } else {
                    below(&of, own)
                }
            });
            format!("[{}]", shown.collect::<Vec<_>>().join(", "))
        }
        other => plain(other),
    }
}

fn kind_of(table: &Table) -> Option<&str> {
    table.get("kind").and_then(Value::as_str)
}

/// Keys that every table holds with the same value; all keys of a table that has no fellow.
fn common_keys(tables: &[&Table]) -> BTreeSet<String> {
    let mut seen: HashMap<&str, (usize, String)> = HashMap::new();
    for table in tables {
        for (key, value) in *table {
            let text = canonical(value);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// An encoding by layer whose parts are in the middle of a long name.
    fn by_layer(middle: &str, pattern: &str) -> Value {
        let part = "{ kind = \"stack\", parts = [{ kind = \"rope\", base = 12345 }, { kind = \
                    \"window\", size = 16 }] }";
        let text = format!(
            "value = {{ kind = \"by_layer\", parts = [{part}, {{ kind = \"{middle}\" }}, {part}], \
             pattern = {pattern} }}"
        );
        text.parse::<Table>().unwrap().remove("value").unwrap()
    }

    #[test]
    fn two_encodings_by_layer_have_two_names_that_a_report_shows() {
        let all = ["[0, 1, 2]", "[0, 1, 2]", "[0, 2, 1]", "[1, 0, 2, 2]"];
        let middles = ["nope", "alibi", "nope", "nope"];
        let values: Vec<Value> = middles
            .iter()
            .zip(all)
            .map(|(middle, pattern)| by_layer(middle, pattern))
            .collect();
        // Every subset of at least two: what is common to an axis is left out of its names.
        for subset in 0..1_u32 << values.len() {
            let chosen: Vec<Value> = (0..values.len())
                .filter(|at| subset & (1 << at) != 0)
                .map(|at| values[at].clone())
                .collect();
            let names = label(&chosen);
            let shown: BTreeSet<String> = names.iter().map(|name| shorten(name, SHOWN)).collect();
            assert_eq!(shown.len(), chosen.len(), "{names:?}");
        }
        // Two that differ in the middle of their parts alone: the others are left out.
        let names = label(&values[..2]);
        let expected = [
            "by_layer(parts=[…, nope, …])",
            "by_layer(parts=[…, alibi, …])",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn names_that_differ_where_they_are_shown_stay_whole() {
        let short = |pattern: &str| {
            let text = format!(
                "value = {{ kind = \"by_layer\", parts = [{{ kind = \"rope\" }}, {{ kind = \
                 \"nope\" }}], pattern = {pattern} }}"
            );
            text.parse::<Table>().unwrap().remove("value").unwrap()
        };
        let names = label(&[short("[0, 1]"), short("[1, 0]")]);
        assert_eq!(
            names,
            ["by_layer(pattern=[0, 1])", "by_layer(pattern=[1, 0])"]
        );
        let names = label(&[short("[0, 1]")]);
        assert_eq!(names, ["by_layer"]);
    }
}
