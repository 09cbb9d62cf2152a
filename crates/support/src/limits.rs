//! Lack of memory and of processes, as opposed to bugs: exit code 6, and which limit to raise.
//!
//! Libraries panic or abort where they get no memory and no threads. So threads are requested
//! before a library needs them, and a panic is followed by a test allocation.

use crate::exit::{Exit, Failure};
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{Builder, JoinHandle};

/// Stack of each thread that is tried, in bytes: that of the threads that compute.
const STACK: usize = 8 << 20;
/// Memory that a process which is not short of it can get at any time, in bytes.
const MARGIN: usize = 64 << 20;
/// Memory that every command needs beyond its start, in bytes.
const FIRST: usize = 16 << 20;
/// Memory that the start of a thread takes beside its stack, in bytes. Where that fails the C
/// library or Rust's ends the process by a signal.
const BESIDE_STACK: usize = 1 << 20;

/// Starts a thread.
///
/// # Errors
///
/// [`Exit::Resources`] if the system starts none.
pub fn spawn<T: Send + 'static>(
    f: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Failure> {
    let started = if has_memory(STACK + BESIDE_STACK) {
        Builder::new().spawn(f)
    } else {
        Err(ErrorKind::OutOfMemory.into())
    };
    started.map_err(|error| refused("a thread", &error))
}

/// The failure of a thread or a process that the system does not start.
pub fn refused(what: &str, error: &io::Error) -> Failure {
    let message = format!("cannot start {what}: {error}");
    if let Some(help) = too_many_files(error) {
        return Failure::resources(message).with_help(help);
    }
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::OutOfMemory => Failure::resources(message).with_help(
            "a limit on processes (`ulimit -u`, or the control group's pids.max) or on memory \
             (`ulimit -v`) is too low: raise it, or run fewer at a time; the same command \
             continues",
        ),
        _ => Failure::new(Exit::SomeFailed, message),
    }
}

/// The help where no file can be opened because a process, or the machine, has too many open.
pub fn too_many_files(error: &io::Error) -> Option<&'static str> {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    let is_meant = cfg!(unix) && matches!(error.raw_os_error(), Some(ENFILE | EMFILE));
    is_meant.then_some(
        "the limit on open files (`ulimit -n`) is too low: raise it; the same command continues",
    )
}

/// Checks that the threads that compute can be started: where they cannot, the library that starts
/// them panics.
///
/// # Errors
///
/// [`Exit::Resources`] if they cannot.
pub fn check_threads() -> Result<(), Failure> {
    let count = threads();
    start_together(count).map_err(|error| {
        let what = if count == 1 {
            "a thread".to_owned()
        } else {
            format!("{count} threads")
        };
        refused(&what, &error)
    })
}

/// The threads that compute: one per core, unless the user set the number.
pub fn threads() -> usize {
    std::env::var("RAYON_NUM_THREADS")
        .ok()
        .and_then(|text| text.parse().ok())
        .filter(|count| *count > 0)
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// Starts threads that live at the same time, and ends them.
fn start_together(count: usize) -> io::Result<()> {
    let gate = Arc::new(Mutex::new(()));
    let mut started = Vec::new();
    let mut result = Ok(());
    let held = gate.lock().unwrap_or_else(PoisonError::into_inner);
    for _ in 0..count {
        if !has_memory(STACK + BESIDE_STACK) {
            result = Err(ErrorKind::OutOfMemory.into());
            break;
        }
        let gate = gate.clone();
        let thread = Builder::new()
            .stack_size(STACK)
            .spawn(move || drop(gate.lock()));
        match thread {
            Ok(thread) => started.push(thread),
            Err(error) => {
                result = Err(error);
                break;
            }
        }
    }
    drop(held);
    for thread in started {
        let _ = thread.join();
    }
    result
}

/// The failure after a panic, if this process gets no memory or no threads.
pub fn after_panic() -> Option<Failure> {
    let help = "raise the limit, or run fewer at a time or set a --memory-limit; the same command \
                continues";
    if !has_memory(MARGIN) {
        return Some(
            Failure::resources("this process gets no more memory (see above)").with_help(help),
        );
    }
    check_threads().err()
}

/// Checks that there is memory for more than the start of this process. With less, the C library
/// and Rust's end the process by a signal where a thread starts, before anything can be said.
///
/// # Errors
///
/// [`Exit::Resources`] if there is not.
pub fn check_memory() -> Result<(), Failure> {
    if has_memory(FIRST) {
        return Ok(());
    }
    Err(Failure::resources("there is no memory to start with")
        .with_help("raise the limit (`ulimit -v`, or that of the control group)"))
}

/// Whether this process can allocate `count` bytes under its memory limits.
pub fn has_memory(count: usize) -> bool {
    let mut bytes = Vec::<u8>::new();
    let got = bytes.try_reserve_exact(count).is_ok();
    // A compiler may leave out an allocation that nobody uses, and take it to succeed.
    std::hint::black_box(&bytes);
    got
}

/// Whether an abort of this process is answered with the exit code for lack of memory.
fn abort_is_oom() -> &'static Arc<AtomicBool> {
    static WANT: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    WANT.get_or_init(|| Arc::new(AtomicBool::new(true)))
}

/// Ends this process with the exit code for lack of memory when it is aborted: an allocation that
/// fails aborts, after a line that says so. A sweep recognises the end of its workers by that line,
/// so workers do not call this.
pub fn answer_aborts() {
    #[cfg(unix)]
    {
        use signal_hook::consts::SIGABRT;
        let (code, want) = (Exit::Resources as i32, abort_is_oom().clone());
        let _ = signal_hook::flag::register_conditional_shutdown(SIGABRT, code, want);
    }
}

/// Undoes [`answer_aborts`]: for drivers, which abort for other reasons, and after a panic of a
/// process that has memory.
pub fn aborts_are_bugs() {
    abort_is_oom().store(false, Ordering::SeqCst);
}

/// Called when this process panics. Whether it has memory, as for a backtrace; then aborts are bugs
/// from now on.
pub fn panicked() -> bool {
    let has_memory = has_memory(MARGIN);
    if has_memory {
        aborts_are_bugs();
    }
    has_memory
}
