//! Workers that make no progress: stopped by a signal, or without any processor time.

use experiment::plan::together::Group;
use rundir::process::{Activity, activity};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use support::units::duration;

/// Time between two looks at the workers.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a worker may be stopped without a line about it.
const STOPPED_FOR: Duration = Duration::from_secs(2);
/// How long a worker may use no processor time without a line about it. Reading a corpus, waiting
/// for a device and writing a checkpoint all take some of it.
const IDLE_FOR: Duration = Duration::from_secs(60);

/// The workers of a sweep, by their runs.
pub struct Stalls {
    workers: BTreeMap<Group, Worker>,
    looked: Instant,
}

/// What is known of a worker.
struct Worker {
    process: u32,
    /// Processor time that it has used, in the system's ticks.
    used: u64,
    /// Since when that has not changed.
    since: Instant,
    /// The idle time at which the next line is due; none was printed yet if it is `None`.
    due: Option<Duration>,
}

impl Default for Stalls {
    fn default() -> Self {
        Self {
            workers: BTreeMap::new(),
            looked: Instant::now(),
        }
    }
}

impl Stalls {
    /// A worker was started for some runs.
    pub fn started(&mut self, group: &Group, process: u32) {
        let worker = Worker::new(process, Instant::now());
        self.workers.insert(group.clone(), worker);
    }

    /// The worker of a run has ended.
    pub fn ended(&mut self, index: usize) {
        self.workers.retain(|group, _| !group.contains(&index));
    }

    /// Looks at the workers, if it is time; returns a line for each that one is due for.
    pub fn look(&mut self) -> Vec<(Group, String)> {
        let now = Instant::now();
        if now.duration_since(self.looked) < LOOK_EVERY {
            return Vec::new();
        }
        self.looked = now;
        let mut lines = Vec::new();
        for (group, worker) in &mut self.workers {
            // A system that cannot be asked says nothing about its processes.
            if let Some(found) = activity(worker.process)
                && let Some(line) = worker.see(&found, now)
            {
                lines.push((group.clone(), line));
            }
        }
        lines
    }
}

impl Worker {
    fn new(process: u32, now: Instant) -> Self {
        Self {
            process,
            used: 0,
            since: now,
            due: None,
        }
    }

    /// The line that is due after a look at the worker.
    fn see(&mut self, found: &Activity, now: Instant) -> Option<String> {
        if found.used != self.used {
            (self.used, self.since, self.due) = (found.used, now, None);
        }
        let idle = now.duration_since(self.since);
        let first = if found.stopped { STOPPED_FOR } else { IDLE_FOR };
        if idle < self.due.unwrap_or(first) {
            return None;
        }
        // Ever more rarely: nobody may be there to read it.
        self.due = Some((idle * 2).max(IDLE_FOR));
        let process = self.process;
        let for_long = duration(idle.as_secs_f64());
        Some(if found.stopped {
            format!(
                "worker process {process} has been stopped (SIGSTOP) for {for_long}; `kill -CONT \
                 {process}` continues it"
            )
        } else {
            format!(
                "its worker, process {process}, has used no processor time for {for_long}: it waits \
                 for a disk or a device, or hangs; `kill {process}` asks it to save and exit, \
                 `kill -9 {process}` ends it; the same command continues from its last checkpoint"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_without_progress_is_named_ever_more_rarely_and_one_with_progress_never() {
        let start = Instant::now();
        let at = |secs| start + Duration::from_secs(secs);
        let said = |stopped: bool, used: &dyn Fn(u64) -> u64| -> Vec<u64> {
            let mut worker = Worker::new(7, start);
            (0..1000)
                .filter(|secs| {
                    let used = used(*secs);
                    worker.see(&Activity { stopped, used }, at(*secs)).is_some()
                })
                .collect()
        };
        assert_eq!(said(false, &|secs| secs / 50), [0_u64; 0]);
        assert_eq!(said(false, &|_| 5), [60, 120, 240, 480, 960]);
        assert_eq!(said(true, &|_| 5), [2, 60, 120, 240, 480, 960]);
        // Progress starts the count anew.
        assert_eq!(
            said(false, &|secs| u64::from(secs >= 200)),
            [60, 120, 260, 320, 440, 680]
        );
    }

    #[test]
    fn a_line_names_the_process_and_what_to_do() {
        let now = Instant::now();
        let mut worker = Worker::new(7, now);
        let mut said = |stopped| {
            worker.due = None;
            let found = Activity { stopped, used: 0 };
            let line = worker.see(&found, now + Duration::from_secs(90));
            line.unwrap_or_default()
        };
        assert!(
            said(true).contains("process 7 has been stopped")
                && said(true).contains("kill -CONT 7")
        );
        assert!(said(false).contains("no processor time") && said(false).contains("kill -9 7"));
    }
}
