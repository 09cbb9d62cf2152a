//! The leases of a sweep: whether a run needs one, and when that of another process has died.

use crate::cluster::slurm;
use crate::options::Share;
use experiment::runs_on_disk::hold::{Identity, LiveLease, busy};
use rundir::lease::{self, Holder, Observation};
use rundir::lock;
use std::path::Path;
use support::exit::Failure;

/// Leases a run, if the sweep leases its runs or the file system has no locks. `sight` remembers
/// what was seen of the lease of another process.
///
/// # Errors
///
/// [`Exit::Busy`](support::exit::Exit::Busy) if another process holds the run,
/// [`Exit::Resources`](support::exit::Exit::Resources) if it cannot be leased.
pub fn take(
    directory: &Path,
    share: &Share,
    sight: &mut Observation,
) -> Result<Option<LiveLease>, Failure> {
    let other = lease::holder(directory);
    let dead = match other {
        Some(holder) if sight.dead(&holder) && !is_listed(&holder, share) => Some(holder),
        Some(holder) => return Err(busy(directory, &holder)),
        None => None,
    };
    let identity = match &share.identity {
        Some(identity) => identity.clone(),
        None if dead.is_some() || !has_locks(directory) => Identity::default(),
        None => return Ok(None),
    };
    LiveLease::take(directory, &identity, dead.as_ref()).map(Some)
}

/// Whether the file system of a run has locks; that another process holds this one says it has.
pub fn has_locks(directory: &Path) -> bool {
    match lock::take(directory) {
        Err(lock::Taken::Refused(error)) => !lock::is_unsupported(&error),
        _ => true,
    }
}

/// Whether Slurm, asked on this machine, says that the job of a silent lease is running. If Slurm
/// cannot say, because it is absent or its controller is down, the silence decides.
fn is_listed(holder: &Holder, share: &Share) -> bool {
    let own = share
        .identity
        .as_ref()
        .map(|identity| identity.job.as_str());
    // A job that was requeued has its old id: what is listed is this process.
    if holder.job.is_empty() || own == Some(holder.job.as_str()) || lease::has_ended(holder) {
        return false;
    }
    slurm::is_running(&holder.job)
}
