//! `longreach logs`: why runs of a submitted sweep failed, grouped by message.

use experiment::runs_on_disk::state::RunState;
use records::text::short_hash;
use rundir::steplog::LOG_FILE;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use support::console::{self, indented, plain};
use support::exit::{Exit, Failure};
use support::units::{count, first_of};
use sweep::cluster::directory::{LOGS_DIR, Submission};
use sweep::cluster::events::{self, Entry, Process, Taken, What};
use sweep::cluster::states::{Look, RunLine, gather};

/// Lines shown of the end of a log.
const LAST_LINES: usize = 20;
/// Bytes read of the end of a log.
const MAX_TAIL_BYTES: u64 = 1 << 20;

/// Group the failures of a submitted sweep by message, and show the end of the first run's log
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The directory that `longreach submit --out DIR` wrote
    directory: PathBuf,
    /// Only runs that failed [default: also those that diverged or stopped]
    #[arg(long, conflicts_with = "run")]
    failed: bool,
    /// Everything that is known of one run: its id, or the beginning of one
    #[arg(long, value_name = "ID")]
    run: Option<String>,
}

const EXAMPLES: &str = r#"Examples:
  longreach logs /shared/theta
  longreach logs /shared/theta --failed
  longreach logs /shared/theta --run 3f2a"#;

/// Prints the failures.
///
/// # Errors
///
/// [`Exit::Input`] if the directory is not that of a submitted sweep; [`Exit::Config`] if `--run`
/// names no run of it, or several.
pub fn run(arguments: &Args) -> Result<Exit, Failure> {
    let directory = &arguments.directory;
    let submission = Submission::read(directory)?;
    let states = gather(directory, &submission, Look::End)?;
    let processes = events::read(directory, None);
    let text = match &arguments.run {
        Some(id) => {
            let run = one(&states.runs, id)?;
            of_run(directory, &submission, run, &processes)
        }
        None => {
            let is_shown = |run: &&RunLine| match run.state {
                RunState::Failed | RunState::Unreadable => true,
                RunState::Diverged | RunState::Stopped => !arguments.failed,
                _ => false,
            };
            let shown: Vec<&RunLine> = states.runs.iter().filter(is_shown).collect();
            grouped(directory, &submission, &shown, &processes, arguments.failed)
        }
    };
    console::print(&plain(&text));
    Ok(Exit::Done)
}

/// The run that an id, or its beginning, names.
fn one<'a>(runs: &'a [RunLine], id: &str) -> Result<&'a RunLine, Failure> {
    let found: Vec<&RunLine> = runs
        .iter()
        .filter(|run| run.run_id.starts_with(id))
        .collect();
    match found.as_slice() {
        [run] => Ok(run),
        found => {
            let problem = match found.len() {
                0 => "names no run of this sweep".to_owned(),
                n => format!("is the beginning of {n} ids"),
            };
            let ids = if found.is_empty() {
                runs.iter().collect()
            } else {
                found.to_vec()
            };
            let ids: Vec<String> = ids.iter().map(|run| run.run_id.clone()).collect();
            Err(Failure::config(format!("--run {id}: {problem}")).with_allowed(first_of(&ids, 5)))
        }
    }
}

/// What runs have in common although their numbers differ: digits become `N`, and the directory of
/// the run disappears.
fn pattern(run: &RunLine) -> String {
    let note = run.note.as_deref().unwrap_or("no message");
    let line = note
        .lines()
        .next()
        .unwrap_or_default()
        .replace(&run.run_id, "RUN");
    let mut pattern = String::new();
    for c in line.chars() {
        if !c.is_ascii_digit() {
            pattern.push(c);
        } else if !pattern.ends_with('N') {
            pattern.push('N');
        }
    }
    pattern
}

fn grouped(
    directory: &Path,
    submission: &Submission,
    runs: &[&RunLine],
    processes: &[Process],
    failed: bool,
) -> String {
    let mut groups: BTreeMap<(RunState, String), Vec<&RunLine>> = BTreeMap::new();
    for run in runs {
        groups
            .entry((run.state, pattern(run)))
            .or_default()
            .push(run);
    }
    if groups.is_empty() {
        let what = if failed {
            "failed"
        } else {
            "failed, diverged or stopped"
        };
        return format!("{}: no run {what}", submission.experiment);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by(|(a, first), (b, second)| second.len().cmp(&first.len()).then_with(|| a.cmp(b)));
    let mut text = String::new();
    for ((state, pattern), runs) in &groups {
        let ids: Vec<String> = runs
            .iter()
            .map(|run| short_hash(&run.run_id).to_owned())
            .collect();
        let runs = count(runs.len(), "run");
        text.push_str(&format!(
            "{runs} {state}: {pattern}\n  {}\n",
            first_of(&ids, 8)
        ));
    }
    let first = groups[0].1[0];
    text.push_str(&format!(
        "\nthe first of them, {}, seed {}:\n",
        first.name, first.seed
    ));
    text.push_str(&of_run(directory, submission, first, processes));
    text
}

/// Everything that is known of a run: its events, its message, and the ends of its logs.
fn of_run(
    directory: &Path,
    submission: &Submission,
    run: &RunLine,
    processes: &[Process],
) -> String {
    let place = submission.experiment(directory).join(&run.run_id);
    let (id, state) = (&run.run_id, run.state);
    let mut text = format!("run {id}: {state} at step {} of {}\n", run.step, run.steps);
    if let Some(note) = &run.note {
        text.push_str(&format!("  {}\n", indented(note)));
    }
    let mut last_job = None;
    for process in processes {
        let Taken {
            node,
            job,
            generation,
            ..
        } = &process.taken;
        for Entry { time, what } in &process.entries {
            if what.run() == Some(&run.run_id) {
                last_job = Some(job);
                let after = support::units::duration(time - process.began);
                text.push_str(&format!(
                    "  task {}, node {node}, submission {generation}, after {after}: {}\n",
                    process.task,
                    in_words(what)
                ));
            }
        }
    }
    let mut logs = vec![place.join(LOG_FILE)];
    let job = last_job.filter(|job| !job.is_empty());
    logs.extend(job.map(|job| directory.join(LOGS_DIR).join(format!("{job}.log"))));
    for log in logs {
        let last = last_lines(&log);
        if !last.trim().is_empty() {
            text.push_str(&format!("{}:\n{last}", log.display()));
        }
    }
    text
}

fn in_words(what: &What) -> String {
    let first = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    match what {
        What::Start { attempt, gpu, .. } => {
            let gpu = gpu
                .as_ref()
                .map_or_else(String::new, |gpu| format!(" on GPU {gpu}"));
            format!("attempt {attempt} starts{gpu}")
        }
        What::Resumed { step, notes, .. } => {
            let notes: String = notes.iter().map(|note| format!("; {note}")).collect();
            format!("resumes at step {step}{notes}")
        }
        What::Done {
            diverged: false, ..
        } => "recorded".to_owned(),
        What::Done { diverged: true, .. } => "recorded as diverged".to_owned(),
        What::Failed { message, .. } => format!("failed: {}", first(message)),
        What::Stopped { message, .. } => format!("stopped: {}", first(message)),
        What::Task(_) | What::End { .. } => String::new(),
    }
}

/// The last lines of a log, indented.
fn last_lines(path: &Path) -> String {
    let bytes = rundir::read::end(path, MAX_TAIL_BYTES).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(LAST_LINES);
    lines[from..]
        .iter()
        .map(|line| format!("  {line}\n"))
        .collect()
}
