//! One process per run: a file lock of the operating system, released when its holder ends.

use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Locked by the process that owns the run; its text names the process and the time.
pub const LOCK_FILE: &str = "lock";

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
    for attempt in 0..5 {
        // `holder` of another process takes the lock for an instant.
        if attempt > 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        match file.try_lock() {
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
    Err(Taken::By(holder(directory).unwrap_or_default()))
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
    // Opening a pipe would wait for its other end.
    if !path.symlink_metadata().ok()?.is_file() {
        return None;
    }
    let file = File::open(&path).ok()?;
    // A shared lock is granted only if nobody holds the exclusive one; dropping the file frees it.
    match file.try_lock_shared() {
        Ok(()) => return None,
        // Where there are no locks, nobody holds one.
        Err(TryLockError::Error(error)) if is_unsupported(&error) => return None,
        Err(_) => {}
    }
    let owner = crate::read::bounded(&path, 1024)
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .unwrap_or_default();
    Some(parse(
        &owner,
        &hostname(),
        seconds(SystemTime::now()),
        process_state,
    ))
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

/// Parses the text of a lock file; `state` returns the state letter of a process on this host.
fn parse(text: &str, host: &str, now: u64, state: impl Fn(u32) -> Option<char>) -> Holder {
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
    let mut words = who.strip_prefix("process ").unwrap_or_default().split(' ');
    let process = words.next().and_then(|process| process.parse::<u32>().ok());
    // A process id of another host says nothing about the processes here.
    let here = !host.is_empty() && words.next() == Some("on") && words.next() == Some(host);
    let stopped = process.filter(|process| here && matches!(state(*process), Some('T' | 't')));
    Holder { who, held, stopped }
}

/// The state letter of a process of this machine, from `/proc/PID/stat`: it follows the name, which
/// stands in brackets and may contain anything.
fn process_state(process: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// The name of this host; empty if the system does not say.
pub fn hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .unwrap_or_default()
        .trim()
        .to_owned()
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
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_lock_is_read_back() {
        let text = text(123, "node7", 1_000);
        let read = |now, host, state| parse(&text, host, now, move |_| state);
        let here = read(1_720, "node7", Some('S'));
        assert_eq!(here.to_string(), "process 123 on node7 for 12 min");
        let stopped = read(1_720, "node7", Some('T'));
        assert_eq!(
            stopped.to_string(),
            "process 123 on node7 for 12 min, stopped (SIGSTOP); `kill -CONT 123` continues it"
        );
        // A process of another host has another table of processes.
        assert_eq!(read(1_720, "node8", Some('T')).stopped, None);
        // Clocks of two hosts may differ.
        assert_eq!(read(900, "node8", None).to_string(), "process 123 on node7");
    }

    #[test]
    fn other_texts_are_shown_as_far_as_they_go() {
        let read = |text| parse(text, "node7", 1_000, |_| Some('T')).to_string();
        assert_eq!(read(""), "another process");
        assert_eq!(read("process 9 on elsewhere"), "process 9 on elsewhere");
        assert_eq!(read("\u{1b}[2Jsomebody\nsince never\n"), "[2Jsomebody");
        assert_eq!(
            read("process 99999999999 on node7\nsince 940\n"),
            "process 99999999999 on node7 for 1 min"
        );
    }

    #[test]
    fn durations_are_given_in_their_largest_units() {
        let shown = [0, 59, 60, 3_599, 3_600, 12_000, 86_400, 187_200].map(span);
        assert_eq!(
            shown,
            [
                "0 s",
                "59 s",
                "1 min",
                "59 min",
                "1 h 0 min",
                "3 h 20 min",
                "1 d 0 h",
                "2 d 4 h"
            ]
        );
    }

    #[test]
    fn a_lock_that_is_held_names_its_holder() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(holder(directory.path()), None);
        let held = take(directory.path()).unwrap();
        let found = holder(directory.path()).unwrap();
        assert!(
            found.who.contains(&std::process::id().to_string()),
            "{found}"
        );
        assert!(
            found
                .held
                .is_some_and(|held| held < Duration::from_secs(60))
                && found.stopped.is_none(),
            "{found:?}"
        );
        assert!(matches!(take(directory.path()), Err(Taken::By(_))));
        drop(held);
        assert_eq!(holder(directory.path()), None);
    }
}
