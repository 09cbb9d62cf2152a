//! In which keys two JSON documents differ.

use serde_json::Value;
use std::collections::BTreeSet;

/// Where two JSON documents differ: dotted keys with both values.
pub fn differences<'a>(
    theirs: &'a Value,
    ours: &'a Value,
) -> Vec<(String, Option<&'a Value>, Option<&'a Value>)> {
    fn walk<'a>(
        key: &str,
        theirs: Option<&'a Value>,
        ours: Option<&'a Value>,
        found: &mut Vec<(String, Option<&'a Value>, Option<&'a Value>)>,
    ) {
        match (theirs, ours) {
            (Some(Value::Object(a)), Some(Value::Object(b))) => {
                let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
                for name in keys {
                    let key = if key.is_empty() {
                        name.clone()
                    } else {
                        format!("{key}.{name}")
                    };
                    walk(&key, a.get(name), b.get(name), found);
                }
            }
            (a, b) if a == b => {}
            _ => found.push((key.to_owned(), theirs, ours)),
        }
    }
    let mut found = Vec::new();
    walk("", Some(theirs), Some(ours), &mut found);
    found
}

/// A value in a message.
pub fn shown(value: Option<&Value>) -> String {
    value.map_or("absent".to_owned(), |value| short(&value.to_string()))
}

/// The first 60 characters of a text.
pub fn short(text: &str) -> String {
    if text.chars().count() <= 60 {
        text.to_owned()
    } else {
        format!("{}...", text.chars().take(57).collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_changed_key_is_listed_and_no_other() {
        let theirs = json!({ "train": { "steps": 600, "lr": 0.001 }, "seed": 0, "gone": [1, 2] });
        let ours = json!({ "train": { "steps": 700, "lr": 0.001, "new": true }, "seed": 0 });
        let found: Vec<String> = differences(&theirs, &ours)
            .into_iter()
            .map(|(key, ..)| key)
            .collect();
        assert_eq!(found, ["gone", "train.new", "train.steps"]);
        assert!(differences(&theirs, &theirs).is_empty());
    }
}
