//! Exit codes, and the error that carries one.

use std::fmt;

/// What the process ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// All runs are recorded.
    Done = 0,
    /// Some runs failed; the others are recorded.
    SomeFailed = 1,
    /// A config, an override or an argument cannot work.
    Config = 2,
    /// A file that was named cannot be used.
    Input = 3,
    /// Another process holds the run.
    Busy = 4,
    /// Every run diverged.
    Diverged = 5,
    /// The disk or the memory does not suffice.
    Resources = 6,
    /// The device is not there or not compiled in.
    Device = 7,
    /// A broken promise of this program.
    Bug = 70,
    /// Stopped on request (USR1) to be started again: what cluster schedulers requeue on.
    TryAgain = 75,
    /// Stopped by INT after saving.
    Interrupted = 130,
    /// Stopped by TERM after saving.
    Terminated = 143,
}

impl Exit {
    /// What a process of this program ended with.
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

/// A message for people and the code for the shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What the process ends with.
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

    /// For what cannot happen.
    pub fn bug(error: impl fmt::Display) -> Self {
        Self::new(Exit::Bug, error.to_string())
    }

    /// For errors of reading or writing in the output directory.
    pub fn resources(error: impl fmt::Display) -> Self {
        Self::new(Exit::Resources, error.to_string())
    }

    /// For files that were named and cannot be used.
    pub fn input(error: impl fmt::Display) -> Self {
        Self::new(Exit::Input, error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}
