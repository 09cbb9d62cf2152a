//! What makes two runs seeds of one method, and the settings by which two methods differ.
//!
//! The identity of a method is the whole resolved spec of its runs without the seed
//! ([`RunRecord::method_spec`]), within one experiment. Two runs with the same identity and the
//! same seed have the same run id, so they are one run. A spec has the keys of a config, so settings
//! are named by its paths.

use crate::record::RunRecord;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};

/// A resolved spec of a method, with every warm start resolved as far as records allow.
pub(crate) type MethodSpec = Map<String, Value>;

/// Warm starts form chains; no real one is longer.
const LONGEST_CHAIN: usize = 16;

/// Looks up method specs, resolving warm starts of records that do not hold their start's method.
pub(crate) struct MethodSpecs<'a> {
    by_id: HashMap<&'a str, &'a RunRecord>,
}

impl<'a> MethodSpecs<'a> {
    /// `records`: all that a report is made of.
    pub(crate) fn new(records: &[&'a RunRecord]) -> Self {
        let trained = records.iter().filter(|r| r.evaluation_of.is_none());
        Self {
            by_id: trained.map(|r| (r.run_id.as_str(), *r)).collect(),
        }
    }

    /// The method of a run.
    pub(crate) fn of(&self, run: &RunRecord) -> MethodSpec {
        self.resolved(run, LONGEST_CHAIN)
    }

    fn resolved(&self, run: &RunRecord, depth: usize) -> MethodSpec {
        let mut spec = run.method_spec();
        let id = warm_start(&run.spec).and_then(|start| start.get("run_id")?.as_str());
        let Some(start) = warm_start_mut(&mut spec) else {
            return spec;
        };
        if let (None, Some(from)) = (start.get("from"), id.and_then(|id| self.by_id.get(id)))
            && depth > 0
        {
            start.insert("from".into(), Value::Object(self.resolved(from, depth - 1)));
        }
        spec
    }

    /// Whether a run started from another one whose method is unknown.
    pub(crate) fn lacks_start(&self, run: &RunRecord) -> bool {
        warm_start(&self.of(run)).is_some_and(|start| start.get("from").is_none())
    }
}

/// The run that a training started from, if not from drawn weights: `train.start_from`.
pub(crate) fn warm_start(spec: &MethodSpec) -> Option<&Map<String, Value>> {
    spec.get("train")?.get("start_from")?.as_object()
}

/// [`warm_start`], to change it.
pub(crate) fn warm_start_mut(spec: &mut MethodSpec) -> Option<&mut Map<String, Value>> {
    spec.get_mut("train")?
        .get_mut("start_from")?
        .as_object_mut()
}

/// The trained encoding: `model.pe`.
pub(crate) fn trained_encoding(spec: &MethodSpec) -> Option<&Value> {
    spec.get("model")?.get("pe")
}

/// One text for equal specs, whatever the order of their keys.
pub(crate) fn canonical_text(spec: &MethodSpec) -> String {
    fn sorted(value: &Value) -> Value {
        match value {
            Value::Object(map) => {
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
pub(crate) fn settings(spec: &MethodSpec) -> BTreeMap<String, String> {
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

/// The settings of the method started from stand below `train.start_from`, without its `from`.
fn train_settings(train: &Map<String, Value>, out: &mut BTreeMap<String, String>) {
    for (key, value) in train {
        match (key.as_str(), value) {
            ("start_from", Value::Object(start)) => start_settings(start, out),
            (key, value) => flatten(&format!("train.{key}"), value, out),
        }
    }
}

fn start_settings(start: &Map<String, Value>, out: &mut BTreeMap<String, String>) {
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
fn eval_settings(eval: &Map<String, Value>, out: &mut BTreeMap<String, String>) {
    for (key, value) in eval.iter().filter(|(key, _)| *key != "variants") {
        flatten(&format!("eval.{key}"), value, out);
    }
    for definition in definitions(eval) {
        let key = format!(
            "eval.variants.{}.{}",
            definition.variant, definition.test_len
        );
        flatten(&key, definition.encoding, out);
        if let Some(positions) = definition.positions {
            flatten(&format!("{key}.positions"), positions, out);
        }
    }
}

/// What a variant evaluates at one test length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Definition<'a> {
    pub variant: &'a str,
    pub test_len: usize,
    pub encoding: &'a Value,
    /// Positions, where they differ from those of the training.
    pub positions: Option<&'a Value>,
}

fn list(value: Option<&Value>) -> &[Value] {
    value
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice)
}

/// The variants of an `eval` section at each of its test lengths. Empty where it has another shape.
pub(crate) fn definitions(eval: &Map<String, Value>) -> Vec<Definition<'_>> {
    let lens: Vec<usize> = list(eval.get("test_lens"))
        .iter()
        .map(|len| len.as_u64().unwrap_or(0) as usize)
        .collect();
    let mut out = Vec::new();
    for variant in list(eval.get("variants")) {
        let Some(name) = variant.get("name").and_then(Value::as_str) else {
            continue;
        };
        let positions = list(variant.get("positions"));
        for (at, encoding) in list(variant.get("pe")).iter().enumerate() {
            // A list without its length still counts.
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
/// list is one leaf; a null is no leaf.
pub(crate) fn flatten(key: &str, value: &Value, out: &mut BTreeMap<String, String>) {
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

/// Numbers as people write them: `10000` for 10000.0.
fn number_text(value: &Value) -> String {
    match value.as_f64() {
        Some(x) if x.fract() == 0.0 && x.abs() < 1e15 => format!("{x:.0}"),
        _ => value.to_string(),
    }
}

/// Whether a setting follows from others unless it is given, so that it names a difference last.
pub(crate) fn is_derived(key: &str) -> bool {
    let key = key.strip_prefix("train.start_from.").unwrap_or(key);
    let is_stage_length = key.starts_with("train.stages.") && key.ends_with(".seq_len");
    matches!(key, "model.d_ff" | "model.head_dim" | "model.vocab_size")
        || matches!(
            key,
            "train.seq_len" | "train.warmup_steps" | "parameters" | "pe"
        )
        || is_stage_length
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
