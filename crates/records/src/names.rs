//! Names of methods in a reader's words: `RoPE, dynamic NTK` for the table of a config.

use crate::record::Label;
use crate::text;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Longest name of a label in words, in characters.
pub const LONGEST: usize = 80;
/// Numbers of a list that are named one by one.
const MOST_NUMBERS: usize = 4;

/// Names of kinds for people, by kind; without one, a kind is its own name. Who declares kinds
/// gives them: records know none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Names(pub &'static [&'static [(&'static str, Option<&'static str>)]]);

/// Which settings a name tells beside its kinds.
#[derive(Clone, Copy)]
pub enum Detail<'d> {
    /// None.
    Brief,
    /// Those with these paths, such as `.scaling.factor`.
    With(&'d BTreeSet<String>),
    /// All.
    Whole,
}

impl Detail<'_> {
    fn shows(self, path: &str) -> bool {
        match self {
            Self::Brief => false,
            Self::With(paths) => paths.iter().any(|with| with.starts_with(path)),
            Self::Whole => true,
        }
    }
}

impl Names {
    /// `dynamic_ntk` as `dynamic NTK`.
    pub fn kind(self, kind: &str) -> String {
        let mut all = self.0.iter().copied().flatten();
        let declared = all.find(|(known, _)| *known == kind);
        let name = declared.and_then(|(_, name)| *name);
        name.map_or_else(|| kind.replace('_', " "), str::to_owned)
    }

    /// The name of a variant, which is often that of the kind it tests.
    pub fn variant(self, name: &str) -> String {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let kind = name.replace('-', "_");
        let is_known = self.0.iter().any(|all| all.iter().any(|(k, _)| *k == kind));
        match name.chars().all(is_word) {
            true if is_known => self.kind(&kind),
            true => name.replace('_', " "),
            false => name.to_owned(),
        }
    }

    /// A label's value: `RoPE, YaRN`; the text of one that is no kind.
    pub fn label(self, label: &Label, detail: Detail<'_>) -> String {
        let words = match &label.value {
            Value::Object(table) => self.table(table, "", detail),
            Value::Array(items) if items.len() > MOST_NUMBERS => items_in_words(items),
            _ if label.key.ends_with("pe") || label.key.ends_with("kind") => self.kind(&label.text),
            _ => label.text.clone(),
        };
        text::name(&words, LONGEST)
    }

    /// A table with all its settings: `RoPE, base 10000, layout half`.
    pub fn whole(self, value: &Value) -> String {
        self.value(value, "", Detail::Whole)
    }

    fn value(self, value: &Value, path: &str, detail: Detail<'_>) -> String {
        match value {
            Value::Object(table) => self.table(table, path, detail),
            Value::Array(items) if items.len() > MOST_NUMBERS && !items[0].is_object() => {
                items_in_words(items)
            }
            Value::Array(items) => {
                let each = items.iter().enumerate();
                let each = each.map(|(at, item)| self.part(item, &format!("{path}.{at}"), detail));
                let between = if items.iter().all(Value::is_object) {
                    " and "
                } else {
                    " "
                };
                each.collect::<Vec<_>>().join(between)
            }
            Value::String(text) => text.replace('_', " "),
            Value::Null => "not recorded".into(),
            other => other.to_string().trim_end_matches(".0").to_owned(),
        }
    }

    /// A part in words, in brackets where they are several.
    fn part(self, value: &Value, path: &str, detail: Detail<'_>) -> String {
        let words = self.value(value, path, detail);
        match words.contains(", ") || words.contains(" and ") {
            true => format!("({words})"),
            false => words,
        }
    }

    fn table(self, table: &Map<String, Value>, path: &str, detail: Detail<'_>) -> String {
        let kind = table
            .get("kind")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let name = self.kind(kind);
        let is_part = |key: &str| key == "part" || key == "parts";
        let inner = table.iter().filter(|(key, _)| is_part(key));
        let inner = inner.map(|(key, value)| self.value(value, &format!("{path}.{key}"), detail));
        let inner: Vec<String> = inner.collect();
        let head = match (name.as_str(), inner.concat()) {
            (name, inner) if inner.is_empty() => name.to_owned(),
            ("", inner) => inner,
            (name, inner) => format!("{name} ({inner})"),
        };
        let settings = table
            .iter()
            .filter(|(key, value)| *key != "kind" && !is_part(key) && !value.is_null());
        let settings = settings.filter_map(|(key, value)| {
            let path = format!("{path}.{key}");
            if let Value::Object(table) = value
                && table.contains_key("kind")
            {
                return Some(self.table(table, &path, detail));
            }
            let key = match key.as_str() {
                "original_max_position_embeddings" => "original length".to_owned(),
                key => key.replace('_', " "),
            };
            let words = match value {
                Value::Bool(true) => key,
                Value::Bool(false) => format!("not {key}"),
                value => format!("{key} {}", self.value(value, &path, detail)),
            };
            detail.shows(&path).then_some(words)
        });
        let all = std::iter::once(head).chain(settings);
        let all: Vec<String> = all.filter(|text| !text.is_empty()).collect();
        all.join(", ")
    }
}

/// `96 numbers, 1 to 64.3`
fn items_in_words(items: &[Value]) -> String {
    let numbers: Option<Vec<f64>> = items.iter().map(Value::as_f64).collect();
    let count = items.len();
    let Some(numbers) = numbers else {
        return format!("{count} values");
    };
    let ends = numbers
        .iter()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| {
            (low.min(*x), high.max(*x))
        });
    format!("{count} numbers from {} to {}", ends.0, ends.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NAMES: Names = Names(&[
        &[
            ("rope", Some("RoPE")),
            ("stack", Some("")),
            ("by_head", None),
            ("dape", Some("DAPE")),
        ],
        &[
            ("dynamic_ntk", Some("dynamic NTK")),
            ("longrope", Some("LongRoPE")),
        ],
    ]);

    fn named(value: Value, detail: Detail<'_>) -> String {
        let label = Label {
            key: "model.pe".into(),
            text: "rope".into(),
            value,
        };
        NAMES.label(&label, detail)
    }

    #[test]
    fn a_name_has_the_kinds_and_the_settings_asked_for() {
        let scaling = json!({ "kind": "dynamic_ntk", "original_max_position_embeddings": 64 });
        let rope = json!({ "kind": "rope", "base": 100.0, "scaling": scaling });
        assert_eq!(named(rope.clone(), Detail::Brief), "RoPE, dynamic NTK");
        let with = BTreeSet::from([".scaling.original_max_position_embeddings".to_owned()]);
        let more = named(rope.clone(), Detail::With(&with));
        assert_eq!(more, "RoPE, dynamic NTK, original length 64");
        let whole = "RoPE, base 100, dynamic NTK, original length 64";
        assert_eq!(NAMES.whole(&rope), whole);
        assert_eq!(named(json!("rope"), Detail::Brief), "RoPE");
        let dape = json!({ "kind": "dape", "kernel": 3, "part": { "kind": "rope", "base": 9 } });
        assert_eq!(named(dape.clone(), Detail::Brief), "DAPE (RoPE)");
        assert_eq!(NAMES.whole(&dape), "DAPE (RoPE, base 9), kernel 3");
        let stack = json!({ "kind": "stack", "parts": [{ "kind": "rope" }, dape] });
        assert_eq!(named(stack, Detail::Brief), "RoPE and DAPE (RoPE)");
    }

    #[test]
    fn a_list_is_named_by_its_length_and_ends() {
        let factors: Vec<f64> = (0..96).map(|i| 1.0 + f64::from(i) / 2.0).collect();
        let scaling = json!({ "kind": "longrope", "long_factor": factors });
        let rope = json!({ "kind": "rope", "scaling": scaling });
        assert_eq!(named(rope.clone(), Detail::Brief), "RoPE, LongRoPE");
        let whole = "RoPE, LongRoPE, long factor 96 numbers from 1 to 48.5";
        assert_eq!(NAMES.whole(&rope), whole);
    }

    #[test]
    fn a_variant_of_the_name_of_a_kind_has_its_name() {
        let shown = [
            "dynamic-ntk",
            "by_head",
            "always-8",
            "leaky_rope",
            "a [b_c = 1]",
        ];
        let shown = shown.map(|name| NAMES.variant(name));
        assert_eq!(
            shown,
            [
                "dynamic NTK",
                "by head",
                "always-8",
                "leaky rope",
                "a [b_c = 1]"
            ]
        );
    }
}
