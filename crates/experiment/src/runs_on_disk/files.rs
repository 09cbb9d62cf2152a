//! The files of a run's directory: their names, who may write them, and where runs lie.

use crate::plan::warm_start::RecordedRun;
use crate::runs_on_disk::hold::{Hold, Identity, LiveLease, busy};
use crate::runs_on_disk::walk::directories_in;
use crate::spec::Job;
use records::record::RunStatus;
use records::store::{LINK, linked_runs};
use records::{RunRecord, StoreError};
use rundir::{Disk, checkpoint, lease, lock};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use support::exit::{Exit, Failure};

/// The job of a run.
pub use crate::spec::JOB_FILE;

/// The final weights.
pub const WEIGHTS_FILE: &str = "weights.safetensors";

/// The weights before the first step, where they were asked for.
pub const INITIAL_WEIGHTS_FILE: &str = "initial_weights.safetensors";

/// Wall-clock times; the only file that differs between reruns.
pub const TIMINGS_FILE: &str = "timings.json";

/// The record.
pub const RECORD_FILE: &str = records::store::RECORD_FILE;

/// The batch at which a training stopped being finite.
pub const DIVERGED_FILE: &str = "diverged.json";

/// The message of a failed worker.
pub const ERROR_FILE: &str = "error.txt";

/// Largest job that is read, in bytes.
const MAX_JOB_BYTES: u64 = 1 << 24;

/// The directory of a planned run below the directory of all runs.
pub fn run_dir(runs: &Path, job: &Job) -> PathBuf {
    records::store::run_dir(runs, &job.experiment, &job.run_id)
}

/// The record of a job, if it exists, is readable, and belongs to this job. A link in the place of
/// a run's directory has none: what lies behind it is not written to.
pub fn recorded(directory: &Path, job: &Job) -> Option<RunRecord> {
    if directory.is_symlink() {
        return None;
    }
    let record = records::read_record(&directory.join(RECORD_FILE)).ok()?;
    (record.run_id == job.run_id).then_some(record)
}

/// Writes the record of a run, atomically.
///
/// # Errors
///
/// [`Exit::Resources`] if the directory cannot be written, [`Exit::Bug`] if the record could not be
/// read again.
pub fn write_record(disk: &dyn Disk, directory: &Path, record: &RunRecord) -> Result<(), Failure> {
    let path = directory.join(RECORD_FILE);
    let text = records::store::record_text(&path, record).map_err(Failure::bug)?;
    disk.write_whole(&path, text.as_bytes())
        .map_err(Failure::resources)
}

/// Refuses a run whose record must not be written: one of a newer version, or one that is there and
/// cannot be read. Returns why the record is damaged, if it is; a damaged one may be replaced.
///
/// # Errors
///
/// [`Exit::Input`], with the record's path.
pub fn check_record(directory: &Path) -> Result<Option<String>, Failure> {
    check_readable(&directory.join(RECORD_FILE))
}

/// [`check_record`] for the record at a path.
///
/// # Errors
///
/// As [`check_record`].
pub fn check_readable(path: &Path) -> Result<Option<String>, Failure> {
    let refuse = |error: &StoreError, help: &str| {
        Err(Failure::input(format!("{error}, and is not replaced")).with_help(help))
    };
    match records::read_record(path) {
        Ok(_) => Ok(None),
        Err(StoreError::Io(error)) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error @ StoreError::Newer { .. }) => {
            let help = "use the version that wrote it, or another --runs; without the file the run \
                        is trained again";
            refuse(&error, help)
        }
        Err(error @ StoreError::Io(_)) => {
            refuse(&error, "make it readable, or give a different --runs")
        }
        Err(error) => Ok(Some(error.to_string())),
    }
}

/// Removes files that a recorded run no longer needs.
pub fn tidy(disk: &dyn Disk, directory: &Path, record: &RunRecord) {
    // The checkpoint of a run that diverged is kept for inspection.
    if record.status == RunStatus::Ok {
        checkpoint::clear(disk, directory);
    }
    let _ = disk.remove_tree(&directory.join(ERROR_FILE));
}

/// Holds a run for this process until the result is dropped or the process ends, and removes files
/// that dead processes left half written. Where the file system has no locks, the run is leased
/// instead, unless the sweep that started this process has done so.
///
/// # Errors
///
/// [`Exit::Busy`] if another process has it, [`Exit::Resources`] if it cannot be written,
/// [`Exit::Input`] if it is a link.
pub fn take(disk: &dyn Disk, directory: &Path) -> Result<Hold, Failure> {
    refuse_link(directory, "a run")?;
    if let Some(holder) = lease::held_elsewhere(directory) {
        return Err(busy(directory, &holder));
    }
    let lock = match lock::take(directory) {
        Ok(lock) => Some(lock),
        Err(lock::Taken::By(who)) => {
            return Err(Failure::new(
                Exit::Busy,
                format!("{} is held by {who}", directory.display()),
            ));
        }
        Err(lock::Taken::Refused(error)) if lock::is_unsupported(&error) => None,
        Err(lock::Taken::Refused(error)) => {
            let path = directory.join(lock::LOCK_FILE);
            return Err(Failure::resources(format!(
                "cannot lock {}: {error}",
                path.display()
            )));
        }
    };
    let lease = match lock {
        None if !lease::is_ours(directory) => {
            // A lease made since the check above is alive.
            let dead = lease::holder(directory).filter(lease::has_ended);
            Some(LiveLease::take(
                directory,
                &Identity::default(),
                dead.as_ref(),
            )?)
        }
        _ => None,
    };
    // While the run is held, no other process is writing these.
    disk.remove_scratch(directory);
    Ok(Hold::new(lock, lease))
}

/// Refuses a link in the place of a directory that this program writes to.
///
/// # Errors
///
/// [`Exit::Input`], with the path; `what` needs a directory.
pub fn refuse_link(directory: &Path, what: &str) -> Result<(), Failure> {
    if !directory.is_symlink() {
        return Ok(());
    }
    let help =
        format!("{what} needs a real directory: name the one behind the link, or remove the link");
    Err(Failure::input(format!("{} is a link", directory.display())).with_help(help))
}

/// Reads the job of a run and checks that its spec is the one that its run id is the hash of.
///
/// # Errors
///
/// [`Exit::Input`] if there is no job, or it was changed.
pub fn read_own_job(directory: &Path) -> Result<Job, Failure> {
    let job = read_job(directory)?;
    check_own(directory, &job)?;
    Ok(job)
}

/// Checks that the spec of a job is the one that its run id is the hash of.
///
/// # Errors
///
/// [`Exit::Input`] if it is not.
pub fn check_own(directory: &Path, job: &Job) -> Result<(), Failure> {
    if job.spec.run_id().ok().as_deref() == Some(&job.run_id) {
        return Ok(());
    }
    let help = "`longreach run` with its config writes it anew";
    Err(Failure::input(format!(
        "{} was changed: its spec is not that of run {}",
        directory.join(JOB_FILE).display(),
        job.run_id
    ))
    .with_help(help))
}

/// Reads the job of a run directory.
///
/// # Errors
///
/// [`Exit::Input`] if there is none or it does not describe a run.
pub fn read_job(directory: &Path) -> Result<Job, Failure> {
    let path = directory.join(JOB_FILE);
    let bytes = rundir::read::bounded(&path, MAX_JOB_BYTES).map_err(|error| {
        Failure::input(format!("{error:#}"))
            .with_help("name the directory of a run, such as runs/EXPERIMENT/RUN_ID")
    })?;
    let job: Job = serde_json::from_slice(&bytes).map_err(|error| {
        Failure::input(format!(
            "{} does not describe a run of this version: {error}",
            path.display()
        ))
    })?;
    Ok(job)
}

/// The record of a run that PyTorch trained for `longreach.bench`, in whose directory there is no
/// job.
pub fn trained_in_pytorch(directory: &Path) -> Option<RunRecord> {
    let record = records::read_record(&directory.join(RECORD_FILE)).ok()?;
    (is_of_pytorch(&record) && !directory.join(JOB_FILE).exists()).then_some(record)
}

/// Whether PyTorch trained the run of a record.
pub fn is_of_pytorch(record: &RunRecord) -> bool {
    record.environment.burn.starts_with("none: pytorch")
}

/// Levels that are searched below a directory.
const DEPTH: usize = 3;

/// What lies below a directory: runs, and directories that cannot be read.
#[derive(Default)]
pub struct Runs {
    /// Directories with a job, a record or weights, in the order of their paths.
    pub runs: Vec<PathBuf>,
    /// Directories that cannot be read, and why. They hide no others.
    pub unreadable: Vec<(PathBuf, String)>,
}

/// The runs up to `DEPTH` levels below a directory; links are not followed.
///
/// # Errors
///
/// [`Exit::Input`] if the directory itself cannot be read.
pub fn runs_below(directory: &Path) -> Result<Runs, Failure> {
    Runs::below(directory).map_err(|error| {
        let place = directory.display();
        let problem = match error.kind() {
            ErrorKind::NotFound => format!("{place} does not exist"),
            ErrorKind::NotADirectory => {
                format!(
                    "{place} is a file; only `report`, `gather` and `compare` read records in files"
                )
            }
            _ => error.to_string(),
        };
        let help = "name a directory that `longreach run` wrote, such as runs/quickstart";
        Failure::input(problem).with_help(help)
    })
}

/// Recorded runs of a seed that ended well, below a directory.
///
/// # Errors
///
/// If the directory itself cannot be read, or all its runs of the seed diverged, or there are only
/// runs of PyTorch.
pub fn runs_of_seed(directory: &Path, seed: u64) -> std::io::Result<Vec<RecordedRun>> {
    let runs = Runs::below(directory)?.runs;
    let of_seed = |run: &PathBuf| {
        let job = read_job(run).ok()?;
        let record = recorded(run, &job).filter(|_| job.spec.seed == seed)?;
        Some((run.clone(), job, record))
    };
    let has_diverged = |(.., record): &RecordedRun| record.status == RunStatus::Diverged;
    let found = runs.iter().filter_map(of_seed);
    let (diverged, well): (Vec<_>, Vec<_>) = found.partition(has_diverged);
    if !well.is_empty() {
        return Ok(well);
    }
    let problem = if let [(run, _, record), ..] = &*diverged {
        let step = record.train.steps;
        let run = run.display();
        format!("{run}, of seed {seed}, diverged at step {step} and has no weights")
    } else if let Some(run) = runs.iter().find(|run| trained_in_pytorch(run).is_some()) {
        let run = run.display();
        format!("{run} was trained in PyTorch by longreach.bench, which keeps no weights")
    } else {
        return Ok(well);
    };
    Err(std::io::Error::other(problem))
}

impl Runs {
    /// The runs below a directory, as [`runs_below`].
    ///
    /// # Errors
    ///
    /// If the directory itself cannot be read.
    pub fn below(directory: &Path) -> std::io::Result<Self> {
        let mut found = Self::default();
        found.search(directory, DEPTH)?;
        Ok(found)
    }

    fn search(&mut self, directory: &Path, depth: usize) -> std::io::Result<()> {
        let is_there = |name: &&str| directory.join(name).is_file();
        // A run that lost one of its files is still a run, and has something wrong.
        if [JOB_FILE, RECORD_FILE, WEIGHTS_FILE].iter().any(is_there) {
            self.runs.push(directory.to_owned());
            return Ok(());
        }
        if depth == 0 {
            return Ok(());
        }
        let links = linked_runs(directory).into_iter();
        self.unreadable
            .extend(links.map(|link| (link, LINK.to_owned())));
        for inner in directories_in(directory)? {
            if let Err(error) = self.search(&inner, depth - 1) {
                self.unreadable.push((inner, error.to_string()));
            }
        }
        Ok(())
    }
}
