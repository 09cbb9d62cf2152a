//! Keys of one axis: one dotted key, or several that vary together.
//!
//! ```toml
//! [axes]
//! "model.pe, train.lr" = [[{ kind = "rope" }, 3e-3], [{ kind = "t5" }, 1e-2]]
//! ```
//! An axis of several keys has a list of values for each of its entries, one for each key.

use super::key_path::KeyPath;
use super::labels::{Label, canonical, label, same};
use std::collections::{BTreeMap, HashSet};
use toml::Value;

/// The keys that an axis varies, separated by commas outside quotes; one in most axes.
///
/// # Errors
///
/// What is wrong with the first of them that is not a dotted key.
pub(super) fn keys(axis: &str) -> Result<Vec<KeyPath>, String> {
    split(axis)
        .into_iter()
        .map(|key| KeyPath::parse(key.trim()))
        .collect()
}

/// The same, where a text that is not a dotted key is a key of one part.
pub(super) fn known_keys(axis: &str) -> Vec<KeyPath> {
    keys(axis).unwrap_or_else(|_| vec![KeyPath::new([axis])])
}

fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut quote) = (Vec::new(), 0, None);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, ',') => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// The values of an entry as written, one for each of `keys` keys.
pub(super) fn values(entry: &Value, keys: usize) -> Vec<Value> {
    match entry {
        Value::Array(values) if keys > 1 => values.clone(),
        value => vec![value.clone()],
    }
}

/// The value of a key in an entry of an axis of `paths`.
pub(super) fn value_at(entry: &Value, paths: &[KeyPath], path: &KeyPath) -> Option<Value> {
    let column = paths.iter().position(|known| known == path)?;
    values(entry, paths.len()).into_iter().nth(column)
}

/// Whether an entry of an axis of `paths` has these values.
pub(super) fn fits(
    entry: &Value,
    paths: &[KeyPath],
    asked: &BTreeMap<KeyPath, (Value, usize)>,
) -> bool {
    let has = |(path, (value, _)): (&KeyPath, &(Value, usize))| {
        value_at(entry, paths, path).is_some_and(|own| same(&own, value))
    };
    asked.iter().all(has)
}

/// Labels of the entries of an axis with the keys `names`: the first value, and those of the other
/// keys that vary. `fewest`: the first alone where no two entries have the same.
pub(super) fn labels(entries: &[Vec<Value>], names: &[String], fewest: bool) -> Vec<Vec<Label>> {
    let columns: Vec<Vec<String>> = (0..names.len()).map(|at| column(entries, at)).collect();
    let mut seen = HashSet::new();
    let first_is_enough = (0..entries.len()).all(|row| seen.insert(&columns[0][row]));
    let is_shown = |at: usize| {
        let varies = columns[at].iter().any(|text| *text != columns[at][0]);
        at == 0 || (varies && !(fewest && first_is_enough))
    };
    let shown: Vec<usize> = (0..names.len()).filter(|at| is_shown(*at)).collect();
    let label = |row: usize, at: usize| Label {
        key: names[at].clone(),
        text: columns[at][row].clone(),
        value: entries[row][at].clone(),
    };
    let of = |row: usize| shown.iter().map(|at| label(row, *at)).collect();
    (0..entries.len()).map(of).collect()
}

/// Labels of the values at one place of every entry, equal for equal values.
fn column(entries: &[Vec<Value>], at: usize) -> Vec<String> {
    let mut distinct: Vec<(String, Value)> = Vec::new();
    for entry in entries {
        let text = canonical(&entry[at]);
        if !distinct.iter().any(|(known, _)| *known == text) {
            distinct.push((text, entry[at].clone()));
        }
    }
    let values: Vec<Value> = distinct.iter().map(|(_, value)| value.clone()).collect();
    let texts = label(&values);
    let of = |entry: &Vec<Value>| {
        let text = canonical(&entry[at]);
        let found = distinct.iter().position(|(known, _)| *known == text);
        found.map_or_else(String::new, |found| texts[found].clone())
    };
    entries.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(text: &str) -> Vec<Vec<Value>> {
        let table: toml::Table = format!("x = {text}").parse().unwrap();
        let rows = table["x"].as_array().unwrap();
        rows.iter()
            .map(|row| row.as_array().unwrap().clone())
            .collect()
    }

    #[test]
    fn commas_outside_quotes_separate_keys() {
        let keys = keys(r#"model.pe, train."a,b" ,train.lr"#).unwrap();
        let parts: Vec<&[String]> = keys.iter().map(KeyPath::parts).collect();
        assert_eq!(parts, [["model", "pe"], ["train", "a,b"], ["train", "lr"]]);
        assert!(super::keys("model.pe,").is_err());
    }

    fn shown(text: &str, fewest: bool) -> Vec<String> {
        let entries = entries(text);
        let names = ["x", "y", "z"].map(str::to_owned);
        let labels = labels(&entries, &names[..entries[0].len()], fewest);
        let text = |label: &Label| format!("{}={}", label.key, label.text);
        let text = |labels: &Vec<Label>| labels.iter().map(text).collect::<Vec<_>>().join(" ");
        labels.iter().map(text).collect()
    }

    #[test]
    fn an_entry_is_named_by_its_first_value_where_that_is_enough() {
        let rates = r#"[[{ kind = "rope" }, 3e-3], [{ kind = "t5" }, 1e-2]]"#;
        assert_eq!(shown(rates, true), ["x=rope", "x=t5"]);
        let twice = r#"[[{ kind = "t5" }, 3e-3, 1], [{ kind = "t5" }, 1e-2, 1]]"#;
        assert_eq!(shown(twice, true), ["x=t5 y=0.003", "x=t5 y=0.01"]);
        let mixed = r#"[["a", 1], ["b", 1], ["a", 2]]"#;
        assert_eq!(shown(mixed, true), ["x=a y=1", "x=b y=1", "x=a y=2"]);
    }

    #[test]
    fn what_is_chosen_is_named_by_all_that_varies() {
        let rates = "[[1e-3, 100, 1], [3e-3, 200, 1], [1e-2, 200, 1]]";
        let all = ["x=0.001 y=100", "x=0.003 y=200", "x=0.01 y=200"];
        assert_eq!(shown(rates, false), all);
    }
}
