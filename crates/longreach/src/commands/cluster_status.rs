//! `longreach status` of a submitted sweep: thousands of runs in one screen.

use comfy_table::Table;
use experiment::runs_on_disk::state::{Counts, RunState, counts_text};
use records::text::short_hash;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use support::console::{self, plain};
use support::exit::Failure;
use support::units::{count, duration};
use sweep::cluster::allocation::on;
use sweep::cluster::directory::{Scheduler, Submission};
use sweep::cluster::slurm::{self, Queued, Silent};
use sweep::cluster::states::{Look, RunLine, States, gather};

/// Methods that a table lists; of more only the sums are shown.
const MOST_METHODS: usize = 40;
/// Runs that are listed one by one.
const MOST_RUNS: usize = 12;

/// Time between two questions to Slurm under `--watch`.
const ASK_EVERY: Duration = Duration::from_secs(30);

/// What one look leaves for the next.
#[derive(Default)]
pub struct LastAnswer {
    /// What Slurm said of the queue, and when it was asked.
    queue: Option<(Instant, String)>,
    /// Whether every run of the sweep had ended.
    pub over: bool,
    /// Whether a run failed, is stale or cannot be read.
    pub failed: bool,
}

/// The states, as text or JSON. The text adds what Slurm's queue says; the states do not depend on
/// it.
///
/// # Errors
///
/// [`Exit::Input`](support::exit::Exit::Input) if the directory is damaged.
pub fn shown(directory: &Path, json: bool, asked: &mut LastAnswer) -> Result<String, Failure> {
    let submission = Submission::read(directory)?;
    let states = gather(directory, &submission, Look::End)?;
    asked.failed = states.runs.iter().any(|run| run.state.is_failure());
    asked.over = states.runs.iter().all(|run| run.state.has_ended());
    if json {
        return console::json(&states);
    }
    let mut text = render(&submission, &states);
    if submission.scheduler != Scheduler::Parallel && !asked.over {
        text.push_str(&asked.queue(directory));
    }
    Ok(plain(&text))
}

impl LastAnswer {
    /// What the queue holds of a sweep; nothing where there is no Slurm.
    fn queue(&mut self, directory: &Path) -> String {
        match &self.queue {
            Some((at, text)) if at.elapsed() < ASK_EVERY => text.clone(),
            _ => {
                let text = match slurm::queue(directory) {
                    Ok(jobs) => queue(&jobs),
                    Err(Silent::Missing) => String::new(),
                    Err(Silent::Failed) => {
                        "\nSlurm's queue: no answer; the states are those of the files".to_owned()
                    }
                };
                self.queue = Some((Instant::now(), text.clone()));
                text
            }
        }
    }
}

/// `Slurm's queue: tasks 3-7 of job 12 pending (Resources)`, a line for each job.
fn queue(jobs: &[Queued]) -> String {
    if jobs.is_empty() {
        return "\nSlurm's queue: nothing of this directory".to_owned();
    }
    let line = |job: &Queued| {
        let Queued { job: id, state, .. } = job;
        let what = match &job.tasks {
            Some(tasks) if tasks.contains([',', '-']) => format!("tasks {tasks} of job {id}"),
            Some(task) => format!("task {task} of job {id}"),
            None => format!("job {id}"),
        };
        let state = state.to_lowercase();
        let on = on(&job.nodes);
        let why = match job.reason.as_str() {
            "" | "None" => String::new(),
            reason => format!(" ({reason})"),
        };
        format!("\nSlurm's queue: {what} {state}{on}{why}")
    };
    let mut text: String = jobs.iter().take(MOST_RUNS).map(line).collect();
    if jobs.len() > MOST_RUNS {
        text.push_str(&format!("\nSlurm's queue: {} more", jobs.len() - MOST_RUNS));
    }
    text
}

fn render(submission: &Submission, states: &States) -> String {
    let mut text = String::new();
    let by_method = by_method(states);
    if by_method.len() <= MOST_METHODS {
        text.push_str(&format!("{}\n", methods(states, &by_method)));
    }
    for state in [
        RunState::Running,
        RunState::Stopped,
        RunState::Failed,
        RunState::Unreadable,
        RunState::Diverged,
    ] {
        let of: Vec<&RunLine> = states
            .runs
            .iter()
            .filter(|run| run.state == state)
            .collect();
        for run in of.iter().take(MOST_RUNS) {
            text.push_str(&format!("{}\n", line(run)));
        }
        if of.len() > MOST_RUNS {
            text.push_str(&format!("{state}: {} more\n", of.len() - MOST_RUNS));
        }
    }
    text + &sums(submission, states)
}

/// `failed 3f2a81c0 RoPE, seed 2, step 20 of 300: no space left`.
fn line(run: &RunLine) -> String {
    let note = run.note.as_deref().and_then(|note| note.lines().next());
    let note = note.map_or_else(String::new, |note| format!(": {note}"));
    format!(
        "{} {} {}, seed {}, step {} of {}{note}",
        run.state,
        short_hash(&run.run_id),
        run.name,
        run.seed,
        run.step,
        run.steps
    )
}

fn sums(submission: &Submission, states: &States) -> String {
    let left: f64 = states.runs.iter().map(secs_left).sum();
    let left = match left {
        left if left >= 1.0 => format!("; about {} of work left for one process", duration(left)),
        _ => String::new(),
    };
    format!(
        "{} in {}: {}{left}",
        count(states.runs.len(), "run"),
        count(submission.tasks, "task"),
        counts_text(&states.counts)
    )
}

/// Expected seconds of what a run still has to do.
fn secs_left(run: &RunLine) -> f64 {
    match run.state {
        RunState::Planned | RunState::Running | RunState::Stopped => {
            run.expected_secs * (1.0 - run.step as f64 / run.steps.max(1) as f64)
        }
        _ => 0.0,
    }
}

/// Runs by method and state, in the order of the manifest.
fn by_method(states: &States) -> Vec<(&str, Counts)> {
    let mut found: Vec<(&str, Counts)> = Vec::new();
    let mut index: BTreeMap<&str, usize> = BTreeMap::new();
    for run in &states.runs {
        let at = *index.entry(&run.name).or_insert(found.len());
        if at == found.len() {
            found.push((&run.name, Counts::new()));
        }
        *found[at].1.entry(run.state).or_insert(0) += 1;
    }
    found
}

fn methods(states: &States, by_method: &[(&str, Counts)]) -> Table {
    let columns: Vec<RunState> = states.counts.keys().copied().collect();
    let mut table = console::table(["method"]);
    let names = columns.iter().map(ToString::to_string);
    table.set_header(std::iter::once("method".to_owned()).chain(names));
    for (method, counts) in by_method {
        let cells = columns.iter().map(|state| {
            counts
                .get(state)
                .map_or_else(String::new, ToString::to_string)
        });
        let method = if method.is_empty() {
            "one method"
        } else {
            method
        };
        table.add_row(std::iter::once(method.to_owned()).chain(cells));
    }
    table
}
