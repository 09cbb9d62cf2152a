//! Event files of TensorBoard while runs train: `run --log tensorboard`.
//!
//! A thread reads the ends of the step logs and appends what is new to one event file for each run,
//! and its scores once it is recorded. The workers know nothing of it, and nothing here changes a
//! number. A sweep that continues writes new files in the place of the older ones: as training
//! repeats bit by bit, they hold the same and more.

use crate::live::tail::Tail;
use experiment::runs_on_disk::files::{RECORD_FILE, recorded};
use experiment::spec::Job;
use records::tensorboard::{EventFile, TrainStep, run_directory};
use rundir::directory_of;
use rundir::disk::Op;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use support::console;

/// Directory of the event files inside an experiment's directory.
pub const DIRECTORY: &str = "tensorboard";
/// Ending of the files.
const ENDING: &str = "longreach";
/// Between two looks at the logs.
const EVERY: Duration = Duration::from_secs(1);

/// The thread; [`Logger::end`] has it take a last look.
pub struct Logger {
    end: Sender<()>,
    thread: JoinHandle<()>,
}

impl Logger {
    /// Follows some runs. `runs`: their jobs and directories; `experiment`: the directory of their
    /// experiment.
    pub fn start(runs: Vec<(Job, PathBuf)>, experiment: &Path) -> Self {
        let session = now() as u64;
        let of = |(job, run): (Job, PathBuf)| {
            let events = experiment.join(DIRECTORY).join(name(&job));
            // What earlier sessions finished has its file.
            let is_done = run.join(RECORD_FILE).exists() && events.exists();
            (!is_done).then(|| Followed {
                path: events.join(format!("events.out.tfevents.{session}.{ENDING}")),
                job,
                run,
                tail: Tail::default(),
                size: 0,
                last: 0,
                is_done: false,
            })
        };
        let followed: Vec<Followed> = runs.into_iter().filter_map(of).collect();
        let (end, ended) = channel();
        let thread = std::thread::spawn(move || follow(followed, &ended));
        Self { end, thread }
    }

    /// Takes a last look and ends.
    pub fn end(self) {
        let _ = self.end.send(());
        let _ = self.thread.join();
    }
}

/// `METHOD-seed-N-RUN_ID`, as TensorBoard lists the run.
fn name(job: &Job) -> String {
    run_directory(&job.labels, job.spec.seed, &job.run_id)
}

fn follow(mut runs: Vec<Followed>, ended: &Receiver<()>) {
    loop {
        let is_last = !matches!(ended.recv_timeout(EVERY), Err(RecvTimeoutError::Timeout));
        runs.retain_mut(|run| match run.look() {
            Ok(()) => !run.is_done,
            Err(error) => {
                let path = run.path.display();
                console::tell(&format!(
                    "note: no more events are written to {path}: {error}"
                ));
                false
            }
        });
        if is_last {
            return;
        }
    }
}

/// A run whose events are written.
struct Followed {
    job: Job,
    /// Its directory.
    run: PathBuf,
    /// Its event file.
    path: PathBuf,
    tail: Tail,
    /// Bytes of that file.
    size: u64,
    /// The last step that was written.
    last: u64,
    is_done: bool,
}

impl Followed {
    /// Writes what is new.
    fn look(&mut self) -> rundir::disk::Result<()> {
        // Before the log: a record says that the log is whole.
        let record = recorded(&self.run, &self.job);
        let mut events = EventFile::new(now());
        // The version is at the head of the file, not of each piece.
        let head = events.take();
        // A run that resumes cuts its log and repeats steps, bit by bit.
        let (steps, _) = self.tail.look(&self.run);
        for step in steps {
            if step.step <= self.last || !step.loss_nats.is_finite() {
                continue;
            }
            self.last = step.step;
            let step = TrainStep {
                step: step.step,
                loss_nats: step.loss_nats,
                rate_and_norm: Some((step.lr, step.grad_norm)),
            };
            events.step(now(), &step);
        }
        if let Some(record) = record.filter(|_| !self.tail.is_behind()) {
            events.scores(&record, |_| now(), record.train.steps);
            self.is_done = true;
        }
        let events = events.take();
        if events.is_empty() {
            return Ok(());
        }
        let disk = rundir::system();
        let (path, at) = (self.path.as_path(), self.size);
        if at > 0 {
            let bytes = &events;
            disk.run(Op::Append { path, at, bytes })?;
            self.size += events.len() as u64;
            return Ok(());
        }
        let directory = directory_of(path);
        disk.create_dirs(directory)?;
        for older in written_in(directory) {
            disk.run(Op::RemoveFile(&older))?;
        }
        let all = [head, events].concat();
        disk.run(Op::Write(path, &all))?;
        self.size = all.len() as u64;
        Ok(())
    }
}

/// The event files in a directory that a sweep has written.
fn written_in(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let is_ours = |path: &PathBuf| path.extension().is_some_and(|ending| ending == ENDING);
    paths.filter(is_ours).collect()
}

/// Seconds since 1970.
fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}
