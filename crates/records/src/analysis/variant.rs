//! The variants of a method, and which of them the definitions of a later evaluation continue.

use crate::spec::{Definition, flatten};
use crate::text;
use std::collections::{BTreeMap, BTreeSet};

/// The trained weights under one encoding.
pub struct Variant<'a> {
    /// Its name.
    pub name: String,
    /// By test length. Empty for records whose spec does not say.
    pub by_len: BTreeMap<usize, Definition<'a>>,
    /// Dotted keys of its encoding that later evaluations computed for every length.
    follows: BTreeSet<&'a str>,
    /// Whether no run evaluated it when it was trained.
    pub is_later: bool,
}

/// Adds a variant of that name unless there is one.
pub(super) fn add<'v, 'a>(
    variants: &'v mut Vec<Variant<'a>>,
    name: &str,
    is_later: bool,
) -> &'v mut Variant<'a> {
    let known = variants.iter().position(|v| v.name == name);
    let at = known.unwrap_or_else(|| {
        variants.push(Variant {
            name: name.to_owned(),
            by_len: BTreeMap::new(),
            follows: BTreeSet::new(),
            is_later,
        });
        variants.len() - 1
    });
    &mut variants[at]
}

/// Adds a definition to the variant of that name. The first definition of a length counts.
pub(super) fn define<'a>(
    variants: &mut Vec<Variant<'a>>,
    name: &str,
    definition: Definition<'a>,
    is_later: bool,
) {
    let variant = add(variants, name, is_later);
    variant
        .by_len
        .entry(definition.test_len)
        .or_insert(definition);
}

/// Adds the definitions of a later evaluation to the variant that they continue, and returns its
/// name. If they continue none, they are a new variant, whose name says what differs. `follows`:
/// the keys that it computed for every length.
pub(super) fn continued<'a>(
    variants: &mut Vec<Variant<'a>>,
    name: &str,
    found: &[Definition<'a>],
    follows: &'a [String],
    train_len: usize,
) -> String {
    let follows: BTreeSet<&str> = follows.iter().map(String::as_str).collect();
    let difference = |v: &Variant<'_>| difference(v, found, &follows, train_len);
    let is_family = |v: &Variant<'_>| v.name == name || v.name.starts_with(&format!("{name} ["));
    let same = variants
        .iter()
        .position(|v| is_family(v) && difference(v).is_none());
    let name = match same {
        Some(at) => variants[at].name.clone(),
        None => {
            let first = variants.iter().find(|v| v.name == name);
            match first.and_then(difference) {
                Some((key, value)) => {
                    let key = text::name(&key, 60);
                    match value {
                        Some(value) => format!("{name} [{key} = {}]", text::name(&value, 60)),
                        None => format!("{name} [{key} by length]"),
                    }
                }
                None => name.to_owned(),
            }
        }
    };
    for definition in found {
        define(variants, &name, *definition, true);
    }
    add(variants, &name, true).follows.extend(follows);
    name
}

/// Settings of an encoding and its positions by dotted key.
fn settings(definition: &Definition<'_>) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    flatten("", definition.encoding, &mut out);
    if let Some(positions) = definition.positions {
        flatten(".positions", positions, &mut out);
    }
    out
}

/// The first setting in which definitions are not those of a variant, and its value; none where it
/// changes with the length. One that follows the length on both sides differs only where lengths
/// are the same.
fn difference(
    variant: &Variant<'_>,
    found: &[Definition<'_>],
    follows: &BTreeSet<&str>,
    train_len: usize,
) -> Option<(String, Option<String>)> {
    let ours: Vec<(usize, BTreeMap<String, String>)> = variant
        .by_len
        .iter()
        .map(|(len, definition)| (*len, settings(definition)))
        .collect();
    for definition in found.iter().filter(|_| !ours.is_empty()) {
        let theirs = settings(definition);
        let all = ours.iter().map(|(_, settings)| settings).chain([&theirs]);
        let keys: BTreeSet<&String> = all.flat_map(BTreeMap::keys).collect();
        for key in keys {
            let known: Vec<(usize, Option<&str>)> = ours
                .iter()
                .map(|(len, settings)| (*len, settings.get(key).map(String::as_str)))
                .collect();
            let value = theirs.get(key).map(String::as_str);
            let name = key.trim_start_matches('.');
            let (did, does) = (variant.follows.contains(name), follows.contains(name));
            let varies = known.iter().any(|(_, own)| *own != known[0].1);
            let is_new = known.iter().all(|(len, _)| *len != definition.test_len);
            if does && (did || varies) && is_new {
                continue;
            }
            if !continues(&known, definition.test_len, value, (train_len, did == does)) {
                let is_same = |other: &Definition<'_>| settings(other).get(key) == theirs.get(key);
                let value = value.unwrap_or("not set").to_owned();
                let value = (found.iter().all(is_same) && !does).then_some(value);
                return Some((name.to_owned(), value));
            }
        }
    }
    None
}

/// Whether a setting at a test length continues its known values, which are by length. `is_fixed`:
/// whether it may have one value at all lengths.
///
/// A record has the numbers that `factor = "auto"` has become: tokens over the original length,
/// never below 1. Tokens are a linear function of the length, so those above 1 are on one line,
/// with 1 at the training length.
fn continues(
    known: &[(usize, Option<&str>)],
    len: usize,
    value: Option<&str>,
    (train_len, is_fixed): (usize, bool),
) -> bool {
    if let Some((_, own)) = known.iter().find(|(own, _)| *own == len) {
        return *own == value;
    }
    let is_constant = known.iter().all(|(_, own)| *own == known[0].1);
    // A number that is known at one length only may be a fixed one or an automatic one.
    if is_constant && is_fixed && (known.len() > 1 || known[0].1 == value) {
        return known[0].1 == value;
    }
    let number = |text: Option<&str>| text.and_then(|t| t.parse::<f64>().ok());
    let numbers = known.iter().map(|(len, own)| Some((*len, number(*own)?)));
    let (Some(numbers), Some(value)) = (numbers.collect::<Option<Vec<_>>>(), number(value)) else {
        return false;
    };
    let above_1 = numbers
        .into_iter()
        .rev()
        .filter(|(_, number)| *number > 1.0);
    let mut line = above_1.chain([(train_len, 1.0)]);
    let (Some((x1, y1)), Some((x0, y0))) = (line.next(), line.next()) else {
        // 1 at one length, which says nothing of others.
        return true;
    };
    let along = |x: usize| x as f64 - x0 as f64;
    let expected = (y0 + (y1 - y0) * along(len) / along(x1)).max(1.0);
    x1 != x0 && (value - expected).abs() <= 1e-9 * expected
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_number_continues_a_fixed_one_or_the_line_of_an_automatic_one() {
        let continues = |known: &[(usize, &str)], len: usize, value: &str| {
            let known: Vec<_> = known.iter().map(|(len, v)| (*len, Some(*v))).collect();
            super::continues(&known, len, Some(value), (16, true))
        };
        let fixed = [(32, "2"), (64, "2")];
        assert!(continues(&fixed, 128, "2") && !continues(&fixed, 128, "8"));
        // Copying: 2 n + 2 tokens over the 34 of the training length.
        let copying = [
            (8, "1"),
            (16, "1"),
            (20, "1.2352941176470589"),
            (32, "1.9411764705882353"),
        ];
        assert!(continues(&copying, 64, "3.823529411764706"));
        assert!(continues(&copying, 24, "1.4705882352941178"));
        assert!(continues(&copying, 4, "1") && !continues(&copying, 4, "2"));
        assert!(!continues(&copying, 64, "1.9411764705882353") && !continues(&copying, 64, "4"));
        let once = [(16, "1"), (32, "2")];
        assert!(continues(&once, 64, "4") && !continues(&once, 64, "2"));
        assert!(continues(&once[1..], 64, "4") && continues(&once[1..], 64, "2"));
        assert!(!continues(&once[1..], 64, "3") && continues(&once[..1], 64, "3"));
        assert!(!continues(&[(16, "2")], 64, "4") && !continues(&[(32, "yarn")], 64, "ntk"));
    }
}
