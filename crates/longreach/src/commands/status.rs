//! `longreach status`: the state of runs, read only from their directories.

use crate::console::table;
use crate::console::{self, plain};
use crate::exit::{Exit, Failure};
use crate::plan::spec::Job;
use crate::run_dir::files::{ERROR_FILE, RECORD_FILE, jobs, read_job};
use crate::units::count;
use results::record::{Divergence, RunStatus};
use rundir::steplog::LOG_FILE;
use rundir::{checkpoint, lock};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// State of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Written by a sweep, not started yet.
    Planned,
    /// A process holds its lock.
    Running,
    /// No process holds it; it resumes from its checkpoint.
    Stopped,
    /// Recorded.
    Done,
    /// Recorded; its loss or a gradient became non-finite.
    Diverged,
    /// Its worker ended with an error.
    Failed,
    /// Its job is of another version, or was edited: `longreach run` makes another run of it.
    Stale,
}

/// One run of the list.
#[derive(Debug, Serialize)]
struct Line {
    directory: PathBuf,
    experiment: String,
    name: String,
    seed: u64,
    state: RunState,
    step: u64,
    steps: u64,
    /// Who holds it, or the message of its worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

/// Print the state of every run below a directory: planned, running, stopped, done, diverged,
/// failed or stale
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The directory of all runs, of an experiment, or of a run
    #[arg(default_value = "runs")]
    directory: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = r#"Examples:
  longreach status runs
  longreach status runs/quickstart --json"#;

/// Prints the states of all runs below a directory.
///
/// # Errors
///
/// [`Exit::Input`] if the directory does not exist or holds no run.
pub fn run(arguments: &Args) -> Result<Exit, Failure> {
    let directory = &arguments.directory;
    let mut lines: Vec<Line> = jobs(directory)?.iter().map(|run| line(run)).collect();
    if lines.is_empty() {
        let help = "name a directory that `longreach run` wrote, such as runs or runs/quickstart";
        return Err(Failure::input(format!(
            "{} holds no run\n  = help: {help}",
            directory.display()
        )));
    }
    lines.sort_by(|a, b| (&a.experiment, &a.name, a.seed).cmp(&(&b.experiment, &b.name, b.seed)));
    let text = if arguments.json {
        console::json(&lines)?
    } else {
        plain(&render(&lines))
    };
    console::print(&text);
    Ok(Exit::Done)
}

/// The states as a table with totals.
fn render(lines: &[Line]) -> String {
    let mut shown = table([
        "experiment",
        "run",
        "seed",
        "state",
        "steps",
        "directory",
        "note",
    ]);
    let mut states = BTreeMap::new();
    for line in lines {
        *states.entry(line.state).or_insert(0) += 1;
        let id = line
            .directory
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        shown.add_row([
            line.experiment.clone(),
            line.name.clone(),
            line.seed.to_string(),
            word(line.state),
            format!("{} of {}", line.step, line.steps),
            id.unwrap_or_default(),
            line.note
                .as_deref()
                .and_then(|note| note.lines().next())
                .unwrap_or_default()
                .to_owned(),
        ]);
    }
    let sums: Vec<String> = states
        .iter()
        .map(|(state, n)| format!("{n} {}", word(*state)))
        .collect();
    format!(
        "{shown}\n{}: {}",
        count(lines.len(), "run"),
        sums.join(", ")
    )
}

fn line(run: &Path) -> Line {
    let job = match read_job(run) {
        Ok(job) => job,
        Err(failure) => {
            return Line {
                directory: run.to_owned(),
                experiment: String::new(),
                name: "?".to_owned(),
                seed: 0,
                state: RunState::Stale,
                step: 0,
                steps: 0,
                note: Some(failure.message),
            };
        }
    };
    let (state, step, note) = state(run, &job);
    let labels: Vec<&str> = job.labels.iter().map(|label| label.text.as_str()).collect();
    Line {
        directory: run.to_owned(),
        name: labels.join(", "),
        seed: job.spec.seed,
        state,
        step,
        steps: job.spec.train.steps,
        note,
        experiment: job.experiment,
    }
}

/// The state of a run, its last known step, and a note.
fn state(run: &Path, job: &Job) -> (RunState, u64, Option<String>) {
    if job.spec.run_id().ok().as_deref() != Some(&job.run_id) {
        let note = "the spec in job.json does not have this run_id".to_owned();
        return (RunState::Stale, 0, Some(note));
    }
    if let Ok(record) = results::read_record(&run.join(RECORD_FILE)) {
        let steps = record.train.steps;
        let note = |Divergence { step, what, .. }: Divergence| {
            format!("the {what} was not finite at step {step}")
        };
        let state = match record.status {
            RunStatus::Ok => RunState::Done,
            RunStatus::Diverged => RunState::Diverged,
        };
        return (state, steps, record.diverged.map(note));
    }
    // A run that is held is running, whatever an earlier process left behind.
    if let Some(holder) = lock::holder(run) {
        let step = last_step(&run.join(LOG_FILE)).unwrap_or(0);
        return (RunState::Running, step, Some(holder.to_string()));
    }
    let newest = checkpoint::newest_step(run);
    if let Ok(message) = rundir::read::start(&run.join(ERROR_FILE), 1 << 16) {
        let message = String::from_utf8_lossy(&message).into_owned();
        return (RunState::Failed, newest.unwrap_or(0), Some(message));
    }
    match newest {
        Some(step) => (RunState::Stopped, step, None),
        None => (RunState::Planned, 0, None),
    }
}

/// The step of the last whole line of a log.
fn last_step(log: &Path) -> Option<u64> {
    let mut file = std::fs::File::open(log).ok()?;
    let length = file.metadata().ok()?.len();
    // Lines are shorter than this; the log of a long run is not read as a whole.
    file.seek(SeekFrom::Start(length.saturating_sub(1024)))
        .ok()?;
    let mut tail = String::new();
    file.take(1024).read_to_string(&mut tail).ok()?;
    // The last line may be half written.
    let whole = &tail[..tail.rfind('\n')?];
    let line: serde_json::Value = serde_json::from_str(whole.rsplit('\n').next()?).ok()?;
    line.get("step")?.as_u64()
}

fn word(state: RunState) -> String {
    serde_json::to_value(state)
        .ok()
        .and_then(|value| value.as_str().map(str::to_owned))
        .unwrap_or_default()
}
