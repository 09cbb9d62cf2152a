//! `longreach status`: the state of runs, read only from their directories.

use crate::commands::cluster_status::{self, LastAnswer};
use experiment::runs_on_disk::files::{JOB_FILE, read_job, runs_below, trained_in_pytorch};
use experiment::runs_on_disk::state::{RunState, counts, counts_text, of_record, state};
use experiment::spec;
use records::RunRecord;
use records::record::label_texts;
use serde::Serialize;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;
use support::console::{self, plain};
use support::console::{keep_words, table};
use support::exit::{Exit, Failure};
use support::units::count;
use sweep::cluster::directory::is_cluster;
use sweep::live;

/// One run of the list.
#[derive(Debug, Serialize)]
struct RunLine {
    #[serde(serialize_with = "as_text")]
    directory: PathBuf,
    experiment: String,
    /// The values on the axes.
    name: String,
    /// The same in words, for people.
    #[serde(skip)]
    method: String,
    seed: Option<u64>,
    /// The run that it repeats with half the steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    half_of: Option<String>,
    state: RunState,
    step: u64,
    steps: u64,
    /// Who holds it, or the message of its worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

/// A path as far as it is UTF-8.
fn as_text<S: serde::Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&path.display())
}

/// Print the state of every run below a directory: planned, running, stopped, done, diverged,
/// failed, stale or unreadable
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The directory of all runs, of an experiment, of a run, or of a submitted sweep
    #[arg(default_value = "runs")]
    directory: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Show progress, losses, time left and failures until all runs have ended; plain lines if the
    /// output is not a terminal. JSON, and a submitted sweep, are printed again when they change
    #[arg(long)]
    watch: bool,
    /// Exit with 75 if a run is planned, running or stopped, or else with 1 if one failed, is stale
    /// or cannot be read
    #[arg(long)]
    exit_code: bool,
}

const EXAMPLES: &str = r#"Examples:
  longreach status runs
  longreach status runs/quickstart --json
  longreach status runs/quickstart --watch  # one screen, updated every second
  longreach status /shared/theta --watch    # a sweep of `longreach submit`"#;

/// Time between two looks under `--watch`.
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// Prints the states of all runs below a directory.
///
/// # Errors
///
/// [`Exit::Input`] if the directory does not exist or holds no run.
pub fn run(arguments: &Args) -> Result<Exit, Failure> {
    let directory = &arguments.directory;
    if !arguments.watch {
        let mut asked = LastAnswer::default();
        console::print(&shown(directory, arguments.json, &mut asked)?);
        return Ok(match arguments.exit_code {
            true => exit(&asked),
            false => Exit::Done,
        });
    }
    if !arguments.json && !is_cluster(directory) {
        return live::watch(directory);
    }
    let (terminal, mut last) = (std::io::stdout().is_terminal(), String::new());
    let mut asked = LastAnswer::default();
    loop {
        let now = shown(directory, arguments.json, &mut asked)?;
        // A file or a pipe gets what is new, a terminal one screen.
        if now != last {
            if terminal {
                console::clear_screen();
            }
            console::print(&now);
            last = now;
        }
        if asked.over {
            return Ok(exit(&asked));
        }
        std::thread::sleep(WATCH_EVERY);
    }
}

/// The exit code of what was seen, in the order of `run`: what goes on comes before failures.
fn exit(seen: &LastAnswer) -> Exit {
    match (seen.over, seen.failed) {
        (false, _) => Exit::TryAgain,
        (true, true) => Exit::SomeFailed,
        (true, false) => Exit::Done,
    }
}

/// The states of all runs below a directory, as text or JSON.
fn shown(directory: &Path, json: bool, asked: &mut LastAnswer) -> Result<String, Failure> {
    if is_cluster(directory) {
        return cluster_status::shown(directory, json, asked);
    }
    let found = runs_below(directory)?;
    let mut lines: Vec<RunLine> = found.runs.iter().map(|run| line(run)).collect();
    let unreadable = found.unreadable.into_iter();
    lines.extend(unreadable.map(|(run, why)| without_job(&run, RunState::Unreadable, why)));
    if lines.is_empty() {
        let help = "name a directory that `longreach run` wrote, such as runs or runs/quickstart";
        return Err(
            Failure::input(format!("{} holds no run", directory.display())).with_help(help),
        );
    }
    lines.sort_by(|a, b| place(a).cmp(&place(b)));
    asked.failed = lines.iter().any(|line| line.state.is_failure());
    asked.over = lines.iter().all(|line| line.state.has_ended());
    if json {
        return console::json(&lines);
    }
    Ok(plain(&render(&lines)))
}

/// The place of a line: a run of half the steps comes after its method's runs.
fn place(line: &RunLine) -> (&str, &str, bool, Option<u64>) {
    let is_half = line.half_of.is_some();
    (&line.experiment, &line.name, is_half, line.seed)
}

/// The states as a table with totals.
fn render(lines: &[RunLine]) -> String {
    let mut shown = table([
        "experiment",
        "run",
        "seed",
        "state",
        "steps",
        "directory",
        "note",
    ]);
    for line in lines {
        let id = line
            .directory
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        shown.add_row([
            shown_experiment(line),
            spec::with_half(&line.method, line.half_of.as_deref()),
            line.seed.map_or("?".into(), |seed| seed.to_string()),
            line.state.to_string(),
            format!("{} of {}", line.step, line.steps),
            id.unwrap_or_default(),
            line.note
                .as_deref()
                .and_then(|note| note.lines().next())
                .unwrap_or_default()
                .to_owned(),
        ]);
    }
    keep_words(&mut shown, 5);
    let counts = counts_text(&counts(lines.iter().map(|line| line.state)));
    format!("{shown}\n{}: {counts}", count(lines.len(), "run"))
}

/// The experiment of a run, and its directory where that has another name.
fn shown_experiment(line: &RunLine) -> String {
    let (name, directory) = (&line.experiment, line.directory.parent());
    match directory.and_then(Path::file_name) {
        Some(place) if !name.is_empty() && place != name.as_str() => {
            format!("{name} in {}", place.display())
        }
        _ => name.clone(),
    }
}

/// The line of a run whose job cannot be read.
fn without_job(run: &Path, state: RunState, note: String) -> RunLine {
    RunLine {
        directory: run.to_owned(),
        experiment: String::new(),
        name: "?".to_owned(),
        method: "?".to_owned(),
        seed: None,
        half_of: None,
        state,
        step: 0,
        steps: 0,
        note: Some(note),
    }
}

/// The line of a run that PyTorch trained.
fn in_pytorch(run: &Path, record: RunRecord) -> RunLine {
    let (state, step, note) = of_record(&record);
    let steps = record
        .spec
        .get("train")
        .and_then(|train| train.get("steps")?.as_u64());
    RunLine {
        directory: run.to_owned(),
        name: label_texts(&record.labels).join(", "),
        method: spec::method(&record.labels),
        seed: Some(record.seed),
        half_of: record.half_of,
        state,
        step,
        steps: steps.unwrap_or(step),
        note: note.or_else(|| Some("trained in PyTorch".to_owned())),
        experiment: record.experiment,
    }
}

fn line(run: &Path) -> RunLine {
    if let Some(record) = trained_in_pytorch(run) {
        return in_pytorch(run, record);
    }
    let job = match read_job(run) {
        Ok(job) => job,
        Err(_) if !run.join(JOB_FILE).exists() => {
            let note = "job.json is missing; `longreach run` with its config writes it anew";
            return without_job(run, RunState::Stale, note.to_owned());
        }
        Err(failure) => return without_job(run, RunState::Stale, failure.message),
    };
    let (state, step, note) = state(run, &job);
    RunLine {
        directory: run.to_owned(),
        name: label_texts(&job.labels).join(", "),
        method: spec::method(&job.labels),
        seed: Some(job.spec.seed),
        half_of: job.half_of,
        state,
        step,
        steps: job.spec.train.steps,
        note,
        experiment: job.experiment,
    }
}
