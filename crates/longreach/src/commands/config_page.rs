//! `docs/config.md` and the JSON schema of a configuration, written from the list of its keys.

use experiment::plan::keys::{KEYS, Key, Kind};
use posenc::{EncodingConfig, PositionsConfig};
use schema::Number;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use tasks::TaskConfig;

/// The part of the page that is written by hand.
const INTRODUCTION: &str = include_str!("config_page.md");

/// The page: the introduction, then every key with type, default, example and meaning.
pub fn page() -> String {
    let mut page = INTRODUCTION.trim_end().to_owned();
    page.push_str("\n\n## Every key\n\n");
    page.push_str(
        "Keys without a default are required. `N` is a place in a list. `longreach list schema` \
         prints\nthe same as a JSON schema, for completion in editors.\n",
    );
    let mut section = None;
    for key in KEYS.iter() {
        let own = section_of(key);
        if section != Some(own) {
            section = Some(own);
            let title = if own.is_empty() {
                "Top level".to_owned()
            } else {
                format!("`[{own}]`")
            };
            let _ = write!(
                page,
                "\n### {title}\n\n| key | type | default | example | meaning |\n|---|---|---|---|---|\n"
            );
        }
        let name = key.path.strip_prefix(own).unwrap_or(key.path);
        let default = key.default.map_or("required".to_owned(), |text| {
            if is_toml(text) {
                format!("`{text}`")
            } else {
                text.to_owned()
            }
        });
        let _ = writeln!(
            page,
            "| `{}` | {} | {default} | `{}` | {} |",
            name.trim_start_matches('.'),
            type_in_words(key.kind),
            key.example,
            key.meaning
        );
    }
    page.push_str("\n### Kinds\n\n| table | kinds | keys of each |\n|---|---|---|\n");
    for (table, kinds, link) in [
        ("task", TaskConfig::KINDS, "[tasks](tasks.md)"),
        (
            "model.pe",
            EncodingConfig::KINDS,
            "[catalogue](catalogue/README.md)",
        ),
        (
            "model.positions",
            PositionsConfig::KINDS,
            "`longreach list schema`",
        ),
    ] {
        let _ = writeln!(page, "| `{table}` | {} | {link} |", kinds.join(", "));
    }
    page
}

/// The table of a file that a key belongs to.
fn section_of(key: &Key) -> &'static str {
    let sections = ["model", "train", "eval", "report"];
    let in_section = |section: &&&str| {
        let rest = key.path.strip_prefix(**section);
        rest.is_some_and(|rest| rest.starts_with('.'))
    };
    sections.iter().find(in_section).copied().unwrap_or("")
}

/// Whether a text is a TOML value, and not words.
fn is_toml(text: &str) -> bool {
    text.parse::<toml::Value>().is_ok() || format!("x = {text}").parse::<toml::Table>().is_ok()
}

fn type_in_words(kind: Kind) -> String {
    match kind {
        Kind::Text => "string".to_owned(),
        Kind::Truth => "true or false".to_owned(),
        // The largest whole number of TOML is no limit of the key.
        Kind::Whole(low, high) if high == u64::MAX >> 1 => format!("whole number from {low}"),
        Kind::Whole(low, high) => format!("whole number, {low} to {high}"),
        Kind::Number(low, high) => format!("number, {} to {}", low.text(), high.text()),
        Kind::Name(names) => names.join(", "),
        Kind::Wholes(low, high) if high == u64::MAX >> 1 => {
            format!("list of whole numbers from {low}")
        }
        Kind::Wholes(low, high) => format!("list of whole numbers, {low} to {high}"),
        Kind::Lengths(low, high) => {
            format!("list of whole numbers or ranges `\"51..100\"`, {low} to {high}")
        }
        Kind::Task | Kind::Encoding | Kind::Positions => "table with `kind`".to_owned(),
        Kind::EncodingKeys => "table of keys of an encoding".to_owned(),
        Kind::Encodings => "table as `model.pe`, or a list of them".to_owned(),
        Kind::Axes => "table of lists".to_owned(),
    }
}

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
                if let Some(default) = key.default.and_then(as_json) {
                    schema["default"] = default;
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
    // Tables are no keys of the list, so those that every file needs are named here.
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

/// A default as JSON, where it is a value and not words.
fn as_json(default: &str) -> Option<Value> {
    let table: toml::Table = format!("x = {default}").parse().ok()?;
    serde_json::to_value(table.get("x")?).ok()
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
