//! Keys of one axis: one dotted key, or several that vary together.
//!
//! ```toml
//! [axes]
//! "model.pe, train.lr" = [[{ kind = "rope" }, 3e-3], [{ kind = "t5" }, 1e-2]]
//! ```
//! An axis of several keys has a list of values for each of its entries, one for each key.

use super::key_path::KeyPath;
use super::labels::{canonical, label};
use std::collections::HashSet;
use toml::Value;

/// The keys that an axis varies, separated by commas outside quotes; one in most axes.
///
/// # Errors
///
/// What is wrong with the first of them that is no dotted key.
pub(super) fn keys(axis: &str) -> Result<Vec<KeyPath>, String> {
    split(axis)
        .into_iter()
        .map(|key| KeyPath::parse(key.trim()))
        .collect()
}

/// The same, where a text that is no dotted key is a key of one part.
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

/// Labels of the entries of an axis with several keys, each the values of one entry: the label of
/// the first value where no other entry has that value, else the labels of all values that differ.
pub(super) fn labels(entries: &[Vec<Value>]) -> Vec<String> {
    let width = entries.first().map_or(0, Vec::len);
    let columns: Vec<Vec<String>> = (0..width).map(|at| column(entries, at)).collect();
    let mut seen = HashSet::new();
    let first_is_enough = (0..entries.len()).all(|row| seen.insert(&columns[0][row]));
    let varies = |texts: &Vec<String>| texts.iter().any(|text| *text != texts[0]);
    let others = columns.iter().skip(1);
    let others = others.filter(|texts| !first_is_enough && varies(texts));
    let shown: Vec<&Vec<String>> = columns.iter().take(1).chain(others).collect();
    let text = |row: usize| {
        let parts: Vec<&str> = shown.iter().map(|texts| texts[row].as_str()).collect();
        parts.join(", ")
    };
    (0..entries.len()).map(text).collect()
}

/// Labels of the values at one place of every entry, equal for equal values.
fn column(entries: &[Vec<Value>], at: usize) -> Vec<String> {
    let canonical = |value: &Value| {
        let mut text = String::new();
        canonical(value, &mut text);
        text
    };
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

    #[test]
    fn an_entry_is_named_by_its_first_value_where_that_is_enough() {
        let rates = r#"[[{ kind = "rope" }, 3e-3], [{ kind = "t5" }, 1e-2]]"#;
        assert_eq!(labels(&entries(rates)), ["rope", "t5"]);
        let twice = r#"[[{ kind = "t5" }, 3e-3, 1], [{ kind = "t5" }, 1e-2, 1]]"#;
        assert_eq!(labels(&entries(twice)), ["t5, 0.003", "t5, 0.01"]);
        let mixed = r#"[["a", 1], ["b", 1], ["a", 2]]"#;
        assert_eq!(labels(&entries(mixed)), ["a, 1", "b, 1", "a, 2"]);
    }
}
