//! Names of scratch files, and the removal of those that dead processes left.
//!
//! A file that is written under another name first is named
//! `.NAME.scratch-KERNEL-PROCESS-TICKS-WORD-COUNT`: the machine's boot and table of processes as a
//! hash, the process and when it started, a random word of the process, and a counter. So no two
//! processes share a name, whatever their namespaces and machines, and whoever sees the same table
//! of processes knows whether the owner has ended.

use crate::process;
use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

/// What is between the name of a file and the owner of its scratch file.
const MARK: &str = ".scratch-";
/// Age at which a scratch file of a process that cannot be seen from here counts as abandoned. A
/// process that was stopped for longer fails to rename its file, and loses nothing else.
const ABANDONED_AFTER: Duration = Duration::from_secs(86_400);
/// Characters of a file's name that its scratch name keeps: names have at most 255 bytes.
const MOST_KEPT: usize = 40;

/// The process that made a scratch file.
struct Owner<'a> {
    /// Hash of its machine's boot and table of processes; `0` if unknown.
    kernel: &'a str,
    process: u32,
    /// When it started; 0 if unknown.
    ticks: u64,
    word: &'a str,
}

/// The hash of this machine's boot and table of processes, and the words for this process.
fn own() -> &'static (String, String) {
    static OWN: OnceLock<(String, String)> = OnceLock::new();
    OWN.get_or_init(|| {
        let kernel = match process::kernel() {
            words if words.is_empty() => "0".to_owned(),
            words => blake3::hash(words.as_bytes()).to_hex()[..8].to_owned(),
        };
        let process = std::process::id();
        let ticks = process::started(process).unwrap_or(0);
        let words = format!("{kernel}-{process}-{ticks}-{}", process::word());
        (kernel, words)
    })
}

/// A name beside a file that no other call of any process returns.
pub fn beside(path: &Path) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    // Relaxed: the number has to be unique, and orders no other memory.
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let kept: String = name.chars().take(MOST_KEPT).collect();
    path.with_file_name(format!(".{kept}{MARK}{}-{count}", own().1))
}

/// A path with the names that its scratch files and directories stand for: what errors call them.
/// Nobody asked for a scratch name, and no two runs share one.
pub(crate) fn asked_for(path: &Path) -> PathBuf {
    let asked = |name: &OsStr| {
        let text = name.to_str().filter(|text| owner(text).is_some())?;
        let (asked, _) = text.strip_prefix('.')?.rsplit_once(MARK)?;
        Some(asked.to_owned().into())
    };
    let names = path.iter().map(|name| asked(name).unwrap_or(name.into()));
    names.collect::<Vec<OsString>>().iter().collect()
}

/// Whether a name is that of a scratch file, of this version or of older ones, which named them
/// `.NAME.PROCESS` and `.NAME.PROCESS-COUNT`.
pub(crate) fn is_scratch(name: &str) -> bool {
    let numbered = || {
        name.rsplit_once('.').is_some_and(|(stem, end)| {
            !stem.is_empty() && end.split('-').all(|part| part.parse::<u32>().is_ok())
        })
    };
    name.starts_with('.') && (owner(name).is_some() || numbered())
}

/// The owner that a scratch name gives.
fn owner(name: &str) -> Option<Owner<'_>> {
    let (_, words) = name.strip_prefix('.')?.rsplit_once(MARK)?;
    let mut words = words.split('-');
    let owner = Owner {
        kernel: words.next()?,
        process: words.next()?.parse().ok()?,
        ticks: words.next()?.parse().ok()?,
        word: words.next()?,
    };
    words.next()?.parse::<u32>().ok()?;
    words.next().is_none().then_some(owner)
}

impl Owner<'_> {
    /// Whether the owner has ended; `None` if it cannot be seen from here.
    fn has_ended(&self) -> Option<bool> {
        let (kernel, words) = own();
        // In a system that cannot be asked, the random word still names this process.
        if words.ends_with(&format!("-{}", self.word)) {
            return Some(false);
        }
        let is_visible = self.kernel == kernel && kernel != "0" && self.ticks != 0;
        is_visible.then(|| process::started(self.process) != Some(self.ticks))
    }
}

/// The scratch files in a directory whose owners have ended, and those of other machines and
/// containers that are a day old. Needs no lock: a living process keeps its files.
pub fn abandoned(directory: &Path) -> Vec<PathBuf> {
    let (mut now, mut found) = (None, Vec::new());
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if !is_scratch(&name) {
            continue;
        }
        let ended = owner(&name).and_then(|owner| owner.has_ended());
        let is_old = || {
            let now = *now.get_or_insert_with(|| time_there(directory));
            let modified = entry.metadata().and_then(|found| found.modified());
            let age = modified.map(|then| now.duration_since(then).unwrap_or_default());
            age.is_ok_and(|age| age > ABANDONED_AFTER)
        };
        if ended.unwrap_or_else(is_old) {
            found.push(entry.path());
        }
    }
    // Directories list in no order; sorted, the Nth operation is always the same.
    found.sort();
    found
}

/// The present time by the clock of a directory's file system, which other machines share: the time
/// of a file written just now. By this machine's clock where none can be written.
pub fn time_there(directory: &Path) -> SystemTime {
    let path = beside(&directory.join("now"));
    let made = OpenOptions::new().write(true).create_new(true).open(&path);
    let time = made
        .and_then(|file| file.metadata())
        .and_then(|found| found.modified());
    let _ = std::fs::remove_file(&path);
    time.unwrap_or_else(|_| SystemTime::now())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).expect("a directory");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name())
            .map(|name| name.to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn names_are_unique_short_and_known() {
        let long = "n".repeat(255);
        for name in ["record.json", &long, "ä.json", ""] {
            let paths = [0, 1].map(|_| beside(&Path::new("runs").join(name)));
            assert_ne!(paths[0], paths[1]);
            for path in paths {
                let found = path.file_name().unwrap_or_default().to_string_lossy();
                assert!(is_scratch(&found) && found.len() < 255, "{found}");
                assert_eq!(
                    owner(&found).and_then(|owner| owner.has_ended()),
                    Some(false)
                );
            }
        }
        // An error names the file that was asked for, and none of the others.
        let (place, file) = (Path::new("./no/step-3"), "model.safetensors");
        let refused = crate::system().write_synced(&beside(place).join(file), b"x");
        let said = refused.expect_err("there is no such folder").to_string();
        let asked = "cannot write ./no/step-3/model.safetensors: ";
        assert!(said.starts_with(asked), "{said}");
        for name in [".probe.12", ".record.json.12-3"] {
            assert!(is_scratch(name), "{name}");
        }
        for name in [
            "record.json.12",
            ".12",
            ".notes.txt",
            ".x.scratch-",
            ".x.scratch-0-1-2-3",
        ] {
            assert!(!is_scratch(name), "{name}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn files_of_ended_processes_are_removed_and_those_of_living_ones_kept() {
        let directory = tempfile::tempdir().expect("a directory");
        let place = directory.path();
        let kernel = &own().0;
        // The parent of this test lives, and has the start that it has.
        let parent = std::os::unix::process::parent_id();
        let ticks = process::started(parent).expect("it lives");
        let alive = format!(".a.scratch-{kernel}-{parent}-{ticks}-other-0");
        let again = format!(".b.scratch-{kernel}-{parent}-{}-other-0", ticks + 1);
        let elsewhere = ".c.scratch-00000000-1-5-other-0".to_owned();
        let old = ".d.scratch-00000000-1-5-other-0".to_owned();
        let own = beside(&place.join("e"));
        let (older, young) = (".probe.1".to_owned(), ".probe.2".to_owned());
        for name in [&alive, &again, &elsewhere, &old, &older, &young] {
            File::create(place.join(name)).expect("a file");
        }
        File::create(&own).expect("a file");
        File::create(place.join(".hidden")).expect("a file");
        for name in [&old, &older] {
            let file = File::options().write(true).open(place.join(name));
            let then = SystemTime::now() - ABANDONED_AFTER - Duration::from_secs(60);
            file.and_then(|file| file.set_modified(then)).expect("set");
        }
        crate::system().remove_abandoned(place);
        let own = own.file_name().unwrap_or_default().to_string_lossy();
        let mut expected = vec![alive, elsewhere, own.into_owned(), young];
        expected.push(".hidden".to_owned());
        expected.sort();
        assert_eq!(names(place), expected);
        // Whoever holds the lock of the directory knows that no owner writes there.
        crate::system().remove_scratch(place);
        assert_eq!(names(place), [".hidden"]);
    }
}
