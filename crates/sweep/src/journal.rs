//! What a sweep tells of its runs while it holds them.

use crate::options::Options;
use experiment::plan::planner::PlannedRun;
use experiment::run::protocol::Event;
use std::path::Path;
use support::exit::Failure;

/// Receives the events of a sweep's runs from the threads that start their workers. During each
/// call this process holds the run, so no other process has changed its files since the event.
pub trait Journal: Sync {
    /// Whether there is time to start another run; asked before every start.
    fn has_time(&self) -> bool {
        true
    }

    /// A worker is about to be started in a slot, counted from 0.
    ///
    /// # Errors
    ///
    /// Why the run must not be started again.
    fn starts(&self, run: &PlannedRun, directory: &Path, slot: usize) -> Result<(), Failure> {
        let _ = (run, directory, slot);
        Ok(())
    }

    /// A worker reported something.
    fn event(&self, run: &PlannedRun, event: &Event) {
        let _ = (run, event);
    }

    /// A worker has ended, or [`starts`](Self::starts) refused it.
    fn ended(&self, run: &PlannedRun, directory: &Path, ended: &Result<(), Failure>) {
        let _ = (run, directory, ended);
    }

    /// Whether the failure of one run says that no other would fare better.
    fn ends_all(&self, failure: &Failure, options: &Options) -> bool {
        use support::exit::Exit::{Device, Resources};
        options.fail_fast || matches!(failure.exit, Resources | Device)
    }
}

/// The journal of a local sweep, which writes none: the run directories have all of it.
pub struct Unwritten;

impl Journal for Unwritten {}
