//! The canonical order of records: what makes a report independent of the order in which they were
//! found.

use crate::record::{Label, RunRecord};
use std::cmp::Ordering;

/// Experiment, labels (numbers by value), seed, run id; a run before a later evaluation of its id.
pub fn canonical(a: &RunRecord, b: &RunRecord) -> Ordering {
    a.experiment
        .cmp(&b.experiment)
        .then_with(|| labels(&a.labels, &b.labels))
        .then_with(|| a.seed.cmp(&b.seed))
        .then_with(|| a.run_id.cmp(&b.run_id))
        .then_with(|| a.evaluation_of.cmp(&b.evaluation_of))
}

/// Label by label, shorter lists first.
pub fn labels(a: &[Label], b: &[Label]) -> Ordering {
    a.iter()
        .zip(b)
        .map(|(x, y)| label(x, y))
        .find(|o| o.is_ne())
        .unwrap_or_else(|| a.len().cmp(&b.len()))
}

/// By key, then by value: numbers as numbers, everything else by its text.
pub fn label(a: &Label, b: &Label) -> Ordering {
    a.key
        .cmp(&b.key)
        .then_with(|| match (a.value.as_f64(), b.value.as_f64()) {
            (Some(x), Some(y)) => x.total_cmp(&y).then_with(|| a.text.cmp(&b.text)),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => a.text.cmp(&b.text),
        })
}

/// As [`labels`], but with the numbers in texts by value, so that `alibi(slope_scale=2)` comes
/// before `alibi(slope_scale=10)`: the order of rows and lines.
pub fn shown(a: &[Label], b: &[Label]) -> Ordering {
    let pairs = a.iter().zip(b);
    let by_value = |(x, y): (&Label, &Label)| {
        let key = x.key.cmp(&y.key);
        match x.value.is_number() || y.value.is_number() {
            true => label(x, y),
            false => key.then_with(|| by_numbers(&x.text).cmp(&by_numbers(&y.text))),
        }
    };
    let first = pairs.map(by_value).find(|order| order.is_ne());
    let order = first.unwrap_or_else(|| a.len().cmp(&b.len()));
    order.then_with(|| labels(a, b))
}

/// A text in parts: each the number that it begins with, as the bits of an `f64`, which have the
/// order of the numbers, and the text behind that.
fn by_numbers(text: &str) -> Vec<(Option<u64>, &str)> {
    let mut parts = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let digits = number_len(rest);
        let number = rest[..digits].parse().ok().map(f64::to_bits);
        let after = &rest[digits..];
        let end = after.find(|c: char| c.is_ascii_digit());
        let (words, next) = after.split_at(end.unwrap_or(after.len()));
        parts.push((number, words));
        rest = next;
    }
    parts
}

/// The length of the number that a text begins with: digits, decimals, exponent.
fn number_len(text: &str) -> usize {
    let digits = |at: usize| {
        let rest = text.as_bytes().get(at..).unwrap_or_default();
        rest.iter().take_while(|byte| byte.is_ascii_digit()).count()
    };
    let after = |at: usize, signs: &[&str]| {
        let sign = signs.iter().find(|sign| text[at..].starts_with(**sign));
        sign.map_or(at, |sign| match digits(at + sign.len()) {
            0 => at,
            n => at + sign.len() + n,
        })
    };
    match digits(0) {
        0 => 0,
        whole => after(after(whole, &["."]), &["e-", "e+", "e"]),
    }
}

/// Names: text as text and digits as a number, so that `train-32` comes before `train-128`.
pub fn names(a: &str, b: &str) -> Ordering {
    let parts = |name: &str| -> Vec<(u64, String)> {
        let is_one = |x: &u8, y: &u8| x.is_ascii_digit() == y.is_ascii_digit();
        let parts = name.as_bytes().chunk_by(is_one);
        let parts = parts.map(String::from_utf8_lossy);
        parts
            .map(|part| (part.parse().unwrap_or(u64::MAX), part.into_owned()))
            .collect()
    };
    parts(a).cmp(&parts(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_texts_are_numbers() {
        let of = |text: &&str| Label {
            key: "model.pe".into(),
            text: (*text).into(),
            value: serde_json::json!({ "kind": "alibi" }),
        };
        let sorted = [
            "alibi",
            "alibi(slope_scale=1e-3)",
            "alibi(slope_scale=0.25)",
            "alibi(slope_scale=0.5)",
            "alibi(slope_scale=1)",
            "alibi(slope_scale=2)",
            "alibi(slope_scale=2, x=1.)",
            "alibi(slope_scale=10)",
            "alibi(slope_scale=1e2)",
            "alibi(slope_scale=x)",
            "rope",
        ];
        let mut all: Vec<Label> = sorted.iter().rev().map(of).collect();
        all.sort_by(|a, b| shown(std::slice::from_ref(a), std::slice::from_ref(b)));
        let all: Vec<&str> = all.iter().map(|label| label.text.as_str()).collect();
        assert_eq!(all, sorted);
    }

    #[test]
    fn digits_of_names_are_numbers() {
        let mut all = [
            "b", "a-128", "a-32", "a-032", "a", "a-32-2", "a-32-x", "3", "20",
        ];
        all.sort_by(|a, b| names(a, b));
        assert_eq!(
            all,
            [
                "3", "20", "a", "a-032", "a-32", "a-32-2", "a-32-x", "a-128", "b"
            ]
        );
        assert_eq!(names("a-32", "a-32"), Ordering::Equal);
        // A number that does not fit is text.
        assert_ne!(
            names("99999999999999999999", "99999999999999999998"),
            Ordering::Equal
        );
    }
}
