//! The canonical order of records: what makes a report independent of the order in which they were
//! found.

use crate::record::{Label, RunRecord};
use std::cmp::Ordering;

/// Experiment, labels (numbers by value), seed, run id.
pub fn canonical(a: &RunRecord, b: &RunRecord) -> Ordering {
    a.experiment
        .cmp(&b.experiment)
        .then_with(|| labels(&a.labels, &b.labels))
        .then_with(|| a.seed.cmp(&b.seed))
        .then_with(|| a.run_id.cmp(&b.run_id))
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
