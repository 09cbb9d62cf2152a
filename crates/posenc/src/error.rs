//! What can be wrong with an encoding's configuration, told so that a caller can point at the key.

use std::fmt;

/// A value that an encoding cannot work with.
///
/// `key` is relative to the encoding's own table (`base`, `scaling.factor`, `parts.1.rotary_dim`),
/// so that whoever read the table can name the file and the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Dotted key inside the encoding's table.
    pub key: String,
    /// The value found there.
    pub value: String,
    /// What is wrong with it.
    pub problem: String,
    /// What would be accepted.
    pub allowed: String,
    /// The likely fix.
    pub hint: String,
}

impl ConfigError {
    /// Builds an error for `key`.
    pub fn new(
        key: impl Into<String>,
        value: impl fmt::Display,
        problem: impl Into<String>,
        allowed: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self {
            key: key.into(),
            value: value.to_string(),
            problem: problem.into(),
            allowed: allowed.into(),
            hint: hint.into(),
        }
    }

    /// Moves the error under the table `parent`.
    #[must_use]
    pub fn within(mut self, parent: &str) -> Self {
        self.key = if self.key.is_empty() {
            parent.to_owned()
        } else {
            format!("{parent}.{}", self.key)
        };
        self
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} = {}: {} (allowed: {}; {})",
            self.key, self.value, self.problem, self.allowed, self.hint
        )
    }
}

impl std::error::Error for ConfigError {}

/// Refuses a number that is not finite or lies outside `low..=high`.
pub(crate) fn in_range(
    key: &str,
    value: f64,
    low: f64,
    high: f64,
    hint: &str,
) -> Result<(), ConfigError> {
    if value.is_finite() && (low..=high).contains(&value) {
        return Ok(());
    }
    Err(ConfigError::new(
        key,
        value,
        "out of range",
        format!("a number from {low} to {high}"),
        hint,
    ))
}
