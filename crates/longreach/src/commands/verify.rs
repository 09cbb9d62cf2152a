//! `longreach verify`: whether the files of runs are unchanged and fit each other and the plan, and
//! on request whether scoring or training again gives the same numbers.

mod evaluations;
mod identity;
mod log;
mod recompute;
mod selection;

use crate::commands::completions;
use clap_complete::engine::ArgValueCandidates;
use experiment::device::{self, DeviceName};
use experiment::plan::memory::MemoryLimit;
use experiment::run::numbers;
use experiment::run::task::build_task;
use experiment::run::worker::LEAVE_WITHIN;
use experiment::runs_on_disk::changes;
use experiment::runs_on_disk::files::{
    JOB_FILE, RECORD_FILE, Runs, WEIGHTS_FILE, read_job, runs_below, trained_in_pytorch,
};
use experiment::runs_on_disk::recorded::{origin, weights_help};
use experiment::spec::Job;
use records::RunRecord;
use rundir::Weights;
use std::path::{Path, PathBuf};
use support::console;
use support::exit::{Exit, Failure};
use support::signals;
use support::units::count;
use tasks::Task;

/// Check the files of runs against their seals, their plan and each other; with --reevaluate also
/// score the weights again, with --retrain also train again
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, group = clap::ArgGroup::new("again").multiple(true))]
pub struct Args {
    /// Directories of runs, of experiments, or of many experiments
    #[arg(default_value = "runs")]
    directories: Vec<PathBuf>,
    /// Score the weights of every run again, and compare every number of its evaluations
    #[arg(long, group = "again")]
    reevaluate: bool,
    /// Train every run again, in a temporary directory, and compare weights, step log and record
    #[arg(long, group = "again")]
    retrain: bool,
    /// Directory that relative paths of a corpus start from, if the config has been moved since the
    /// run
    #[arg(long, value_name = "DIR")]
    config_dir: Option<PathBuf>,
    /// The device to score and train on, with --reevaluate or --retrain
    #[arg(long, default_value = "cpu", requires = "again", add = ArgValueCandidates::new(completions::devices))]
    device: DeviceName,
    /// As in `run`, with --reevaluate or --retrain
    #[arg(long, value_name = "SIZE", requires = "again")]
    memory_limit: Option<MemoryLimit>,
}

const EXAMPLES: &str = r#"Examples:
  longreach verify runs/quickstart
  longreach verify runs/quickstart --reevaluate
  longreach verify runs/quickstart/0123456789abcdef --retrain"#;

/// What was checked in a run, and what is wrong with it.
#[derive(Debug, Default)]
struct Findings {
    checked: Vec<String>,
    wrong: Vec<String>,
    notes: Vec<String>,
}

/// A run whose job and record can be read.
struct Subject<'a> {
    directory: &'a Path,
    job: &'a Job,
    record: &'a RunRecord,
}

/// Verifies every recorded run below some directories and prints each result.
///
/// # Errors
///
/// [`Exit::Input`] if there is no recorded run; [`Exit::Device`] if the device cannot compute; the
/// code of a signal.
pub fn run(request: &Args) -> Result<Exit, Failure> {
    let Runs {
        mut runs,
        mut unreadable,
    } = Runs::default();
    for directory in &request.directories {
        let found = runs_below(directory)?;
        runs.extend(found.runs);
        unreadable.extend(found.unreadable);
    }
    runs.sort();
    runs.dedup();
    // A run without a job is not one that is not recorded yet: something was lost.
    let is_finished =
        |run: &PathBuf| run.join(RECORD_FILE).exists() || !run.join(JOB_FILE).exists();
    let (recorded, unfinished): (Vec<_>, Vec<_>) = runs.into_iter().partition(is_finished);
    if recorded.is_empty() && unreadable.is_empty() {
        let directories = request.directories.iter();
        let directories: Vec<String> = directories.map(|path| path.display().to_string()).collect();
        return Err(
            Failure::input(format!("{} holds no recorded run", directories.join(", "))).with_help(
                "name the directory of a recorded run, or one with such directories, such as \
                 runs/quickstart",
            ),
        );
    }
    prepare(request)?;
    let mut bad = unreadable.len();
    for (directory, why) in &unreadable {
        Findings::wrong(why.clone()).print(directory);
    }
    for run in &recorded {
        let findings = verify(run, request)?;
        findings.print(run);
        bad += usize::from(!findings.wrong.is_empty());
    }
    let mut bad_files = 0;
    for file in selection::files(&request.directories, &recorded) {
        let findings = selection::check(&file);
        findings.print(&file);
        bad_files += usize::from(!findings.wrong.is_empty());
    }
    let left = if unfinished.is_empty() {
        String::new()
    } else {
        format!("; {} not recorded yet", unfinished.len())
    };
    console::print(&format!(
        "{} verified: {}{left}",
        count(recorded.len() + unreadable.len(), "run"),
        summary(bad, bad_files)
    ));
    Ok(if bad + bad_files == 0 {
        Exit::Done
    } else {
        Exit::SomeFailed
    })
}

/// How many runs have something wrong, and how many files of an experiment, which are no runs.
fn summary(runs: usize, files: usize) -> String {
    match (runs, files) {
        (0, 0) => "nothing wrong".to_owned(),
        (runs, 0) => format!("{runs} with something wrong"),
        (runs, files) => {
            let files = count(files, "file");
            format!("{runs} with something wrong, and {files} beside the runs")
        }
    }
}

/// What computing runs again needs. A device that does not work is refused before any is checked.
fn prepare(request: &Args) -> Result<(), Failure> {
    if !request.retrain && !request.reevaluate {
        return Ok(());
    }
    signals::listen()?;
    let left = "the same command starts again with the first run";
    signals::leave_within(LEAVE_WITHIN, left)?;
    device::open(&request.device).map(drop)
}

#[expect(clippy::too_many_lines, reason = "one check after the other")]
fn verify(directory: &Path, request: &Args) -> Result<Findings, Failure> {
    if let Some(record) = trained_in_pytorch(directory) {
        return Ok(in_pytorch(directory, &record));
    }
    if !directory.join(JOB_FILE).exists() {
        let problem =
            format!("{JOB_FILE} is missing; `longreach run` with its config writes it anew");
        return Ok(Findings::wrong(problem));
    }
    let mut job = match read_job(directory) {
        Ok(job) => job,
        Err(failure) => return Ok(Findings::wrong(failure.message)),
    };
    if let Some(config_dir) = &request.config_dir {
        job.config_dir.clone_from(config_dir);
    }
    let record = match records::read_record(&directory.join(RECORD_FILE)) {
        Ok(record) => record,
        Err(error) => return Ok(Findings::wrong(error.to_string())),
    };
    let run = Subject {
        directory,
        job: &job,
        record: &record,
    };
    let mut findings = Findings::default();
    findings.add("job and record", identity::check(&run));
    findings
        .notes
        .extend(changes::other_programs(std::slice::from_ref(&record)));
    if record.labels != job.labels {
        let note = "record.json and job.json have other labels: those of another config; \
                    `longreach run` writes both anew";
        findings.notes.push(note.to_owned());
    }
    if record.seal.is_none() {
        let note = "record.json has no seal: it is of a version before seals, or the seal was \
                    removed; --reevaluate and --retrain compute its numbers again";
        findings.notes.push(note.to_owned());
    }
    let copied = origin(directory);
    let weights = weights(&run);
    match &copied {
        None => findings.add(
            "weights",
            weights.as_ref().err().cloned().into_iter().collect(),
        ),
        Some(place) => findings.notes.push(format!(
            "the record was copied from {place}: there are neither weights nor a step log to check"
        )),
    }
    // Building the task checks the job, and compares the hash of the corpus with that of the job.
    let task = match build_task(&job, &job.spec.eval.test_lens) {
        Ok(task) => task,
        Err(failure) => {
            if copied.is_none() {
                findings.add("step log", log::check(&run, None));
            }
            findings.wrong.push(failure.message);
            return Ok(findings);
        }
    };
    if copied.is_none() {
        findings.add("step log", log::check(&run, Some(task.as_ref())));
    }
    let numbers = numbers::check(&record, &job.spec, task.as_ref(), weights.as_ref().ok());
    findings.add("numbers", numbers.wrong);
    findings.notes.extend(numbers.notes);
    if task.corpus().is_some() {
        findings.checked.push("corpus".to_owned());
    }
    evaluations::check(&run, &mut findings);
    again(&run, weights.ok(), task.as_ref(), request, &mut findings)?;
    Ok(findings)
}

/// A run that PyTorch trained: the reader of records has held its numbers against each other.
fn in_pytorch(directory: &Path, record: &RunRecord) -> Findings {
    let mut findings = Findings::default();
    let id = directory.file_name().unwrap_or_default().to_string_lossy();
    let is_named = id.is_empty() || id == record.run_id;
    let renamed = (!is_named).then(|| format!("{RECORD_FILE} belongs to run {}", record.run_id));
    findings.add("record", renamed.into_iter().collect());
    let note = "trained in PyTorch by longreach.bench: it has no seal that would show an edit, and \
                cannot be scored or trained again here";
    findings.notes.push(note.to_owned());
    findings
}

/// Scores and trains again, as far as it is asked for and the files allow it.
fn again(
    run: &Subject<'_>,
    weights: Option<Weights>,
    task: &dyn Task,
    request: &Args,
    findings: &mut Findings,
) -> Result<(), Failure> {
    if request.reevaluate
        && let Some(weights) = weights
    {
        let scored = recompute::reevaluate(run, &weights, task, request)?;
        findings.add("scored again", scored.wrong);
        findings.notes.extend(scored.notes);
    }
    if request.retrain && findings.wrong.is_empty() {
        if let Some(runs) = run.record.environment.runs_together {
            findings.notes.push(format!(
                "it was trained together with up to {}, and again alone: last bits may differ",
                count(runs.saturating_sub(1), "other run")
            ));
        }
        // What it reads besides its corpus, such as the weights that it starts from, may be gone.
        let wrong = match recompute::retrain(run, request) {
            Err(failure) if failure.exit == Exit::Input => {
                vec![format!("cannot be trained again: {}", failure.message)]
            }
            found => found?,
        };
        findings.add("trained again", wrong);
    }
    Ok(())
}

impl Findings {
    fn wrong(problem: String) -> Self {
        Self {
            wrong: vec![problem],
            ..Self::default()
        }
    }

    fn print(&self, run: &Path) {
        let print = |text: String| console::print(&text);
        let word = if self.wrong.is_empty() {
            "ok   "
        } else {
            "WRONG"
        };
        let checked = self.checked.join(", ");
        let checked = if checked.is_empty() {
            String::new()
        } else {
            format!(": {checked}")
        };
        print(format!("{word} {}{checked}", run.display()));
        for wrong in &self.wrong {
            print(format!("      wrong: {}", wrong.replace('\n', "\n      ")));
        }
        for note in &self.notes {
            print(format!("      note: {note}"));
        }
    }

    fn add(&mut self, what: &str, wrong: Vec<String>) {
        self.checked.push(what.to_owned());
        self.wrong.extend(wrong);
    }
}

/// The weights of a run, if they are those of its record.
fn weights(run: &Subject<'_>) -> Result<Weights, String> {
    let model = &run.record.model;
    let path = run.directory.join(WEIGHTS_FILE);
    let weights = Weights::load(&path, model.parameters, &model.weights_blake3)
        .map_err(|error| format!("{error:#}; {}", weights_help(run.directory)))?;
    let held = weights.count("");
    if held == model.parameters {
        return Ok(weights);
    }
    Err(format!(
        "{WEIGHTS_FILE} holds {held} numbers, the record says {}",
        model.parameters
    ))
}
