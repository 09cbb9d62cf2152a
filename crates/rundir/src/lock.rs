//! One process per run: a file lock of the operating system, released when its holder ends.

use crate::lock_table::{self, Entry};
pub use crate::process::hostname;
use crate::process::{self, activity};
use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Locked by the process that owns the run; its text names the process and the time.
pub const LOCK_FILE: &str = "lock";

/// How often a lock is tried, and how long between two attempts.
const ATTEMPTS: u32 = 5;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(20);

/// Why a run could not be taken.
#[derive(Debug)]
pub enum Taken {
    /// Another process holds the lock.
    By(Holder),
    /// The lock file cannot be written, or the file system has no locks.
    Refused(io::Error),
}

/// Who holds a lock, according to the lock file's text. The text is for people; the lock of the
/// operating system decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// Process and host, such as `process 123 on node7`; empty if unknown.
    pub who: String,
    /// Time since it took the lock.
    pub held: Option<Duration>,
    /// The process id, if the process runs on this host and is stopped, as by SIGSTOP.
    pub stopped: Option<u32>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.who.is_empty() {
            "another process"
        } else {
            &self.who
        })?;
        if let Some(held) = self.held {
            write!(f, " for {}", span(held.as_secs()))?;
        }
        if let Some(process) = self.stopped {
            write!(
                f,
                ", stopped (SIGSTOP); `kill -CONT {process}` continues it"
            )?;
        }
        Ok(())
    }
}

/// The text of a lock file.
struct Written {
    holder: Holder,
    /// The process that it names, and whether that ran on this host.
    process: Option<(u32, bool)>,
}

/// Locks a run for this process until the file is dropped or the process ends.
///
/// # Errors
///
/// If another process holds the lock, or the file cannot be locked.
pub fn take(directory: &Path) -> Result<File, Taken> {
    let path = directory.join(LOCK_FILE);
    // A link could lead anywhere, and opening a pipe would wait for its other end.
    if path.symlink_metadata().is_ok_and(|found| !found.is_file()) {
        return Err(Taken::Refused(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{} is not a file", path.display()),
        )));
    }
    // Not truncated: until the lock is taken, the text is that of its holder.
    let opened = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .read(true)
        .open(&path);
    let mut file = opened.map_err(Taken::Refused)?;
    for attempt in 0..ATTEMPTS {
        // `holder` of another process takes the lock for an instant.
        if attempt > 0 {
            std::thread::sleep(BETWEEN_ATTEMPTS);
        }
        match uninterrupted(|| file.try_lock()) {
            Ok(()) => {
                let text = text(std::process::id(), &hostname(), seconds(SystemTime::now()));
                // The text is for people; failing to write it changes nothing.
                let _ = file
                    .set_len(0)
                    .and_then(|()| file.write_all(text.as_bytes()));
                return Ok(file);
            }
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(Taken::Refused(error)),
        }
    }
    Err(Taken::By(named(&path)))
}

/// Tries again as long as signals interrupt the system call: on file systems of a network it can
/// wait for an answer.
fn uninterrupted(mut lock: impl FnMut() -> Result<(), TryLockError>) -> Result<(), TryLockError> {
    loop {
        match lock() {
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            answer => return answer,
        }
    }
}

/// Whether a refusal means that the file system has no locks, as NFS without its lock service or
/// Lustre without `flock`.
pub fn is_unsupported(error: &io::Error) -> bool {
    const ENOSYS: i32 = 38;
    const ENOLCK: i32 = 37;
    error.kind() == io::ErrorKind::Unsupported
        || (cfg!(target_os = "linux") && matches!(error.raw_os_error(), Some(ENOSYS | ENOLCK)))
}

/// The process that holds a run's lock, if any.
pub fn holder(directory: &Path) -> Option<Holder> {
    let path = directory.join(LOCK_FILE);
    let file = crate::read::open(&path).ok()?;
    // A shared lock is granted only if nobody holds the exclusive one; dropping the file frees it.
    match uninterrupted(|| file.try_lock_shared()) {
        Ok(()) => return None,
        // Where there are no locks, nobody holds one.
        Err(TryLockError::Error(error)) if is_unsupported(&error) => return None,
        Err(_) => {}
    }
    Some(named(&path))
}

/// A process that shares the lock of a run, so that no other process can take it, for longer than
/// [`holder`] does.
pub fn sharer(directory: &Path) -> Option<Holder> {
    let path = directory.join(LOCK_FILE);
    let shared = || {
        let mut found = lock_table::holders(&path).into_iter();
        found.find(|entry| !entry.exclusive && entry.process != std::process::id())
    };
    let first = shared()?;
    for _ in 0..ATTEMPTS {
        std::thread::sleep(BETWEEN_ATTEMPTS);
        if shared() != Some(first) {
            return None;
        }
    }
    Some(named(&path))
}

/// Who holds a lock that cannot be taken.
fn named(path: &Path) -> Holder {
    let owner = crate::read::bounded(path, 1024)
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .unwrap_or_default();
    let stopped = |process| activity(process).is_some_and(|seen| seen.stopped);
    let written = parse(&owner, &hostname(), seconds(SystemTime::now()), stopped);
    identify(written, &lock_table::holders(path), &System)
}

/// What can be asked about the processes of this machine.
trait Processes {
    fn is_alive(&self, process: u32) -> bool;
    fn is_stopped(&self, process: u32) -> bool;
    /// Its id in its own table of processes.
    fn inner_id(&self, process: u32) -> Option<u32>;
    fn program(&self, process: u32) -> Option<String>;
}

struct System;

impl Processes for System {
    fn is_alive(&self, process: u32) -> bool {
        // Where the system does not say, the text is believed.
        process::kernel().is_empty() || activity(process).is_some()
    }

    fn is_stopped(&self, process: u32) -> bool {
        activity(process).is_some_and(|seen| seen.stopped)
    }

    fn inner_id(&self, process: u32) -> Option<u32> {
        lock_table::inner_id(process)
    }

    fn program(&self, process: u32) -> Option<String> {
        lock_table::program(process)
    }
}

/// Who holds a lock, by the text of its file and by the system's table of locks. The text is that
/// of the last process that took it as a run does; others can lock the file as well.
fn identify(written: Written, holders: &[Entry], processes: &impl Processes) -> Holder {
    let text = written.holder;
    let is_writer = |entry: &&Entry| {
        let id = written.process.map(|(process, _)| process);
        let inner = || processes.inner_id(entry.process);
        entry.exclusive && id.is_some() && (Some(entry.process) == id || inner() == id)
    };
    if let Some(entry) = holders.iter().find(is_writer) {
        // In a container it has another id than here.
        let stopped = processes.is_stopped(entry.process).then_some(entry.process);
        return Holder {
            stopped: text.stopped.or(stopped),
            ..text
        };
    }
    if let Some(entry) = holders.first() {
        let process = entry.process;
        let program = processes.program(process).unwrap_or_default();
        let how = if entry.exclusive {
            String::new()
        } else {
            format!(", which shares the lock of `{LOCK_FILE}`; the run waits until it ends")
        };
        return Holder {
            who: format!("process {process} ({program}){how}"),
            held: None,
            stopped: processes.is_stopped(process).then_some(process),
        };
    }
    match written.process {
        Some((process, true)) if !processes.is_alive(process) => Holder {
            who: format!(
                "a process that cannot be seen from here (the last one that is known, {}, has \
                 ended)",
                text.who
            ),
            ..Holder::default()
        },
        _ => text,
    }
}

/// The process that a line `process N on HOST` names, and whether it ran on this host.
fn process(who: &str, host: &str) -> Option<(u32, bool)> {
    let mut words = who.strip_prefix("process ")?.split(' ');
    let process = words.next()?.parse().ok()?;
    let is_here = !host.is_empty() && words.next() == Some("on") && words.next() == Some(host);
    Some((process, is_here))
}

/// The text of a lock file.
fn text(process: u32, host: &str, since: u64) -> String {
    let host = if host.is_empty() {
        String::new()
    } else {
        format!(" on {host}")
    };
    format!("process {process}{host}\nsince {since}\n")
}

/// Parses the text of a lock file; `is_stopped` is asked about a process on this host.
fn parse(text: &str, host: &str, now: u64, is_stopped: impl Fn(u32) -> bool) -> Written {
    let mut lines = text.lines();
    // The text is of unknown origin and goes to a terminal.
    let who: String = lines
        .next()
        .unwrap_or_default()
        .chars()
        .filter(|c| !c.is_control())
        .collect();
    let since = lines.find_map(|line| line.strip_prefix("since ")?.trim().parse::<u64>().ok());
    // The clock of another host may be ahead of this one: then no time is given.
    let held = since
        .and_then(|since| now.checked_sub(since))
        .map(Duration::from_secs);
    let process = process(&who, host);
    // A process id of another host says nothing about the processes here.
    let stopped = process.filter(|(process, is_here)| *is_here && is_stopped(*process));
    let stopped = stopped.map(|(process, _)| process);
    Written {
        holder: Holder { who, held, stopped },
        process,
    }
}

pub(crate) fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// A duration in its largest units: `45 s`, `12 min`, `3 h 20 min`, `2 d 4 h`.
fn span(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (minutes, hours, days) {
        (0, ..) => format!("{seconds} s"),
        (_, 0, _) => format!("{minutes} min"),
        (_, _, 0) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

#[cfg(test)]
mod tests;
