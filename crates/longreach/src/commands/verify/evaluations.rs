//! The records of later evaluations of a run, in its directory.

use super::{Findings, Subject};
use experiment::run::numbers::rows;
use experiment::run::task::build_task;
use experiment::spec::test_lens::TestLens;
use experiment::spec::{EvalSpec, Job, RunSpec};
use records::record::TrainFacts;
use records::store::{EVALS_DIR, is_evaluation};
use records::{RunRecord, read_record};
use schema::text::excerpt;
use serde_json::Value;
use std::path::{Path, PathBuf};
use support::units::count;

/// The record of a later evaluation, and its spec.
pub(super) struct Evaluation {
    pub(super) record: RunRecord,
    pub(super) spec: RunSpec,
}

impl Evaluation {
    /// The evaluation as a job of the run. It keeps in its spec what the run scored while training,
    /// although its lengths need not hold those, and scores nothing while training.
    pub(super) fn job(&self, run: &Job) -> Job {
        let mut spec = self.spec.clone();
        spec.eval.every = None;
        spec.eval.during = TestLens::default();
        Job {
            run_id: self.record.run_id.clone(),
            spec,
            ..run.clone()
        }
    }
}

/// Checks every record of a later evaluation against its seal, its name, its spec and the run.
pub(super) fn check(run: &Subject<'_>, findings: &mut Findings) {
    let files = files(run.directory);
    if files.is_empty() {
        return;
    }
    let mut wrong = Vec::new();
    for path in &files {
        let name = shown(path);
        match read(path).and_then(|evaluation| problems(run, path, &evaluation)) {
            Ok(problems) => {
                wrong.extend(
                    problems
                        .into_iter()
                        .map(|problem| format!("{name}: {problem}")),
                );
            }
            Err(problem) => wrong.push(format!("{name}: {problem}")),
        }
    }
    findings.add(&count(files.len(), "later evaluation"), wrong);
}

/// The evaluations that can be read, with the names of their files.
pub(super) fn readable(run: &Subject<'_>) -> Vec<(String, Evaluation)> {
    let files = files(run.directory).into_iter();
    files
        .filter_map(|path| Some((shown(&path), read(&path).ok()?)))
        .collect()
}

/// The files of `evals/`, sorted; none if it is a link, which nothing here follows.
fn files(run: &Path) -> Vec<PathBuf> {
    let directory = run.join(EVALS_DIR);
    if directory.is_symlink() {
        return Vec::new();
    }
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let mut paths: Vec<PathBuf> = paths.filter(|path| is_evaluation(path)).collect();
    paths.sort();
    paths
}

/// `evals/0123456789abcdef.json`.
fn shown(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    excerpt(&format!("{EVALS_DIR}/{name}"))
}

fn read(path: &Path) -> Result<Evaluation, String> {
    if path.is_symlink() {
        return Err("is a link".to_owned());
    }
    let record = read_record(path).map_err(|error| error.to_string())?;
    let spec = serde_json::from_value(Value::Object(record.spec.clone()))
        .map_err(|error| format!("its spec is not one of this version: {error}"))?;
    Ok(Evaluation { record, spec })
}

/// What is wrong with an evaluation.
fn problems(
    run: &Subject<'_>,
    path: &Path,
    evaluation: &Evaluation,
) -> Result<Vec<String>, String> {
    let Evaluation { record, spec } = evaluation;
    let mut wrong = Vec::new();
    let mut must = |holds: bool, problem: &str| {
        if !holds {
            wrong.push(problem.to_owned());
        }
    };
    must(
        record.seal_holds() != Some(false),
        "was changed after it was written: it does not match its seal",
    );
    let id = spec.run_id().unwrap_or_default();
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    must(
        id == record.run_id && stem == record.run_id.as_str(),
        "its name, its run id and its spec do not belong to one evaluation",
    );
    // Versions before `evaluation_of` existed did not write whose weights these are.
    let of = record.evaluation_of.as_ref();
    must(
        of.is_none_or(|of| *of == run.job.run_id) && record.model == run.record.model,
        "evaluates other weights than those of this run",
    );
    // Scores while training are completed where lengths did not fit before.
    let training = |record: &RunRecord| TrainFacts {
        scores: Vec::new(),
        ..record.train.clone()
    };
    must(
        training(record) == training(run.record) && record.seed == run.record.seed,
        "belongs to a different training than this run",
    );
    let without_eval = |spec: &RunSpec| RunSpec {
        eval: EvalSpec {
            variants: Vec::new(),
            ..run.job.spec.eval.clone()
        },
        ..spec.clone()
    };
    must(
        without_eval(spec) == without_eval(&run.job.spec),
        "its spec differs from that of this run in more than the evaluation",
    );
    let job = evaluation.job(run.job);
    let task = build_task(&job, &spec.eval.test_lens).map_err(|failure| failure.message)?;
    wrong.extend(rows(&record.evals, spec, task.as_ref()));
    Ok(wrong)
}
