//! A worker process: how it is started, followed to its end, and what its end means.

use crate::options::Options;
use experiment::plan::planned::PlannedRun;
use experiment::run::protocol::{Event, How, Line};
use experiment::runs_on_disk::files::{self, ERROR_FILE, JOB_FILE};
use experiment::runs_on_disk::hold::LiveLease;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use support::exit::{Exit, Failure};
use support::limits;
use support::program::this_program;
use support::signals;

/// Bytes kept of the end of a worker's standard error: drivers can print without end.
const MAX_STDERR_BYTES: usize = 16_384;

/// Threads for each worker's CPU backend: the cores divided among the workers, unless the user set
/// the number.
pub fn threads_per_worker(jobs: usize, cores: Option<usize>) -> Option<usize> {
    let all = || std::thread::available_parallelism().map_or(1, usize::from);
    std::env::var_os("RAYON_NUM_THREADS")
        .is_none()
        .then(|| (cores.unwrap_or_else(all) / jobs).max(1))
}

/// A run of a worker.
pub struct Member<'a> {
    /// The run.
    pub run: &'a PlannedRun,
    /// Its directory.
    pub directory: PathBuf,
    /// The lease that it runs under.
    pub lease: Option<LiveLease>,
}

impl Member<'_> {
    /// Writes the message of a failed run into its directory, if no other process holds the run.
    pub fn write_error(&self, failure: &Failure) {
        let disk = rundir::system();
        if let Ok(_held) = files::take(disk, &self.directory) {
            let path = self.directory.join(ERROR_FILE);
            let _ = disk.write_whole(&path, failure.message.as_bytes());
        }
    }

    fn has_lost_its_lease(&self) -> bool {
        self.lease.as_ref().is_some_and(LiveLease::lost)
    }
}

/// What a worker is started with.
pub struct WorkerStart<'a> {
    /// Its runs.
    pub members: &'a [Member<'a>],
    /// How its sweep runs.
    pub options: &'a Options,
    /// Threads of its CPU backend.
    pub threads: Option<usize>,
    /// The variable that names its GPU, and the GPU.
    pub gpu: Option<(&'static str, &'a str)>,
}

/// Starts a worker and follows it to its end; `on_start` receives its process, `on_event` its
/// events with the place of the run. Returns what became of each run: the failure of a worker is
/// that of every run that it left without a record.
pub fn watch(
    start: &WorkerStart<'_>,
    on_start: impl FnOnce(u32),
    on_event: impl FnMut(usize, Event),
) -> Vec<Result<(), Failure>> {
    let members = start.members.iter();
    let end = match follow(start, on_start, on_event) {
        Ok(end) => end,
        Err(failure) => return members.map(|_| Err(failure.clone())).collect(),
    };
    let ended = members.enumerate().map(|(place, member)| {
        let ended = end.of(place, start);
        if let Err(failure) = &ended
            // A run that another process holds has that process's error file.
            && !failure.exit.on_request()
            && failure.exit != Exit::Busy
        {
            member.write_error(failure);
        }
        ended
    });
    ended.collect()
}

/// How a worker ended.
struct End {
    status: ExitStatus,
    /// What it printed and reported.
    words: String,
    /// The runs that ended without a record while others went on, by place.
    left: BTreeMap<usize, Failure>,
    outside: Outside,
}

impl End {
    /// Outcome of one of the runs.
    fn of(&self, place: usize, start: &WorkerStart<'_>) -> Result<(), Failure> {
        let (member, is_alone) = (&start.members[place], start.members.len() == 1);
        if let Some(failure) = self.left.get(&place) {
            return Err(failure.clone());
        }
        let is_recorded = || start.options.recorded(member.run).is_some();
        if self.status.success() || !is_alone && is_recorded() {
            return Ok(());
        }
        if start.members.iter().any(Member::has_lost_its_lease) {
            // Those beside it are tried again: their worker was killed for its sake.
            let what = match member.has_lost_its_lease() {
                true => "was taken over",
                false => "was trained with a run that was taken over",
            };
            let message = format!("{what} by another process, which saw no heartbeat of this one");
            return Err(Failure::new(Exit::Busy, message));
        }
        let mut failure = ending(self.status, &self.words, &self.outside);
        if !is_alone && matches!(failure.exit, Exit::Resources | Exit::Device) {
            let help = "it had several runs: if memory was short, a smaller --runs-per-worker \
                        needs less";
            failure = failure.with_help(help);
        }
        Err(failure)
    }
}

fn follow(
    start: &WorkerStart<'_>,
    on_start: impl FnOnce(u32),
    mut on_event: impl FnMut(usize, Event),
) -> Result<End, Failure> {
    let failure = |message: String| Failure::new(Exit::SomeFailed, message);
    let mut command = command(start)?;
    // A separate thread drains the pipe; otherwise a worker that fills it would block forever.
    // Started first: a worker without it could not be followed.
    let (to_drain, drained) = mpsc::channel();
    let stderr = limits::spawn(move || last_words(drained.recv().ok().flatten()))?;
    let outside = Outside::now();
    let mut child = signals::spawn(&mut command).map_err(|error| match signals::asked() {
        Some(exit) => Failure::new(exit, error.to_string()),
        None => limits::refused("a worker", &error),
    })?;
    on_start(child.id());
    for lease in start.members.iter().filter_map(|run| run.lease.as_ref()) {
        lease.guard(child.id());
    }
    // Dropped after the worker has ended: a worker leaves when its standard input closes.
    let lifeline = child.stdin.take();
    let _ = to_drain.send(child.stderr.take());
    let stdout = child.stdout.take().map(BufReader::new).into_iter();
    let (mut reported, mut left) = (None, BTreeMap::new());
    for line in stdout.flat_map(|stdout| stdout.lines().map_while(Result::ok)) {
        // Not an event: a library may print there.
        let Ok(Line { run, event }) = serde_json::from_str(&line) else {
            continue;
        };
        match event {
            Event::Failed { message } => reported = Some(message),
            Event::Left { exit, message } => {
                let exit = Exit::from_code(exit.into()).unwrap_or(Exit::SomeFailed);
                left.insert(run, Failure::new(exit, message));
            }
            event if run < start.members.len() => on_event(run, event),
            _ => {}
        }
    }
    let status =
        signals::wait(&mut child).map_err(|error| failure(format!("lost a worker: {error}")))?;
    drop(lifeline);
    let words = Some(stderr.join().unwrap_or_default()).filter(|words| !words.is_empty());
    let words: Vec<String> = [words, reported].into_iter().flatten().collect();
    Ok(End {
        status,
        words: words.join("\n"),
        left,
        outside,
    })
}

fn command(start: &WorkerStart<'_>) -> Result<Command, Failure> {
    let WorkerStart {
        members, options, ..
    } = start;
    let How {
        device,
        checkpoint_every,
        memory_limit,
        initial_weights,
        runs_per_worker,
    } = &options.how;
    let mut command = Command::new(this_program()?);
    command.arg("worker");
    command.args(members.iter().map(|member| &member.directory));
    command.arg("--events");
    command.args(["--device", &device.to_string()]);
    command.args(["--checkpoint-every", &checkpoint_every.to_string()]);
    command.args(["--memory-limit", &memory_limit.to_string()]);
    command.args(["--runs-per-worker", &runs_per_worker.to_string()]);
    if *initial_weights {
        command.arg("--initial-weights");
    }
    // Ctrl-C reaches only the sweep, which passes it on once: two would end a worker before it has
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
    for lease in members.iter().filter_map(|run| run.lease.as_ref()) {
        command.args(["--leased", &lease.nonce()]);
    }
    if let Some((variable, gpu)) = start.gpu {
        command.env(variable, gpu);
    }
    if let Some(threads) = start.threads {
        command.env("RAYON_NUM_THREADS", threads.to_string());
    }
    // The next step needs the memory that a step frees: it goes back to the system only after ten
    // seconds without use.
    if std::env::var_os("MIMALLOC_PURGE_DELAY").is_none() {
        command.env("MIMALLOC_PURGE_DELAY", "10000");
    }
    Ok(command)
}

/// The end of what a worker printed on standard error. No more than that is held.
fn last_words(stderr: Option<impl Read>) -> String {
    let (mut text, mut block) = (Vec::new(), [0; 4096]);
    if let Some(mut stderr) = stderr {
        loop {
            match stderr.read(&mut block) {
                Ok(0) => break,
                Ok(read) => text.extend_from_slice(&block[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
            text.drain(..text.len().saturating_sub(MAX_STDERR_BYTES));
        }
    }
    String::from_utf8_lossy(&text).trim().to_owned()
}

/// The failure of a worker that did not succeed; `words` is what it printed and reported.
fn ending(status: ExitStatus, words: &str, outside: &Outside) -> Failure {
    let with_words = |exit, more: &str| {
        let message = if words.is_empty() {
            more.to_owned()
        } else {
            format!("{words}\n{more}")
        };
        Failure::new(exit, message)
    };
    match status.code().and_then(Exit::from_code) {
        // No code of this program: a signal, or an end that it does not know.
        Some(Exit::Done) | None => {}
        Some(exit) if words.is_empty() => {
            let message = format!("the worker ended with {status} and printed nothing");
            return Failure::new(exit, message);
        }
        Some(exit) => return Failure::new(exit, words),
    }
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        if let Some((exit, what)) = signals::ended_on_request(signal) {
            return Failure::new(exit, what);
        }
        let (exit, what) = killed_by(signal, words, outside);
        return with_words(exit, &what);
    }
    let _ = outside;
    with_words(Exit::SomeFailed, &format!("the worker ended with {status}"))
}

/// What a signal means that ended a worker, and what to do.
#[cfg(unix)]
fn killed_by(signal: i32, words: &str, outside: &Outside) -> (Exit, String) {
    use signal_hook::consts::{SIGABRT, SIGBUS, SIGKILL, SIGSEGV, SIGXCPU, SIGXFSZ};
    const SAME: &str = "the same command continues from the last checkpoint";
    let name = signal_hook::low_level::signal_name(signal).unwrap_or("unknown");
    match signal {
        SIGKILL => {
            let why = outside.reasons_to_kill();
            let what = "the worker was killed from outside (signal 9)";
            (Exit::SomeFailed, format!("{what}{why}; {SAME}"))
        }
        // The words of Rust's library, and of the C library. A thread that gets no memory while it
        // starts ends by SIGSEGV after them.
        SIGABRT | SIGSEGV
            if words.contains("memory allocation") || words.contains("out of memory") =>
        {
            (
                Exit::Resources,
                "the worker ran out of memory\n  = help: run fewer at a time or set a \
                 --memory-limit"
                    .to_owned(),
            )
        }
        SIGXCPU => (
            Exit::SomeFailed,
            format!(
                "the worker used up its limit on CPU time (signal {signal}, {name})\n  = help: raise \
                 it (`ulimit -S -t`), or give a shorter --checkpoint-every; {SAME}"
            ),
        ),
        SIGXFSZ => (
            Exit::Resources,
            format!(
                "the worker met the limit on file sizes (signal {signal}, {name})\n  = help: raise \
                 it (`ulimit -f`); {SAME}"
            ),
        ),
        SIGBUS => (
            Exit::SomeFailed,
            format!(
                "the worker could not access memory (signal {signal}, {name}): a disk that is full \
                 or fails, or a file that was cut while it was read\n  = help: check the disk; \
                 {SAME}"
            ),
        ),
        _ => (
            Exit::SomeFailed,
            format!(
                "the worker was ended by signal {signal} ({name}); if nobody sent it, please report \
                 it with {JOB_FILE}"
            ),
        ),
    }
}

/// What may kill a worker from outside.
struct Outside {
    /// Processes that the system has killed for lack of memory since it started.
    memory_kills: Option<u64>,
}

impl Outside {
    fn now() -> Self {
        let text = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        Self {
            memory_kills: line.and_then(|count| count.trim().parse().ok()),
        }
    }

    /// What is known to kill processes here, as the end of a sentence with a help.
    fn reasons_to_kill(&self) -> String {
        let killed = match (self.memory_kills, Self::now().memory_kills) {
            (Some(before), Some(now)) => now > before,
            _ => false,
        };
        let (fact, memory) = if killed {
            (
                "; meanwhile the system killed a process for lack of memory, most likely this one",
                "run fewer at a time or set a --memory-limit",
            )
        } else {
            (
                "",
                "if the system killed it for lack of memory, run fewer at a time or set a \
                 --memory-limit",
            )
        };
        #[cfg(unix)]
        let limit = rustix::process::getrlimit(rustix::process::Resource::Cpu).maximum;
        #[cfg(not(unix))]
        let limit: Option<u64> = None;
        let time = limit.map_or_else(String::new, |secs| {
            format!("; if it used up its {secs} s of CPU time (`ulimit -H -t`), raise that limit")
        });
        format!("{fact}\n  = help: {memory}{time}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_a_worker_printed_the_end_is_kept() {
        let printed: String = (0..100_000).map(|line| format!("{line}\n")).collect();
        let words = last_words(Some(printed.as_bytes()));
        assert!(words.ends_with("99998\n99999"), "{words}");
        assert_eq!(words.len(), MAX_STDERR_BYTES - 1);
        assert_eq!(last_words(Some(" short\n".as_bytes())), "short");
    }

    #[test]
    #[cfg(unix)]
    fn what_the_system_did_is_named_where_it_is_known() {
        const MEMORY: &str = "memory allocation of 8 bytes failed";
        let known = Outside::now();
        let killed = Outside {
            memory_kills: known.memory_kills.and_then(|count| count.checked_sub(1)),
        };
        let (exit, said) = killed_by(9, "", &known);
        assert_eq!(exit, Exit::SomeFailed);
        assert!(said.contains("if the system killed it"), "{said}");
        if killed.memory_kills.is_some() {
            let (_, said) = killed_by(9, "", &killed);
            assert!(said.contains("the system killed a process"), "{said}");
        }
        for (signal, words, exit, part) in [
            (6, MEMORY, Exit::Resources, "out of memory"),
            (6, "", Exit::SomeFailed, "SIGABRT"),
            (7, "", Exit::SomeFailed, "check the disk"),
            (11, "", Exit::SomeFailed, "please report"),
            (11, MEMORY, Exit::Resources, "out of memory"),
            (24, "", Exit::SomeFailed, "CPU time (signal 24, SIGXCPU)"),
            (25, "", Exit::Resources, "ulimit -f"),
        ] {
            let (found, said) = killed_by(signal, words, &known);
            assert!(found == exit && said.contains(part), "{signal}: {said}");
        }
    }
}
