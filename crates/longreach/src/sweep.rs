//! `longreach run`: every run of a plan in a process of its own, skipping what is recorded.
//!
//! Burn keeps its generator and device state per process, so two runs in one process would disturb
//! each other; a process that dies takes one run with it and no more.

use crate::console::tell;
use crate::device::matmul_note;
use crate::exit::{Exit, Failure};
use crate::plan::cost::flops;
use crate::plan::memory;
use crate::plan::planner::{Plan, PlannedRun};
use crate::run::protocol::{Event, How};
use crate::run::worker::{LEAVE_WITHIN, skipped_fits};
use crate::run_dir::files::{self, DIVERGED_FILE, ERROR_FILE, JOB_FILE, RECORD_FILE};
use crate::run_dir::seal::replace_record;
use crate::run_dir::{changes, kept_configs as configs};
use crate::signals;
use crate::units::{count, duration};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use results::RunRecord;
use results::record::RunStatus;
use rundir::{checkpoint, lock};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{BufRead, BufReader, IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

/// How to run.
pub struct Options {
    /// Directory of all experiments.
    pub runs: PathBuf,
    /// How every worker runs.
    pub how: How,
    /// Workers at a time.
    pub jobs: usize,
    /// Stop starting runs after the first failure.
    pub fail_fast: bool,
    /// Run these alone, and anew.
    pub retry: Option<Retry>,
    /// Let workers finish their runs even if this process is killed.
    pub keep_workers: bool,
}

/// Which runs to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Retry {
    /// Those whose last attempt ended with an error.
    Failed,
    /// Those that are recorded as diverged; their records are discarded.
    Diverged,
}

/// What became of a sweep.
pub struct Outcome {
    /// Records of all runs that have one, in the order of the plan.
    pub records: Vec<RunRecord>,
    /// Runs that failed: label, directory, what the worker said.
    pub failed: Vec<(String, PathBuf, Failure)>,
    /// Runs that were never started.
    pub not_started: usize,
    /// Set if a signal ended the sweep; runs that were under way have saved.
    pub stopped: Option<Exit>,
}

/// What the threads that watch workers tell the one that draws.
enum Message {
    Started(usize),
    Event(usize, Event),
    Ended(usize, Result<(), Failure>),
}

/// A run's place in the progress display.
struct Progress {
    bar: Option<ProgressBar>,
    fraction: f64,
    said: Instant,
    /// Whether a worker of this sweep did anything.
    worked: bool,
}

/// A run that another process has.
struct Waiting {
    /// When this sweep first met it.
    since: Instant,
    /// When the next line about it is due, in seconds after that.
    due: u64,
}

impl Waiting {
    /// The time waited so far, if a line about it is due: after 1 s, 10 s, 30 s, 1 min, then every
    /// 5 min.
    fn line_due(&mut self, waited: u64) -> Option<u64> {
        if waited < self.due {
            return None;
        }
        self.due = [10, 30, 60]
            .into_iter()
            .find(|due| waited < *due)
            .unwrap_or(waited + 300);
        Some(waited)
    }
}

/// Directory of a planned run.
pub fn directory(runs: &Path, run: &PlannedRun) -> PathBuf {
    results::store::run_dir(runs, &run.job.experiment, &run.job.run_id)
}

/// The record of a planned run, if it is there, readable and complete. Its labels are the plan's: a
/// config may name the same run anew.
pub fn recorded(options: &Options, run: &PlannedRun) -> Option<RunRecord> {
    let directory = directory(&options.runs, run);
    let mut record = files::recorded(&directory, &run.job)?;
    if skipped_fits(
        &record,
        &run.job.spec,
        &run.test_seq_lens,
        options.how.memory_limit,
    ) {
        return None;
    }
    if record.labels != run.job.labels {
        record.labels.clone_from(&run.job.labels);
        // Who holds it writes it.
        if let Ok(_lock) = lock::take(&directory) {
            replace_record(rundir::system(), &directory, &record, None).ok()?;
        }
    }
    Some(record)
}

/// Whether a run is one of those to try again.
fn asked_again(options: &Options, run: &PlannedRun, retry: Retry) -> bool {
    let directory = directory(&options.runs, run);
    let record = files::recorded(&directory, &run.job);
    match retry {
        Retry::Failed => record.is_none() && directory.join(ERROR_FILE).exists(),
        Retry::Diverged => record.is_some_and(|record| record.status == RunStatus::Diverged),
    }
}

/// Runs what is not recorded yet.
///
/// # Errors
///
/// [`Exit::Resources`] if the runs directory cannot be written or a training does not fit into the
/// memory, [`Exit::Input`] if a run's directory is a link; nothing has been trained then.
pub fn run(plan: &Plan, options: &Options) -> Result<Outcome, Failure> {
    signals::listen();
    let mut todo: VecDeque<usize> = (0..plan.runs.len())
        .filter(|index| match options.retry {
            None => recorded(options, &plan.runs[*index]).is_none(),
            Some(retry) => asked_again(options, &plan.runs[*index], retry),
        })
        .collect();
    let skipped = plan.runs.len() - todo.len();
    prepare(plan, &todo, options)?;
    configs::write(rundir::system(), &options.runs.join(&plan.name), plan)?;
    let terminal = std::io::stderr().is_terminal();
    let jobs = options.jobs.clamp(1, todo.len().max(1));
    tell(&format!(
        "{}: {}, {} to do on {} with {}{}",
        plan.name,
        count(plan.runs.len(), "run"),
        todo.len(),
        options.how.device,
        count(jobs, "worker"),
        match (options.retry, skipped) {
            (_, 0) => String::new(),
            (None, _) => format!(" ({skipped} recorded already)"),
            (Some(_), _) => format!(" (the other {skipped} were not asked for)"),
        }
    ));
    let asked: BTreeSet<_> = todo
        .iter()
        .filter_map(|index| {
            matmul_note(
                &options.how.device,
                plan.runs[*index].job.spec.model.transformer.matmul,
            )
        })
        .collect();
    for note in asked {
        tell(&format!("note: {note}"));
    }
    if let Some(note) = changes::other_runs(&options.runs.join(&plan.name), plan) {
        tell(&format!("note: {note}"));
    }
    let records = || {
        plan.runs
            .iter()
            .filter_map(|run| recorded(options, run))
            .collect::<Vec<_>>()
    };
    if let Some(note) = changes::other_programs(&records()) {
        tell(&format!("note: {note}"));
    }
    let mut display = Display::new(plan, &todo, terminal);
    if signals::asked().is_some() {
        display.not_started += todo.drain(..).count();
    }
    let (mut failed, not_started) = work(plan, todo, jobs, options, &mut display);
    display.finish();
    let stopped = signals::asked();
    if stopped.is_some() {
        failed.retain(|(.., failure)| !failure.exit.on_request());
    }
    Ok(Outcome {
        records: records(),
        failed,
        not_started,
        stopped,
    })
}

/// Everything that can be found to be wrong before any work: directories that cannot be written,
/// trainings that do not fit. Writes every job, and sweeps up after processes that died.
fn prepare(plan: &Plan, todo: &VecDeque<usize>, options: &Options) -> Result<(), Failure> {
    let disk = rundir::system();
    if !todo.is_empty() {
        disk.probe(&options.runs.join(&plan.name))
            .map_err(Failure::resources)?;
    }
    for index in todo {
        if signals::asked().is_some() {
            break;
        }
        let run = &plan.runs[*index];
        if let Some(excess) = options
            .how
            .memory_limit
            .excess(memory::training(&run.job.spec, run.parameters))
        {
            let help = "a smaller batch_size, train_len or d_model needs less; --memory-limit \
                        sets the limit, --jobs 1 leaves it to one run";
            return Err(Failure::resources(format!(
                "{}: training {excess}\n  = help: {help}",
                name(run)
            )));
        }
        let directory = directory(&options.runs, run);
        disk.create_dirs(&directory).map_err(Failure::resources)?;
        let _lock = match files::take(disk, &directory) {
            Ok(lock) => lock,
            // Whoever has it wrote the same job.
            Err(failure) if failure.exit == Exit::Busy => continue,
            Err(failure) => return Err(failure),
        };
        if options.retry == Some(Retry::Diverged) {
            for name in [RECORD_FILE, DIVERGED_FILE, checkpoint::CHECKPOINTS_DIR] {
                disk.remove_tree(&directory.join(name))
                    .map_err(Failure::resources)?;
            }
        }
        let job = serde_json::to_vec_pretty(&run.job)
            .map_err(|error| Failure::new(Exit::Bug, error.to_string()))?;
        let path = directory.join(JOB_FILE);
        if rundir::read::bounded(&path, job.len() as u64).ok().as_ref() != Some(&job) {
            disk.write_whole(&path, &job).map_err(Failure::resources)?;
        }
    }
    // A process that died between its record and its last word leaves checkpoints that nobody
    // needs.
    for (index, run) in plan.runs.iter().enumerate() {
        let directory = directory(&options.runs, run);
        let left = || {
            directory.join(checkpoint::CHECKPOINTS_DIR).exists()
                || directory.join(ERROR_FILE).exists()
                || scratch(&directory)
        };
        if !todo.contains(&index)
            && left()
            && let Ok(_lock) = files::take(disk, &directory)
            && let Some(record) = files::recorded(&directory, &run.job)
        {
            files::tidy(disk, &directory, &record);
        }
    }
    Ok(())
}

/// Whether a directory holds something half written.
fn scratch(directory: &Path) -> bool {
    std::fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .any(|entry| entry.file_name().to_string_lossy().starts_with('.'))
}

fn work(
    plan: &Plan,
    todo: VecDeque<usize>,
    jobs: usize,
    options: &Options,
    display: &mut Display<'_>,
) -> (Vec<(String, PathBuf, Failure)>, usize) {
    let queue = Arc::new(Mutex::new(todo));
    let (sender, receiver) = mpsc::channel();
    let threads = threads_per_worker(jobs);
    let mut failed = Vec::new();
    // Workers leave by themselves before that.
    signals::kill_workers_after(LEAVE_WITHIN + Duration::from_secs(1));
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            let (queue, sender) = (queue.clone(), sender.clone());
            scope.spawn(move || {
                let next = || {
                    if signals::asked().is_some() {
                        None
                    } else {
                        queue.lock().ok()?.pop_front()
                    }
                };
                while let Some(index) = next() {
                    let run = &plan.runs[index];
                    let directory = directory(&options.runs, run);
                    let _ = sender.send(Message::Started(index));
                    let mut again = options.how.device.kind != "cpu";
                    let ended = loop {
                        if options.retry.is_none() && recorded(options, run).is_some() {
                            break Ok(());
                        }
                        let ended = match lock::holder(&directory) {
                            Some(who) => {
                                Err(Failure::new(Exit::Busy, format!("is being run by {who}")))
                            }
                            None => watch(&directory, options, threads, |event| {
                                let _ = sender.send(Message::Event(index, event));
                            }),
                        };
                        match &ended {
                            // A device that was lost may work in a fresh process: once.
                            Err(failure)
                                if failure.exit == Exit::Device && std::mem::take(&mut again) => {}
                            // Another sweep has it: look at the others first, then wait for it.
                            Err(failure)
                                if failure.exit == Exit::Busy && signals::asked().is_none() =>
                            {
                                let _ = sender.send(Message::Event(
                                    index,
                                    Event::Elsewhere {
                                        who: failure.message.clone(),
                                    },
                                ));
                                std::thread::sleep(Duration::from_millis(200));
                                let next = queue.lock().ok().and_then(|mut queue| {
                                    let next = queue.pop_front()?;
                                    queue.push_back(index);
                                    queue.push_front(next);
                                    Some(next)
                                });
                                if next.is_some() {
                                    break ended;
                                }
                            }
                            _ => break ended,
                        }
                    };
                    let _ = sender.send(Message::Ended(index, ended));
                }
            });
        }
        drop(sender);
        let mut stopping = false;
        loop {
            // The workers have been asked already, and no further one is started.
            if !stopping && signals::asked().is_some() {
                stopping = true;
                display
                    .print("stopping: workers save and leave; a second signal ends them at once");
            }
            match receiver.recv_timeout(Duration::from_millis(100)) {
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Ok(Message::Started(index)) => display.started(index),
                Ok(Message::Event(index, event)) => display.event(index, &event),
                Ok(Message::Ended(index, ended)) => {
                    display.ended(index, &ended);
                    let Err(failure) = ended else { continue };
                    // If only the worker was asked to stop, its run is not done.
                    if failure.exit == Exit::Busy
                        || failure.exit.on_request() && signals::asked().is_some()
                    {
                        continue;
                    }
                    // No other run would fare better without a disk or a device.
                    let stop =
                        options.fail_fast || matches!(failure.exit, Exit::Resources | Exit::Device);
                    let directory = directory(&options.runs, &plan.runs[index]);
                    failed.push((name(&plan.runs[index]), directory, failure));
                    if stop && let Ok(mut queue) = queue.lock() {
                        display.not_started += queue.drain(..).count();
                    }
                }
            }
        }
    });
    if let Ok(mut queue) = queue.lock() {
        display.not_started += queue.drain(..).count();
    }
    (failed, display.not_started)
}

/// Threads for each worker's CPU backend: the cores shared out, unless the user set it.
fn threads_per_worker(jobs: usize) -> Option<usize> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::env::var_os("RAYON_NUM_THREADS")
        .is_none()
        .then(|| (cores / jobs).max(1))
}

/// Starts a worker and follows it to its end.
fn watch(
    directory: &Path,
    options: &Options,
    threads: Option<usize>,
    mut heard: impl FnMut(Event),
) -> Result<(), Failure> {
    let failure = |message: String| Failure::new(Exit::SomeFailed, message);
    let program = std::env::current_exe()
        .map_err(|error| failure(format!("cannot find this program: {error}")))?;
    let mut command = Command::new(program);
    let How {
        device,
        checkpoint_every,
        memory_limit,
    } = &options.how;
    command
        .arg("worker")
        .arg(directory)
        .args(["--device", &device.to_string()]);
    command.args([
        "--checkpoint-every",
        &checkpoint_every.to_string(),
        "--memory-limit",
        &memory_limit.to_string(),
    ]);
    // Ctrl-C reaches the sweep alone, which passes it on once: two would end a worker before it has
    // saved.
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    // The worker's standard input stays open as long as this process lives.
    if options.keep_workers {
        command.stdin(Stdio::null());
    } else {
        command.arg("--stop-with-parent").stdin(Stdio::piped());
    }
    if let Some(threads) = threads {
        command.env("RAYON_NUM_THREADS", threads.to_string());
    }
    // What a step frees the next one asks for again: only memory nobody wants for ten seconds goes
    // back to the system.
    if std::env::var_os("MIMALLOC_PURGE_DELAY").is_none() {
        command.env("MIMALLOC_PURGE_DELAY", "10000");
    }
    let mut child = signals::spawn(&mut command).map_err(|error| match signals::asked() {
        Some(exit) => Failure::new(exit, error.to_string()),
        None => failure(format!("cannot start a worker: {error}")),
    })?;
    let lifeline = child.stdin.take();
    let stderr = child.stderr.take();
    let said = std::thread::spawn(move || {
        let mut text = Vec::new();
        // Drivers can print without end; the last words are what counts.
        if let Some(mut stderr) = stderr {
            let _ = stderr.read_to_end(&mut text);
        }
        String::from_utf8_lossy(&text[text.len().saturating_sub(16_384)..])
            .trim()
            .to_owned()
    });
    for line in child
        .stdout
        .take()
        .into_iter()
        .flat_map(|stdout| BufReader::new(stdout).lines().map_while(Result::ok))
    {
        if let Ok(event) = serde_json::from_str(&line) {
            heard(event);
        }
    }
    let status =
        signals::wait(&mut child).map_err(|error| failure(format!("lost a worker: {error}")))?;
    drop(lifeline);
    let said = said.join().unwrap_or_default();
    if status.success() {
        return Ok(());
    }
    let (exit, said) = ending(status, &said);
    let failure = Failure::new(exit, said.strip_prefix("error: ").unwrap_or(&said));
    // What another process has is its own to tell of.
    if !exit.on_request()
        && exit != Exit::Busy
        && let Ok(_lock) = lock::take(directory)
    {
        let _ = rundir::system().write_whole(&directory.join(ERROR_FILE), said.as_bytes());
    }
    Err(failure)
}

/// What a worker that did not succeed ended with, and what there is to say.
fn ending(status: std::process::ExitStatus, said: &str) -> (Exit, String) {
    let words = |more: &str| {
        if said.is_empty() {
            more.to_owned()
        } else {
            format!("{said}\n{more}")
        }
    };
    match status.code().and_then(Exit::from_code) {
        Some(Exit::Done) | None => {}
        Some(exit) if said.is_empty() => {
            return (
                exit,
                format!("the worker ended with {status} and said nothing"),
            );
        }
        Some(exit) => return (exit, said.to_owned()),
    }
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        if let Some((exit, what)) = signals::ended_on_request(signal) {
            return (exit, what.to_owned());
        }
        let of = "if that was the system for want of memory: fewer --jobs or a --memory-limit \
                  help; the same command goes on from the checkpoint";
        return match signal {
            9 => (
                Exit::SomeFailed,
                words(&format!(
                    "the worker was killed from outside (signal 9)\n  = help: {of}"
                )),
            ),
            6 if said.contains("memory allocation") => (
                Exit::Resources,
                words("the worker found no memory\n  = help: fewer --jobs or a --memory-limit"),
            ),
            _ => (
                Exit::SomeFailed,
                words(&format!(
                    "the worker was ended by signal {signal}; please report it with {JOB_FILE}"
                )),
            ),
        };
    }
    (
        Exit::SomeFailed,
        words(&format!("the worker ended with {status}")),
    )
}

/// A run as people name it.
pub fn name(run: &PlannedRun) -> String {
    let labels: Vec<&str> = run
        .job
        .labels
        .iter()
        .map(|label| label.text.as_str())
        .collect();
    format!("{} seed {}", labels.join(", "), run.job.spec.seed)
}

/// Progress bars on a terminal, plain lines elsewhere.
struct Display<'a> {
    plan: &'a Plan,
    bars: Option<MultiProgress>,
    total: Option<ProgressBar>,
    runs: Vec<Option<Progress>>,
    /// Runs that other processes have.
    waiting: BTreeMap<usize, Waiting>,
    /// Arithmetic of each run, to weigh their progress.
    work: Vec<f64>,
    all: f64,
    done: usize,
    count: usize,
    started: Instant,
    not_started: usize,
}

impl<'a> Display<'a> {
    fn new(plan: &'a Plan, todo: &VecDeque<usize>, terminal: bool) -> Self {
        let work: Vec<f64> = plan.runs.iter().map(flops).collect();
        let all = todo.iter().map(|index| work[*index]).sum();
        let bars = terminal
            .then(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(8)));
        let total = bars.as_ref().map(|bars| {
            let style = ProgressStyle::with_template("{bar:30.green} {percent:>3} %  {msg}")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            bars.add(ProgressBar::new(1000).with_style(style))
        });
        let runs = (0..plan.runs.len()).map(|_| None).collect();
        let waiting = BTreeMap::new();
        Self {
            plan,
            bars,
            total,
            runs,
            waiting,
            work,
            all,
            done: 0,
            count: todo.len(),
            started: Instant::now(),
            not_started: 0,
        }
    }

    fn started(&mut self, index: usize) {
        let bar = self
            .bars
            .as_ref()
            .zip(self.total.as_ref())
            .map(|(bars, total)| {
                let style = ProgressStyle::with_template("{bar:30} {prefix}  {msg}")
                    .unwrap_or_else(|_| ProgressStyle::default_bar());
                bars.insert_before(
                    total,
                    ProgressBar::new(1000)
                        .with_style(style)
                        .with_prefix(name(&self.plan.runs[index])),
                )
            });
        self.runs[index] = Some(Progress {
            bar,
            fraction: 0.0,
            said: Instant::now(),
            worked: false,
        });
    }

    fn event(&mut self, index: usize, event: &Event) {
        // Evaluation is a small share of a run; a tenth is close enough to keep the bar moving.
        let (fraction, text) = match event {
            Event::Train {
                step,
                steps,
                loss_nats,
            } => (
                0.9 * *step as f64 / *steps as f64,
                format!("step {step} of {steps}, loss {loss_nats:.3}"),
            ),
            Event::Resumed { step, notes } => {
                let steps = self.plan.runs[index].job.spec.train.steps;
                for note in notes {
                    self.print(&format!("  {}: {note}", name(&self.plan.runs[index])));
                }
                if *step > 0 {
                    self.print(&format!(
                        "  {}: goes on from step {step} of {steps}",
                        name(&self.plan.runs[index])
                    ));
                }
                (
                    0.9 * *step as f64 / steps as f64,
                    format!("step {step} of {steps}"),
                )
            }
            Event::Elsewhere { who } => {
                let waiting = self.waiting.entry(index).or_insert(Waiting {
                    since: Instant::now(),
                    due: 1,
                });
                if let Some(waited) = waiting.line_due(waiting.since.elapsed().as_secs()) {
                    let waited = duration(waited as f64);
                    self.print(&format!(
                        "  {}: {who}; waiting for {waited}",
                        name(&self.plan.runs[index])
                    ));
                }
                (0.0, who.clone())
            }
            Event::Eval { done, total } => (
                0.9 + 0.1 * *done as f64 / *total as f64,
                format!("evaluated {done} of {total}"),
            ),
            Event::Diverged { step, what } => (
                1.0,
                format!("diverged at step {step}: the {what} is not finite"),
            ),
        };
        let left = self.time_left();
        let Some(progress) = self.runs[index].as_mut() else {
            return;
        };
        progress.fraction = fraction;
        let elsewhere = matches!(event, Event::Elsewhere { .. });
        progress.worked |= !elsewhere;
        if let Some(bar) = &progress.bar {
            bar.set_position((1000.0 * fraction) as u64);
            bar.set_message(text);
        } else if !elsewhere && progress.said.elapsed() >= Duration::from_secs(10)
            || matches!(event, Event::Diverged { .. })
        {
            progress.said = Instant::now();
            tell(&format!("  {}: {text}{left}", name(&self.plan.runs[index])));
        }
        self.draw_total();
    }

    fn ended(&mut self, index: usize, ended: &Result<(), Failure>) {
        if ended
            .as_ref()
            .is_err_and(|failure| failure.exit == Exit::Busy)
        {
            if let Some(bar) = self.runs[index].take().and_then(|progress| progress.bar) {
                bar.finish_and_clear();
            }
            return;
        }
        self.waiting.remove(&index);
        self.done += 1;
        let text = match ended {
            Err(failure) if failure.exit.on_request() => {
                format!("  {}: {}", name(&self.plan.runs[index]), failure.message)
            }
            Ok(()) => {
                let worked = self.runs[index]
                    .as_ref()
                    .is_some_and(|progress| progress.worked);
                let done = if worked {
                    "done"
                } else {
                    "recorded by another process"
                };
                format!(
                    "[{}/{}] {}: {done}",
                    self.done,
                    self.count,
                    name(&self.plan.runs[index])
                )
            }
            Err(failure) => format!(
                "[{}/{}] {}: FAILED\n  {}",
                self.done,
                self.count,
                name(&self.plan.runs[index]),
                failure.message.replace('\n', "\n  ")
            ),
        };
        if let Some(progress) = self.runs[index].as_mut() {
            progress.fraction = 1.0;
            if let Some(bar) = progress.bar.take() {
                bar.finish_and_clear();
            }
        }
        match &self.bars {
            Some(_) => self.print(&text),
            None => tell(&format!("{text}{}", self.time_left())),
        }
        self.draw_total();
    }

    /// A line above the bars.
    fn print(&self, text: &str) {
        match &self.bars {
            Some(bars) => {
                let _ = bars.println(text);
            }
            None => tell(text),
        }
    }

    fn fraction(&self) -> f64 {
        let done = |(run, work): (&Option<Progress>, &f64)| {
            run.as_ref()
                .map_or(0.0, |progress| progress.fraction * work)
        };
        self.runs.iter().zip(&self.work).map(done).sum::<f64>() / self.all.max(1.0)
    }

    fn time_left(&self) -> String {
        let (fraction, elapsed) = (self.fraction(), self.started.elapsed().as_secs_f64());
        if !(0.01..1.0).contains(&fraction) {
            String::new()
        } else {
            format!(
                ", about {} left",
                duration(elapsed / fraction * (1.0 - fraction))
            )
        }
    }

    fn draw_total(&self) {
        if let Some(total) = &self.total {
            total.set_position((1000.0 * self.fraction()) as u64);
            total.set_message(format!(
                "{} of {} done{}",
                self.done,
                count(self.count, "run"),
                self.time_left()
            ));
        }
    }

    fn finish(&self) {
        if let Some(total) = &self.total {
            total.finish_and_clear();
        }
    }
}

/// Exit code of a finished sweep.
pub fn exit(outcome: &Outcome) -> Exit {
    let diverged = outcome
        .records
        .iter()
        .filter(|record| record.status == RunStatus::Diverged)
        .count();
    let general = outcome
        .failed
        .iter()
        .map(|(_, _, failure)| failure.exit)
        .find(|exit| matches!(exit, Exit::Resources | Exit::Device));
    if let Some(exit) = outcome.stopped {
        exit
    } else if let Some(exit) = general {
        exit
    } else if !outcome.failed.is_empty() {
        Exit::SomeFailed
    } else if diverged > 0 && diverged == outcome.records.len() {
        Exit::Diverged
    } else {
        Exit::Done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_about_waiting_come_at_growing_intervals() {
        let mut waiting = Waiting {
            since: Instant::now(),
            due: 1,
        };
        let said: Vec<u64> = (0..1000)
            .filter_map(|waited| waiting.line_due(waited))
            .collect();
        assert_eq!(said, [1, 10, 30, 60, 360, 660, 960]);
    }
}
