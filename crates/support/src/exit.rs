//! Exit codes, and the error that carries one. `docs/exit-codes.md` explains them.

use rundir::disk::Refused;
use std::fmt;

/// Exit code of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// All runs are recorded.
    Done = 0,
    /// Some runs failed; the others are recorded.
    SomeFailed = 1,
    /// A config, an override or an argument is wrong.
    Config = 2,
    /// An input file is missing or damaged.
    Input = 3,
    /// Another process holds the run.
    Busy = 4,
    /// Every run diverged.
    Diverged = 5,
    /// Not enough disk or memory.
    Resources = 6,
    /// The device is missing, failed, or is not compiled in.
    Device = 7,
    /// A bug of this program.
    Bug = 70,
    /// Stopped by USR1 after saving; cluster schedulers requeue on this code.
    TryAgain = 75,
    /// Stopped by INT after saving.
    Interrupted = 130,
    /// Stopped by TERM after saving.
    Terminated = 143,
}

impl Exit {
    /// The exit of this program with a code.
    pub fn from_code(code: i32) -> Option<Self> {
        use Exit::*;
        let all = [
            Done,
            SomeFailed,
            Config,
            Input,
            Busy,
            Diverged,
            Resources,
            Device,
            Bug,
            TryAgain,
            Interrupted,
            Terminated,
        ];
        all.into_iter().find(|exit| *exit as i32 == code)
    }

    /// Whether the process left because a signal asked it to, after saving.
    pub fn on_request(self) -> bool {
        matches!(self, Self::TryAgain | Self::Interrupted | Self::Terminated)
    }
}

/// An error message and the exit code that goes with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Exit code of the process.
    pub exit: Exit,
    /// What went wrong, where, what is allowed and the likely fix.
    pub message: String,
}

impl Failure {
    /// A failure with this code.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
        }
    }

    /// An internal error.
    pub fn bug(error: impl fmt::Display) -> Self {
        Self::new(Exit::Bug, error.to_string())
    }

    /// An error of reading or writing in the output directory, with its causes.
    pub fn resources(error: impl fmt::Display) -> Self {
        Self::new(Exit::Resources, format!("{error:#}"))
    }

    /// A config, an override or an argument that is wrong.
    pub fn config(error: impl fmt::Display) -> Self {
        Self::new(Exit::Config, error.to_string())
    }

    /// An input file that cannot be used.
    pub fn input(error: impl fmt::Display) -> Self {
        Self::new(Exit::Input, error.to_string())
    }

    /// Appends a line with what is allowed.
    #[must_use]
    pub fn with_allowed(self, allowed: impl fmt::Display) -> Self {
        self.with_line("allowed", &allowed)
    }

    /// Appends a line with a fact that explains the failure.
    #[must_use]
    pub fn with_note(self, note: impl fmt::Display) -> Self {
        self.with_line("note", &note)
    }

    /// Appends a line with what to do.
    #[must_use]
    pub fn with_help(self, help: impl fmt::Display) -> Self {
        self.with_line("help", &help)
    }

    fn with_line(mut self, what: &str, text: &dyn fmt::Display) -> Self {
        self.message = format!("{}\n  = {what}: {text}", self.message);
        self
    }
}

/// A path that the user named, where something else stands, is an argument that cannot work.
impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        let wrong = refused.is_in_the_way();
        let exit = if wrong { Exit::Config } else { Exit::Resources };
        Self::new(exit, refused.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}
