//! What the processes of tasks did, a line of JSON each: `events/I.N.jsonl` is written by the Nth
//! process of task I alone, so that no two processes append to one file.

use crate::cluster::directory::EVENTS_DIR;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use support::exit::Failure;

/// Largest file of events that is read, in bytes.
const MAX_BYTES: u64 = 1 << 28;
/// Processes of one task.
const MAX_PROCESSES: usize = 100_000;

/// A line of a file of events.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Seconds since 1970, by the clock of the node.
    pub time: f64,
    /// What happened.
    #[serde(flatten)]
    pub what: What,
}

/// A process that took a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Taken {
    /// The index.
    pub task: usize,
    /// The submission: 0 is the first, N that of the Nth `submit --again`.
    pub generation: usize,
    /// Runs that it is to do.
    pub runs: usize,
    /// Its node.
    pub node: String,
    /// The scheduler's id.
    pub job: String,
    /// Its process.
    pub process: u32,
    /// Its GPUs.
    pub gpus: Vec<String>,
    /// Runs at a time.
    pub at_once: usize,
    /// Processor and device.
    #[serde(default)]
    pub machine: String,
    /// What the cluster calls the kind of its node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
}

/// What happened to a task or to one of its runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum What {
    /// A process took a task.
    Task(Taken),
    /// A worker is about to be started.
    Start {
        /// The run.
        run: String,
        /// The attempt, counted from 1.
        attempt: u32,
        /// The step of the newest checkpoint.
        #[serde(default)]
        step: u64,
        /// The GPU that it is bound to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gpu: Option<String>,
    },
    /// It resumed from a checkpoint, or skipped damaged ones.
    Resumed {
        /// The run.
        run: String,
        /// The step.
        step: u64,
        /// What it had to say.
        notes: Vec<String>,
    },
    /// It is recorded.
    Done {
        /// The run.
        run: String,
        /// Whether its loss became non-finite.
        diverged: bool,
    },
    /// It ended with an error, and is not tried again by this submission.
    Failed {
        /// The run.
        run: String,
        /// The message.
        message: String,
    },
    /// It saved and exited, because the task was asked to stop or another process has it.
    Stopped {
        /// The run.
        run: String,
        /// The message.
        message: String,
    },
    /// The process ends.
    End {
        /// Its exit code.
        exit: u8,
        /// Why.
        message: String,
    },
}

impl What {
    /// The run that it is about.
    pub fn run(&self) -> Option<&str> {
        match self {
            Self::Start { run, .. }
            | Self::Resumed { run, .. }
            | Self::Done { run, .. }
            | Self::Failed { run, .. }
            | Self::Stopped { run, .. } => Some(run),
            Self::Task(_) | Self::End { .. } => None,
        }
    }
}

/// The file of one process.
pub struct Writer {
    file: Mutex<File>,
    /// Where it is.
    pub path: PathBuf,
}

impl Writer {
    /// Creates the next file of a task.
    ///
    /// # Errors
    ///
    /// [`Exit::Resources`](support::exit::Exit::Resources) if it cannot be written.
    pub fn create(directory: &Path, task: usize) -> Result<Self, Failure> {
        let place = directory.join(EVENTS_DIR);
        rundir::system()
            .create_dirs(&place)
            .map_err(Failure::resources)?;
        for number in 0..MAX_PROCESSES {
            let path = place.join(format!("{task}.{number}.jsonl"));
            match OpenOptions::new().create_new(true).append(true).open(&path) {
                Ok(file) => {
                    let file = Mutex::new(file);
                    return Ok(Self { file, path });
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(Failure::resources(format!(
                        "cannot write {}: {error}",
                        path.display()
                    )));
                }
            }
        }
        Err(Failure::resources(format!(
            "{} has too many files",
            place.display()
        )))
    }

    /// Writes an event. One that cannot be written is lost: the directories of the runs still say
    /// what is recorded and saved.
    pub fn write(&self, what: What) {
        let time = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0.0, |since| since.as_secs_f64());
        if let Ok(mut line) = serde_json::to_vec(&Entry { time, what }) {
            line.push(b'\n');
            let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
            // One call for each line; synced, so that other machines see it.
            let _ = file.write_all(&line).and_then(|()| file.sync_data());
        }
    }
}

/// The events of one process: task, number of the process, and its entries.
#[derive(Debug)]
pub struct Process {
    /// The task.
    pub task: usize,
    /// The number of the process among those of its task.
    pub number: usize,
    /// Where and for what it was started; the default where its first event is lost.
    pub taken: Taken,
    /// When it began.
    pub began: f64,
    /// Its events.
    pub entries: Vec<Entry>,
}

impl Process {
    /// A process by its events.
    pub fn of(task: usize, number: usize, entries: Vec<Entry>) -> Self {
        let taken = entries.iter().find_map(|entry| match &entry.what {
            What::Task(taken) => Some((taken.clone(), entry.time)),
            _ => None,
        });
        let (taken, began) = taken.unwrap_or_default();
        Self {
            task,
            number,
            taken,
            began,
            entries,
        }
    }
}

/// Reads the events of all tasks, or of one, oldest process first. A last line that is half written
/// is left out.
pub fn read(directory: &Path, only: Option<usize>) -> Vec<Process> {
    let entries = std::fs::read_dir(directory.join(EVENTS_DIR));
    let mut found = BTreeMap::new();
    for entry in entries.into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some((task, number)) = name.to_str().and_then(place) else {
            continue;
        };
        if only.is_none_or(|only| only == task) {
            found.insert((task, number), entry.path());
        }
    }
    let process = |((task, number), path): ((usize, usize), PathBuf)| {
        let bytes = rundir::read::bounded(&path, MAX_BYTES).unwrap_or_default();
        let lines = bytes.split(|byte| *byte == b'\n');
        let entries = lines.filter_map(|line| serde_json::from_slice(line).ok());
        Process::of(task, number, entries.collect())
    };
    found.into_iter().map(process).collect()
}

/// The task and number of a file: `17.0.jsonl`.
fn place(name: &str) -> Option<(usize, usize)> {
    let (task, number) = name.strip_suffix(".jsonl")?.split_once('.')?;
    Some((task.parse().ok()?, number.parse().ok()?))
}

/// How the last attempt at a run ended, and in which submission: what decides whether it is tried
/// again.
#[derive(Clone, Debug, PartialEq)]
pub struct Last {
    /// The submission.
    pub generation: usize,
    /// The time of the event.
    pub time: f64,
    /// The last event of the run.
    pub what: What,
}

/// The last event of every run, by submission first: clocks of nodes may differ, submissions are
/// counted.
pub fn last_by_run(processes: &[Process]) -> BTreeMap<&str, Last> {
    let mut last: BTreeMap<&str, Last> = BTreeMap::new();
    for process in processes {
        let generation = process.taken.generation;
        for Entry { time, what } in &process.entries {
            let Some(run) = what.run() else { continue };
            let newer = last
                .get(run)
                .is_none_or(|known| (known.generation, known.time) <= (generation, *time));
            if newer {
                let (time, what) = (*time, what.clone());
                last.insert(
                    run,
                    Last {
                        generation,
                        time,
                        what,
                    },
                );
            }
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_back_by_process_and_the_last_of_a_run_counts() {
        let directory = tempfile::tempdir().unwrap();
        let task = |generation| {
            What::Task(Taken {
                task: 3,
                generation,
                node: "n1".to_owned(),
                ..Taken::default()
            })
        };
        let run = "0123456789abcdef".to_owned();
        let failed = What::Failed {
            run: run.clone(),
            message: "no\nroom".to_owned(),
        };
        let first = Writer::create(directory.path(), 3).unwrap();
        first.write(task(0));
        first.write(failed.clone());
        let second = Writer::create(directory.path(), 3).unwrap();
        second.write(task(1));
        second.write(What::Done {
            run: run.clone(),
            diverged: false,
        });
        // Half a line, as a process that was killed leaves it.
        let mut file = OpenOptions::new().append(true).open(&second.path).unwrap();
        file.write_all(b"{\"time\":1,\"event\":\"fai").unwrap();
        let read = read(directory.path(), None);
        assert_eq!(read.len(), 2);
        assert_eq!(
            (read[1].task, read[1].number, read[1].taken.generation),
            (3, 1, 1)
        );
        assert_eq!(read[0].entries[1].what, failed);
        let last = last_by_run(&read);
        assert_eq!(
            last[run.as_str()].what,
            What::Done {
                run: run.clone(),
                diverged: false
            }
        );
        assert!(super::read(directory.path(), Some(4)).is_empty());
    }
}
