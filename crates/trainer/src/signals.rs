//! Signals as a flag that is looked at between steps: the first asks for a clean end, a second INT or TERM ends at once.

use crate::console;
use crate::exit::Exit;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

static ASKED: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// Starts to listen; does nothing where it already does, and little where a system has no signals.
pub fn listen() {
    ASKED.get_or_init(|| {
        let asked = Arc::new(AtomicUsize::new(0));
        #[cfg(unix)]
        {
            use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
            let again = Arc::new(AtomicBool::new(false));
            for (signal, exit) in [(SIGINT, Exit::Interrupted), (SIGTERM, Exit::Terminated)] {
                // In this order: the first finds the flag down and puts it up, the second finds it up.
                let _ = signal_hook::flag::register_conditional_shutdown(signal, exit as i32, again.clone());
                let _ = signal_hook::flag::register(signal, again.clone());
                let _ = signal_hook::flag::register_usize(signal, asked.clone(), exit as usize);
            }
            let _ = signal_hook::flag::register_usize(SIGUSR1, asked.clone(), Exit::TryAgain as usize);
        }
        asked
    });
}

/// Leaves by itself where what is being computed takes longer than `limit` after a signal, such as one batch at a very long length. What was
/// saved before stands, as after any other sudden end.
pub fn leave_within(limit: Duration) {
    static WATCHING: OnceLock<()> = OnceLock::new();
    WATCHING.get_or_init(|| {
        std::thread::spawn(move || {
            loop {
                if let Some(exit) = asked() {
                    std::thread::sleep(limit);
                    console::tell("error: stopped in the middle of a computation; the same command goes on from what was saved before");
                    std::process::exit(exit as i32);
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        });
    });
}

/// Lets a write beyond the limit on the size of files fail with an error, which can be told, instead of ending the process.
pub fn survive_file_size_limit() {
    #[cfg(unix)]
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::new(AtomicBool::new(false)));
}

/// What was asked for, if anything.
pub fn asked() -> Option<Exit> {
    let asked = ASKED.get()?.load(Ordering::SeqCst);
    [Exit::Interrupted, Exit::Terminated, Exit::TryAgain].into_iter().find(|exit| *exit as usize == asked)
}

/// Passes a request on to another process.
pub fn pass_on(exit: Exit, process: u32) {
    #[cfg(unix)]
    {
        use rustix::process::{Pid, Signal, kill_process};
        let signal = match exit {
            Exit::Interrupted => Signal::INT,
            Exit::TryAgain => Signal::USR1,
            _ => Signal::TERM,
        };
        if let Some(process) = i32::try_from(process).ok().and_then(Pid::from_raw) {
            // It may have ended by itself.
            let _ = kill_process(process, signal);
        }
    }
    #[cfg(not(unix))]
    let _ = (exit, process);
}
