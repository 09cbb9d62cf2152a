//! A run that this process holds: by the lock of the operating system, and by a lease where that
//! lock does not reach every process, as between the machines of a cluster.

use rundir::lease::{self, Holder, Lease, Observation};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;
use support::exit::{Exit, Failure};
use support::{limits, signals};

/// Time between two heartbeats of a lease that is held for a moment.
const MOMENT: Duration = Duration::from_secs(2);

/// A run that this process holds, until it is dropped.
#[derive(Debug)]
pub struct Hold {
    /// None where the file system has no locks, and the lease decides alone.
    _lock: Option<File>,
    _lease: Option<LiveLease>,
}

impl Hold {
    /// A run held by its lock, if there is one, and by a lease, if there is one.
    pub fn new(lock: Option<File>, lease: Option<LiveLease>) -> Self {
        Self {
            _lock: lock,
            _lease: lease,
        }
    }
}

/// Who this process is in leases: its node and its job, and how often it writes heartbeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The node's name in its cluster; empty outside.
    pub node: String,
    /// The engine's id of the job; empty outside.
    pub job: String,
    /// Time between two heartbeats.
    pub interval: Duration,
}

impl Default for Identity {
    fn default() -> Self {
        Self {
            node: String::new(),
            job: String::new(),
            interval: lease::HEARTBEAT,
        }
    }
}

impl Identity {
    /// This process, as a new lease names it.
    pub fn holder(&self) -> Holder {
        Holder::here(&self.node, &self.job, self.interval)
    }
}

/// A lease with a thread that writes its heartbeats.
#[derive(Debug)]
pub struct LiveLease {
    lease: Option<Arc<Lease>>,
    lost: Arc<AtomicBool>,
    /// The worker that runs under it; 0 while there is none.
    worker: Arc<AtomicU32>,
    /// Dropped to end the thread.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl LiveLease {
    /// Leases a directory, in place of a lease that the caller has seen to be dead.
    ///
    /// # Errors
    ///
    /// [`Exit::Busy`] if another process holds it, [`Exit::Resources`] if no link can be made.
    pub fn take(
        directory: &Path,
        identity: &Identity,
        dead: Option<&Holder>,
    ) -> Result<Self, Failure> {
        let lease =
            lease::take(directory, identity.holder(), dead).map_err(|taken| match taken {
                lease::NotTaken::By(holder) => busy(directory, &holder),
                lease::NotTaken::Refused(error) => {
                    Failure::resources(format!("cannot lease {}: {error}", directory.display()))
                }
            })?;
        let (lease, lost) = (Arc::new(lease), Arc::new(AtomicBool::new(false)));
        let worker = Arc::new(AtomicU32::new(0));
        let (end, ended) = mpsc::channel::<()>();
        let beating = {
            let (lease, lost, worker) = (lease.clone(), lost.clone(), worker.clone());
            let interval = identity.interval;
            move || {
                while ended.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                    if !lease.beat() {
                        lost.store(true, Ordering::SeqCst);
                        // Not asked to save: the files belong to another process now.
                        signals::kill_worker(worker.load(Ordering::SeqCst));
                        return;
                    }
                }
            }
        };
        let thread = limits::spawn(beating)?;
        Ok(Self {
            lease: Some(lease),
            lost,
            worker,
            end: Some(end),
            thread: Some(thread),
        })
    }

    /// Leases a directory that a command writes to for a moment. A lease of another machine is
    /// watched until its heartbeat or its silence says whether it is alive.
    ///
    /// # Errors
    ///
    /// As [`LiveLease::take`].
    pub fn for_a_moment(directory: &Path) -> Result<Self, Failure> {
        let identity = Identity {
            interval: MOMENT,
            ..Identity::default()
        };
        let (mut sight, mut seen) = (Observation::default(), None);
        loop {
            let Some(holder) = lease::holder(directory) else {
                return Self::take(directory, &identity, None);
            };
            if sight.dead(&holder) {
                return Self::take(directory, &identity, Some(&holder));
            }
            let sign = (holder.nonce.clone(), holder.beat);
            let is_alive = seen.get_or_insert_with(|| sign.clone()) != &sign;
            if is_alive || lease::is_visible(&holder) {
                return Err(busy(directory, &holder));
            }
            std::thread::sleep(MOMENT / 10);
        }
    }

    /// The nonce of the lease, which its worker adopts.
    pub fn nonce(&self) -> String {
        self.lease
            .as_ref()
            .map(|lease| lease.nonce())
            .unwrap_or_default()
    }

    /// Names the worker that is killed if the lease is lost.
    pub fn guard(&self, worker: u32) {
        self.worker.store(worker, Ordering::SeqCst);
        if self.lost() {
            signals::kill_worker(worker);
        }
    }

    /// Whether another process has taken this one for dead.
    pub fn lost(&self) -> bool {
        self.lost.load(Ordering::SeqCst)
    }
}

impl Drop for LiveLease {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // The last owner releases the lease.
        drop(self.lease.take());
    }
}

/// The failure of a run that another process leases.
pub fn busy(directory: &Path, holder: &Holder) -> Failure {
    let who = if holder.process == 0 {
        "another process".to_owned()
    } else {
        holder.who()
    };
    let patience = Duration::from_millis(holder.interval_ms) * lease::PATIENCE;
    Failure::new(
        Exit::Busy,
        format!("{} is leased by {who}", directory.display()),
    )
    .with_note(format!(
        "a lease without a heartbeat for {} s is taken over",
        patience.as_secs().max(1)
    ))
}
