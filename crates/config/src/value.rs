//! TOML values and their types in words.

use schema::text::one_line;
use toml::Value;

/// Text as a TOML string in double quotes.
pub fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A value on one line, cut where it gets long.
pub fn describe_value(value: &Value) -> String {
    let mut out = String::new();
    write_value(value, &mut out, 60);
    out
}

fn write_value(value: &Value, out: &mut String, longest: usize) {
    // Writes the separator, and "..." once the text is long enough; then the caller stops.
    let room = |out: &mut String, i: usize| {
        out.push_str(if i > 0 { ", " } else { "" });
        let room = out.len() <= longest;
        out.push_str(if room { "" } else { "..." });
        room
    };
    match value {
        Value::String(text) => out.push_str(&quoted(&one_line(text, longest))),
        Value::Integer(number) => out.push_str(&number.to_string()),
        Value::Float(number) => out.push_str(&float_as_toml(*number)),
        Value::Boolean(truth) => out.push_str(if *truth { "true" } else { "false" }),
        Value::Datetime(date) => out.push_str(&date.to_string()),
        Value::Array(array) => {
            out.push('[');
            for (i, element) in array.iter().enumerate() {
                if !room(out, i) {
                    break;
                }
                write_value(element, out, longest);
            }
            out.push(']');
        }
        Value::Table(table) => {
            out.push_str(if table.is_empty() { "{" } else { "{ " });
            for (i, (key, element)) in table.iter().enumerate() {
                if !room(out, i) {
                    break;
                }
                out.push_str(&one_line(key, longest));
                out.push_str(" = ");
                write_value(element, out, longest);
            }
            out.push_str(if table.is_empty() { "}" } else { " }" });
        }
    }
}

/// The shortest text of a number; whole numbers have no point.
pub fn float_text(number: f64) -> String {
    // -0 is written as 0.
    let size = number.abs();
    if size == 0.0 {
        return "0".to_owned();
    }
    // Outside this range Rust would write rows of zeros.
    if (1e-4..1e16).contains(&size) || !number.is_finite() {
        number.to_string()
    } else {
        format!("{number:e}")
    }
}

/// Like [`float_text`], but never taken for a whole number.
fn float_as_toml(number: f64) -> String {
    // Rust writes NaN, TOML nan.
    let text = float_text(number).to_lowercase();
    if text.chars().all(|c| c.is_ascii_digit() || c == '-') {
        format!("{text}.0")
    } else {
        text
    }
}

/// What a value is, with its article.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "a string",
        Value::Integer(_) => "a whole number",
        Value::Float(_) => "a decimal number",
        Value::Boolean(_) => "a boolean",
        Value::Datetime(_) => "a date",
        Value::Array(_) => "a list",
        Value::Table(_) => "a table",
    }
}

/// Rust's name of a type in words.
pub(super) fn friendly(expected: &str) -> String {
    let words = match expected {
        "u8" => "a whole number, 0 to 255",
        "u16" => "a whole number, 0 to 65535",
        "u32" => "a whole number, 0 to 4294967295",
        "u64" | "usize" | "u128" => "a whole number, 0 or more",
        "length or range" => "a whole number, or a range such as \"51..100\"",
        "i8" => "a whole number, -128 to 127",
        "i16" => "a whole number, -32768 to 32767",
        "i32" => "a whole number, -2147483648 to 2147483647",
        "i64" | "isize" | "i128" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a string" => "a string",
        "fewer elements in array" => "a shorter list",
        "fewer elements in map" => "fewer keys",
        "a sequence" => "a list",
        "a map" => "a table",
        // Also `string only` and `string or table`; a guard, as `string` is an encoding too.
        _ if expected.split(' ').next() == Some("string") => "a string",
        _ if expected.starts_with("struct ") => "a table",
        _ if expected.starts_with("a nonzero ") => "a whole number, 1 or more",
        _ => "",
    };
    let counted = expected
        .strip_prefix("an array of length ")
        .or_else(|| expected.strip_prefix("a tuple of size "));
    match counted {
        Some(count) => format!("a list of {count}"),
        None if words.is_empty() => expected.to_owned(),
        None => words.to_owned(),
    }
}

/// How to write a value of the wrong type.
pub(super) fn rewrite(value: &Value, expected: &str, key: &str) -> Option<String> {
    let wanted = friendly(expected);
    let whole = wanted.starts_with("a whole number");
    // An element of a list has a number, not a key that could be written before `=`.
    let set = if key.parse::<usize>().is_ok() {
        String::new()
    } else {
        format!("{key} = ")
    };
    match value {
        Value::String(text) if whole || wanted == "a number" => {
            let number = text.trim().replace('_', "");
            let fits = if whole {
                number.parse::<i64>().is_ok()
            } else {
                number.parse::<f64>().is_ok_and(f64::is_finite)
            };
            fits.then(|| format!("remove the quotes: {set}{number}"))
        }
        Value::String(text) if wanted == "true or false" => {
            let truth = text.trim().to_lowercase();
            matches!(truth.as_str(), "true" | "false").then(|| format!("write {set}{truth}"))
        }
        Value::String(text) if expected.contains("kind") => Some(format!(
            "write {set}{{ kind = {} }}",
            quoted(&one_line(text, 60))
        )),
        // Below 1e15 a whole f64 is exact and fits into an i64.
        Value::Float(number) if whole && number.fract() == 0.0 && number.abs() < 1e15 => {
            Some(format!("write {set}{}", *number as i64))
        }
        Value::Table(_) | Value::Array(_) => None,
        // Lists of lengths have ranges, lists of seeds have not.
        Value::String(_) if matches!(key, "seeds" | "half_seeds") => {
            Some(format!("write a list: {set}[0, 1, 2]"))
        }
        other if wanted.starts_with("a list") => {
            Some(format!("write a list: {set}[{}]", describe_value(other)))
        }
        other if wanted == "a string" && key != "kind" => {
            Some(format!("write {set}{}", quoted(&describe_value(other))))
        }
        _ => None,
    }
}
