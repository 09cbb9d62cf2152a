//! `longreach verify`: whether the files of runs are unchanged, and on request whether training
//! again gives the same bytes.

use crate::console;
use crate::device::{self, DeviceName};
use crate::exit::{Exit, Failure};
use crate::plan::memory::MemoryLimit;
use crate::run::protocol::{CheckpointEvery, How};
use crate::run::record::spec_map;
use crate::run::task::build_task;
use crate::run::worker;
use crate::run_dir::changes;
use crate::run_dir::files::{JOB_FILE, RECORD_FILE, TIMINGS_FILE, WEIGHTS_FILE, jobs, read_job};
use crate::run_dir::seal::seal_holds;
use crate::units::count;
use results::RunRecord;
use results::record::{EvalStatus, RunStatus, StepScores};
use rundir::Weights;
use rundir::steplog::{self, LOG_FILE};
use std::path::{Path, PathBuf};

/// Check the files of runs against their hashes and against each other; with --retrain also train
/// the runs again and compare
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Directories of runs, of experiments, or of many experiments
    #[arg(default_value = "runs")]
    directories: Vec<PathBuf>,
    /// Train every run again, in a temporary directory, and compare weights, step log and record
    #[arg(long)]
    retrain: bool,
    /// The device to train on
    #[arg(long, default_value = "cpu")]
    device: DeviceName,
    /// As in `run`
    #[arg(long, value_name = "SIZE")]
    memory_limit: Option<MemoryLimit>,
}

const EXAMPLES: &str = r#"Examples:
  longreach verify runs/quickstart
  longreach verify runs/quickstart/0123456789abcdef --retrain"#;

/// What was checked in a run, and what is wrong with it.
#[derive(Debug, Default)]
struct Findings {
    checked: Vec<String>,
    wrong: Vec<String>,
    notes: Vec<String>,
}

/// Verifies every recorded run below some directories and prints each result.
///
/// # Errors
///
/// [`Exit::Input`] if there is no recorded run; [`Exit::Device`] if the device cannot train.
pub fn run(request: &Args) -> Result<Exit, Failure> {
    let mut found = Vec::new();
    for directory in &request.directories {
        found.extend(jobs(directory)?);
    }
    found.sort();
    found.dedup();
    let is_recorded = |run: &PathBuf| run.join(RECORD_FILE).exists();
    let (recorded, unfinished): (Vec<_>, Vec<_>) = found.into_iter().partition(is_recorded);
    if recorded.is_empty() {
        let directories = request.directories.iter();
        let directories: Vec<String> = directories.map(|path| path.display().to_string()).collect();
        return Err(Failure::input(format!(
            "{} holds no recorded run\n  = help: name the directory of a recorded run, or one \
             with such directories, such as runs/quickstart",
            directories.join(", ")
        )));
    }
    // A device that cannot train is refused before any run is checked.
    if request.retrain {
        device::open(&request.device)?;
    }
    let mut bad = 0;
    for run in &recorded {
        let findings = verify(run, request)?;
        findings.print(run);
        bad += usize::from(!findings.wrong.is_empty());
    }
    let left = if unfinished.is_empty() {
        String::new()
    } else {
        format!("; {} not recorded yet", unfinished.len())
    };
    let wrong = if bad == 0 {
        "nothing wrong".to_owned()
    } else {
        format!("{bad} with something wrong")
    };
    console::print(&format!(
        "{} verified: {wrong}{left}",
        count(recorded.len(), "run")
    ));
    Ok(if bad == 0 {
        Exit::Done
    } else {
        Exit::SomeFailed
    })
}

fn verify(run: &Path, request: &Args) -> Result<Findings, Failure> {
    let mut findings = Findings::default();
    let job = match read_job(run) {
        Ok(job) => job,
        Err(failure) => {
            findings.wrong.push(failure.message);
            return Ok(findings);
        }
    };
    let record = match results::read_record(&run.join(RECORD_FILE)) {
        Ok(record) => record,
        Err(error) => {
            findings.wrong.push(error.to_string());
            return Ok(findings);
        }
    };
    findings.add("job and record", identity(run, &job, &record));
    findings.add("weights", weights(run, &record));
    findings.add("step log", step_log(run, &job, &record));
    // Building the task compares the hash of the corpus with that of the job.
    match build_task(&job, &job.spec.eval.test_lens) {
        Ok(task) if task.corpus().is_some() => findings.checked.push("corpus".to_owned()),
        Ok(_) => {}
        Err(failure) => findings.wrong.push(failure.message),
    }
    findings
        .notes
        .extend(changes::other_programs(std::slice::from_ref(&record)));
    if request.retrain && findings.wrong.is_empty() {
        let compared = retrain(run, &record, request)?;
        findings.add("trained again", compared);
    }
    Ok(findings)
}

impl Findings {
    fn print(&self, run: &Path) {
        let print = |text: String| console::print(&console::plain(&text));
        let word = if self.wrong.is_empty() {
            "ok   "
        } else {
            "WRONG"
        };
        let checked = self.checked.join(", ");
        print(format!("{word} {}: {checked}", run.display()));
        for wrong in &self.wrong {
            print(format!("      wrong: {wrong}"));
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

/// Directory, job, spec and record agree on the run.
fn identity(run: &Path, job: &crate::plan::spec::Job, record: &RunRecord) -> Vec<String> {
    let mut wrong = Vec::new();
    let id = job.spec.run_id().unwrap_or_default();
    if id != job.run_id {
        wrong.push(format!(
            "{JOB_FILE} was changed: its spec is that of run {id}, not of {}",
            job.run_id
        ));
    }
    if run
        .file_name()
        .is_some_and(|name| name.to_string_lossy() != job.run_id)
    {
        wrong.push(format!(
            "the directory is not named after its run, {}",
            job.run_id
        ));
    }
    if seal_holds(run) == Some(false) {
        wrong.push(format!(
            "{RECORD_FILE} was changed after it was written: it does not match its hash in \
             {TIMINGS_FILE}"
        ));
    }
    if record.seed != job.spec.seed {
        wrong.push(format!(
            "{RECORD_FILE} names seed {}, {JOB_FILE} seed {}",
            record.seed, job.spec.seed
        ));
    }
    if record.run_id != job.run_id {
        wrong.push(format!("{RECORD_FILE} is of run {}", record.run_id));
    }
    let spec = spec_map(&job.spec)
        .map(serde_json::Value::Object)
        .unwrap_or_default();
    let theirs = serde_json::Value::Object(record.spec.clone());
    let differ: Vec<String> = changes::differences(&theirs, &spec)
        .into_iter()
        .map(|(key, ..)| key)
        .collect();
    if !differ.is_empty() {
        wrong.push(format!(
            "the spec in {RECORD_FILE} is not that of {JOB_FILE}: {}",
            differ.join(", ")
        ));
    }
    wrong
}

fn weights(run: &Path, record: &RunRecord) -> Vec<String> {
    let loaded = Weights::load(
        &run.join(WEIGHTS_FILE),
        record.model.parameters,
        &record.model.weights_blake3,
    );
    match loaded {
        Err(error) => vec![format!("{error:#}")],
        Ok(weights) if weights.count("") != record.model.parameters => {
            vec![format!(
                "{WEIGHTS_FILE} holds {} numbers, the record says {}",
                weights.count(""),
                record.model.parameters
            )]
        }
        Ok(_) => Vec::new(),
    }
}

/// The log holds every step, and the record agrees with it.
fn step_log(run: &Path, job: &crate::plan::spec::Job, record: &RunRecord) -> Vec<String> {
    let steps = match steplog::read_whole(run, job.spec.train.steps) {
        Ok(steps) => steps,
        Err(error) => return vec![format!("{error:#}")],
    };
    let mut wrong = Vec::new();
    if steps.len() as u64 != record.train.steps {
        wrong.push(format!(
            "{LOG_FILE} holds {} steps, the record {}",
            steps.len(),
            record.train.steps
        ));
    }
    if record.status == RunStatus::Ok && record.train.steps != job.spec.train.steps {
        wrong.push(format!(
            "the record holds {} steps, {JOB_FILE} asks for {}",
            record.train.steps, job.spec.train.steps
        ));
    }
    let losses: Vec<f64> = steps.iter().map(|step| step.loss_nats).collect();
    if crate::run::train::thin(&losses) != record.train.loss_curve {
        wrong.push(format!(
            "the loss curve of the record is not that of {LOG_FILE}"
        ));
    }
    if steps
        .last()
        .is_some_and(|last| last.tokens != record.train.tokens)
    {
        wrong.push(format!(
            "the record counts {} tokens, {LOG_FILE} {}",
            record.train.tokens,
            steps.last().map_or(0, |last| last.tokens)
        ));
    }
    wrong
}

/// Removes the scores while training that one of two records of a run skipped for lack of memory.
fn skip_scores(one: &mut RunRecord, other: &mut RunRecord) {
    let skipped = |record: &RunRecord| -> Vec<(u64, usize)> {
        let at = |at: &StepScores| {
            let rows = at.rows.iter();
            let rows = rows.filter(|row| row.status == EvalStatus::Skipped);
            let step = at.step;
            rows.map(|row| (step, row.test_len)).collect::<Vec<_>>()
        };
        record.train.scores.iter().flat_map(at).collect()
    };
    let out = [skipped(one), skipped(other)].concat();
    for at in one.train.scores.iter_mut().chain(&mut other.train.scores) {
        let step = at.step;
        at.rows.retain(|row| !out.contains(&(step, row.test_len)));
    }
}

/// Trains the job again in a temporary directory and compares every byte that must not differ.
fn retrain(run: &Path, record: &RunRecord, request: &Args) -> Result<Vec<String>, Failure> {
    let scratch = tempfile::tempdir().map_err(Failure::resources)?;
    let again = scratch.path().join(run.file_name().unwrap_or_default());
    std::fs::create_dir(&again).map_err(Failure::resources)?;
    std::fs::copy(run.join(JOB_FILE), again.join(JOB_FILE)).map_err(Failure::resources)?;
    let how = How {
        device: request.device.clone(),
        // Never: nothing resumes from a temporary directory.
        checkpoint_every: CheckpointEvery::Steps(u64::MAX),
        memory_limit: request.device.memory_limit(request.memory_limit, 1),
        initial_weights: false,
    };
    worker::run_silently(&again, &how)?;
    let mut wrong = Vec::new();
    for name in [WEIGHTS_FILE, LOG_FILE] {
        if std::fs::read(run.join(name)).ok() != std::fs::read(again.join(name)).ok() {
            wrong.push(format!("trained again, {name} has other bytes"));
        }
    }
    let mut fresh = results::read_record(&again.join(RECORD_FILE)).map_err(Failure::input)?;
    // Commit and labels may differ.
    let mut expected = record.clone();
    expected.environment.clone_from(&fresh.environment);
    expected.labels.clone_from(&fresh.labels);
    // Lengths that either of the two skipped for lack of memory cannot be compared.
    let out: Vec<(String, usize)> = expected
        .evals
        .iter()
        .chain(&fresh.evals)
        .filter(|row| row.status == EvalStatus::Skipped)
        .map(|row| (row.variant.clone(), row.test_len))
        .collect();
    for record in [&mut expected, &mut fresh] {
        record
            .evals
            .retain(|row| !out.contains(&(row.variant.clone(), row.test_len)));
    }
    skip_scores(&mut expected, &mut fresh);
    let [theirs, ours] =
        [&expected, &fresh].map(|record| serde_json::to_value(record).unwrap_or_default());
    let differ: Vec<String> = changes::differences(&theirs, &ours)
        .into_iter()
        .map(|(key, ..)| key)
        .collect();
    if !differ.is_empty() {
        wrong.push(format!(
            "trained again, the record differs in {}",
            differ.join(", ")
        ));
    }
    Ok(wrong)
}
