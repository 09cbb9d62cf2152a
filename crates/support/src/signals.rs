//! Requests to stop: the first signal asks for a clean end, a later one ends the process at once.
//!
//! One thread receives the signals and passes the first one on to the workers of a sweep. The sweep
//! cannot end before its workers have been asked, however fast two signals follow each other.

use crate::console;
use crate::exit::{Exit, Failure};
use crate::limits;
use std::collections::BTreeSet;
use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Signals within this time of the first one are the same request. GNU `timeout` signals its child
/// and then the process group; terminals send HUP and TERM, job schedulers signal every process at
/// once.
#[cfg(unix)]
const SAME_REQUEST: Duration = Duration::from_secs(1);

/// How long the system may take to end a worker that was killed.
const AFTER_KILL: Duration = Duration::from_secs(5);

/// Exit code of the first request, 0 before it.
static ASKED: AtomicUsize = AtomicUsize::new(0);
/// Whether a worker was killed because it did not leave in time.
static KILLED: AtomicBool = AtomicBool::new(false);
/// Whether a request ends the process at once.
static LEAVING: AtomicBool = AtomicBool::new(false);
/// Workers of this process that have not been waited for, by process id. Requests are recorded and
/// workers are started under this lock, so that every worker is either asked to stop or never
/// started.
static WORKERS: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

fn workers() -> MutexGuard<'static, BTreeSet<u32>> {
    WORKERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts to listen for INT, TERM, HUP and USR1. A second call does nothing. HUP stays ignored if
/// it was ignored at the start of the process, as under `nohup`.
///
/// # Errors
///
/// [`Exit::Resources`] if no thread can be started.
pub fn listen() -> Result<(), Failure> {
    static LISTENING: AtomicBool = AtomicBool::new(false);
    if LISTENING.swap(true, Ordering::SeqCst) {
        return Ok(());
    }
    #[cfg(unix)]
    {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
        let mut wanted = vec![SIGINT, SIGTERM, SIGUSR1];
        if !hangup_is_ignored() {
            wanted.push(SIGHUP);
        }
        match signal_hook::iterator::Signals::new(wanted) {
            Ok(signals) => drop(limits::spawn(move || receive(signals))?),
            Err(error) => console::tell(&format!(
                "note: signals end this process without saving: {error}"
            )),
        }
    }
    Ok(())
}

/// Until [`work_begins`] is called, a request ends the process at once: there is nothing to save
/// while runs are planned, which takes long for many runs or a large corpus.
pub fn leave_until_work() {
    LEAVING.store(true, Ordering::SeqCst);
}

/// From now on requests are answered by saving.
pub fn work_begins() {
    LEAVING.store(false, Ordering::SeqCst);
}

#[cfg(unix)]
fn receive(mut signals: signal_hook::iterator::Signals) {
    use signal_hook::consts::{SIGINT, SIGUSR1};
    let mut first = None;
    for signal in signals.forever() {
        match (signal, first) {
            // USR1 asks for a clean end however often it comes: it never counts as a second
            // request.
            (SIGUSR1, _) => ask(Exit::TryAgain),
            (SIGINT, None) => ask(Exit::Interrupted),
            (_, None) => ask(Exit::Terminated),
            (_, Some(first)) => {
                if std::time::Instant::elapsed(&first) >= SAME_REQUEST {
                    leave_at_once();
                }
            }
        }
        if signal != SIGUSR1 && first.is_none() {
            first = Some(std::time::Instant::now());
        }
    }
}

/// Whether HUP was ignored when this process started.
#[cfg(unix)]
fn hangup_is_ignored() -> bool {
    if let Ok(status) = std::fs::read_to_string("/proc/self/status") {
        return ignores_hangup(&status);
    }
    // Ignored signals stay ignored in a new program: a shell that survives its own HUP inherited
    // that.
    Command::new("sh")
        .args(["-c", "kill -HUP $$"])
        .status()
        .is_ok_and(|status| status.success())
}

/// Whether the mask of ignored signals in the text of `/proc/PID/status` contains HUP, which is
/// signal 1.
#[cfg(unix)]
fn ignores_hangup(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & 1 == 1)
}

/// Records a request to stop and passes it on to the workers, as a signal does. Only the first
/// request counts.
pub fn ask(exit: Exit) {
    // Held until all are asked: `spawn` waits, and then starts no worker.
    let workers = workers();
    if ASKED
        .compare_exchange(0, exit as usize, Ordering::SeqCst, Ordering::SeqCst)
        .is_ok()
    {
        workers.iter().for_each(|worker| pass_on(exit, *worker));
        if LEAVING.load(Ordering::SeqCst) {
            console::tell("stopped while planning; no run was started");
            leave(exit);
        }
    }
}

/// Ends this process without waiting for its other threads.
fn leave(exit: Exit) -> ! {
    #[cfg(unix)]
    signal_hook::low_level::exit(exit as i32);
    #[cfg(not(unix))]
    std::process::exit(exit as i32)
}

/// Ends the process without saving, after its workers. What was saved remains.
#[cfg(unix)]
fn leave_at_once() -> ! {
    // The lock is kept: no worker starts any more.
    let workers = workers();
    workers.iter().for_each(|worker| kill(*worker));
    console::tell(
        "stopped at once by a second signal; the same command continues from what was saved",
    );
    leave(asked().unwrap_or(Exit::Interrupted))
}

/// Ends the process `limit` after a request, if a computation such as one batch at a very long
/// length takes longer than that. `left` says what remains; that of the first call counts.
///
/// # Errors
///
/// [`Exit::Resources`] if no thread can be started.
pub fn leave_within(limit: Duration, left: &'static str) -> Result<(), Failure> {
    static WATCHING: AtomicBool = AtomicBool::new(false);
    if WATCHING.swap(true, Ordering::SeqCst) {
        return Ok(());
    }
    limits::spawn(move || {
        let exit = wait_for_request();
        std::thread::sleep(limit);
        console::tell(&format!("stopped in the middle of a computation; {left}"));
        std::process::exit(exit as i32);
    })
    .map(drop)
}

/// Kills the workers that are still running `limit` after a request. A worker leaves by itself; one
/// that hangs in a driver cannot. Where even that ends none, as while a disk does not answer, this
/// process ends without them.
///
/// # Errors
///
/// [`Exit::Resources`] if no thread can be started.
pub fn kill_workers_after(limit: Duration) -> Result<(), Failure> {
    static WATCHING: AtomicBool = AtomicBool::new(false);
    if WATCHING.swap(true, Ordering::SeqCst) {
        return Ok(());
    }
    limits::spawn(move || {
        let exit = wait_for_request();
        std::thread::sleep(limit);
        for worker in workers().iter() {
            // Set first: the thread that waits for the worker reads it as soon as the worker
            // ends.
            KILLED.store(true, Ordering::SeqCst);
            kill(*worker);
        }
        std::thread::sleep(AFTER_KILL);
        let left: Vec<String> = workers().iter().map(u32::to_string).collect();
        if !left.is_empty() {
            console::tell(&format!(
                "stopped; the system has not ended process {} yet, which was killed: it waits for \
                 a disk or a device",
                left.join(", ")
            ));
            leave(exit);
        }
    })
    .map(drop)
}

fn wait_for_request() -> Exit {
    loop {
        if let Some(exit) = asked() {
            return exit;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Treats the end of standard input as TERM. A sweep holds the other end of the pipe and says
/// nothing, so the pipe closes when the sweep ends, however it ends.
///
/// # Errors
///
/// [`Exit::Resources`] if no thread can be started.
pub fn stop_with_parent() -> Result<(), Failure> {
    limits::spawn(|| {
        let (mut stdin, mut bytes) = (io::stdin().lock(), [0; 64]);
        loop {
            match stdin.read(&mut bytes) {
                Ok(0) => break,
                // A pipe that cannot be read any more reports no end: treated as closed.
                Err(error) if error.kind() != io::ErrorKind::Interrupted => break,
                _ => {}
            }
        }
        ask(Exit::Terminated);
    })
    .map(drop)
}

/// Makes a write beyond the file size limit return an error, which can be reported, instead of
/// ending the process.
pub fn survive_file_size_limit() {
    #[cfg(unix)]
    // With a handler of any kind the write fails with EFBIG; by default the signal ends the
    // process.
    let _ = signal_hook::flag::register(
        signal_hook::consts::SIGXFSZ,
        std::sync::Arc::new(AtomicBool::new(false)),
    );
}

/// What was asked for, if anything.
pub fn asked() -> Option<Exit> {
    let asked = ASKED.load(Ordering::SeqCst);
    [Exit::Interrupted, Exit::Terminated, Exit::TryAgain]
        .into_iter()
        .find(|exit| *exit as usize == asked)
}

/// Starts a worker that requests to stop are passed on to, until [`wait`] returns.
///
/// # Errors
///
/// [`io::ErrorKind::Interrupted`] after a request to stop; otherwise what the system says.
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    // Held until the worker is in the list: a request that comes now waits, and then reaches it.
    let mut workers = workers();
    if asked().is_some() {
        return Err(io::Error::new(
            io::ErrorKind::Interrupted,
            "stopped before it began",
        ));
    }
    let child = command.spawn()?;
    workers.insert(child.id());
    Ok(child)
}

/// Kills a worker of [`spawn`] that has not been waited for; other processes are never signalled.
pub fn kill_worker(worker: u32) {
    if workers().contains(&worker) {
        kill(worker);
    }
}

/// Waits for the end of a worker of [`spawn`].
///
/// # Errors
///
/// What the system says.
pub fn wait(child: &mut Child) -> io::Result<ExitStatus> {
    // The process id belongs to the worker until `wait` returns: leave the list before that, so
    // that no other process is ever signalled under this id.
    #[cfg(unix)]
    {
        use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while waitid(WaitId::Pid(Pid::from_child(child)), options)
            .is_err_and(|error| error == rustix::io::Errno::INTR)
        {}
    }
    workers().remove(&child.id());
    child.wait()
}

/// What a worker that a signal ended was asked for: a worker may meet a request before it listens,
/// or be killed because it did not leave in time.
#[cfg(unix)]
pub fn ended_on_request(signal: i32) -> Option<(Exit, &'static str)> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGKILL, SIGTERM, SIGUSR1};
    match signal {
        SIGINT => Some((Exit::Interrupted, "stopped before it began")),
        SIGTERM | SIGHUP => Some((Exit::Terminated, "stopped before it began")),
        SIGUSR1 => Some((Exit::TryAgain, "stopped before it began")),
        SIGKILL if KILLED.load(Ordering::SeqCst) => Some((
            asked()?,
            "did not leave in time and was killed; the same command continues from its last \
             checkpoint",
        )),
        _ => None,
    }
}

/// Passes a request on to a worker's process group.
fn pass_on(exit: Exit, worker: u32) {
    #[cfg(unix)]
    {
        use rustix::process::Signal;
        signal(
            worker,
            match exit {
                Exit::Interrupted => Signal::INT,
                Exit::TryAgain => Signal::USR1,
                _ => Signal::TERM,
            },
        );
        // A stopped worker takes the request only when it continues.
        self::signal(worker, Signal::CONT);
    }
    #[cfg(not(unix))]
    let _ = (exit, worker);
}

/// Kills a worker.
fn kill(worker: u32) {
    #[cfg(unix)]
    signal(worker, rustix::process::Signal::KILL);
    #[cfg(not(unix))]
    let _ = worker;
}

#[cfg(unix)]
fn signal(worker: u32, signal: rustix::process::Signal) {
    use rustix::process::{Pid, kill_process_group};
    if let Some(group) = i32::try_from(worker).ok().and_then(Pid::from_raw) {
        // It may have ended by itself.
        let _ = kill_process_group(group, signal);
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::ignores_hangup;

    #[test]
    fn the_mask_of_ignored_signals_is_read() {
        assert!(ignores_hangup(
            "Name:\tlongreach\nSigIgn:\t0000000000000001\n"
        ));
        assert!(ignores_hangup("SigIgn:\t0000000000001003\n"));
        assert!(!ignores_hangup(
            "SigIgn:\t0000000000001002\nSigCgt:\t0000000000000001\n"
        ));
        assert!(!ignores_hangup(""));
    }
}
