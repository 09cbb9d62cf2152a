//! `--recorded`: files of records whose runs count as done. The record of a run is copied into the
//! directory of the run, so that every command finds it where it finds all others.

use crate::plan::planned::{Plan, PlannedRun};
use crate::runs_on_disk::files::{
    self, ERROR_FILE, JOB_FILE, RECORD_FILE, WEIGHTS_FILE, refuse_link, run_dir, write_record,
};
use crate::runs_on_disk::integrity::contradiction;
use crate::spec::Job;
use records::compare::disagreement;
use records::record::EvalStatus;
use records::store::{EVALS_DIR, SELECTION_FILE, evaluation_path, record_text};
use records::{Conflict, RecordLocation, RunRecord, StoreError};
use rundir::{Disk, Weights, checkpoint, steplog};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use support::exit::{Exit, Failure};
use support::units::{count, first_of};

/// The file that names the place a record was copied from. Its run has neither weights nor a step
/// log here.
const ORIGIN_FILE: &str = "recorded.json";
/// Files that a note names.
const MOST_NAMED: usize = 5;

/// Where the record of a run was copied from.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Origin {
    /// The file, as it was named.
    file: String,
    /// Its line, counted from 1; none for a file of one record.
    line: Option<usize>,
}

/// Where the record of a run was copied from, `FILE:LINE`, if it was and the run was not trained
/// here since.
pub fn origin(directory: &Path) -> Option<String> {
    if directory.join(WEIGHTS_FILE).exists() {
        return None;
    }
    let bytes = rundir::read::bounded(&directory.join(ORIGIN_FILE), 1 << 16).ok()?;
    let origin: Origin = serde_json::from_slice(&bytes).ok()?;
    let line = origin.line.map_or(String::new(), |line| format!(":{line}"));
    Some(format!("{}{line}", origin.file))
}

/// What is wrong with the numbers of a record, as that of a job.
pub type ProblemOf = fn(&Job, &RunRecord) -> Result<Option<String>, Failure>;

/// Whether a recorded run was trained here and its weights are gone.
pub fn has_lost_weights(directory: &Path) -> bool {
    !directory.join(WEIGHTS_FILE).exists() && origin(directory).is_none()
}

/// How to get the weights of a recorded run that has none, or damaged ones.
pub fn weights_help(directory: &Path) -> String {
    let place = directory.display();
    match origin(directory) {
        Some(origin) => format!(
            "its record was copied from {origin}, without weights; to train the run here, remove \
             {place} and run its config without --recorded"
        ),
        None => format!("to train the run again, remove {place} and run its config"),
    }
}

/// The failure of a run without its weights.
pub fn no_weights(directory: &Path, error: &anyhow::Error) -> Failure {
    let help = weights_help(directory);
    Failure::input(format!("{error:#}")).with_help(help)
}

/// The records of some files, by run.
#[derive(Debug, Default)]
pub struct Recorded {
    files: Vec<PathBuf>,
    numbers: Option<ProblemOf>,
    /// Trainings by run id. A run may be part of several experiments.
    runs: BTreeMap<String, Vec<(RecordLocation, RunRecord)>>,
    /// Later evaluations, by the id of the run whose weights they are of.
    evaluations: BTreeMap<String, Vec<(RecordLocation, RunRecord)>>,
}

impl Recorded {
    /// Reads files as `longreach gather` writes them, each with the records of its sweep beside it,
    /// or records of single runs. `numbers` checks records without a seal.
    ///
    /// # Errors
    ///
    /// [`Exit::Input`] if a file cannot be read or holds no record, if a line is not a record of
    /// this version, if a record does not match its seal, or if a run is recorded twice with
    /// different numbers. The message names file and line.
    pub fn read(files: &[PathBuf], numbers: ProblemOf) -> Result<Self, Failure> {
        for file in files {
            refuse_other(file)?;
        }
        let files = with_sweeps(files);
        let mut recorded = Self {
            files: files.clone(),
            numbers: Some(numbers),
            ..Self::default()
        };
        if files.is_empty() {
            return Ok(recorded);
        }
        let (found, excluded) =
            records::store::read_files(&files).map_err(|error| match error {
                StoreError::Conflicts(_) => Failure::input(format!("--recorded: {error}")),
                error => refused(error, "use a file that `longreach gather` wrote"),
            })?;
        if let Some(bad) = excluded.first() {
            let (path, line) = (bad.path.clone(), bad.line);
            let problem = format!("{}: {}", RecordLocation { path, line }, bad.reason);
            return Err(refused(
                problem,
                "use the file as it was written, or a different version of the program",
            ));
        }
        if found.is_empty() {
            let names: Vec<String> = files
                .iter()
                .map(|file| file.display().to_string())
                .collect();
            let problem = format!("{}: no record in it", first_of(&names, MOST_NAMED));
            return Err(refused(problem, "use a file that `longreach gather` wrote"));
        }
        for (place, record) in found {
            if record.seal_holds() == Some(false) {
                let problem = format!(
                    "{place}: the record of run {} was changed after it was written: it does not \
                     match its seal",
                    record.run_id
                );
                let help = "use the file as it was written, or remove the line: its run is then \
                            trained";
                return Err(refused(problem, help));
            }
            let (list, id) = match &record.evaluation_of {
                None => (&mut recorded.runs, record.run_id.clone()),
                Some(of) => (&mut recorded.evaluations, of.clone()),
            };
            list.entry(id).or_default().push((place, record));
        }
        Ok(recorded)
    }

    /// Whether no file was named.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The record of a run, that of its experiment first: a run has the same numbers in all.
    pub fn of(&self, run: &PlannedRun) -> Option<&(RecordLocation, RunRecord)> {
        let all = self.runs.get(&run.job.run_id)?;
        let own = all
            .iter()
            .find(|(_, record)| record.experiment == run.job.experiment);
        own.or(all.first())
    }

    /// Checks the records of the runs of a plan against the plan and the directories of the runs.
    ///
    /// # Errors
    ///
    /// [`Exit::Input`] for a record with the spec of another run, for one without a seal whose
    /// numbers are not those that the spec asks for, for later evaluations of other weights, and
    /// for a run that its directory holds with other numbers.
    pub fn check(&self, plan: &Plan, runs: &Path) -> Result<(), Failure> {
        for run in &plan.runs {
            let Some((place, record)) = self.of(run) else {
                continue;
            };
            let mut why = contradiction(record);
            // What a seal holds together was written by the program.
            if let (None, None, Some(problem_of)) = (&why, &record.seal, self.numbers) {
                why = problem_of(&run.job, record)?;
            }
            if let Some(why) = why {
                let problem = format!(
                    "{place}: the record of run {} cannot be a result of its training: {why}",
                    record.run_id
                );
                let help = "use the file as it was written, or remove the line: its run is then \
                            trained";
                return Err(refused(problem, help));
            }
            let others = self.evaluations_of(run);
            if let Some((place, _)) = others
                .iter()
                .find(|(_, evaluation)| evaluation.model != record.model)
            {
                let problem = format!(
                    "{place}: evaluates other weights than those of run {}",
                    record.run_id
                );
                return Err(refused(problem, "remove the line"));
            }
            let directory = run_dir(runs, &run.job);
            if let Some(local) = files::recorded(&directory, &run.job) {
                agree((place, record), (&directory.join(RECORD_FILE), &local))?;
            }
        }
        Ok(())
    }

    fn evaluations_of(&self, run: &PlannedRun) -> &[(RecordLocation, RunRecord)] {
        let found = self.evaluations.get(&run.job.run_id);
        found.map_or(&[], Vec::as_slice)
    }

    /// Copies the records of the runs of a plan, and of their later evaluations, into the
    /// directories of the runs. A run that is recorded there keeps its record, unless that skipped
    /// lengths which the other one has. Returns notes for people.
    ///
    /// # Errors
    ///
    /// Those of [`check`](Self::check), before anything is written; [`Exit::Input`] for a record in
    /// a directory that cannot be read and must not be replaced; [`Exit::Resources`] if a directory
    /// cannot be written.
    pub fn copy(&self, disk: &dyn Disk, plan: &Plan, runs: &Path) -> Result<Vec<String>, Failure> {
        self.check(plan, runs)?;
        for run in &plan.runs {
            let directory = run_dir(runs, &run.job);
            let Some(found) = self.of(run) else { continue };
            let local = files::recorded(&directory, &run.job);
            let is_better = local.is_none_or(|local| scored(&found.1) > scored(&local));
            let missing = self
                .evaluations_of(run)
                .iter()
                .any(|(_, evaluation)| !evaluation_path(&directory, &evaluation.run_id).exists());
            if !is_better && !missing {
                continue;
            }
            refuse_link(&directory, "a run")?;
            disk.create_dirs(&directory)?;
            let _hold = match files::take(disk, &directory) {
                Ok(hold) => hold,
                // It is being trained, or another sweep copies the same record.
                Err(failure) if failure.exit == Exit::Busy => continue,
                Err(failure) => return Err(failure),
            };
            if is_better {
                copy_run(disk, &directory, run, found)?;
            }
            for (_, evaluation) in self.evaluations_of(run) {
                copy_evaluation(disk, &directory, run, evaluation)?;
            }
        }
        Ok(self.notes(plan))
    }

    /// How many runs of a plan the files hold, how many of their records have no seal, and how many
    /// records are of other runs.
    pub fn notes(&self, plan: &Plan) -> Vec<String> {
        if self.is_empty() {
            return Vec::new();
        }
        let here: Vec<&(RecordLocation, RunRecord)> =
            plan.runs.iter().filter_map(|run| self.of(run)).collect();
        // Runs of the sweep and of the result are both of this config.
        let swept = plan.selection.iter().flat_map(|swept| &swept.runs);
        let results = plan.selection.iter().flat_map(|swept| &swept.methods);
        let results = results.flat_map(|method| &method.tried);
        let results = results.flat_map(|tried| &tried.runs);
        let ours: BTreeSet<&str> = plan
            .runs
            .iter()
            .chain(swept)
            .chain(results)
            .filter(|run| self.of(run).is_some())
            .map(|run| run.job.run_id.as_str())
            .collect();
        let others = self.runs.len().saturating_sub(ours.len());
        let others = match others {
            0 => String::new(),
            n => format!("; {} not of this config", count(n, "run")),
        };
        let counted = format!(
            "--recorded: {} of {} count as done{others}",
            here.len(),
            count(plan.runs.len(), "run")
        );
        let unsealed: Vec<String> = here
            .iter()
            .filter(|(_, record)| record.seal.is_none())
            .map(|(place, _)| place.to_string())
            .collect();
        let unsealed = (!unsealed.is_empty()).then(|| {
            format!(
                "--recorded: {} without a seal, so that an edit would not show: {}",
                count(unsealed.len(), "record"),
                first_of(&unsealed, MOST_NAMED)
            )
        });
        let notes = std::iter::once(counted).chain(self.lacks_sweep(plan));
        notes.chain(unsealed).collect()
    }

    /// A note on records whose values were chosen by runs of the plan that no file holds.
    fn lacks_sweep(&self, plan: &Plan) -> Option<String> {
        // After the choice, its runs were trained or recorded here.
        let open = plan
            .selection
            .iter()
            .filter(|swept| !swept.methods.is_empty());
        let planned = open.flat_map(|swept| &swept.runs);
        let planned: BTreeSet<&str> = planned.map(|run| run.job.run_id.as_str()).collect();
        let results = self.runs.values().flatten();
        let chosen = results.filter_map(|(place, record)| Some((place, record.selected.as_ref()?)));
        let (mut places, mut lacking) = (BTreeSet::new(), BTreeSet::new());
        for (place, selected) in chosen {
            let tried = selected.candidates.iter().flat_map(|tried| &tried.runs);
            let tried = tried.map(String::as_str);
            let tried = tried.filter(|run| planned.contains(run) && !self.runs.contains_key(*run));
            let before = lacking.len();
            lacking.extend(tried);
            if lacking.len() > before {
                places.insert(place.path.display().to_string());
            }
        }
        let places: Vec<String> = places.into_iter().collect();
        (!lacking.is_empty()).then(|| {
            format!(
                "--recorded: {} has results that {} chose, whose records are in none of the files: \
                 put the {SELECTION_FILE} that `longreach gather` wrote beside it, or they are \
                 trained again unless they are recorded here",
                first_of(&places, MOST_NAMED),
                count(lacking.len(), "run"),
            )
        })
    }
}

/// Rows with a result.
fn scored(record: &RunRecord) -> usize {
    let rows = record.evals.iter();
    rows.filter(|row| row.status != EvalStatus::Skipped).count()
}

/// A file that cannot be used.
fn refused(problem: impl std::fmt::Display, help: &str) -> Failure {
    let allowed = "records of this version, each once or with equal numbers, as they were written";
    Failure::input(format!("--recorded: {problem}"))
        .with_allowed(allowed)
        .with_help(help)
}

/// The files, and the records of sweeps that `longreach gather` wrote beside them.
pub fn with_sweeps(files: &[PathBuf]) -> Vec<PathBuf> {
    let beside: BTreeSet<PathBuf> = files
        .iter()
        .filter(|file| {
            file.extension()
                .is_some_and(|extension| extension == "jsonl")
        })
        .map(|file| file.with_file_name(SELECTION_FILE))
        .filter(|file| file.is_file() && !files.contains(file))
        .collect();
    files.iter().cloned().chain(beside).collect()
}

/// Refuses what is not a file, and what is not text. `--recorded` takes all that follows it, also a
/// value for a key of the config.
fn refuse_other(file: &Path) -> Result<(), Failure> {
    let name = file.display();
    let place = match file.canonicalize() {
        Ok(place) => place,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let problem = format!("{name}: there is no such file");
            if !name.to_string().contains('=') {
                return Err(refused(
                    problem,
                    "name a file that `longreach gather` wrote",
                ));
            }
            let help = "write key=value before --recorded, which takes every file that follows it";
            return Err(Failure::config(format!("--recorded: {problem}"))
                .with_allowed("files of records")
                .with_help(help));
        }
        Err(error) => return Err(refused(format!("{name}: {error}"), "name another file")),
    };
    // What cannot be read is refused where it is read whole.
    let start = rundir::read::start(&place, 1 << 12).unwrap_or_default();
    match tasks::begins_as(&start, "records") {
        Some((problem, help)) => Err(refused(format!("{name} {problem}"), &help)),
        None => Ok(()),
    }
}

/// Refuses two records of one run with different numbers.
fn agree(file: (&RecordLocation, &RunRecord), local: (&Path, &RunRecord)) -> Result<(), Failure> {
    let Some(what) = disagreement(file.1, local.1) else {
        return Ok(());
    };
    let local_place = RecordLocation {
        path: local.0.to_owned(),
        line: None,
    };
    let conflict = Conflict {
        run_id: file.1.run_id.clone(),
        places: [file.0.clone(), local_place],
        what,
    };
    let error = StoreError::Conflicts(vec![conflict]);
    Err(Failure::input(format!("--recorded: {error}")))
}

/// Writes the job of a run, where its record is from, and the record. What an unfinished training
/// left is removed: it is not that of the record.
fn copy_run(
    disk: &dyn Disk,
    directory: &Path,
    run: &PlannedRun,
    (place, record): &(RecordLocation, RunRecord),
) -> Result<(), Failure> {
    files::check_record(directory)?;
    let job = serde_json::to_vec_pretty(&run.job).map_err(Failure::bug)?;
    disk.write_whole(&directory.join(JOB_FILE), &job)?;
    let model = &record.model;
    let weights = directory.join(WEIGHTS_FILE);
    let has_weights = Weights::load(&weights, model.parameters, &model.weights_blake3).is_ok();
    if !has_weights {
        let left = [
            WEIGHTS_FILE,
            steplog::LOG_FILE,
            checkpoint::CHECKPOINTS_DIR,
            ERROR_FILE,
        ];
        for name in left {
            disk.remove_tree(&directory.join(name))?;
        }
        let origin = Origin {
            file: place.path.display().to_string(),
            line: place.line,
        };
        let text = serde_json::to_vec_pretty(&origin).map_err(Failure::bug)?;
        disk.write_whole(&directory.join(ORIGIN_FILE), &text)?;
    }
    write_record(disk, directory, &placed(record, run))
}

/// The record in the experiment of the plan, with what the plan says of its run.
fn placed(record: &RunRecord, run: &PlannedRun) -> RunRecord {
    let mut record = record.clone();
    let job = &run.job;
    if record.experiment != job.experiment {
        record.change(|record| record.experiment.clone_from(&job.experiment));
    }
    job.describe(&mut record);
    record
}

/// Writes a later evaluation of a run, unless it is there.
fn copy_evaluation(
    disk: &dyn Disk,
    directory: &Path,
    run: &PlannedRun,
    evaluation: &RunRecord,
) -> Result<(), Failure> {
    let path = evaluation_path(directory, &evaluation.run_id);
    if path.exists() {
        return Ok(());
    }
    refuse_link(&directory.join(EVALS_DIR), "a run's evaluations")?;
    disk.create_dirs(&directory.join(EVALS_DIR))?;
    let text = record_text(&path, &placed(evaluation, run)).map_err(Failure::bug)?;
    Ok(disk.write_whole(&path, text.as_bytes())?)
}
