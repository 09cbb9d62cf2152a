//! The JSON schema of a configuration, from the list of its keys.

use experiment::plan::keys::{KEYS, Kind};
use posenc::{EncodingConfig, PositionsConfig};
use serde_json::{Map, Value, json};
use tasks::TaskConfig;

/// The JSON schema (draft 2020-12) of a configuration.
pub fn schema() -> Value {
    let mut root = table();
    for key in KEYS.iter() {
        let mut at = &mut root;
        let mut parts = key.path.split('.').peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                let mut schema = type_as_schema(key.kind);
                schema["description"] = json!(key.meaning.replace('`', ""));
                if let Some(default) = key.default_value() {
                    schema["default"] = json!(default);
                }
                at["properties"][part] = schema;
                if key.default.is_none()
                    && let Some(required) = at["required"].as_array_mut()
                {
                    required.push(json!(part));
                }
            } else if part == "N" {
                // The list was made when its name was read.
            } else {
                let is_list = parts.peek() == Some(&"N");
                let properties = at["properties"].as_object_mut();
                let Some(properties) = properties else { break };
                let slot = properties.entry(part).or_insert_with(|| {
                    if is_list {
                        json!({ "type": "array", "items": table() })
                    } else {
                        table()
                    }
                });
                at = if is_list { &mut slot["items"] } else { slot };
            }
        }
    }
    root["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    root["title"] = json!("A Longreach configuration");
    // Tables are not keys of the list, so those that every file needs are named here.
    for section in ["model", "train", "eval"] {
        if let Some(required) = root["required"].as_array_mut() {
            required.push(json!(section));
        }
    }
    root
}

fn table() -> Value {
    json!({ "type": "object", "additionalProperties": false, "properties": {}, "required": [] })
}

fn type_as_schema(kind: Kind) -> Value {
    match kind {
        Kind::Text => json!({ "type": "string" }),
        Kind::Truth => json!({ "type": "boolean" }),
        Kind::Whole(low, high) => json!({ "type": "integer", "minimum": low, "maximum": high }),
        Kind::Number(low, high) => json!({ "type": "number", "minimum": low, "maximum": high }),
        Kind::Name(names) => json!({ "enum": names }),
        Kind::Wholes(low, high) => json!({
            "type": "array",
            "items": { "type": "integer", "minimum": low, "maximum": high },
        }),
        Kind::Lengths(low, high) => json!({
            "type": "array",
            "items": { "anyOf": [
                { "type": "integer", "minimum": low, "maximum": high },
                { "type": "string", "pattern": "^[0-9]+\\.\\.[0-9]+$" },
            ] },
        }),
        Kind::Task => tagged(TaskConfig::KINDS, |kind| {
            to_json(TaskConfig::default_of(kind))
        }),
        Kind::Encoding => encodings(),
        Kind::EncodingKeys => json!({ "type": "object" }),
        Kind::Encodings => json!({
            "anyOf": [encodings(), { "type": "array", "items": encodings() }],
        }),
        Kind::Positions => tagged(PositionsConfig::KINDS, |kind| {
            to_json(PositionsConfig::default_of(kind))
        }),
        Kind::Axes => json!({ "type": "object", "additionalProperties": { "type": "array" } }),
    }
}

fn encodings() -> Value {
    tagged(EncodingConfig::KINDS, |kind| {
        to_json(EncodingConfig::default_of(kind))
    })
}

fn to_json(value: impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

/// A table whose `kind` chooses its other keys. Those with a default value are listed.
fn tagged(kinds: &[&str], default_of: impl Fn(&str) -> Value) -> Value {
    let of_kind = |kind: &&str| {
        let mut properties = Map::new();
        if let Value::Object(defaults) = default_of(kind) {
            let known = defaults.into_iter().filter(|(_, value)| !value.is_null());
            properties.extend(known.map(|(key, value)| (key, json!({ "default": value }))));
        }
        properties.insert("kind".to_owned(), json!({ "const": kind }));
        json!({ "type": "object", "properties": properties, "required": ["kind"] })
    };
    json!({ "oneOf": kinds.iter().map(of_kind).collect::<Vec<_>>() })
}
