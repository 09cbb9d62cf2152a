//! The queue of a sweep: threads that each start one worker after the other, and the loop that
//! draws their progress. Its items are groups of runs, each for one worker.

use crate::display::Display;
use crate::journal::Journal;
use crate::leases;
use crate::options::Options;
use crate::prepare::ensure_job;
use crate::process::{Member, WorkerStart, threads_per_worker, watch};
use crate::stalls::Stalls;
use experiment::plan::planner::{Plan, PlannedRun};
use experiment::plan::together::Group;
use experiment::run::protocol::Event;
use experiment::run::worker::LEAVE_WITHIN;
use experiment::runs_on_disk::hold::LiveLease;
use rundir::lease::Observation;
use rundir::lock;
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use support::exit::{Exit, Failure};
use support::limits;
use support::signals;
use support::units::count;

/// A run that failed: its name, its directory, and why.
pub type FailedRun = (String, PathBuf, Failure);

/// Sent by the threads that watch workers to the one that draws.
enum Message {
    Started(usize),
    /// A worker runs them, as this process.
    Worker(Group, u32),
    Event(usize, Event),
    Ended(usize, Result<(), Failure>),
}

/// Outcome of a run, by index into the plan.
type Ended = (usize, Result<(), Failure>);

/// The runs that have no worker yet, by index into the plan.
struct Queue<'a> {
    plan: &'a Plan,
    options: &'a Options,
    threads: Option<usize>,
    journal: &'a dyn Journal,
    waiting: Mutex<VecDeque<Group>>,
    /// What was seen of the leases of other processes.
    sights: Mutex<BTreeMap<usize, Observation>>,
}

/// Runs everything in `todo`; returns the runs that failed and the number that were never started.
pub fn work(
    plan: &Plan,
    todo: VecDeque<Group>,
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
    /// Runs one group after the other, until none is left.
    fn serve(&self, slot: usize, sender: &Sender<Message>) {
        while let Some(group) = self.next() {
            for index in &group {
                let _ = sender.send(Message::Started(*index));
            }
            self.run(group, slot, sender);
        }
    }

    /// The failure of the next runs, where threads could not be started. Those that were started
    /// finish what they have begun.
    fn unserved(&self, refused: Option<Failure>) -> Vec<FailedRun> {
        let Some(failure) = refused else {
            return Vec::new();
        };
        let named = |index: usize| {
            let run = &self.plan.runs[index];
            (run.job.name(), self.options.directory(run), failure.clone())
        };
        self.next().into_iter().flatten().map(named).collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Group>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> Option<Group> {
        if signals::asked().is_some() || !self.journal.has_time() {
            return None;
        }
        self.lock().pop_front()
    }

    /// Removes all groups; returns how many runs there were.
    fn clear(&self) -> usize {
        self.lock().drain(..).map(|group| group.len()).sum()
    }

    /// Puts runs that another process holds behind all others; false if there are no others.
    fn postpone(&self, group: &Group) -> bool {
        let mut waiting = self.lock();
        // In an empty queue this thread would get the same runs back at once.
        if waiting.is_empty() {
            return false;
        }
        waiting.push_back(group.clone());
        true
    }

    /// Runs one worker to its end, or another one where the device was lost, and waits for runs
    /// that other processes hold.
    fn run(&self, mut group: Group, slot: usize, sender: &Sender<Message>) {
        let ended = |(index, ended): Ended| drop(sender.send(Message::Ended(index, ended)));
        // A device that was lost may work in a fresh process: once.
        let mut retry_device = self.options.how.device.kind != "cpu";
        loop {
            // Another sweep may have recorded them while this one waited.
            let (recorded, left): (Group, Group) = group.into_iter().partition(|index| {
                let run = &self.plan.runs[*index];
                self.options.retry.is_none() && self.options.recorded(run).is_some()
            });
            recorded
                .into_iter()
                .for_each(|index| ended((index, Ok(()))));
            let (mut again, mut busy) = (Group::new(), Vec::new());
            for (index, end) in self.attempt(&left, slot, sender) {
                match end {
                    Err(lost) if lost.exit == Exit::Device && retry_device => again.push(index),
                    Err(held) if held.exit == Exit::Busy && signals::asked().is_none() => {
                        busy.push((index, held));
                    }
                    end => ended((index, end)),
                }
            }
            if !again.is_empty() {
                retry_device = false;
            }
            let held: Group = busy.iter().map(|(index, _)| *index).collect();
            if !held.is_empty() {
                Self::tell_busy(&busy, sender);
                std::thread::sleep(Duration::from_millis(200));
                // The other runs come first; this thread waits only if there is none.
                if again.is_empty() && self.postpone(&held) {
                    busy.into_iter()
                        .for_each(|(index, held)| ended((index, Err(held))));
                    return;
                }
            }
            again.extend(held);
            if again.is_empty() {
                return;
            }
            group = again;
        }
    }

    fn tell_busy(busy: &[(usize, Failure)], sender: &Sender<Message>) {
        for (index, failure) in busy {
            let who = failure.message.clone();
            let _ = sender.send(Message::Event(*index, Event::Elsewhere { who }));
        }
    }

    /// One worker for the runs that no other process holds. The others come after them.
    fn attempt(&self, group: &[usize], slot: usize, sender: &Sender<Message>) -> Vec<Ended> {
        let (mut ended, mut held) = (Vec::new(), Vec::new());
        for index in group {
            match self.hold(*index) {
                Ok(member) => held.push((*index, member)),
                Err(failure) => ended.push((*index, Err(failure))),
            }
        }
        let is_busy = |(_, end): &Ended| matches!(end, Err(held) if held.exit == Exit::Busy);
        if !held.is_empty() && signals::asked().is_none() {
            // Now, not when this worker ends: another thread may be free before.
            let busy: Vec<Ended> = ended.extract_if(.., |end| is_busy(end)).collect();
            self.put_back(busy, sender);
        }
        let mut begun = Vec::new();
        for (index, member) in held {
            match self.begin(&member, slot) {
                Ok(()) => begun.push((index, member)),
                Err(refused) => ended.push((index, Err(refused))),
            }
        }
        let (indices, members): (Group, Vec<Member<'_>>) = begun.into_iter().unzip();
        if indices.is_empty() {
            return ended;
        }
        let start = WorkerStart {
            members: &members,
            options: self.options,
            threads: self.threads,
            gpu: self
                .options
                .share
                .gpus
                .as_ref()
                .map(|gpus| (gpus.variable, gpus.of(slot))),
        };
        let on_start = |process| drop(sender.send(Message::Worker(indices.clone(), process)));
        let on_event = |place: usize, event: Event| {
            self.journal.event(members[place].run, &event);
            let _ = sender.send(Message::Event(indices[place], event));
        };
        let ends = watch(&start, on_start, on_event);
        for ((index, member), end) in indices.iter().zip(&members).zip(ends) {
            // Written before the lease is released, so a reader without a lease sees the end.
            self.journal.ended(member.run, &member.directory, &end);
            ended.push((*index, end));
        }
        ended
    }

    /// Puts runs that other processes hold behind all others.
    fn put_back(&self, busy: Vec<Ended>, sender: &Sender<Message>) {
        if busy.is_empty() {
            return;
        }
        let group = busy.iter().map(|(index, _)| *index).collect();
        for (index, end) in busy {
            if let Err(failure) = &end {
                Self::tell_busy(&[(index, failure.clone())], sender);
            }
            let _ = sender.send(Message::Ended(index, end));
        }
        self.lock().push_back(group);
    }

    /// Leases a run, if it needs a lease, and checks whether another process holds it.
    fn hold(&self, index: usize) -> Result<Member<'_>, Failure> {
        let run: &PlannedRun = &self.plan.runs[index];
        let directory = self.options.directory(run);
        let lease = match self.lease(index, &directory) {
            Ok(lease) => lease,
            Err(failure) => {
                if failure.exit != Exit::Busy {
                    self.journal.ended(run, &directory, &Err(failure.clone()));
                }
                return Err(failure);
            }
        };
        // Asked first: a worker would start only to find the lock held.
        if let Some(who) = lock::holder(&directory).or_else(|| lock::sharer(&directory)) {
            return Err(Failure::new(Exit::Busy, format!("is held by {who}")));
        }
        Ok(Member {
            run,
            directory,
            lease,
        })
    }

    /// Writes the job of a run, if it is missing, and tells that its worker is about to start.
    fn begin(&self, member: &Member<'_>, slot: usize) -> Result<(), Failure> {
        let Member { run, directory, .. } = member;
        let begun =
            ensure_job(run, self.options).and_then(|()| self.journal.starts(run, directory, slot));
        if let Err(refused) = &begun {
            member.write_error(refused);
            self.journal.ended(run, directory, &begun);
        }
        begun
    }

    /// Leases a run, if it needs a lease.
    fn lease(&self, index: usize, directory: &Path) -> Result<Option<LiveLease>, Failure> {
        rundir::system()
            .create_dirs(directory)
            .map_err(Failure::resources)?;
        let mut sights = self.sights.lock().unwrap_or_else(PoisonError::into_inner);
        let sight = sights.entry(index).or_default();
        leases::take(directory, &self.options.share, sight)
    }

    /// Draws what the workers report until all threads have ended; returns the runs that failed.
    fn follow(&self, receiver: &Receiver<Message>, display: &mut Display<'_>) -> Vec<FailedRun> {
        let (mut failed, mut stalls) = (Vec::new(), Stalls::default());
        let mut stopping = false;
        loop {
            // `signals` has asked the workers already, and no further one is started.
            if !stopping && signals::asked().is_some() {
                stopping = true;
                display.print("stopping: workers save and exit; a second signal ends them at once");
            }
            for (group, line) in stalls.look() {
                let name = self.plan.runs[group[0]].job.name();
                let others = match group.len() - 1 {
                    0 => String::new(),
                    others => format!(" and {} beside it", count(others, "run")),
                };
                display.print(&format!("  {name}{others}: {line}"));
            }
            match receiver.recv_timeout(Duration::from_millis(100)) {
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return failed,
                Ok(Message::Started(index)) => display.started(index),
                // One line about a worker is enough: it names the first of its runs.
                Ok(Message::Worker(group, process)) => stalls.started(&group, process),
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
