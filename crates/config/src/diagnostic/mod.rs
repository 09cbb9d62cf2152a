//! A mistake in a configuration as data: what is wrong, where, the key, its value, what is allowed,
//! and the likely fix. Only `Display` makes text.
//!
//! ```text
//! problem.rs  Problem: what is wrong
//! de.rs       a serde error that keeps its parts, and the reader of TOML values that makes it
//! read.rs     strict types read from a table; what serde refused as a Diagnostic
//! render.rs   the lines of a message, with the part of the file underlined
//! foreign.rs  words of other programs, and what stands for them here
//! suggest.rs  the name that was probably meant
//! ```

mod de;
mod foreign;
mod problem;
mod read;
mod render;
mod suggest;

pub use super::origins::Location;
pub use super::value::{describe_value, float_text, quoted, type_name};
pub use foreign::{FOREIGN_KEYS, FOREIGN_KINDS, ForeignKey, Of, key_help, kind_help};
pub use problem::{Problem, TableName};
pub use read::{deserialize, deserialize_at, known_keys, normalise, table_without_null};
pub use suggest::{closest, closest_first};

use super::key_path::KeyPath;
use super::origins::{Origin, Origins};
use std::fmt;
use std::ops::{Deref, DerefMut};
use support::exit::{Exit, Failure};
use toml::Table;

/// The parts of a [`Diagnostic`]; those that are empty are not shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    /// What the process ends with.
    pub exit: Exit,
    /// What is wrong, in one line.
    pub problem: Problem,
    /// Where.
    pub place: Location,
    /// Dotted key concerned.
    pub key: Option<String>,
    /// The value found there.
    pub value: Option<String>,
    /// Whether the value is a default, so that no line of the file holds it.
    pub is_default: bool,
    /// What is allowed there.
    pub allowed: Option<String>,
    /// Further facts, one line each.
    pub notes: Vec<String>,
    /// What to do.
    pub help: Option<String>,
    /// Whether the help names the cause, so that no general hint replaces it.
    pub is_help_exact: bool,
}

/// A user's mistake. Shown as several lines without a line end, the first without `error:`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic(Box<Parts>);

impl Deref for Diagnostic {
    type Target = Parts;
    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl DerefMut for Diagnostic {
    fn deref_mut(&mut self) -> &mut Parts {
        &mut self.0
    }
}

impl std::error::Error for Diagnostic {}

impl From<Diagnostic> for Failure {
    fn from(diagnostic: Diagnostic) -> Self {
        Self::new(diagnostic.exit, diagnostic.to_string())
    }
}

impl Diagnostic {
    /// A mistake in the configuration.
    pub fn new(place: Location, problem: impl Into<Problem>) -> Self {
        Self(Box::new(Parts {
            exit: Exit::Config,
            problem: problem.into(),
            place,
            key: None,
            value: None,
            is_default: false,
            allowed: None,
            notes: vec![],
            help: None,
            is_help_exact: false,
        }))
    }

    /// A mistake in the value of `key`, which is looked up in `table`. `problem` continues the
    /// key's name: "must divide 64". Empty texts are left out.
    pub fn at(
        table: &Table,
        origins: &Origins,
        key: &str,
        problem: &str,
        allowed: &str,
        help: &str,
    ) -> Self {
        let path = KeyPath::parse(key).unwrap_or_else(|_| KeyPath::new(key.split('.')));
        let found = origins.find(&path);
        let value = path.find(table);
        let place = match value {
            Some(_) => origins.value_place(&found),
            None => origins.table_place(&found),
        };
        // What is missing has no default, and a variant takes what it lacks from the training.
        let of_variant = path.parts().iter().any(|part| part == "set");
        let is_default = value.is_none() && !of_variant && !problem.starts_with("is missing");
        let problem = Problem::Value {
            key: path.clone(),
            problem: problem.to_owned(),
        };
        let mut diagnostic = Self::new(place, problem)
            .with_key(path.to_string())
            .with_value(value.map(describe_value).unwrap_or_default());
        diagnostic.is_default = is_default;
        diagnostic
            .with_axis(&found)
            .with_allowed(allowed)
            .with_help(help)
    }

    /// Sets the exit code.
    pub fn with_exit(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    /// Names the key.
    pub fn with_key(mut self, key: impl Into<String>) -> Self {
        self.key = filled(key.into());
        self
    }

    /// Sets the value; whether it is a default stays as it was.
    pub fn with_value(mut self, value: impl fmt::Display) -> Self {
        self.value = filled(value.to_string());
        self
    }

    /// Sets what is allowed there.
    pub fn with_allowed(mut self, allowed: impl Into<String>) -> Self {
        self.allowed = filled(allowed.into());
        self
    }

    /// Adds a fact.
    pub fn with_note(mut self, note: impl Into<String>) -> Self {
        self.notes.extend(filled(note.into()));
        self
    }

    /// Sets what to do.
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = filled(help.into());
        self
    }

    /// Adds help that names the cause: no general hint replaces it.
    pub fn with_exact_help(mut self, help: impl Into<String>) -> Self {
        self.is_help_exact = true;
        self.with_help(help)
    }

    fn with_axis(self, found: &Origin) -> Self {
        match &found.axis {
            Some((axis, number, count)) => {
                self.with_note(format!("from axis `{axis}`, value {number} of {count}"))
            }
            None => self,
        }
    }
}

fn filled(text: String) -> Option<String> {
    Some(text).filter(|text| !text.trim().is_empty())
}
