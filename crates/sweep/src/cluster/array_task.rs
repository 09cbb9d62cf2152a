//! One task: a sweep over its part of the manifest, on what a scheduler gave to this process.

use crate::Outcome;
use crate::cluster::allocation::{self, Env, node_or_host};
use crate::cluster::attempts::{self, Attempts};
use crate::cluster::directory::{MANIFEST_FILE, RUNS_DIR, Scheduler, Submission};
use crate::cluster::events::{self, Process, Taken, What, Writer};
use crate::cluster::gpu_memory::{self, Need};
use crate::cluster::manifest::{self, Line};
use crate::cluster::slurm;
use crate::journal::Journal;
use crate::options::{Gpus, Options, Share};
use burn::tensor::Device;
use experiment::device;
use experiment::plan::cost::memory_bytes;
use experiment::plan::memory::Memory;
use experiment::plan::planned::{Plan, PlannedRun};
use experiment::run::protocol::{Event, How};
use experiment::runs_on_disk::files;
use records::record::RunStatus;
use rundir::checkpoint;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use support::console::tell;
use support::exit::{Exit, Failure};
use support::signals;
use support::units::{count, duration, quoted};

/// The arguments of a worker of a cluster.
#[derive(Clone, Debug)]
pub struct Request {
    /// The manifest.
    pub manifest: PathBuf,
    /// The index, unless a variable of the scheduler has it.
    pub task: Option<usize>,
    /// The submission: 0 is the first.
    pub generation: usize,
}

/// Runs a task.
///
/// # Errors
///
/// [`Exit::Input`] if the directory is not that of a sweep that this program submitted,
/// [`Exit::Config`] if there is no such task, [`Exit::Device`] without the GPUs that it needs,
/// [`Exit::Resources`] if the directory cannot be written.
pub fn run(request: &Request) -> Result<Exit, Failure> {
    let env: Env<'_> = &allocation::environment;
    let directory = directory_of(&request.manifest)?;
    let submission = Submission::read(&directory)?;
    let (index, source) = allocation::index(request.task, env)?;
    let file = manifest::tasks_file(&directory, request.generation);
    let task = manifest::task(&file, index, &source)?;
    submission.check_program(&directory)?;
    let left = allocation::time_left(&submission.how, submission.scheduler, env);
    let device = device::open(&submission.how.device()?)?;
    let options = options(&directory, &submission, task.runs.len(), &device, env)?;
    let plan = plan_of(&submission, manifest::lines(&request.manifest, &task)?);
    let before = events::read(&directory, Some(index));
    let finished = failed_before(&before, request.generation);
    let is_to_do = |index: &usize| {
        let run = &plan.runs[*index];
        options.is_to_do(run) && !finished.contains(&run.job.run_id)
    };
    let todo: VecDeque<usize> = (0..plan.runs.len()).filter(is_to_do).collect();
    if let Some(gpus) = &options.share.gpus {
        let runs = todo.iter().map(|index| &plan.runs[*index]);
        has_room(gpus, runs, &submission, env)?;
    }
    let disk = rundir::system();
    disk.probe(&submission.experiment(&directory))
        .map_err(Failure::resources)?;
    let events = Writer::create(&directory, index)?;
    let here = Taken {
        task: index,
        generation: request.generation,
        runs: todo.len(),
        ..taken(&options, env)
    };
    events.write(What::Task(here.clone()));
    let failed = match finished.len() {
        0 => String::new(),
        n => format!(" ({n} failed before)"),
    };
    let of = format!("{} of {}", todo.len(), count(plan.runs.len(), "run"));
    let (name, jobs, limit) = (&plan.name, options.jobs, in_words(left));
    tell(&format!(
        "task {index} of {name}: {of} to do{failed}, {jobs} at a time{limit}"
    ));
    let clock = Clock::new(left, Duration::from_secs(submission.how.lead_secs));
    clock.stop_in_time();
    let log = Log {
        events,
        directory: &directory,
        here,
        attempts: Mutex::new(attempts::of(&before)),
        gpus: options.share.gpus.clone(),
        clock,
        resumed: Mutex::default(),
    };
    let outcome = crate::work(&plan, todo, &options, &log);
    let exit = log.end(&outcome);
    if exit == Exit::TryAgain && submission.scheduler == Scheduler::Slurm {
        requeue(&directory);
    }
    Ok(exit)
}

/// `, 60 min left`; nothing without a limit.
fn in_words(left: Option<Duration>) -> String {
    left.map_or_else(String::new, |left| {
        format!(", {} left", duration(left.as_secs_f64()))
    })
}

/// Checks that each GPU has room for the largest runs that can meet on it.
fn has_room<'a>(
    gpus: &Gpus,
    runs: impl Iterator<Item = &'a PlannedRun>,
    submission: &Submission,
    env: Env<'_>,
) -> Result<(), Failure> {
    if !gpu_memory::are_known(gpus) {
        return Ok(());
    }
    let how = &submission.how;
    let mib = runs.map(mib).collect();
    let need = Need::of(mib, how.runs_per_gpu, how.runs_per_worker);
    if need.runs > 0
        && let Some(note) = gpu_memory::check(&gpus.names, &node_or_host(env), need)?
    {
        tell(&note);
    }
    Ok(())
}

/// MiB of a GPU that a run is expected to need.
fn mib(run: &PlannedRun) -> u64 {
    memory_bytes(Memory::Device, run).div_ceil(1 << 20)
}

/// Where a task is taken.
fn taken(options: &Options, env: Env<'_>) -> Taken {
    let gpus = options.share.gpus.as_ref();
    Taken {
        node: node_or_host(env),
        job: allocation::job(env),
        process: std::process::id(),
        gpus: gpus.map(|gpus| gpus.names.clone()).unwrap_or_default(),
        at_once: options.jobs,
        machine: device::fingerprint(&options.how.device),
        features: slurm::features(&allocation::node(env)),
        ..Taken::default()
    }
}

/// The directory that a manifest lies in.
fn directory_of(manifest: &Path) -> Result<PathBuf, Failure> {
    let name = manifest.file_name().unwrap_or_default();
    if name != MANIFEST_FILE {
        return Err(Failure::config(format!(
            "--manifest {}: not the manifest of a sweep",
            manifest.display()
        ))
        .with_allowed(format!(
            "DIR/{MANIFEST_FILE}, where DIR is what `longreach submit --out DIR` wrote"
        )));
    }
    Ok(rundir::directory_of(manifest).to_owned())
}

fn options(
    directory: &Path,
    submission: &Submission,
    runs: usize,
    device: &Device,
    env: Env<'_>,
) -> Result<Options, Failure> {
    let how = &submission.how;
    let name = how.device()?;
    let gpus = allocation::gpus(how, &name, env)?;
    let cores = allocation::cores(how, submission.scheduler, env);
    let slots = match &gpus {
        Some(gpus) => gpus.names.len() * how.runs_per_gpu.max(1),
        None => cores,
    };
    let jobs = slots.clamp(1, runs.max(1));
    // Workers on one GPU share its memory.
    let of_gpu = gpus.as_ref().map(|_| how.runs_per_gpu.clamp(1, jobs));
    let beside = of_gpu.unwrap_or(jobs);
    Ok(Options {
        runs: directory.join(RUNS_DIR),
        how: How {
            checkpoint_every: how.checkpoint_every()?,
            memory_limit: name.worker_limit(how.memory_limit()?, device, beside),
            initial_weights: false,
            runs_per_worker: how.runs_per_worker,
            device: name,
        },
        jobs,
        fail_fast: false,
        retry: None,
        keep_workers: false,
        recorded: Default::default(),
        share: Share {
            cores: Some(cores),
            gpus,
            identity: Some(allocation::identity(how, env)),
        },
    })
}

fn plan_of(submission: &Submission, lines: Vec<Line>) -> Plan {
    Plan {
        name: submission.experiment.clone(),
        runs: lines.into_iter().map(Line::planned).collect(),
        ..Plan::default()
    }
}

/// Runs of a task that failed in this submission, or in a later one: they are not tried again when
/// the task is requeued for the sake of another run.
fn failed_before(processes: &[Process], generation: usize) -> BTreeSet<String> {
    let failed = |(run, last): (&str, events::Last)| {
        let is_failed = matches!(last.what, What::Failed { .. }) && last.generation >= generation;
        is_failed.then(|| run.to_owned())
    };
    let last = events::last_by_run(processes).into_iter();
    last.filter_map(failed).collect()
}

/// When a task has to end, if it has to.
struct Clock {
    end: Option<Instant>,
    lead: Duration,
}

/// What a worker needs to start, to train a step and to save it.
const START: Duration = Duration::from_secs(10);

impl Clock {
    fn new(left: Option<Duration>, lead: Duration) -> Self {
        // A time that no clock can hold is not a limit.
        let end = left.and_then(|left| Instant::now().checked_add(left));
        Self { end, lead }
    }

    fn left(&self) -> Option<Duration> {
        let end = self.end?;
        Some(end.saturating_duration_since(Instant::now()))
    }

    /// Asks this process to stop half way between the scheduler's signal and the end, in case the
    /// scheduler sends none.
    fn stop_in_time(&self) {
        let Some(end) = self.end else { return };
        let at = end.checked_sub(self.lead / 2).unwrap_or(end);
        let wait = at.saturating_duration_since(Instant::now());
        let stop = move || {
            std::thread::sleep(wait);
            signals::ask(Exit::TryAgain);
        };
        let _ = std::thread::Builder::new().spawn(stop);
    }
}

/// Writes what the sweep tells into the events of the task.
struct Log<'a> {
    events: Writer,
    directory: &'a Path,
    here: Taken,
    attempts: Mutex<BTreeMap<String, Attempts>>,
    gpus: Option<Gpus>,
    clock: Clock,
    /// Runs whose first attempt was on another processor model; a note is logged when they resume.
    resumed: Mutex<BTreeMap<String, String>>,
}

impl Log<'_> {
    /// Writes the end of the task, and decides how the process ends.
    fn end(&self, outcome: &Outcome) -> Exit {
        let lasting = outcome
            .failed
            .iter()
            .find(|(.., failure)| self.is_of_task(failure));
        let (exit, message) = match (outcome.stopped, lasting) {
            // By a person, who asks again. A scheduler never sends INT.
            (Some(Exit::Interrupted), _) => (Exit::Interrupted, "stopped by INT".to_owned()),
            // Preemption and the end of the time look alike, and are treated alike.
            (Some(_), _) => (
                Exit::TryAgain,
                "stopped after saving; to be continued".to_owned(),
            ),
            (None, Some((.., failure))) => (failure.exit, failure.message.clone()),
            (None, None) if outcome.not_started > 0 => (
                Exit::TryAgain,
                format!(
                    "{} left: too little time to start another run",
                    duration(self.clock.left().unwrap_or_default().as_secs_f64())
                ),
            ),
            (None, None) => (Exit::Done, self.done(outcome)),
        };
        tell(&message);
        self.events.write(What::End {
            exit: exit as u8,
            message,
        });
        exit
    }

    fn done(&self, outcome: &Outcome) -> String {
        let failed = match outcome.failed.len() {
            0 => String::new(),
            n => format!(
                ", {n} failed: `longreach logs {} --failed`",
                self.directory.display()
            ),
        };
        format!("{} recorded{failed}", count(outcome.records.len(), "run"))
    }

    /// Whether a failure is one of the task, and not of the run.
    fn is_of_task(&self, failure: &Failure) -> bool {
        match failure.exit {
            Exit::Device => true,
            // A quota of one directory, or a run that needs much memory, is its own.
            Exit::Resources => rundir::system().probe(self.directory).is_err(),
            _ => false,
        }
    }

    fn note_machine(&self, run: &PlannedRun, attempts: &Attempts) {
        // Empty if the first event of that process is lost.
        if ["", &self.here.machine].contains(&attempts.first.machine.as_str()) {
            return;
        }
        let note = other_machine(&attempts.first, &self.here);
        tell(&format!("note: {}: {note}", run.job.name()));
        let mut resumed = self.resumed.lock().unwrap_or_else(PoisonError::into_inner);
        resumed.insert(run.job.run_id.clone(), note);
    }
}

/// A note on a run that continues on another kind of machine, and how to avoid that.
fn other_machine(first: &Taken, here: &Taken) -> String {
    let features: Vec<&str> = first
        .features
        .iter()
        .filter(|feature| !here.features.contains(feature))
        .map(String::as_str)
        .collect();
    let avoid = if !features.is_empty() {
        format!(
            "`--constraint={}` keeps the tasks on its kind",
            features.join("&")
        )
    } else if !here.job.is_empty() {
        format!(
            "no feature tells the two kinds apart, so `--constraint` cannot; `--exclude={}` \
             avoids this node",
            here.node
        )
    } else {
        "a scheduler option that selects one kind of machine avoids that".to_owned()
    };
    format!(
        "the first attempt ran on {} ({}), this one runs on {}: the last bits of its numbers may \
         differ; {avoid}",
        first.machine, first.node, here.machine
    )
}

impl Journal for Log<'_> {
    fn has_time(&self) -> bool {
        // Later than this it could not be saved before the scheduler's signal.
        let left = self.clock.left();
        left.is_none_or(|left| left > self.clock.lead + START)
    }

    fn starts(&self, run: &PlannedRun, directory: &Path, slot: usize) -> Result<(), Failure> {
        // Others may have come since the task began.
        if let Some(gpus) = self
            .gpus
            .as_ref()
            .filter(|gpus| gpu_memory::are_known(gpus))
        {
            let need = Need::of(vec![mib(run)], 1, 1);
            gpu_memory::check(&[gpus.of(slot).to_owned()], &self.here.node, need)?;
        }
        let (id, step) = (
            &run.job.run_id,
            checkpoint::newest_step(directory).unwrap_or(0),
        );
        let attempts = {
            let mut known = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
            let attempts = known.entry(id.clone()).or_default();
            *attempts = attempts.with(step, &self.here)?;
            attempts.clone()
        };
        self.note_machine(run, &attempts);
        self.events.write(What::Start {
            run: id.clone(),
            attempt: attempts.count,
            step,
            gpu: self.gpus.as_ref().map(|gpus| gpus.of(slot).to_owned()),
        });
        Ok(())
    }

    fn event(&self, run: &PlannedRun, event: &Event) {
        if let Event::Resumed { step, notes } = event {
            let mut resumed = self.resumed.lock().unwrap_or_else(PoisonError::into_inner);
            let own = resumed.remove(&run.job.run_id);
            self.events.write(What::Resumed {
                run: run.job.run_id.clone(),
                step: *step,
                notes: notes.iter().cloned().chain(own).collect(),
            });
        }
    }

    fn ended(&self, run: &PlannedRun, directory: &Path, ended: &Result<(), Failure>) {
        let id = run.job.run_id.clone();
        self.events.write(match ended {
            Ok(()) => {
                let record = files::recorded(directory, &run.job);
                let diverged = record.is_some_and(|record| record.status == RunStatus::Diverged);
                What::Done { run: id, diverged }
            }
            Err(failure) => {
                let (run, message, exit) = (id, failure.message.clone(), failure.exit);
                // Without the device: the scheduler may start the task elsewhere, where it works.
                if exit.on_request() || [Exit::Busy, Exit::Device].contains(&exit) {
                    What::Stopped { run, message }
                } else {
                    What::Failed { run, message }
                }
            }
        });
    }

    fn ends_all(&self, failure: &Failure, _: &Options) -> bool {
        self.is_of_task(failure)
    }
}

/// Puts this job of Slurm back into its queue, unless the exit code does that.
fn requeue(directory: &Path) {
    let Some(job) = Some(allocation::job(&allocation::environment)).filter(|job| !job.is_empty())
    else {
        return;
    };
    let by_code = slurm::setting("RequeueExit")
        .is_some_and(|codes| codes.split(',').any(|code| code.trim() == "75"));
    if by_code {
        return;
    }
    let asked = Command::new("scontrol")
        .args(["requeue", &job])
        .stdin(Stdio::null())
        .output();
    let failed = match asked {
        Ok(answer) if answer.status.success() => return,
        Ok(answer) => String::from_utf8_lossy(&answer.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    // Without --only: runs of the task that were not started are not stopped.
    tell(&format!(
        "note: Slurm did not requeue job {job}: {failed}; `longreach submit --again {}` continues it",
        quoted(&directory.to_string_lossy())
    ));
}
