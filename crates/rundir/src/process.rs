//! Which process this is, and whether another one has ended. Process ids alone say neither: they
//! are used again, and every container and every machine has a process 1.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// A word that no other call of any process returns: 16 hex digits of a hash of this process, the
/// time, a counter, and the random keys that the standard library draws for its tables.
pub fn word() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos());
    let random = RandomState::new().hash_one(count);
    let seed = format!(
        "{} {} {now} {count} {random} {}",
        hostname(),
        std::process::id(),
        kernel()
    );
    blake3::hash(seed.as_bytes()).to_hex()[..16].to_owned()
}

/// The name of this host; empty if the system does not say.
pub fn hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// The boot of this host, its table of processes and its clock: two processes with the same words
/// see each other's process ids, and the same times of their starts. Empty if the system does not
/// say.
pub(crate) fn kernel() -> String {
    let link = |name: &str| std::fs::read_link(format!("/proc/self{name}")).unwrap_or_default();
    // In a new table of processes without its own /proc, ids there are those of another table.
    if link("").display().to_string() != std::process::id().to_string() {
        return String::new();
    }
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let (boot, table) = (boot.trim(), link("/ns/pid").display().to_string());
    if boot.is_empty() || table.is_empty() {
        return String::new();
    }
    // Kernels before 5.6 have one clock for all.
    let clock = link("/ns/time").display().to_string();
    format!("{boot} {table} {clock}").trim_end().to_owned()
}

/// The state of a process of this machine after its name, which is in brackets and may contain
/// anything: the third field and those that follow. A process that has ended and is not waited for
/// yet counts as ended.
fn state(process: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let fields = fields.trim_start();
    (!fields.starts_with(['Z', 'X'])).then(|| fields.to_owned())
}

/// When a process of this machine started, in ticks since the boot; `None` if it has ended.
pub(crate) fn started(process: u32) -> Option<u64> {
    state(process)?.split_whitespace().nth(19)?.parse().ok()
}

/// What a process of this machine does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activity {
    /// Whether it is stopped, as by SIGSTOP.
    pub stopped: bool,
    /// Processor time that it has used, in the system's ticks.
    pub used: u64,
}

/// What a process of this machine does; `None` if it has ended, or the system does not say.
pub fn activity(process: u32) -> Option<Activity> {
    let state = state(process)?;
    let fields: Vec<&str> = state.split_whitespace().collect();
    let [user, system] = [11, 12].map(|index| fields.get(index)?.parse::<u64>().ok());
    Some(Activity {
        stopped: matches!(*fields.first()?, "T" | "t"),
        used: user?.saturating_add(system?),
    })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_seen_until_it_has_ended() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("a process");
        let process = child.id();
        assert!(started(process).is_some());
        assert_eq!(activity(process).map(|seen| seen.stopped), Some(false));
        child.kill().expect("it can be killed");
        child.wait().expect("it ends");
        assert_eq!((started(process), activity(process)), (None, None));
    }

    #[test]
    fn no_word_comes_twice() {
        let words: std::collections::BTreeSet<String> = (0..1000).map(|_| word()).collect();
        assert_eq!(words.len(), 1000);
    }
}
