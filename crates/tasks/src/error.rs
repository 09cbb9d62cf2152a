//! Errors of building a task: a value of its table, or the files it reads.

use schema::{Invalid, text};
use std::path::{Path, PathBuf};

/// Why a task could not be built. Nothing in this crate prints or exits; the caller turns a variant
/// into an exit code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TaskError {
    /// A value of the configuration is out of range or contradicts another one. The key is relative
    /// to the task table: `alphabet`, `split.every`, `files.0`.
    #[error(transparent)]
    Config(#[from] Invalid),
    /// A corpus is missing, empty, too short or unreadable.
    #[error("{}{problem}; {hint}", path.as_deref().map(prefix).unwrap_or_default())]
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
    pub(crate) fn input(
        path: impl Into<PathBuf>,
        problem: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        let path = Some(path.into());
        Self::Input {
            path,
            problem: problem.into(),
            hint: hint.into(),
        }
    }
}

/// A path before a message, safe to print.
fn prefix(path: &Path) -> String {
    format!("{}: ", text::escaped(&path.to_string_lossy()))
}
