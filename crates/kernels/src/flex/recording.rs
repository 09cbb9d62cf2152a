//! Records the tasks of parallel loops, run one after the other on one thread, to work out how long
//! any number of threads would take: for the benchmarks of this crate.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::Location;
use std::time::{Duration, Instant};

/// The parallel loops of a stretch of work as `threads` threads would cut them.
#[derive(Clone, Debug)]
pub struct Recording {
    threads: usize,
    begin: Instant,
    /// When the last loop ended.
    since: Instant,
    loops: Vec<Loop>,
}

/// A parallel loop: where it was called, the time since the one before, and that of every task.
#[derive(Clone, Debug)]
struct Loop {
    at: &'static Location<'static>,
    before: Duration,
    tasks: Vec<Duration>,
}

thread_local! {
    static CURRENT: RefCell<Option<Recording>> = const { RefCell::new(None) };
}

/// From now on, parallel loops of this thread are cut for `threads` threads and run here, timed,
/// one task after the other.
pub fn start(threads: usize) {
    let now = Instant::now();
    let recording = Recording {
        threads,
        begin: now,
        since: now,
        loops: Vec::new(),
    };
    CURRENT.set(Some(recording));
}

/// Ends the recording of this thread.
pub fn finish() -> Option<(Recording, Duration)> {
    let recording = CURRENT.take()?;
    let took = recording.begin.elapsed();
    Some((recording, took))
}

/// The number of threads to cut work for, where a recording decides it.
pub(super) fn threads() -> Option<usize> {
    CURRENT.with_borrow(|current| current.as_ref().map(|recording| recording.threads))
}

/// The results of `f` for all tasks, recorded as one loop.
#[track_caller]
pub(super) fn run<T, R>(tasks: Vec<T>, f: impl Fn(T) -> R) -> Vec<R> {
    let (at, begin) = (Location::caller(), Instant::now());
    let (mut times, mut results) = (Vec::new(), Vec::new());
    for task in tasks {
        let start = Instant::now();
        results.push(f(task));
        times.push(start.elapsed());
    }
    CURRENT.with_borrow_mut(|current| {
        if let Some(recording) = current {
            recording.loops.push(Loop {
                at,
                before: begin - recording.since,
                tasks: times,
            });
            recording.since = Instant::now();
        }
    });
    results
}

impl Loop {
    fn work(&self) -> Duration {
        self.tasks.iter().sum()
    }

    /// Until the last of `threads` is done, if each takes the next task as soon as it is free.
    fn elapsed(&self, threads: usize) -> Duration {
        let mut free = vec![Duration::ZERO; threads.max(1)];
        for task in &self.tasks {
            if let Some(first) = free.iter_mut().min() {
                *first += *task;
            }
        }
        free.into_iter().max().unwrap_or_default()
    }
}

/// What all loops of one place in the source cost.
#[derive(Clone, Debug)]
pub struct CallSite {
    /// File and line of the call.
    pub at: String,
    /// The number of loops.
    pub loops: usize,
    /// The number of tasks of all loops.
    pub tasks: usize,
    /// The time of all tasks.
    pub work: Duration,
    /// The time since the loops before them, on one thread.
    pub before: Duration,
    /// The time of the loops on the recording's threads.
    pub elapsed: Duration,
}

impl Recording {
    /// The time of all tasks.
    pub fn work(&self) -> Duration {
        self.loops.iter().map(Loop::work).sum()
    }

    /// The time of all loops on the recording's threads, if a loop takes `overhead` to wake and to
    /// join them.
    pub fn elapsed(&self, overhead: Duration) -> Duration {
        let each = self.loops.iter();
        each.map(|tasks| tasks.elapsed(self.threads) + overhead)
            .sum()
    }

    /// The loops by place, longest first, with what runs before them.
    pub fn places(&self) -> Vec<CallSite> {
        let mut places = BTreeMap::new();
        for each in &self.loops {
            let at = format!("{}:{}", each.at.file(), each.at.line());
            let place = places.entry(at.clone()).or_insert(CallSite {
                at,
                loops: 0,
                tasks: 0,
                work: Duration::ZERO,
                before: Duration::ZERO,
                elapsed: Duration::ZERO,
            });
            place.loops += 1;
            place.tasks += each.tasks.len();
            place.work += each.work();
            place.before += each.before;
            place.elapsed += each.elapsed(self.threads);
        }
        let mut places: Vec<CallSite> = places.into_values().collect();
        places.sort_by_key(|place| std::cmp::Reverse(place.before + place.elapsed));
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_take_the_next_task_when_they_are_free() {
        let millis = |times: &[u64]| Loop {
            at: Location::caller(),
            before: Duration::ZERO,
            tasks: times.iter().map(|t| Duration::from_millis(*t)).collect(),
        };
        let recording = Recording {
            threads: 2,
            begin: Instant::now(),
            since: Instant::now(),
            loops: vec![millis(&[3, 1, 1, 4]), millis(&[5])],
        };
        assert_eq!(recording.work(), Duration::from_millis(14));
        // Tasks of 1, 1 and 4 on one thread, of 3 on the other; then one of 5.
        let overhead = Duration::from_millis(1);
        assert_eq!(
            recording.elapsed(overhead),
            Duration::from_millis(6 + 5 + 2)
        );
    }

    #[test]
    fn loops_are_recorded_in_place_and_give_the_same_results() {
        start(3);
        assert_eq!(threads(), Some(3));
        let squares = run(vec![1, 2, 3], |x| x * x);
        let (recording, took) = finish().expect("started");
        assert_eq!(squares, [1, 4, 9]);
        assert_eq!(recording.loops.len(), 1);
        assert_eq!(recording.places()[0].tasks, 3);
        assert!(recording.work() <= took);
        assert!(finish().is_none() && threads().is_none());
    }
}
