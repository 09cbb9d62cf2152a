//! The protocol between a sweep and its workers: options as arguments, events as lines of JSON.

use crate::device::DeviceName;
use crate::plan::memory::MemoryLimit;
use schema::is_default;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::time::Duration;

/// A line of a worker's output: what happened to which of its runs, counted from 0. A worker of one
/// run leaves the number out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line<E> {
    /// The run.
    #[serde(default, skip_serializing_if = "is_default")]
    pub run: usize,
    /// What happened, an [`Event`].
    #[serde(flatten)]
    pub event: E,
}

/// What a worker tells the sweep that started it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// Steps trained so far.
    Train {
        /// Steps done.
        step: u64,
        /// Steps in all.
        steps: u64,
        /// Loss of the last step, nats per counted token.
        loss_nats: f64,
    },
    /// Scores taken while training.
    Scored {
        /// Steps done.
        step: u64,
        /// The metric that the report leads with.
        metric: String,
        /// Its value at each length, where there is one.
        values: Vec<(usize, Option<f64>)>,
    },
    /// Resumed from a checkpoint, or skipped damaged ones.
    Resumed {
        /// Step to resume at; 0 if training starts anew.
        step: u64,
        /// Notes for the user.
        notes: Vec<String>,
    },
    /// Another process holds the run; made by the sweep itself.
    Elsewhere {
        /// The process.
        who: String,
    },
    /// One evaluation done.
    Eval {
        /// Evaluations done.
        done: usize,
        /// Evaluations in all.
        total: usize,
    },
    /// The worker ends with this failure; its exit code is that of the process.
    Failed {
        /// What went wrong.
        message: String,
    },
    /// One run of several ends without a record; the others of its worker may go on.
    Left {
        /// The exit code of its failure.
        exit: u8,
        /// What went wrong.
        message: String,
    },
    /// Training stopped early.
    Diverged {
        /// The step that was not applied.
        step: u64,
        /// What was not finite.
        what: String,
    },
}

/// How to run. Nothing here changes the numbers of a run, except that lengths beyond the memory
/// limit are skipped, and that on a GPU the last bits of runs that are trained together may differ.
#[derive(Clone, Debug, PartialEq)]
pub struct How {
    /// The device.
    pub device: DeviceName,
    /// When to write checkpoints.
    pub checkpoint_every: CheckpointEvery,
    /// Lengths estimated to need more are skipped.
    pub memory_limit: MemoryLimit,
    /// Whether the weights before the first step are saved too.
    pub initial_weights: bool,
    /// The most runs that a worker trains together, as one batched model.
    pub runs_per_worker: usize,
}

/// When to write checkpoints; never changes the numbers of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum CheckpointEvery {
    /// After this many steps.
    Steps(u64),
    /// After this much time, between two steps.
    Time(Duration),
}

impl Default for CheckpointEvery {
    fn default() -> Self {
        Self::Time(Duration::from_secs(30))
    }
}

impl std::fmt::Display for CheckpointEvery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Steps(steps) => write!(f, "{steps}"),
            Self::Time(time) => write!(f, "{}s", time.as_secs()),
        }
    }
}

impl std::str::FromStr for CheckpointEvery {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (digits, seconds) = text
            .strip_suffix('s')
            .map_or((text, false), |digits| (digits, true));
        match digits.parse::<u64>() {
            Ok(n) if n > 0 && seconds => Ok(Self::Time(Duration::from_secs(n))),
            Ok(n) if n > 0 => Ok(Self::Steps(n)),
            _ => Err(format!(
                "`{text}` is neither a number of steps (500) nor of seconds (30s); both start at 1"
            )),
        }
    }
}

/// Prints an event of a run for the sweep. A sweep that has ended must not stop the run.
pub fn report(run: usize, event: &Event) {
    if let Ok(line) = serde_json::to_string(&Line { run, event }) {
        let mut stdout = std::io::stdout().lock();
        let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_its_run_unless_it_is_the_only_one() {
        let event = Event::Train {
            step: 3,
            steps: 6,
            loss_nats: 0.5,
        };
        for (run, named) in [(0, false), (2, true)] {
            let line = Line { run, event: &event };
            let text = serde_json::to_string(&line).unwrap();
            assert_eq!(text.contains("\"run\""), named, "{text}");
            let read: Line<Event> = serde_json::from_str(&text).unwrap();
            assert_eq!((read.run, &read.event), (run, &event));
        }
    }
}
