//! Values of keys: those that depend on lengths until they are resolved, and ranges.

use crate::ConfigError;
use crate::facts::Lengths;
use schema::{Number, in_range};
use std::ops::RangeBounds;

/// Refuses a configuration that still has a key without a value.
pub(crate) fn refuse_unresolved(key: Option<String>) -> Result<(), ConfigError> {
    key.map_or(Ok(()), |key| {
        Err(ConfigError::new(
            key,
            "",
            "depends on the training length, which is not known here",
            "a value",
            "set it, or call `resolve` with the lengths",
        ))
    })
}

/// A value that [`EncodingSpec::init`](crate::spec::EncodingSpec::init) has found resolved.
///
/// # Panics
///
/// If it is not: only code that skips `init` gets here.
pub(crate) fn resolved<T>(value: Option<T>) -> T {
    value.expect("`init` refuses unresolved keys")
}

/// Checks a value against a range if it is set.
pub(crate) fn in_range_if_set<T: Number>(
    key: &str,
    value: Option<T>,
    range: impl RangeBounds<T>,
    hint: &str,
) -> Result<(), ConfigError> {
    value.map_or(Ok(()), |value| in_range(key, value, range, hint))
}

/// The name of a key that is not set.
pub(crate) fn unset<T>(key: &str, value: Option<T>) -> Option<String> {
    value.is_none().then(|| key.to_owned())
}

/// The key of a length trained before.
pub(crate) const ORIGINAL: &str = "original_max_position_embeddings";

/// The key `original_max_position_embeddings`: `L`, the length trained before unless given.
pub(crate) trait OriginalLength {
    fn check(&self) -> Result<(), ConfigError>;
    /// Sets it to the length trained before unless it is set; returns it.
    fn resolve(&mut self, lengths: &Lengths) -> usize;
    fn unresolved(&self) -> Option<&'static str>;
    fn value(&self) -> f64;
}

impl OriginalLength for Option<usize> {
    fn check(&self) -> Result<(), ConfigError> {
        let hint = "leave it out for the training length";
        in_range_if_set(ORIGINAL, *self, 1..=1_000_000_000, hint)
    }

    fn resolve(&mut self, lengths: &Lengths) -> usize {
        *self.get_or_insert(lengths.trained_len)
    }

    fn unresolved(&self) -> Option<&'static str> {
        self.is_none().then_some(ORIGINAL)
    }

    fn value(&self) -> f64 {
        resolved(*self) as f64
    }
}
