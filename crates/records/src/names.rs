//! Names of methods in a reader's words: `RoPE, dynamic NTK` for the table of a config.

use crate::record::Label;
use crate::text;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Longest name of a label in words, in characters.
pub const LONGEST: usize = 80;
/// Numbers of a list that are named one by one.
const MOST_NUMBERS: usize = 4;
/// Changes from layer to layer that are named one by one.
const MOST_CHANGES: usize = 4;

/// Names of kinds for people, by kind; without one, a kind is its own name. A name may end in
/// ` of {KEY}`: the value of that key, left out where the table does not say. Who declares kinds
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
    /// All, or none where the label's text is its kind alone.
    Told,
}

impl Detail<'_> {
    fn shows(self, path: &str) -> bool {
        match self {
            Self::Brief => false,
            Self::With(paths) => paths.iter().any(|with| with.starts_with(path)),
            Self::Whole | Self::Told => true,
        }
    }
}

impl Names {
    /// `dynamic_ntk` as `dynamic NTK`.
    pub fn kind(self, kind: &str) -> String {
        let mut all = self.0.iter().copied().flatten();
        let declared = all.find(|(known, _)| *known == kind);
        let name = declared.and_then(|(_, name)| *name);
        let name = name.map(|name| name.split_once(" of {").map_or(name, |(name, _)| name));
        name.map_or_else(|| kind.replace('_', " "), str::to_owned)
    }

    /// The key whose value the name of a kind tells: `size` of a window.
    fn told(self, kind: &str) -> Option<&'static str> {
        let mut all = self.0.iter().copied().flatten();
        let (_, name) = all.find(|(known, _)| *known == kind)?;
        let (_, key) = (*name)?.split_once(" of {")?;
        key.strip_suffix('}')
    }

    /// The name of a variant, which is often that of the kind it tests. What tells variants of one
    /// name apart stays: `yarn [scaling.factor = 4.0]`.
    pub fn variant(self, name: &str) -> String {
        if let Some((name, apart)) = name.split_once(" [") {
            return format!("{} [{apart}", self.variant(name));
        }
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let kind = name.replace('-', "_");
        let is_known = self.0.iter().any(|all| all.iter().any(|(k, _)| *k == kind));
        match name.chars().all(is_word) {
            true if is_known => self.kind(&kind),
            true => name.replace('_', " "),
            false => name.to_owned(),
        }
    }

    /// A label's value: `RoPE, YaRN`; the text of one that is not a kind.
    pub fn label(self, label: &Label, detail: Detail<'_>) -> String {
        let is_kind = || {
            label
                .value
                .get("kind")
                .is_some_and(|kind| *kind == label.text)
        };
        let words = match &label.value {
            // Several keys that vary together: the value is that of the first alone.
            _ if label.key.contains(',') => label.text.clone(),
            Value::Object(table) => match detail {
                Detail::Told if is_kind() => self.table(table, "", Detail::Brief),
                detail => self.table(table, "", detail),
            },
            Value::Array(items) if items.len() > MOST_NUMBERS => items_in_words(items),
            _ if label.key.ends_with("pe") || label.key.ends_with("kind") => self.kind(&label.text),
            _ => label.text.clone(),
        };
        // A stack alone has no name: with its parts it has theirs.
        let words = if words.is_empty() {
            label.text.replace('_', " ")
        } else {
            words
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

    /// Parts by layer: `3 layers RoPE with window of 32, 1 layer NoPE`. None where they change
    /// often.
    fn by_layer(
        self,
        table: &Map<String, Value>,
        path: &str,
        detail: Detail<'_>,
    ) -> Option<String> {
        let parts = table.get("parts")?.as_array()?;
        let pattern = table.get("pattern")?.as_array()?;
        let same: Vec<&[Value]> = pattern.chunk_by(|a, b| a == b).collect();
        let layers = same.iter().map(|same| {
            let at = usize::try_from(same[0].as_u64()?).ok()?;
            let part = self.part(parts.get(at)?, &format!("{path}.parts.{at}"), detail);
            let s = if same.len() == 1 { "" } else { "s" };
            Some(format!("{} layer{s} {part}", same.len()))
        });
        let layers: Option<Vec<String>> = layers.collect();
        layers
            .filter(|_| same.len() <= MOST_CHANGES)
            .map(|layers| layers.join(", "))
    }

    fn table(self, table: &Map<String, Value>, path: &str, detail: Detail<'_>) -> String {
        let kind = table
            .get("kind")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let name = self.kind(kind);
        let told = self.told(kind).and_then(|key| Some((key, table.get(key)?)));
        let by_layer = self.by_layer(table, path, detail);
        let is_part = |key: &str| key == "part" || key == "parts";
        let is_said = |key: &str| {
            let is_told = told.is_some_and(|(told, _)| told == key);
            key == "kind" || is_part(key) || is_told || key == "pattern" && by_layer.is_some()
        };
        let inner = table.iter().filter(|(key, _)| is_part(key));
        let inner = inner.map(|(key, value)| match value {
            // Parts that act together, such as those of a stack, need no name of their own.
            Value::Array(parts) if name.is_empty() => {
                let parts = parts.iter().enumerate();
                let parts =
                    parts.map(|(at, part)| self.part(part, &format!("{path}.{key}.{at}"), detail));
                parts.collect::<Vec<_>>().join(" with ")
            }
            value => self.value(value, &format!("{path}.{key}"), detail),
        });
        let inner: Vec<String> = inner.collect();
        let head = match (name.as_str(), inner.concat()) {
            _ if by_layer.is_some() => by_layer.clone().unwrap_or_default(),
            (name, inner) if inner.is_empty() => match told {
                Some((_, value)) => format!("{name} of {}", self.value(value, path, detail)),
                None => name.to_owned(),
            },
            ("", inner) => inner,
            (name, inner) => format!("{name} ({inner})"),
        };
        let settings = table
            .iter()
            .filter(|(key, value)| !is_said(key) && !value.is_null());
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

/// `96 numbers from 1 to 64.3`
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
            ("nope", Some("NoPE")),
            ("by_head", None),
            ("by_layer", None),
            ("window", Some("window of {size}")),
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
        assert_eq!(named(stack, Detail::Brief), "RoPE with DAPE (RoPE)");
        // Without axes a label holds the kind alone; of keys that vary together, the first value.
        let label = |key: &str, text: &str, value: Value| Label {
            key: key.into(),
            text: text.into(),
            value,
        };
        let alone = label("model.pe", "stack", json!("stack"));
        assert_eq!(NAMES.label(&alone, Detail::Told), "stack");
        let zipped = label(
            "model.pe, train.lr",
            "rope, 0.003",
            json!({ "kind": "rope" }),
        );
        assert_eq!(NAMES.label(&zipped, Detail::Told), "rope, 0.003");
    }

    #[test]
    fn encodings_by_layer_are_named_by_their_pattern() {
        let window = |size: u64| json!({ "kind": "window", "size": size });
        let below = json!({ "kind": "stack", "parts": [{ "kind": "rope" }, window(32)] });
        let hybrid = |pattern: Value| json!({ "kind": "by_layer", "parts": [below, { "kind": "nope" }], "pattern": pattern });
        let short = "3 layers RoPE with window of 32, 1 layer NoPE";
        for detail in [Detail::Brief, Detail::Whole, Detail::Told] {
            assert_eq!(named(hybrid(json!([0, 0, 0, 1])), detail), short);
        }
        let often = hybrid(json!([0, 1, 0, 1, 0]));
        assert_eq!(
            named(often.clone(), Detail::Brief),
            "by layer (RoPE with window of 32 and NoPE)"
        );
        let whole = "by layer (RoPE with window of 32 and NoPE), pattern 5 numbers from 0 to 1";
        assert_eq!(named(often, Detail::Whole), whole);
        // A pattern that names no part is none.
        assert!(named(hybrid(json!([7])), Detail::Brief).starts_with("by layer ("));
        assert_eq!(named(json!({ "kind": "window" }), Detail::Brief), "window");
        assert_eq!(NAMES.kind("window"), "window");
    }

    #[test]
    fn a_label_tells_its_settings_where_its_text_does() {
        let value = json!({ "kind": "rope", "base": 100.0 });
        let label = |text: &str| Label {
            key: "model.pe".into(),
            text: text.into(),
            value: value.clone(),
        };
        assert_eq!(NAMES.label(&label("rope"), Detail::Told), "RoPE");
        assert_eq!(
            NAMES.label(&label("rope(base=100)"), Detail::Told),
            "RoPE, base 100"
        );
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
            "dynamic_ntk [factor = 4.0]",
        ];
        let shown = shown.map(|name| NAMES.variant(name));
        assert_eq!(
            shown,
            [
                "dynamic NTK",
                "by head",
                "always-8",
                "leaky rope",
                "a [b_c = 1]",
                "dynamic NTK [factor = 4.0]"
            ]
        );
    }
}
