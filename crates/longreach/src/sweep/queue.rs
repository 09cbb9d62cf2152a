//! The queue of a sweep: threads that each start one worker after the other, and the loop that
//! draws their progress.

use crate::exit::{Exit, Failure};
use crate::limits;
use crate::plan::planner::{Plan, PlannedRun};
use crate::run::protocol::Event;
use crate::run::worker::LEAVE_WITHIN;
use crate::run_dir::hold::LiveClaim;
use crate::signals;
use crate::sweep::claims;
use crate::sweep::display::Display;
use crate::sweep::journal::Journal;
use crate::sweep::options::Options;
use crate::sweep::prepare::ensure_job;
use crate::sweep::process::{Start, threads_per_worker, watch};
use crate::sweep::stalls::Stalls;
use rundir::claim::Sight;
use rundir::lock;
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A run that failed: its name, its directory, and why.
pub type FailedRun = (String, PathBuf, Failure);

/// Sent by the threads that watch workers to the one that draws.
enum Message {
    Started(usize),
    /// A worker runs it, as this process.
    Worker(usize, u32),
    Event(usize, Event),
    Ended(usize, Result<(), Failure>),
}

/// The runs that have no worker yet, by index into the plan.
struct Queue<'a> {
    plan: &'a Plan,
    options: &'a Options,
    threads: Option<usize>,
    journal: &'a dyn Journal,
    waiting: Mutex<VecDeque<usize>>,
    /// What was seen of the claims of other processes.
    sights: Mutex<BTreeMap<usize, Sight>>,
}

/// Runs everything in `todo`; returns the runs that failed and the number that were never started.
pub fn work(
    plan: &Plan,
    todo: VecDeque<usize>,
    jobs: usize,
    options: &Options,
    journal: &dyn Journal,
    display: &mut Display<'_>,
) -> (Vec<FailedRun>, usize) {
    let queue = Queue {
        plan,
        options,
        threads: threads_per_worker(jobs, options.share.cores),
        journal,
        waiting: Mutex::new(todo),
        sights: Mutex::default(),
    };
    let (sender, receiver) = mpsc::channel();
    // Workers leave by themselves before that.
    let watched = signals::kill_workers_after(LEAVE_WITHIN + Duration::from_secs(1));
    let failed = std::thread::scope(|scope| {
        let mut refused = watched.err();
        for slot in 0..jobs {
            if refused.is_some() {
                break;
            }
            let (queue, sender) = (&queue, sender.clone());
            let serve = move || queue.serve(slot, &sender);
            let started = std::thread::Builder::new().spawn_scoped(scope, serve);
            refused = started
                .err()
                .map(|error| limits::refused("a thread", &error));
        }
        // The receiver ends when the last sender does, and those belong to the threads.
        drop(sender);
        let mut failed = queue.unserved(refused);
        if !failed.is_empty() {
            display.not_started += queue.clear();
        }
        failed.extend(queue.follow(&receiver, display));
        failed
    });
    display.not_started += queue.clear();
    (failed, display.not_started)
}

impl Queue<'_> {
    /// Runs one run after the other, until none is left.
    fn serve(&self, slot: usize, sender: &Sender<Message>) {
        while let Some(index) = self.next() {
            let _ = sender.send(Message::Started(index));
            let ended = self.run(index, slot, sender);
            let _ = sender.send(Message::Ended(index, ended));
        }
    }

    /// The failure of the next run, where threads could not be started. Those that were started
    /// finish what they have begun.
    fn unserved(&self, refused: Option<Failure>) -> Vec<FailedRun> {
        let named = |failure: Failure| {
            let run = &self.plan.runs[self.next()?];
            Some((run.job.name(), self.options.directory(run), failure))
        };
        refused.and_then(named).into_iter().collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<usize>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> Option<usize> {
        if signals::asked().is_some() || !self.journal.has_time() {
            return None;
        }
        self.lock().pop_front()
    }

    /// Removes all runs; returns how many there were.
    fn clear(&self) -> usize {
        self.lock().drain(..).count()
    }

    /// Swaps a run that another process holds for the next one in the queue; false if there is
    /// none.
    fn postpone(&self, index: usize) -> bool {
        let mut waiting = self.lock();
        // In an empty queue this thread would get the same run back at once.
        let Some(next) = waiting.pop_front() else {
            return false;
        };
        waiting.push_back(index);
        waiting.push_front(next);
        true
    }

    /// Runs one worker to its end, and waits for a run that another process holds.
    fn run(&self, index: usize, slot: usize, sender: &Sender<Message>) -> Result<(), Failure> {
        let run: &PlannedRun = &self.plan.runs[index];
        // A device that was lost may work in a fresh process: once.
        let mut retry_device = self.options.how.device.kind != "cpu";
        loop {
            // Another sweep may have recorded it while this one waited.
            if self.options.retry.is_none() && self.options.recorded(run).is_some() {
                return Ok(());
            }
            let failure = match self.attempt(index, slot, sender) {
                Ok(()) => return Ok(()),
                Err(failure) => failure,
            };
            if failure.exit == Exit::Device && retry_device {
                retry_device = false;
            } else if failure.exit == Exit::Busy && signals::asked().is_none() {
                let who = failure.message.clone();
                let _ = sender.send(Message::Event(index, Event::Elsewhere { who }));
                std::thread::sleep(Duration::from_millis(200));
                // The other runs come first; this thread waits only if there is none.
                if self.postpone(index) {
                    return Err(failure);
                }
            } else {
                return Err(failure);
            }
        }
    }

    /// One worker, if no other process holds the run.
    fn attempt(&self, index: usize, slot: usize, sender: &Sender<Message>) -> Result<(), Failure> {
        let run: &PlannedRun = &self.plan.runs[index];
        let directory = self.options.directory(run);
        let claim = match self.claim(index, &directory) {
            Ok(claim) => claim,
            Err(failure) => {
                let ended = Err(failure);
                if !matches!(&ended, Err(failure) if failure.exit == Exit::Busy) {
                    self.journal.ended(run, &directory, &ended);
                }
                return ended;
            }
        };
        // Asked first: a worker would start only to find the lock held.
        if let Some(who) = lock::holder(&directory).or_else(|| lock::sharer(&directory)) {
            return Err(Failure::new(Exit::Busy, format!("is held by {who}")));
        }
        let start = Start {
            directory: &directory,
            options: self.options,
            threads: self.threads,
            gpu: self
                .options
                .share
                .gpus
                .as_ref()
                .map(|gpus| (gpus.variable, gpus.of(slot))),
            claim: claim.as_ref(),
        };
        let on_event = |event: Event| {
            self.journal.event(run, &event);
            let _ = sender.send(Message::Event(index, event));
        };
        let begun =
            ensure_job(run, self.options).and_then(|()| self.journal.starts(run, &directory, slot));
        let ended = match begun {
            Ok(()) => {
                let on_start = |process| drop(sender.send(Message::Worker(index, process)));
                watch(&start, on_start, on_event)
            }
            Err(refused) => {
                start.write_error(&refused);
                Err(refused)
            }
        };
        // Told while the run is claimed: whoever sees no claim finds the end written.
        self.journal.ended(run, &directory, &ended);
        ended
    }

    /// Claims a run, if it needs a claim.
    fn claim(&self, index: usize, directory: &Path) -> Result<Option<LiveClaim>, Failure> {
        rundir::system()
            .create_dirs(directory)
            .map_err(Failure::resources)?;
        let mut sights = self.sights.lock().unwrap_or_else(PoisonError::into_inner);
        let sight = sights.entry(index).or_default();
        claims::take(directory, &self.options.share, sight)
    }

    /// Draws what the workers report until all threads have ended; returns the runs that failed.
    fn follow(&self, receiver: &Receiver<Message>, display: &mut Display<'_>) -> Vec<FailedRun> {
        let (mut failed, mut stalls) = (Vec::new(), Stalls::default());
        let mut stopping = false;
        loop {
            // `signals` has asked the workers already, and no further one is started.
            if !stopping && signals::asked().is_some() {
                stopping = true;
                display
                    .print("stopping: workers save and leave; a second signal ends them at once");
            }
            for (index, line) in stalls.look() {
                let name = self.plan.runs[index].job.name();
                display.print(&format!("  {name}: {line}"));
            }
            match receiver.recv_timeout(Duration::from_millis(100)) {
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return failed,
                Ok(Message::Started(index)) => display.started(index),
                Ok(Message::Worker(index, process)) => stalls.started(index, process),
                Ok(Message::Event(index, event)) => display.event(index, &event),
                Ok(Message::Ended(index, ended)) => {
                    stalls.ended(index);
                    display.ended(index, &ended);
                    let Err(failure) = ended else { continue };
                    // If only the worker was asked to stop, its run has failed; if the whole sweep
                    // was, it has not.
                    let stopped = failure.exit.on_request() && signals::asked().is_some();
                    if failure.exit == Exit::Busy || stopped {
                        continue;
                    }
                    // No other run would fare better without a disk or a device.
                    if self.journal.ends_all(&failure, self.options) {
                        display.not_started += self.clear();
                    }
                    let run = &self.plan.runs[index];
                    failed.push((run.job.name(), self.options.directory(run), failure));
                }
            }
        }
    }
}
