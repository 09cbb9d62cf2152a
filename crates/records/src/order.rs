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
