//! What can be wrong with a task: its table in the configuration, or the files it reads.

use std::path::{Path, PathBuf};

/// Why a task could not be built. Nothing in this crate prints or exits; the trainer turns a
/// variant into an exit code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TaskError {
    /// A value of the configuration is out of range or contradicts another one.
    #[error("`{key}` = {value}: {problem}; allowed: {allowed}; {hint}")]
    Config {
        /// Key relative to the task table, such as `alphabet` or `split.every`.
        key: String,
        /// The value found there, as the user would write it.
        value: String,
        /// What is wrong with it.
        problem: String,
        /// What would be accepted.
        allowed: String,
        /// What to do.
        hint: String,
    },
    /// A corpus is missing, empty, too short or unreadable.
    #[error("{}{problem}; {hint}", path.as_ref().map(|p| format!("{}: ", shown(p))).unwrap_or_default())]
    Input {
        /// The file or directory at fault, where there is one.
        path: Option<PathBuf>,
        /// What is wrong, with numbers.
        problem: String,
        /// What to do.
        hint: String,
    },
}

impl TaskError {
    pub(crate) fn config(
        key: impl Into<String>,
        value: impl ToString,
        problem: impl Into<String>,
        allowed: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self::Config {
            key: key.into(),
            value: value.to_string(),
            problem: problem.into(),
            allowed: allowed.into(),
            hint: hint.into(),
        }
    }

    pub(crate) fn input(
        path: impl Into<PathBuf>,
        problem: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self::Input {
            path: Some(path.into()),
            problem: problem.into(),
            hint: hint.into(),
        }
    }
}

/// A path for a message: what in a file's name would steer a terminal is spelled out.
fn shown(path: &Path) -> String {
    path.to_string_lossy()
        .chars()
        .map(|c| {
            if c.is_control() {
                c.escape_unicode().to_string()
            } else {
                c.to_string()
            }
        })
        .collect()
}

/// Refuses a number outside `min..=max`.
pub(crate) fn check_range(
    key: &str,
    value: u64,
    min: u64,
    max: u64,
    hint: &str,
) -> Result<(), TaskError> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    let problem = if value < min {
        "too small"
    } else {
        "too large"
    };
    Err(TaskError::config(
        key,
        value,
        problem,
        format!("{min}..={max}"),
        hint,
    ))
}
