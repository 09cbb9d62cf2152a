//! JSON of a resolved spec as TOML on one line: `{ kind = "rope", base = 10000.0 }`.
//!
//! Keys without a value are left out, as a config leaves them out. Every character of a string that
//! some output could read as markup is written as an escape, so the text is safe in any of them and
//! still means the same to a TOML parser.

use schema::text::is_invisible;
use serde_json::Value;
use std::fmt::Write as _;

/// Whether TOML can hold a value: it has no null and no integers beyond 64 bits with a sign.
pub fn is_possible(json: &Value) -> bool {
    !(json.is_null() || json.is_u64() && json.as_i64().is_none())
}

/// The value on one line; `none` where TOML cannot hold it.
pub fn inline(json: &Value) -> String {
    match json {
        json if !is_possible(json) => "none".into(),
        Value::String(text) => string(text),
        Value::Array(items) => {
            let items: Vec<String> = items
                .iter()
                .filter(|v| is_possible(v))
                .map(inline)
                .collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(map) => {
            let pairs = map.iter().filter(|(_, v)| is_possible(v));
            let pairs: Vec<String> = pairs
                .map(|(k, v)| format!("{} = {}", key(k), inline(v)))
                .collect();
            if pairs.is_empty() {
                "{}".into()
            } else {
                format!("{{ {} }}", pairs.join(", "))
            }
        }
        // The shortest text that gives the same number: 10000.0, 1e-8.
        Value::Number(n) if n.is_f64() => n
            .as_f64()
            .map_or_else(|| n.to_string(), |x| format!("{x:?}")),
        other => other.to_string(),
    }
}

/// A bare key where TOML allows one, else a quoted one.
pub fn key(key: &str) -> String {
    let is_bare = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    if !key.is_empty() && key.bytes().all(is_bare) {
        key.into()
    } else {
        string(key)
    }
}

/// A basic string.
pub fn string(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_control()
                || is_invisible(c)
                || is_line_end(c)
                || matches!(c, '<' | '>' | '&' | '`' | '\\') =>
            {
                let _ = write!(out, "\\U{:08X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out + "\""
}

/// Unicode's own ends of lines and paragraphs.
fn is_line_end(c: char) -> bool {
    matches!(c, '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tables_are_inline_and_nulls_left_out() {
        let rope = json!({ "kind": "rope", "base": 10000.0, "eps": 1e-8, "dim": null, "a b": [1, 2], "e": {} });
        let text = "{ kind = \"rope\", base = 10000.0, eps = 1e-8, \"a b\" = [1, 2], e = {} }";
        assert_eq!(inline(&rope), text);
        assert_eq!(inline(&json!(u64::MAX)), "none");
    }

    #[test]
    fn strings_hold_no_markup() {
        assert_eq!(
            string("a\"b\\\n<b>\u{202e}`"),
            "\"a\\\"b\\U0000005C\\n\\U0000003Cb\\U0000003E\\U0000202E\\U00000060\""
        );
    }
}
