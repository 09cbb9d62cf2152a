//! `attempts.json`: how often a run of a cluster was started, and how often without getting any
//! further. A run that is requeued for ever costs more than one that fails.

use rundir::checkpoint;
use serde::{Deserialize, Serialize};
use std::path::Path;
use support::exit::{Exit, Failure};

/// The file in a run's directory; removed when the run is recorded.
pub const ATTEMPTS_FILE: &str = "attempts.json";
/// Attempts in a row without a new checkpoint after which a run has failed.
pub const MAX_IDLE: u32 = 5;
/// Largest file that is read, in bytes.
const MAX_BYTES: u64 = 1 << 16;

/// The attempts at a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempts {
    /// The submission that they belong to.
    pub generation: usize,
    /// All attempts.
    pub count: u32,
    /// The last of them that began where the one before it had begun.
    pub idle: u32,
    /// The step that the last one began at.
    pub step: u64,
    /// Processor and device of the first.
    pub machine: String,
    /// Its node.
    pub node: String,
    /// What the cluster calls the kind of that node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
}

/// The attempts at a run, if it was started.
pub fn read(directory: &Path) -> Option<Attempts> {
    let bytes = rundir::read::bounded(&directory.join(ATTEMPTS_FILE), MAX_BYTES).ok()?;
    serde_json::from_slice(&bytes).ok()
}

/// Removes the file of a run that is recorded.
pub fn clear(directory: &Path) {
    let _ = rundir::system().remove_tree(&directory.join(ATTEMPTS_FILE));
}

/// Counts an attempt that is about to begin.
///
/// # Errors
///
/// [`Exit::SomeFailed`] if too many have begun at the same step, [`Exit::Resources`] if the file
/// cannot be written.
pub fn begin(directory: &Path, generation: usize, here: &Attempts) -> Result<Attempts, Failure> {
    let step = checkpoint::newest_step(directory).unwrap_or(0);
    let attempts = match read(directory) {
        Some(last) => next(&last, generation, step)?,
        None => Attempts {
            generation,
            count: 1,
            idle: 0,
            step,
            ..here.clone()
        },
    };
    let bytes = serde_json::to_vec(&attempts).map_err(Failure::bug)?;
    rundir::system()
        .write_whole(&directory.join(ATTEMPTS_FILE), &bytes)
        .map_err(Failure::resources)?;
    Ok(attempts)
}

/// The attempt after another one.
fn next(last: &Attempts, generation: usize, step: u64) -> Result<Attempts, Failure> {
    let anew = last.generation != generation || step > last.step;
    let idle = if anew { 0 } else { last.idle + 1 };
    if idle >= MAX_IDLE {
        return Err(Failure::new(
            Exit::SomeFailed,
            format!(
                "no progress: {MAX_IDLE} attempts began at step {step} and none wrote a new \
                 checkpoint\n  = help: a longer --time, a shorter --checkpoint-every or another \
                 node may help; then `longreach submit --again DIR --only failed`"
            ),
        ));
    }
    Ok(Attempts {
        generation,
        count: last.count + 1,
        idle,
        step,
        ..last.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_attempts_without_a_new_checkpoint_are_the_last() {
        let mut attempts = Attempts {
            count: 1,
            ..Attempts::default()
        };
        for count in 2..=5 {
            attempts = next(&attempts, 0, 0).unwrap();
            assert_eq!(attempts.count, count);
        }
        let failure = next(&attempts, 0, 0).unwrap_err();
        assert!(
            failure
                .message
                .starts_with("no progress: 5 attempts began at step 0")
        );
        // A checkpoint, or another submission, begins a new count.
        assert_eq!(next(&attempts, 0, 7).unwrap().idle, 0);
        assert_eq!(next(&attempts, 1, 0).unwrap().idle, 0);
    }

    #[test]
    fn the_first_attempt_says_where_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let here = |machine: &str| Attempts {
            machine: machine.to_owned(),
            ..Attempts::default()
        };
        assert_eq!(read(directory.path()), None);
        begin(directory.path(), 0, &here("a")).unwrap();
        let second = begin(directory.path(), 0, &here("b")).unwrap();
        assert_eq!((second.count, second.machine.as_str()), (2, "a"));
        clear(directory.path());
        assert_eq!(read(directory.path()), None);
    }
}
