//! The `[[eval.variants]]` of a reconstructed config.
//!
//! A setting of a variant that depends on the test length was `"auto"` in the config.

use crate::analysis::groups::TRAINED;
use crate::record::RunRecord;
use crate::spec::{Spec, definitions, trained_encoding};
use crate::text;
use serde_json::{Map, Value};

/// Keys whose numbers depend on the test length where a config says `"auto"`.
const AUTOMATIC: [&str; 1] = ["factor"];

/// A variant as a config writes it.
pub(super) struct Written {
    pub name: String,
    pub when: Option<Value>,
    pub set: Option<Value>,
    pub positions: Option<Value>,
}

/// The variants of all methods, each once, in the order of every method's own.
#[expect(
    clippy::too_many_lines,
    reason = "one pass over the variants of all methods"
)]
pub(super) fn variants(
    runs: &[&RunRecord],
    specs: &[Spec],
    comments: &mut Vec<String>,
) -> Vec<Written> {
    let mut names: Vec<&str> = Vec::new();
    let defined: Vec<_> = specs
        .iter()
        .map(|spec| {
            spec.get("eval")
                .and_then(Value::as_object)
                .map(definitions)
                .unwrap_or_default()
        })
        .collect();
    for own in &defined {
        // Every method's variants keep their order.
        let mut at = 0;
        for name in own
            .iter()
            .map(|d| d.variant)
            .filter(|name| *name != TRAINED)
        {
            let known = names.iter().position(|known| *known == name);
            at = known.unwrap_or_else(|| {
                names.insert(at, name);
                at
            }) + 1;
        }
    }
    let mut out = Vec::new();
    for name in names {
        let (mut wholes, mut sets, mut positions, mut with, mut without) =
            (vec![], vec![], vec![], vec![], vec![]);
        let mut is_whole = false;
        for ((run, spec), defined) in runs.iter().zip(specs).zip(&defined) {
            let own: Vec<_> = defined.iter().filter(|d| d.variant == name).collect();
            let raw = raw_encoding(run, spec);
            if own.is_empty() {
                without.push(raw);
                continue;
            }
            with.push(raw);
            let trained = trained_encoding(spec).cloned().unwrap_or(Value::Null);
            let whole = merged(&own.iter().map(|d| d.encoding).collect::<Vec<_>>());
            // One method whose encoding is replaced makes the variant a whole table for all.
            match whole.as_ref().map(|whole| change(&trained, whole)) {
                Some(Some(set)) => sets.push(set),
                _ => is_whole = true,
            }
            wholes.extend(whole);
            positions.extend(merged(
                &own.iter().filter_map(|d| d.positions).collect::<Vec<_>>(),
            ));
        }
        let chosen = if is_whole { &wholes } else { &sets };
        let set = merged(&chosen.iter().collect::<Vec<_>>());
        let when = when(&with, &without);
        if set.is_none() || when.is_none() {
            comments.push(format!(
                "The variant {} differs by method: see the methods table.",
                text::name(name, 60)
            ));
            continue;
        }
        out.push(Written {
            name: name.to_owned(),
            when: when.flatten(),
            set: set.filter(|set| set.as_object().is_some_and(|set| !set.is_empty())),
            positions: merged(&positions.iter().collect::<Vec<_>>()),
        });
    }
    out
}

/// The encoding's table as the config wrote it, which `when` is compared with.
fn raw_encoding(run: &RunRecord, spec: &Spec) -> Spec {
    let mut out = match trained_encoding(spec) {
        Some(Value::Object(map)) => map.clone(),
        _ => Map::new(),
    };
    // The label of the whole table first, because those of single keys change it.
    for label in &run.labels {
        if let ("model.pe", Value::Object(map)) = (label.key.as_str(), &label.value) {
            out = map.clone();
        }
    }
    for label in &run.labels {
        if let Some(key) = label
            .key
            .strip_prefix("model.pe.")
            .filter(|key| !key.contains('.'))
        {
            out.insert(key.into(), label.value.clone());
        }
    }
    out.retain(|_, value| !value.is_null());
    out
}

/// Keys and values that the encodings with a variant have in common and none of the others has:
/// `Some(None)` where all have the variant, none where nothing distinguishes them.
fn when(with: &[Spec], without: &[Spec]) -> Option<Option<Value>> {
    if without.is_empty() {
        return Some(None);
    }
    let (first, others) = with.split_first()?;
    let shared = first
        .iter()
        .filter(|(key, value)| others.iter().all(|other| other.get(*key) == Some(value)));
    let shared: Spec = shared
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let applies =
        |when: &Spec, pe: &Spec| when.iter().all(|(key, value)| pe.get(key) == Some(value));
    let kind: Spec = shared
        .iter()
        .filter(|(key, _)| *key == "kind")
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    let fits = |when: &Spec| !when.is_empty() && without.iter().all(|pe| !applies(when, pe));
    // The kind alone where it is enough.
    [kind, shared]
        .into_iter()
        .find(fits)
        .map(|when| Some(Value::Object(when)))
}

/// One table for the values at all lengths and of all methods: what differs was `"auto"` or follows
/// from another key. None where there is none or the shapes differ.
fn merged(values: &[&Value]) -> Option<Value> {
    let (first, others) = values.split_first()?;
    match first {
        Value::Object(map) => {
            if map.contains_key("kind")
                && others
                    .iter()
                    .any(|other| other.get("kind") != map.get("kind"))
            {
                return None;
            }
            let mut keys: Vec<&String> = Vec::new();
            for key in values
                .iter()
                .filter_map(|value| value.as_object())
                .flat_map(Map::keys)
            {
                if !keys.contains(&key) {
                    keys.push(key);
                }
            }
            let mut out = Map::new();
            for key in keys {
                let all: Vec<&Value> = values.iter().filter_map(|value| value.get(key)).collect();
                let is_same = all.len() == values.len() && all.iter().all(|value| *value == all[0]);
                let value = match all[0] {
                    value if is_same => Some(value.clone()),
                    // A factor of 1 may be left out as the default.
                    Value::Number(_) if AUTOMATIC.contains(&key.as_str()) => Some("auto".into()),
                    Value::Object(_) | Value::Array(_) if all.len() == values.len() => {
                        Some(merged(&all)?)
                    }
                    _ => None,
                };
                out.extend(value.map(|value| (key.clone(), value)));
            }
            Some(Value::Object(out))
        }
        Value::Array(items) => {
            let lists: Option<Vec<&Vec<Value>>> = others
                .iter()
                .map(|other| other.as_array().filter(|o| o.len() == items.len()))
                .collect();
            let lists = lists?;
            let each = items.iter().enumerate().map(|(i, item)| {
                let all: Vec<&Value> = std::iter::once(item)
                    .chain(lists.iter().map(|list| &list[i]))
                    .collect();
                if all.iter().all(|value| *value == item) {
                    Some(item.clone())
                } else {
                    merged(&all)
                }
            });
            each.collect::<Option<Vec<Value>>>().map(Value::Array)
        }
        _ => others
            .iter()
            .all(|other| other == first)
            .then(|| (*first).clone()),
    }
}

/// The keys of an encoding that a variant changes; none if it replaces the encoding.
fn change(trained: &Value, variant: &Value) -> Option<Value> {
    let (Value::Object(own), Value::Object(theirs)) = (trained, variant) else {
        return None;
    };
    if own.get("kind") != theirs.get("kind")
        || own
            .iter()
            .any(|(key, value)| !value.is_null() && !theirs.contains_key(key))
    {
        return None;
    }
    let changed = theirs
        .iter()
        .filter(|(key, value)| own.get(*key) != Some(value));
    Some(Value::Object(
        changed
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
    ))
}
