//! The directories of the runs that a path of a command names: a run, a file of it, an experiment,
//! or the beginning of a run id.

use crate::runs_on_disk::files::{JOB_FILE, RECORD_FILE, read_job, trained_in_pytorch};
use crate::runs_on_disk::walk::{directories_in, directories_with};
use crate::spec::Job;
use config::diagnostic::closest_first;
use rundir::directory_of;
use schema::text::excerpt;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use support::exit::Failure;
use support::units::{count, first_of};
use tasks::Rows;

/// Names in a list of possible ones.
const MAX_LISTED: usize = 10;
/// A run that was selected.
pub struct Run {
    /// Its directory.
    pub directory: PathBuf,
    /// Its job, or why it cannot be read.
    pub job: Result<Job, Failure>,
}

impl Run {
    /// The runs as people name them, `RoPE, seed 0`; with their ids where several have one name.
    pub fn names(all: &[Run]) -> Vec<String> {
        let names = all.iter().map(|run| (run.directory.as_path(), run.name()));
        distinct(names.collect())
    }

    /// The run as people name it: `RoPE, seed 0`.
    pub fn name(&self) -> String {
        let directory = || excerpt(&self.directory.display().to_string());
        self.job.as_ref().map_or_else(|_| directory(), Job::name)
    }
}

/// Names of the runs of some directories; with the run id where several have one name.
pub fn distinct(names: Vec<(&Path, String)>) -> Vec<String> {
    let mut counts: HashMap<String, usize> = HashMap::new();
    for (_, name) in &names {
        *counts.entry(name.clone()).or_default() += 1;
    }
    let one = |(directory, name): (&Path, String)| match counts[&name] {
        1 => name,
        _ => {
            let id = directory.file_name().unwrap_or_default();
            format!("{name} ({})", id.display())
        }
    };
    names.into_iter().map(one).collect()
}

/// The directories of the runs that a path names.
pub(super) fn named(path: &Path, note: &mut impl FnMut(&str)) -> Result<Vec<PathBuf>, Failure> {
    let place = path.display();
    // A file of a run, such as its record, stands for the run.
    if path.is_file() {
        let run = directory_of(path);
        if !run.join(JOB_FILE).is_file() {
            let help = "name a run's directory, such as runs/NAME/ID, or that of an experiment";
            let problem = format!("{place} is not a file of a run");
            return Err(Failure::input(problem).with_help(help));
        }
        return Ok(vec![run.to_owned()]);
    }
    if path.join(JOB_FILE).is_file() {
        return Ok(vec![path.to_owned()]);
    }
    if !path.is_dir() {
        return beginning(path);
    }
    let runs = directories_with(path, JOB_FILE);
    if runs.is_empty() {
        return Err(no_run(path));
    }
    let (recorded, unfinished): (Vec<PathBuf>, Vec<PathBuf>) = runs
        .into_iter()
        .partition(|run| run.join(RECORD_FILE).is_file());
    if recorded.is_empty() {
        let help = "`longreach run` with its config finishes them";
        return Err(Failure::input(format!(
            "{place}: none of its {} is recorded",
            count(unfinished.len(), "run")
        ))
        .with_help(help));
    }
    let mut left_out = |runs: usize, why: &str| {
        if runs > 0 {
            note(&format!(
                "note: {place}: {} left out, {why}",
                count(runs, "run")
            ));
        }
    };
    left_out(unfinished.len(), "not recorded yet");
    left_out(without_job(path), "recorded without job.json");
    Ok(results(recorded, path, note))
}

/// How many records in a directory lie without the job that was recorded.
fn without_job(directory: &Path) -> usize {
    let recorded = directories_with(directory, RECORD_FILE).into_iter();
    recorded.filter(|run| !run.join(JOB_FILE).is_file()).count()
}

/// The runs of the result, where there are any. Those of the sweep of `[select]` and of half the
/// steps are scored on other rows, or at one length alone, and nothing reads more of them.
fn results(recorded: Vec<PathBuf>, path: &Path, note: &mut impl FnMut(&str)) -> Vec<PathBuf> {
    let is_result = |run: &PathBuf| {
        let job = read_job(run);
        job.map_or(true, |job| {
            job.half_of.is_none() && job.spec.eval.rows == Rows::Test
        })
    };
    let (results, others): (Vec<PathBuf>, Vec<PathBuf>) = recorded.into_iter().partition(is_result);
    if results.is_empty() {
        return others;
    }
    if !others.is_empty() {
        note(&format!(
            "note: {}: {} of [select] or of half the steps left out; name their directories to \
             include them",
            path.display(),
            count(others.len(), "run")
        ));
    }
    results
}

/// Why a directory without a run is refused.
fn no_run(path: &Path) -> Failure {
    let place = path.display();
    // `submit` writes its runs below `runs`.
    let places = [path.to_owned(), path.join("runs")];
    let inside = places.iter().filter_map(|place| directories_in(place).ok());
    let mut inside: Vec<PathBuf> = inside.flatten().collect();
    inside.push(path.to_owned());
    if inside.iter().any(|run| trained_in_pytorch(run).is_some()) {
        let help = "`longreach.bench` scores it at every length of eval.test_lens";
        return Failure::input(format!(
            "{place} was trained in PyTorch: this program has neither its code nor its weights"
        ))
        .with_help(help);
    }
    if path.join(RECORD_FILE).is_file() {
        let help = "`longreach run` with its config writes it anew";
        return Failure::input(format!("{place}: {JOB_FILE} is missing")).with_help(help);
    }
    let experiments: Vec<String> = inside
        .iter()
        .filter(|other| !directories_with(other, JOB_FILE).is_empty())
        .map(|other| text(other))
        .collect();
    if experiments.is_empty() {
        let help = "name the directory of a run or of an experiment, such as runs/quickstart";
        return Failure::input(format!("{place} holds no run")).with_help(help);
    }
    let (listed, help) = (list(&experiments), "name one or more of them");
    let problem = format!("{place} holds experiments, not runs");
    Failure::config(problem)
        .with_allowed(listed)
        .with_help(help)
}

/// The run whose id begins with the last part of a path.
fn beginning(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    let place = path.display();
    let parent = directory_of(path);
    let wanted = id(path);
    let begins = |run: &&PathBuf| !wanted.is_empty() && id(run).starts_with(&wanted);
    let runs = directories_with(parent, JOB_FILE);
    let matches: Vec<PathBuf> = runs.iter().filter(begins).cloned().collect();
    // One of PyTorch has no job.
    let recorded = directories_with(parent, RECORD_FILE);
    let mut in_pytorch = recorded.iter().filter(begins);
    let in_pytorch = in_pytorch.find(|run| trained_in_pytorch(run).is_some());
    match matches.len() {
        1 => Ok(matches),
        0 if let Some(run) = in_pytorch => Err(no_run(run)),
        0 if runs.is_empty() => {
            let help = "name the directory of a run or of an experiment, such as runs/quickstart";
            Err(Failure::input(format!("{place} does not exist")).with_help(help))
        }
        0 => {
            let mut ids: Vec<String> = runs.iter().map(|run| id(run)).collect();
            closest_first(&wanted, &mut ids);
            let help = "`longreach status` lists the runs with their ids";
            Err(
                Failure::input(format!("{place}: no run id begins with {wanted}"))
                    .with_allowed(list(&ids))
                    .with_help(help),
            )
        }
        n => {
            let described: Vec<String> = matches.iter().map(|run| describe(run)).collect();
            let problem = format!("{place}: the ids of {n} runs begin with {wanted}");
            let help = "write more of the id";
            Err(Failure::config(problem)
                .with_allowed(list(&described))
                .with_help(help))
        }
    }
}

/// `0123456789abcdef (RoPE, seed 0)`.
fn describe(directory: &Path) -> String {
    let run = Run {
        directory: directory.to_owned(),
        job: read_job(directory),
    };
    format!("{} ({})", id(directory), run.name())
}

/// The last part of a path: of a run, its id.
fn id(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// The first of some names, as one harmless line.
pub(super) fn list(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| excerpt(name)).collect();
    first_of(&names, MAX_LISTED)
}
