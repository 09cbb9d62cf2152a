//! A worker process: how it is started, followed to its end, and what its end means.

use crate::exit::{Exit, Failure};
use crate::run::protocol::{Event, How};
use crate::run_dir::files::{self, ERROR_FILE, JOB_FILE};
use crate::run_dir::hold::LiveClaim;
use crate::signals;
use crate::sweep::options::Options;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{ChildStderr, Command, ExitStatus, Stdio};

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

/// What a worker is started with.
pub struct Start<'a> {
    /// The directory of its run.
    pub directory: &'a Path,
    /// How its sweep runs.
    pub options: &'a Options,
    /// Threads of its CPU backend.
    pub threads: Option<usize>,
    /// The variable that names its GPU, and the GPU.
    pub gpu: Option<(&'static str, &'a str)>,
    /// The claim that it runs under.
    pub claim: Option<&'a LiveClaim>,
}

impl Start<'_> {
    /// Writes the message of a failed run into its directory, if no other process holds the run.
    pub fn write_error(&self, failure: &Failure) {
        let disk = rundir::system();
        if let Ok(_held) = files::take(disk, self.directory) {
            let path = self.directory.join(ERROR_FILE);
            let _ = disk.write_whole(&path, failure.message.as_bytes());
        }
    }
}

/// Starts a worker and follows it to its end; `on_event` receives its events.
///
/// # Errors
///
/// The worker's failure, or why it could not be started.
pub fn watch(start: &Start<'_>, mut on_event: impl FnMut(Event)) -> Result<(), Failure> {
    let failure = |message: String| Failure::new(Exit::SomeFailed, message);
    let mut command = command(start)?;
    let mut child = signals::spawn(&mut command).map_err(|error| match signals::asked() {
        Some(exit) => Failure::new(exit, error.to_string()),
        None => failure(format!("cannot start a worker: {error}")),
    })?;
    if let Some(claim) = start.claim {
        claim.guard(child.id());
    }
    // Dropped after the worker has ended: a worker leaves when its standard input closes.
    let lifeline = child.stdin.take();
    let stderr = child.stderr.take();
    // A separate thread drains the pipe; otherwise a worker that fills it would block forever.
    let stderr = std::thread::spawn(move || last_words(stderr));
    let stdout = child.stdout.take().map(BufReader::new).into_iter();
    let mut reported = None;
    for line in stdout.flat_map(|stdout| stdout.lines().map_while(Result::ok)) {
        match serde_json::from_str(&line) {
            Ok(Event::Failed { message }) => reported = Some(message),
            Ok(event) => on_event(event),
            // Not an event: a library may print there.
            Err(_) => {}
        }
    }
    let status =
        signals::wait(&mut child).map_err(|error| failure(format!("lost a worker: {error}")))?;
    drop(lifeline);
    let words = stderr.join().unwrap_or_default();
    if status.success() {
        return Ok(());
    }
    let words: Vec<String> = [Some(words).filter(|words| !words.is_empty()), reported]
        .into_iter()
        .flatten()
        .collect();
    if start.claim.is_some_and(LiveClaim::lost) {
        let message = "was taken over by another process, which saw no heartbeat of this one";
        return Err(Failure::new(Exit::Busy, message));
    }
    let failure = ending(status, &words.join("\n"));
    // A run that another process holds has that process's error file.
    if !failure.exit.on_request() && failure.exit != Exit::Busy {
        start.write_error(&failure);
    }
    Err(failure)
}

fn command(start: &Start<'_>) -> Result<Command, Failure> {
    let Start {
        directory, options, ..
    } = start;
    let program = std::env::current_exe().map_err(|error| {
        let message = format!("cannot find this program: {error}");
        Failure::new(Exit::SomeFailed, message)
    })?;
    let How {
        device,
        checkpoint_every,
        memory_limit,
        initial_weights,
    } = &options.how;
    let mut command = Command::new(program);
    command.arg("worker").arg(directory).arg("--events");
    command.args(["--device", &device.to_string()]);
    command.args(["--checkpoint-every", &checkpoint_every.to_string()]);
    command.args(["--memory-limit", &memory_limit.to_string()]);
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
    if let Some(claim) = start.claim {
        command.args(["--claimed", &claim.nonce()]);
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

/// The end of what a worker printed on standard error.
fn last_words(stderr: Option<ChildStderr>) -> String {
    let mut text = Vec::new();
    if let Some(mut stderr) = stderr {
        let _ = stderr.read_to_end(&mut text);
    }
    let start = text.len().saturating_sub(MAX_STDERR_BYTES);
    String::from_utf8_lossy(&text[start..]).trim().to_owned()
}

/// The failure of a worker that did not succeed; `words` is what it printed and reported.
fn ending(status: ExitStatus, words: &str) -> Failure {
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
        return match signal {
            9 => with_words(
                Exit::SomeFailed,
                "the worker was killed from outside (signal 9)\n  = help: if the system killed it \
                 for lack of memory, use fewer --jobs or a --memory-limit; the same command \
                 continues from the checkpoint",
            ),
            6 if words.contains("memory allocation") => with_words(
                Exit::Resources,
                "the worker ran out of memory\n  = help: use fewer --jobs or a --memory-limit",
            ),
            _ => {
                let more = format!(
                    "the worker was ended by signal {signal}; please report it with {JOB_FILE}"
                );
                with_words(Exit::SomeFailed, &more)
            }
        };
    }
    with_words(Exit::SomeFailed, &format!("the worker ended with {status}"))
}
