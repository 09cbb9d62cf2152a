//! One process per run where file locks do not reach other machines: a hard link with heartbeats.
//!
//! A process writes a file under a unique name and links it as `lease`. The file system grants one
//! link of that name, on NFS and Lustre too. The holder writes a counter into its own file every
//! [`HEARTBEAT`]; never by name, so that a holder that was taken for dead cannot overwrite the
//! lease of its successor. Leases are not data: none is synced, and a lost one costs a wait.
//!
//! A lease is taken over in two cases only ([`Observation::dead`]): its process was on this machine
//! and has ended; or its counter has not changed for [`PATIENCE`] heartbeats by the clock of the
//! observer. Clocks of two machines are never compared. To take over, a process links a second
//! file, named after the dead lease: only one of several observers can.

use crate::lock;
use crate::process::{kernel, started, word};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// The name that one process per directory can have a link under.
pub const LEASE_FILE: &str = "lease";
/// Time between two heartbeats.
pub const HEARTBEAT: Duration = Duration::from_secs(30);
/// Heartbeats that a holder may miss.
pub const PATIENCE: u32 = 3;
/// Largest lease that is read.
const MAX_BYTES: u64 = 1 << 12;

/// Nonces of the leases of this process, and of the lease of the sweep that started it.
static OURS: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

fn ours() -> MutexGuard<'static, BTreeSet<String>> {
    OURS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who leases a run: the text of a lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Different for every lease that was ever made.
    pub nonce: String,
    /// The host.
    pub host: String,
    /// The name of the node in its cluster, if it has one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// The process.
    pub process: u32,
    /// When the process started, in the system's ticks: process ids are used again.
    pub ticks: u64,
    /// Boot of the host and its table of processes.
    pub kernel: String,
    /// The engine's id of the job, such as `12_3`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub job: String,
    /// Seconds since 1970, for people.
    pub since: u64,
    /// Milliseconds between two heartbeats.
    pub interval_ms: u64,
    /// The heartbeat.
    pub beat: u64,
}

impl Holder {
    /// This process, under a new nonce.
    pub fn here(node: &str, job: &str, interval: Duration) -> Self {
        let process = std::process::id();
        let since = lock::seconds(SystemTime::now());
        Self {
            nonce: word(),
            host: lock::hostname(),
            node: node.to_owned(),
            process,
            ticks: started(process).unwrap_or(0),
            kernel: kernel(),
            job: job.to_owned(),
            since,
            interval_ms: u64::try_from(interval.as_millis()).unwrap_or(u64::MAX),
            beat: 0,
        }
    }

    /// Whether the process can be seen from here and has ended.
    fn ended_here(&self) -> bool {
        is_visible(self) && started(self.process) != Some(self.ticks)
    }

    /// `process 12 on node7, job 4_1`.
    pub fn who(&self) -> String {
        let host = if self.node.is_empty() {
            &self.host
        } else {
            &self.node
        };
        let job = if self.job.is_empty() {
            String::new()
        } else {
            format!(", job {}", self.job)
        };
        // The text is of unknown origin and goes to a terminal.
        let text = format!("process {} on {host}{job}", self.process);
        text.chars().filter(|c| !c.is_control()).collect()
    }

    fn text(&self) -> io::Result<Vec<u8>> {
        let mut text = serde_json::to_vec(self)?;
        // A fixed size: a heartbeat is one write, and never leaves the end of a longer one.
        text.resize(text.len().next_multiple_of(512).saturating_sub(1), b' ');
        text.push(b'\n');
        Ok(text)
    }
}

/// Why a lease could not be made.
#[derive(Debug)]
pub enum NotTaken {
    /// Another process holds it.
    By(Box<Holder>),
    /// The directory cannot be written, or its file system has no hard links.
    Refused(io::Error),
}

/// A lease of this process, until it is dropped.
#[derive(Debug)]
pub struct Lease {
    directory: PathBuf,
    file: Mutex<File>,
    holder: Mutex<Holder>,
}

/// What is known of the leases of others: when their counters last changed, by this clock.
#[derive(Debug, Default)]
pub struct Observation {
    seen: Option<(String, u64, Instant)>,
}

impl Observation {
    /// Looks at a lease; whether it is dead by one of the two rules.
    pub fn dead(&mut self, holder: &Holder) -> bool {
        self.dead_at(holder, Instant::now())
    }

    fn dead_at(&mut self, holder: &Holder, now: Instant) -> bool {
        if holder.ended_here() {
            return true;
        }
        let patience = Duration::from_millis(holder.interval_ms).saturating_mul(PATIENCE);
        match &self.seen {
            Some((nonce, beat, since)) if *nonce == holder.nonce && *beat == holder.beat => {
                now.duration_since(*since) > patience
            }
            _ => {
                self.seen = Some((holder.nonce.clone(), holder.beat, now));
                false
            }
        }
    }
}

/// The lease of a directory, if there is one. A lease that cannot be read is of an unknown process.
pub fn holder(directory: &Path) -> Option<Holder> {
    let path = directory.join(LEASE_FILE);
    path.symlink_metadata().ok()?;
    let bytes = crate::read::bounded(&path, MAX_BYTES).ok();
    // It may be released between the two calls.
    if bytes.is_none() && path.symlink_metadata().is_err() {
        return None;
    }
    let read = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    Some(read.unwrap_or_else(|| Holder {
        interval_ms: HEARTBEAT.as_millis() as u64,
        ..Holder::default()
    }))
}

/// A lease of another process that is not known to have ended.
pub fn held_elsewhere(directory: &Path) -> Option<Holder> {
    let holder = holder(directory)?;
    (!ours().contains(&holder.nonce) && !holder.ended_here()).then_some(holder)
}

/// Whether a process on this machine made a lease and has ended.
pub fn has_ended(holder: &Holder) -> bool {
    holder.ended_here()
}

/// Whether a directory is leased by this process, or by the sweep that started it.
pub fn is_ours(directory: &Path) -> bool {
    holder(directory).is_some_and(|holder| ours().contains(&holder.nonce))
}

/// Whether the process of a lease can be seen from here, so that [`has_ended`] decides.
pub fn is_visible(holder: &Holder) -> bool {
    !holder.kernel.is_empty() && holder.kernel == kernel() && holder.ticks != 0
}

/// Declares the lease of the sweep that started this process to be its own.
pub fn adopt(nonce: &str) {
    ours().insert(nonce.to_owned());
}

/// Leases a directory for this process. `dead` is a lease of another process that the caller has
/// seen to be dead, which is replaced.
///
/// # Errors
///
/// If another process holds it, or no link can be made.
pub fn take(directory: &Path, holder: Holder, dead: Option<&Holder>) -> Result<Lease, NotTaken> {
    let own = directory.join(format!(".{LEASE_FILE}.{}.new", holder.nonce));
    let made = || {
        let mut file = OpenOptions::new().create_new(true).write(true).open(&own)?;
        file.write_all(&holder.text()?)?;
        Ok(file)
    };
    let file = match made() {
        Ok(file) => file,
        Err(error) => {
            let _ = std::fs::remove_file(&own);
            return Err(NotTaken::Refused(error));
        }
    };
    remove_left(directory, &own);
    let place = directory.join(LEASE_FILE);
    let taken = match link(&own, &place) {
        Ok(true) => Ok(()),
        Ok(false) => match self::holder(directory) {
            Some(other) if dead.is_some_and(|dead| dead.nonce == other.nonce) => {
                replace(directory, &own, &other, &holder.nonce)
            }
            Some(other) => Err(NotTaken::By(Box::new(other))),
            // Released meanwhile; the caller asks again.
            None => Err(NotTaken::By(Box::default())),
        },
        Err(error) => Err(NotTaken::Refused(error)),
    };
    // The lease is the file itself, under its other name.
    let _ = std::fs::remove_file(&own);
    taken?;
    ours().insert(holder.nonce.clone());
    Ok(Lease {
        directory: directory.to_owned(),
        file: Mutex::new(file),
        holder: Mutex::new(holder),
    })
}

/// Removes the files of processes that were killed while they leased a directory: those a day
/// older than `own`, by the clock of the file system. Between making such a file and linking it a
/// process has two operations to do.
fn remove_left(directory: &Path, own: &Path) {
    const DAY: Duration = Duration::from_secs(86_400);
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_new = name.starts_with(&format!(".{LEASE_FILE}.")) && name.ends_with(".new");
        if is_new && is_older(&entry.path(), own, DAY) {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Replaces a dead lease by the file `own`, unless another process is replacing it.
fn replace(directory: &Path, own: &Path, dead: &Holder, nonce: &str) -> Result<(), NotTaken> {
    let end = ending(directory, &dead.nonce);
    if !link(own, &end).map_err(NotTaken::Refused)? {
        // The holder of this link has a few operations to do. If it died, the link goes
        // after as much patience as a lease gets, by its age on the file system's own clock.
        let patience = Duration::from_millis(dead.interval_ms).saturating_mul(PATIENCE);
        if is_older(&end, own, patience) {
            let _ = std::fs::remove_file(&end);
        }
        return Err(NotTaken::By(Box::new(dead.clone())));
    }
    // Only the holder of this link may replace or remove the dead lease, but it may be gone.
    let replaced = match holder(directory) {
        Some(found) if found.nonce == dead.nonce => {
            std::fs::rename(own, directory.join(LEASE_FILE)).map_err(NotTaken::Refused)
        }
        Some(found) => Err(NotTaken::By(Box::new(found))),
        None => Err(NotTaken::By(Box::new(dead.clone()))),
    };
    let _ = std::fs::remove_file(&end);
    replaced?;
    match holder(directory) {
        Some(found) if found.nonce == nonce => Ok(()),
        found => Err(NotTaken::By(Box::new(found.unwrap_or_default()))),
    }
}

/// The link that one process needs to end a lease.
fn ending(directory: &Path, nonce: &str) -> PathBuf {
    directory.join(format!(".{LEASE_FILE}.{nonce}.end"))
}

fn is_older(path: &Path, than: &Path, by: Duration) -> bool {
    let modified = |path: &Path| path.metadata().and_then(|found| found.modified());
    match (modified(path), modified(than)) {
        (Ok(old), Ok(new)) => new.duration_since(old).is_ok_and(|age| age > by),
        _ => false,
    }
}

/// Links a file under another name; false if that name is taken. On NFS a link may succeed although
/// its answer is lost, so the number of links decides.
fn link(own: &Path, name: &Path) -> io::Result<bool> {
    let answer = std::fs::hard_link(own, name);
    #[cfg(unix)]
    if std::os::unix::fs::MetadataExt::nlink(&own.metadata()?) >= 2 {
        return Ok(true);
    }
    match answer {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

impl Lease {
    /// The nonce of this lease.
    pub fn nonce(&self) -> String {
        self.holder().nonce.clone()
    }

    fn holder(&self) -> MutexGuard<'_, Holder> {
        self.holder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a heartbeat; false if the lease was lost to another process, whose run it is now.
    pub fn beat(&self) -> bool {
        let mut holder = self.holder();
        holder.beat += 1;
        let text = holder.text();
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // A heartbeat that cannot be written, as on a full disk, is one missed.
        let _ = text.and_then(|text| {
            io::Seek::rewind(&mut *file)?;
            file.write_all(&text)?;
            // Other machines see what has left this one.
            file.sync_data()
        });
        // So is one that cannot be read for a moment, as on a network file system.
        match self::holder(&self.directory) {
            Some(found) => found.nonce.is_empty() || found.nonce == holder.nonce,
            None => {
                let found = self.directory.join(LEASE_FILE).symlink_metadata();
                found.map_or_else(|error| error.kind() != io::ErrorKind::NotFound, |_| true)
            }
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let nonce = self.nonce();
        let name = self.directory.join(LEASE_FILE);
        let end = ending(&self.directory, &nonce);
        // Where the link exists already, another process is taking this lease over.
        if std::fs::hard_link(&name, &end).is_ok() {
            if holder(&self.directory).is_some_and(|found| found.nonce == nonce) {
                let _ = std::fs::remove_file(&name);
            }
            let _ = std::fs::remove_file(&end);
        }
        ours().remove(&nonce);
    }
}

#[cfg(test)]
mod tests;
