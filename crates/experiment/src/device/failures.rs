//! What a panic means in a process that computes on a GPU: backends panic where memory runs out or
//! the device is lost, and such a process cannot go on.

use super::DeviceName;
use std::sync::{Mutex, OnceLock, PoisonError};
use support::exit::{Exit, Failure};
use support::limits;
use support::units::bytes;

/// The device other than a CPU that this process computes on.
static IN_USE: OnceLock<DeviceName> = OnceLock::new();
/// What panics said.
static SAID: Mutex<String> = Mutex::new(String::new());
/// The most bytes of it: a device that is lost makes every operation after it panic.
const MOST_SAID: usize = 1 << 16;

/// Called when a device is open.
pub(super) fn use_device(name: &DeviceName) {
    if !name.is_cpu() {
        let _ = IN_USE.set(name.clone());
    }
}

/// Called when this process panics, with the message. Whether [`failure`] will say what it means.
pub fn panicked(message: &str) -> bool {
    if IN_USE.get().is_none() {
        return false;
    }
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if said.len() < MOST_SAID {
        said.push_str(message);
        said.push('\n');
    }
    // What follows a cause that is known says nothing more.
    Cause::of(&said).is_some()
}

/// The failure of this process after a panic, if it computes on a device.
pub fn failure() -> Option<Failure> {
    let device = IN_USE.get()?;
    let said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    // A process without memory of its machine panics too, and then the backend says nothing.
    let of_machine = Cause::of(&said)
        .is_none()
        .then(limits::after_panic)
        .flatten();
    Some(of_machine.unwrap_or_else(|| explained(device, &said)))
}

/// Whether the message of a panic says that a device has no memory left.
pub(super) fn is_lack_of_memory(said: &str) -> bool {
    matches!(Cause::of(said), Some(Cause::Memory(_)))
}

fn explained(device: &DeviceName, said: &str) -> Failure {
    const SAME: &str = "the last checkpoint is whole; the same command continues from it";
    match Cause::of(said) {
        Some(Cause::Memory(size)) => {
            let what = match size {
                Some(size) => format!("; a buffer of {} did not fit", bytes(size as f64)),
                None => String::new(),
            };
            Failure::resources(format!("{device} has no memory left{what}"))
                .with_help(
                    "a smaller batch_size, train_len or d_model, or fewer runs at a time or in a \
                     worker, need less; under a smaller --memory-limit long test lengths are left \
                     out; other processes may hold memory of the device",
                )
                .with_help(SAME)
        }
        Some(Cause::Lost(why)) => {
            Failure::new(Exit::Device, format!("{device} was lost: {why}")).with_help(SAME)
        }
        None => Failure::new(Exit::Device, format!("{device} failed (see above)")).with_help(SAME),
    }
}

/// Why a device ended a process.
#[derive(Debug, PartialEq, Eq)]
enum Cause {
    /// A buffer did not fit into the memory; its size in bytes, if the backend says.
    Memory(Option<u64>),
    /// The device is gone, or refuses everything after a fault.
    Lost(String),
}

impl Cause {
    /// The cause that messages of CubeCL and wgpu name.
    fn of(said: &str) -> Option<Self> {
        const SIZED: [&str; 2] = [
            "out of device memory allocating ",
            "can't allocate buffer of size: ",
        ];
        const UNSIZED: [&str; 4] = [
            "An out-of-memory error happened",
            "Not enough memory left",
            "CUDA_ERROR_OUT_OF_MEMORY",
            "Out of Memory",
        ];
        if let Some(rest) = SIZED
            .iter()
            .find_map(|words| Some(said.split_once(words)?.1))
        {
            let digits = rest
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(rest.len());
            return Some(Self::Memory(rest[..digits].parse().ok()));
        }
        if UNSIZED.iter().any(|words| said.contains(words)) {
            return Some(Self::Memory(None));
        }
        let lost = [
            "is poisoned",
            "was poisoned",
            "device is lost",
            "device was lost",
        ];
        lost.iter()
            .any(|words| said.contains(words))
            .then(|| Self::Lost(root(said)))
    }
}

/// The innermost cause of an error that lists one below the other.
fn root(said: &str) -> String {
    let mut lines = said.lines().map(str::trim);
    let first = lines
        .clone()
        .find(|line| !line.is_empty())
        .unwrap_or_default();
    let mut last = None;
    while let Some(line) = lines.next() {
        if line == "Caused by:" {
            last = lines.find(|line| !line.is_empty());
        } else if let Some((_, after)) = line.split_once("poisoned: ") {
            last = Some(after);
        }
    }
    last.unwrap_or(first).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As CubeCL 0.11.3 words them.
    const NO_MEMORY: &str = "Error while reading data: use `try_into_data` instead to catch the \
        error at runtime: An error happened during execution\nCaused by:\n  Several failures at \
        once\nCaused by:\n  The bytes were never written (failure #184, still claiming 47 \
        buffer(s))\n  skipped `SumKernel`: it needed memory ManagedMemoryId { value: 827 }\nCaused \
        by:\n  An IO error happened\nCaused by:\n  out of device memory allocating 9437184 bytes\n\
        No backtrace available\n";
    const POISONED: &str = "Error while reading data: The device is poisoned\nCaused by:\n  A \
        launch error happened\nCaused by:\n  The device was poisoned during launch\nCaused by:\n  \
        cuFuncSetAttribute failed with status 700\nBacktrace:\nNo backtrace available\nAsked at:\n";

    #[test]
    fn causes_are_found_in_the_words_of_backends() {
        let lost = |why: &str| Some(Cause::Lost(why.to_owned()));
        for (said, cause) in [
            (NO_MEMORY, Some(Cause::Memory(Some(9_437_184)))),
            ("wgpu error: Out of Memory\n", Some(Cause::Memory(None))),
            (
                "can't allocate buffer of size: 12\n",
                Some(Cause::Memory(Some(12))),
            ),
            (POISONED, lost("cuFuncSetAttribute failed with status 700")),
            (
                "x\nThe device is poisoned: Unknown: reset\nfoo",
                lost("Unknown: reset"),
            ),
            (
                "wgpu error: Parent device is lost",
                lost("wgpu error: Parent device is lost"),
            ),
            ("index out of bounds", None),
        ] {
            assert_eq!(Cause::of(said), cause, "{said}");
        }
    }

    #[test]
    fn failures_have_a_code_and_say_what_helps() {
        let cuda: DeviceName = "cuda:1".parse().unwrap();
        let memory = explained(&cuda, NO_MEMORY);
        assert_eq!(memory.exit, Exit::Resources);
        assert!(
            memory
                .message
                .contains("cuda:1 has no memory left; a buffer of 9 MiB"),
            "{memory}"
        );
        let lost = explained(&cuda, POISONED);
        assert_eq!(lost.exit, Exit::Device);
        assert!(
            lost.message
                .starts_with("cuda:1 was lost: cuFuncSetAttribute"),
            "{lost}"
        );
        assert!(lost.message.contains("same command"));
        assert!(explained(&cuda, "a bug").message.contains("see above"));
    }
}
