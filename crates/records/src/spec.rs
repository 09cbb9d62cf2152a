//! The resolved spec of a run as JSON: paths in it, its settings by key, and its variants.
//!
//! A spec has the keys of a config, so settings are named by its paths: `model.pe.base`.

use crate::record::length_range;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A resolved spec, or that of a method: without the seed.
pub type Spec = Map<String, Value>;

/// The run that a training started from, if not from drawn weights: `train.start_from`.
pub fn warm_start(spec: &Spec) -> Option<&Spec> {
    spec.get("train")?.get("start_from")?.as_object()
}

/// [`warm_start`], to change it.
pub fn warm_start_mut(spec: &mut Spec) -> Option<&mut Spec> {
    spec.get_mut("train")?
        .get_mut("start_from")?
        .as_object_mut()
}

/// The trained encoding: `model.pe`.
pub fn trained_encoding(spec: &Spec) -> Option<&Value> {
    spec.get("model")?.get("pe")
}

/// One text for equal specs, whatever the order of their keys.
pub fn canonical_text(spec: &Spec) -> String {
    fn sorted(value: &Value) -> Value {
        match value {
            Value::Object(map) => {
                // A key with a null is the same as no key.
                let sorted: BTreeMap<&String, Value> = map
                    .iter()
                    .filter(|(_, v)| !v.is_null())
                    .map(|(k, v)| (k, sorted(v)))
                    .collect();
                Value::Object(sorted.into_iter().map(|(k, v)| (k.clone(), v)).collect())
            }
            Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
            other => other.clone(),
        }
    }
    sorted(&Value::Object(spec.clone())).to_string()
}

/// Settings by the key of a config, values as text: `model.pe.base` = `10000.0`.
pub fn settings(spec: &Spec) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    for (key, value) in spec {
        match (key.as_str(), value) {
            ("corpus_blake3", value) => flatten("task.corpus_blake3", value, &mut out),
            ("train", Value::Object(train)) => train_settings(train, &mut out),
            ("eval", Value::Object(eval)) => eval_settings(eval, &mut out),
            (key, value) => flatten(key, value, &mut out),
        }
    }
    out
}

/// Settings of the training. Those of the method started from are below `train.start_from`, without
/// the spec's own `from`.
fn train_settings(train: &Spec, out: &mut BTreeMap<String, String>) {
    for (key, value) in train {
        match (key.as_str(), value) {
            ("start_from", Value::Object(start)) => start_settings(start, out),
            (key, value) => flatten(&format!("train.{key}"), value, out),
        }
    }
}

fn start_settings(start: &Spec, out: &mut BTreeMap<String, String>) {
    for (key, value) in start {
        match (key.as_str(), value) {
            ("from", Value::Object(from)) => {
                let inner = settings(from).into_iter();
                out.extend(inner.map(|(key, v)| (format!("train.start_from.{key}"), v)));
            }
            (key, value) => flatten(&format!("train.start_from.{key}"), value, out),
        }
    }
}

/// Variants by name and test length instead of by index.
fn eval_settings(eval: &Spec, out: &mut BTreeMap<String, String>) {
    for (key, value) in eval.iter().filter(|(key, _)| *key != "variants") {
        flatten(&format!("eval.{key}"), value, out);
    }
    let definitions = definitions(eval);
    out.extend(definitions.iter().flat_map(|own| own.settings(own.variant)));
}

/// The encoding and positions that a variant evaluates at one test length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Definition<'a> {
    /// Name of the variant.
    pub variant: &'a str,
    /// Test length, in the task's unit.
    pub test_len: usize,
    /// The encoding at this length.
    pub encoding: &'a Value,
    /// Positions, where they differ from those of the training.
    pub positions: Option<&'a Value>,
}

impl Definition<'_> {
    /// Its settings, by keys such as `eval.variants.ntk.64.scaling.factor`. `name`: that of the
    /// variant in the report.
    pub fn settings(&self, name: &str) -> BTreeMap<String, String> {
        let mut out = BTreeMap::new();
        let key = format!("eval.variants.{name}.{}", self.test_len);
        flatten(&key, self.encoding, &mut out);
        if let Some(positions) = self.positions {
            flatten(&format!("{key}.positions"), positions, &mut out);
        }
        out
    }
}

fn list(value: Option<&Value>) -> &[Value] {
    value
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice)
}

/// The variants of an `eval` section at each of its test lengths. Empty where it has another shape.
pub fn definitions(eval: &Spec) -> Vec<Definition<'_>> {
    let lens: Vec<usize> = list(eval.get("test_lens"))
        .iter()
        .map(|len| match len.as_str().and_then(length_range) {
            // A range is named by its upper end.
            Some((_, to)) => to,
            None => len.as_u64().unwrap_or(0) as usize,
        })
        .collect();
    let mut out = Vec::new();
    for variant in list(eval.get("variants")) {
        let Some(name) = variant.get("name").and_then(Value::as_str) else {
            continue;
        };
        let positions = list(variant.get("positions"));
        for (at, encoding) in list(variant.get("pe")).iter().enumerate() {
            // Without a list of test lengths the index distinguishes them.
            let test_len = lens.get(at).copied().unwrap_or(at);
            out.push(Definition {
                variant: name,
                test_len,
                encoding,
                positions: positions.get(at),
            });
        }
    }
    out
}

/// Leaves of a JSON document by dotted key. A list of tables has its indices as keys, any other
/// list is one leaf; a null is not a leaf.
pub fn flatten(key: &str, value: &Value, out: &mut BTreeMap<String, String>) {
    match value {
        Value::Null => {}
        Value::Object(map) if !map.is_empty() => {
            map.iter()
                .for_each(|(k, v)| flatten(&format!("{key}.{k}"), v, out));
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            items
                .iter()
                .enumerate()
                .for_each(|(i, v)| flatten(&format!("{key}.{i}"), v, out));
        }
        Value::String(text) => {
            out.insert(key.into(), text.clone());
        }
        other => {
            out.insert(key.into(), number_text(other));
        }
    }
}

/// Whole numbers without a fraction: `10000` for 10000.0.
fn number_text(value: &Value) -> String {
    match value.as_f64() {
        Some(x) if x.fract() == 0.0 && x.abs() < 1e15 => format!("{x:.0}"),
        _ => value.to_string(),
    }
}

/// The settings that a setting follows from by default, none of one that stands alone.
fn sources(key: &str) -> &'static [&'static str] {
    match key {
        "model.d_ff" => &["model.d_model"],
        "model.head_dim" => &["model.d_model", "model.n_heads"],
        "model.vocab_size" => &["task"],
        "train.seq_len" => &["train.train_len", "task"],
        "train.warmup_steps" => &["train.steps"],
        "parameters" | "pe" => &["model", "task"],
        key if key.starts_with("train.stages.") && key.ends_with(".seq_len") => {
            &["train.stages", "task"]
        }
        _ => &[],
    }
}

/// Whether a key is that of a table or of a key below it.
pub fn is_in(key: &str, table: &str) -> bool {
    let rest = key.strip_prefix(table);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Before the settings of the run that a training started from.
const STARTED: &str = "train.start_from.";

/// Whether a setting follows from others by default. Differences are named by such settings last.
pub fn is_derived(key: &str) -> bool {
    !sources(key.strip_prefix(STARTED).unwrap_or(key)).is_empty()
}

/// Whether a setting that differs follows by default from another one of those that differ.
pub fn follows<'k>(key: &str, differing: impl Iterator<Item = &'k str> + Clone) -> bool {
    let own = key.strip_prefix(STARTED).unwrap_or(key);
    sources(own).iter().any(|source| {
        let mut others = differing.clone().filter(|other| *other != key);
        others.any(|other| {
            let other = other.strip_prefix(STARTED).unwrap_or(other);
            is_in(other, source) && !is_derived(other)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_setting_follows_from_what_differs_only() {
        let follows = |key: &str, all: &[&str]| follows(key, all.iter().copied());
        assert!(follows("model.d_ff", &["model.d_ff", "model.d_model"]));
        assert!(follows("model.vocab_size", &["task.alphabet"]));
        assert!(!follows("model.d_ff", &["model.d_ff", "train.lr"]));
        assert!(!follows(
            "train.warmup_steps",
            &["train.warmup_steps", "model.d_model"]
        ));
        assert!(!follows("train.lr", &["train.lr", "train.steps"]));
    }

    #[test]
    fn settings_have_the_keys_of_a_config() {
        let spec = json!({
            "task": { "kind": "copy", "files": [] },
            "model": { "pe": { "kind": "rope", "base": 10000.0, "rotary_dim": null } },
            "train": { "start_from": { "pe": true, "from": { "model": { "pe": { "kind": "nope" } } } } },
            "eval": {
                "test_lens": [8, 16],
                "variants": [{ "name": "ntk", "pe": [{ "factor": 1.0 }, { "factor": 2.5 }] }],
            },
        });
        let found: Vec<(String, String)> =
            settings(spec.as_object().unwrap()).into_iter().collect();
        let found: Vec<(&str, &str)> = found
            .iter()
            .map(|(k, v)| (k.as_str(), v.as_str()))
            .collect();
        assert_eq!(
            found,
            [
                ("eval.test_lens", "[8,16]"),
                ("eval.variants.ntk.16.factor", "2.5"),
                ("eval.variants.ntk.8.factor", "1"),
                ("model.pe.base", "10000"),
                ("model.pe.kind", "rope"),
                ("task.files", "[]"),
                ("task.kind", "copy"),
                ("train.start_from.model.pe.kind", "nope"),
                ("train.start_from.pe", "true"),
            ]
        );
    }

    #[test]
    fn the_order_of_keys_does_not_matter() {
        let a = json!({ "a": { "x": 1, "y": null }, "b": [{ "c": 1, "d": 2 }] });
        let b = json!({ "b": [{ "d": 2, "c": 1 }], "a": { "x": 1 } });
        let text = |v: &Value| canonical_text(v.as_object().unwrap());
        assert_eq!(text(&a), text(&b));
        assert_ne!(
            text(&a),
            text(&json!({ "a": { "x": 2 }, "b": [{ "c": 1, "d": 2 }] }))
        );
    }
}
