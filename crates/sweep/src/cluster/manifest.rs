//! `manifest.jsonl` and `tasks.jsonl`: every run as one line, and which lines a task runs.
//!
//! A task knows where its lines begin, so that a worker reads a few kilobytes of a manifest of any
//! size.

use crate::cluster::directory::{MANIFEST_FILE, TASKS_FILE};
use experiment::plan::memory::TaskSizes;
use experiment::plan::planned::PlannedRun;
use experiment::spec::Job;
use records::record::label_texts;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use support::exit::Failure;
use support::units::first_of;

/// Largest line that is read, in bytes.
const MAX_LINE_BYTES: u64 = 1 << 24;
/// Largest manifest that is read as a whole, in bytes: a million runs.
const MAX_MANIFEST_BYTES: u64 = 1 << 31;
/// Largest file of tasks that is read, in bytes.
const MAX_TASKS_BYTES: u64 = 1 << 28;

/// A run of the manifest.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// The run, for readers that need no more.
    pub run_id: String,
    /// Expected seconds on one process of a CPU, as `longreach check` prints them.
    pub expected_secs: f64,
    /// Expected peak memory of its process, in MiB.
    pub expected_mib: u64,
    /// Trainable numbers.
    pub parameters: u64,
    /// Tokens trained on.
    pub train_tokens: u64,
    /// Tokens read in evaluation.
    pub eval_tokens: u64,
    /// The test lengths in tokens.
    pub test_seq_lens: Vec<usize>,
    /// Rows of the test set of each length; none in manifests of older versions.
    #[serde(default)]
    pub test_rows: Vec<usize>,
    /// Bytes of the corpus as the task holds it.
    #[serde(default)]
    pub task_bytes: u64,
    /// What its worker is given.
    pub job: Job,
}

impl Line {
    /// The run as a sweep takes it.
    pub fn planned(self) -> PlannedRun {
        PlannedRun {
            job: self.job,
            parameters: self.parameters,
            train_tokens: self.train_tokens,
            eval_tokens: self.eval_tokens,
            sizes: TaskSizes {
                bytes: self.task_bytes,
                // Not in a manifest: the worker builds the task and knows.
                held_bytes: self.task_bytes,
                seq_lens: self.test_seq_lens,
                rows: self.test_rows,
            },
        }
    }
}

/// The part of a line that `status` and `submit --again` need of every run: as little as possible
/// is read of a long manifest.
#[derive(Clone, Debug, Deserialize)]
pub struct Brief {
    /// The run.
    pub run_id: String,
    /// Expected seconds.
    pub expected_secs: f64,
    /// The part of its job.
    pub job: BriefJob,
}

/// The part of a job that [`Brief`] has.
#[derive(Clone, Debug, Deserialize)]
pub struct BriefJob {
    /// Values on the axes.
    pub labels: Vec<records::record::Label>,
    /// The part of its spec.
    pub spec: BriefSpec,
}

/// The part of a spec that [`Brief`] has.
#[derive(Clone, Debug, Deserialize)]
pub struct BriefSpec {
    /// The seed.
    pub seed: u64,
    /// The part of its training.
    pub train: BriefTrain,
}

/// The part of a training that [`Brief`] has.
#[derive(Clone, Debug, Deserialize)]
pub struct BriefTrain {
    /// Optimizer steps.
    pub steps: u64,
}

impl Brief {
    /// The method: values on the axes.
    pub fn method(&self) -> String {
        label_texts(&self.job.labels).join(", ")
    }
}

/// A task: a line of `tasks.jsonl`, or of the tasks of a later submission.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// The index that a scheduler supplies.
    pub task: usize,
    /// Expected seconds of the whole task.
    pub expected_secs: f64,
    /// Its runs, the longest first.
    pub runs: Vec<ManifestEntry>,
}

/// The expected seconds of the longest of some tasks.
pub fn longest_secs(tasks: &[Task]) -> f64 {
    let seconds = tasks.iter().map(|task| task.expected_secs);
    seconds.fold(0.0, f64::max)
}

/// Where a run stands in the manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManifestEntry {
    /// The run.
    pub run: String,
    /// Its first byte in the manifest.
    pub at: u64,
}

/// A manifest or tasks as text, and where the lines begin.
///
/// # Errors
///
/// [`Exit::Bug`](support::exit::Exit::Bug) if a line cannot be serialized.
pub fn text(lines: &[impl Serialize]) -> Result<(Vec<u8>, Vec<u64>), Failure> {
    let (mut bytes, mut starts) = (Vec::new(), Vec::with_capacity(lines.len()));
    for line in lines {
        starts.push(bytes.len() as u64);
        serde_json::to_writer(&mut bytes, line).map_err(Failure::bug)?;
        bytes.push(b'\n');
    }
    Ok((bytes, starts))
}

/// Reads all runs of a manifest, in part.
///
/// # Errors
///
/// [`Exit::Input`](support::exit::Exit::Input) if it is missing or damaged; the message names the
/// line.
pub fn briefs(directory: &Path) -> Result<Vec<Brief>, Failure> {
    let path = directory.join(MANIFEST_FILE);
    let file = open(&path)?.take(MAX_MANIFEST_BYTES);
    parsed(&path, BufReader::with_capacity(1 << 18, file))
}

/// The lines of a file, read as JSON.
fn parsed<T: DeserializeOwned>(path: &Path, reader: impl BufRead) -> Result<Vec<T>, Failure> {
    let lines = reader.split(b'\n').enumerate();
    let parse = |(number, line): (usize, std::io::Result<Vec<u8>>)| {
        serde_json::from_slice(&line.map_err(Failure::input)?).map_err(|error| {
            Failure::input(format!(
                "{}:{}: damaged, or of another version: {error}",
                path.display(),
                number + 1
            ))
        })
    };
    lines.map(parse).collect()
}

/// Reads the runs of a task from the manifest, and checks that they are what was submitted.
///
/// # Errors
///
/// [`Exit::Input`](support::exit::Exit::Input) if the manifest is missing, or was changed.
pub fn lines(manifest: &Path, task: &Task) -> Result<Vec<Line>, Failure> {
    let mut file = open(manifest)?;
    let changed = |place: &ManifestEntry, why: &str| {
        Failure::input(format!(
            "{}: run {} at byte {}: {why}",
            manifest.display(),
            place.run,
            place.at
        ))
        .with_help(
            "submit the config again, into another directory; a manifest is not edited by hand",
        )
    };
    let line = |place: &ManifestEntry| {
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(place.at))
            .map_err(Failure::input)?;
        BufReader::new(file.by_ref().take(MAX_LINE_BYTES))
            .read_until(b'\n', &mut bytes)
            .map_err(Failure::input)?;
        let line: Line = serde_json::from_slice(&bytes)
            .map_err(|error| changed(place, &format!("not a run of this version: {error}")))?;
        let id = line.job.spec.run_id().ok();
        if id.as_deref() != Some(&place.run)
            || line.job.run_id != place.run
            || line.run_id != place.run
        {
            return Err(changed(place, "its spec is not that of this run"));
        }
        Ok(line)
    };
    task.runs.iter().map(line).collect()
}

/// Reads all tasks of a file.
///
/// # Errors
///
/// [`Exit::Input`](support::exit::Exit::Input) if it is missing or damaged.
pub fn tasks(path: &Path) -> Result<Vec<Task>, Failure> {
    let bytes = rundir::read::bounded(path, MAX_TASKS_BYTES).map_err(|error| {
        let help = "`longreach submit` writes it, `longreach submit --again` those of again/";
        Failure::input(format!("{error:#}")).with_help(help)
    })?;
    parsed(path, bytes.as_slice())
}

/// The task of an index.
///
/// # Errors
///
/// [`Exit::Config`](support::exit::Exit::Config) if there is none.
pub fn task(path: &Path, index: usize, source: &str) -> Result<Task, Failure> {
    let mut tasks = tasks(path)?;
    if let Some(at) = tasks.iter().position(|task| task.task == index) {
        return Ok(tasks.swap_remove(at));
    }
    let indices = ranges(tasks.iter().map(|task| task.task));
    let indices: Vec<String> = indices.split(',').map(str::to_owned).collect();
    Err(Failure::config(format!(
        "{source}: task {index} is not in {}",
        path.display()
    ))
    .with_allowed(first_of(&indices, 10))
    .with_help("tasks are counted from 0; the scheduler's script has the right indices"))
}

/// The file of tasks of a directory: that of the first submission, or of a later one.
pub fn tasks_file(directory: &Path, generation: usize) -> PathBuf {
    match generation {
        0 => directory.join(TASKS_FILE),
        n => directory
            .join(crate::cluster::directory::AGAIN_DIR)
            .join(format!("{n}.jsonl")),
    }
}

/// Indices as schedulers take them: `0-7`, or `4,17,90-95`.
pub fn ranges(indices: impl IntoIterator<Item = usize>) -> String {
    let mut indices: Vec<usize> = indices.into_iter().collect();
    indices.sort_unstable();
    indices.dedup();
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for index in indices {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == index => *last = index,
            _ => ranges.push((index, index)),
        }
    }
    let text = |(first, last): (usize, usize)| match last - first {
        0 => first.to_string(),
        _ => format!("{first}-{last}"),
    };
    ranges.into_iter().map(text).collect::<Vec<_>>().join(",")
}

fn open(path: &Path) -> Result<File, Failure> {
    // Opening a pipe would wait for its other end.
    if path.symlink_metadata().is_ok_and(|found| !found.is_file()) {
        return Err(Failure::input(format!(
            "{} is not a plain file",
            path.display()
        )));
    }
    File::open(path).map_err(|error| {
        Failure::input(format!("{}: {error}", path.display())).with_help(format!(
            "name the manifest that `longreach submit --out DIR` wrote: DIR/{MANIFEST_FILE}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::ranges;

    #[test]
    fn indices_are_written_as_engines_read_them() {
        assert_eq!(ranges([0, 1, 2, 3]), "0-3");
        assert_eq!(ranges([94, 4, 17, 90, 91, 92, 93, 95, 17]), "4,17,90-95");
        assert_eq!(ranges([]), "");
    }
}
