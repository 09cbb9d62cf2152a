//! A configured encoding by its whole difference from the defaults that the catalogue prints:
//! `fox(init_bias=3)`, whatever else was measured beside it.

use config::diagnostic::float_text;
use posenc::{EncodingConfig, Lengths, RopeScaling};
use serde_json::{Map, Value};

/// The kind of a resolved configuration and, in parentheses, every key whose value is not the
/// default at its lengths. A key whose difference depends on the length follows the test length by
/// `"auto"`, and is written so. None for what is not an encoding of the catalogue.
pub(super) fn difference(by_length: &[(Lengths, &Value)]) -> Option<String> {
    let (_, first) = by_length.first()?;
    let each = by_length
        .iter()
        .map(|(lengths, config)| keys(config, lengths))
        .collect::<Option<Vec<Keys>>>()?;
    let mut found: Keys = Vec::new();
    for (key, _) in each.iter().flatten() {
        if found.iter().any(|(known, _)| known == key) {
            continue;
        }
        let value = |keys: &Keys| keys.iter().find(|(other, _)| other == key).cloned();
        let mut values = each.iter().map(value);
        let one = values.next().flatten();
        let is_one = one.is_some() && values.all(|value| value == one);
        let text = one.filter(|_| is_one);
        found.push(text.unwrap_or_else(|| (key.clone(), "auto".to_owned())));
    }
    Some(written(first.get("kind")?.as_str()?, &found))
}

/// Whether every key of a resolved configuration has its default.
pub(super) fn is_default(lengths: &Lengths, config: &Value) -> bool {
    keys(config, lengths).is_some_and(|keys| keys.is_empty())
}

/// Keys that are not the default, and their values as text, in the order of the configuration.
type Keys = Vec<(String, String)>;

fn keys(config: &Value, lengths: &Lengths) -> Option<Keys> {
    let kind = config.get("kind")?.as_str()?;
    let mut base = EncodingConfig::example(kind)?;
    let open = serde_json::to_value(&base).ok()?;
    base.resolve(lengths);
    let base = serde_json::to_value(&base).ok()?;
    let has_default = EncodingConfig::default_of(kind).is_some();
    // A key without a default is written whatever its value is.
    let is_required = |key: &str| {
        let mut without = open.clone();
        without.as_object_mut().map(|table| table.shift_remove(key));
        serde_json::from_value::<EncodingConfig>(without).is_err()
    };
    let is_shown =
        |key: &str, value: &Value| base.get(key) != Some(value) || !has_default && is_required(key);
    Some(shown(config.as_object()?, lengths, is_shown))
}

fn shown(
    config: &Map<String, Value>,
    lengths: &Lengths,
    is_shown: impl Fn(&str, &Value) -> bool,
) -> Keys {
    config
        .iter()
        .filter(|(key, value)| *key != "kind" && is_shown(key, value))
        .map(|(key, value)| (key.clone(), text(value, lengths)))
        .collect()
}

fn written(kind: &str, keys: &Keys) -> String {
    if keys.is_empty() {
        return kind.to_owned();
    }
    let keys = keys.iter().map(|(key, value)| format!("{key}={value}"));
    format!("{kind}({})", keys.collect::<Vec<_>>().join(", "))
}

fn text(value: &Value, lengths: &Lengths) -> String {
    match value {
        Value::String(word) => word.clone(),
        Value::Number(number) => number
            .as_f64()
            .map_or_else(|| number.to_string(), float_text),
        Value::Array(items) => {
            let items = items.iter().map(|item| text(item, lengths));
            format!("[{}]", items.collect::<Vec<_>>().join(", "))
        }
        Value::Object(table) => inner(value, table, lengths),
        other => other.to_string(),
    }
}

/// An encoding or a scaling inside an encoding.
fn inner(value: &Value, table: &Map<String, Value>, lengths: &Lengths) -> String {
    let kind = value
        .get("kind")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if let Some(keys) = keys(value, lengths) {
        return written(kind, &keys);
    }
    let base = RopeScaling::default_of(kind).and_then(|mut scaling| {
        scaling.resolve(lengths);
        serde_json::to_value(&scaling).ok()
    });
    let is_shown = |key: &str, value: &Value| {
        base.as_ref().and_then(|base| base.get(key)) != Some(value) && !value.is_null()
    };
    written(kind, &shown(table, lengths, is_shown))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn named(config: &Value) -> String {
        let lengths = |test_len| Lengths {
            train_len: 64,
            trained_len: 64,
            test_len,
        };
        let at = |test_len: usize| {
            let mut config: EncodingConfig = serde_json::from_value(config.clone()).unwrap();
            config.resolve(&lengths(test_len));
            serde_json::to_value(config).unwrap()
        };
        let configs = [64, 512].map(|test_len| (test_len, at(test_len)));
        let configs = configs.each_ref();
        difference(&configs.map(|(test_len, config)| (lengths(*test_len), config))).unwrap()
    }

    #[test]
    fn every_key_that_is_not_the_default_is_named_and_no_other() {
        for (config, name) in [
            (json!({"kind": "fox", "init_bias": 3.0}), "fox(init_bias=3)"),
            (json!({"kind": "fox", "init_bias": 0.0}), "fox"),
            (json!({"kind": "learned"}), "learned"),
            (json!({"kind": "learned", "max_position": 64}), "learned"),
            (
                json!({"kind": "learned", "max_position": 512}),
                "learned(max_position=512)",
            ),
            (
                json!({"kind": "alibi", "factor": "auto"}),
                "alibi(factor=auto)",
            ),
            (
                json!({"kind": "rope", "scaling": {"kind": "yarn"}}),
                "rope(scaling=yarn)",
            ),
            (
                json!({"kind": "rope", "scaling": {"kind": "mrrope", "form": "uni"}}),
                "rope(scaling=mrrope(form=uni))",
            ),
            (json!({"kind": "self_extend"}), "self_extend"),
            (
                json!({"kind": "dape", "kernel": 3, "part": {"kind": "kerple"}}),
                "dape(part=kerple, kernel=3)",
            ),
            (
                json!({"kind": "stack", "parts": [
                    {"kind": "rope"}, {"kind": "t5", "max_distance": 32}]}),
                "stack(parts=[rope, t5(max_distance=32)])",
            ),
        ] {
            assert_eq!(named(&config), name);
        }
    }

    #[test]
    fn only_a_configuration_without_differences_is_the_default() {
        let lengths = Lengths {
            train_len: 64,
            trained_len: 64,
            test_len: 64,
        };
        let is = |config: Value| {
            let mut config: EncodingConfig = serde_json::from_value(config).unwrap();
            config.resolve(&lengths);
            is_default(&lengths, &serde_json::to_value(config).unwrap())
        };
        assert!(is(json!({"kind": "t5", "max_distance": 128})));
        assert!(!is(json!({"kind": "t5", "max_distance": 32})));
        // Without a default there is none.
        assert!(!is(json!({"kind": "dape", "part": {"kind": "nope"}})));
    }
}
