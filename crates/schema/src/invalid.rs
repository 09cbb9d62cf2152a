//! The error of one value of a configuration.

use std::fmt;

/// A value that cannot be used, with what a message needs to say about it.
///
/// The key is relative to the table that was checked, so that a caller that knows the file can
/// point at the line. Fields other than `key` and `problem` may be empty; empty ones are not shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Invalid {
    /// Dotted key: `base`, `scaling.factor`, `parts.1.rotary_dim`.
    pub key: String,
    /// The value found there, as a user would write it.
    pub value: String,
    /// What is wrong, as a continuation of the key: `is out of range`.
    pub problem: String,
    /// What would be accepted.
    pub allowed: String,
    /// The likely fix.
    pub hint: String,
}

impl Invalid {
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

    /// Moves the key under the table `parent`: `factor` within `scaling` is `scaling.factor`.
    #[must_use]
    pub fn within(mut self, parent: &str) -> Self {
        self.key = match (parent, self.key.as_str()) {
            ("", _) => self.key,
            (_, "") => parent.to_owned(),
            (_, key) => format!("{parent}.{key}"),
        };
        self
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.key)?;
        if !self.value.is_empty() {
            write!(f, " = {}", self.value)?;
        }
        write!(f, ": {}", self.problem)?;
        if !self.allowed.is_empty() {
            write!(f, "; allowed: {}", self.allowed)?;
        }
        if !self.hint.is_empty() {
            write!(f, "; {}", self.hint)?;
        }
        Ok(())
    }
}
