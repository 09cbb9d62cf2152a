//! Records below the directories that `report`, `gather` and `compare` are given.

use experiment::runs_on_disk::files::{RECORD_FILE, Runs};
use experiment::runs_on_disk::integrity::{directory_notes, integrity_notes, unsealed_note};
use experiment::runs_on_disk::survey;
use records::store::find_records_within;
use records::{Excluded, Found, RunRecord, StoreError, read_record};
use schema::text::excerpt;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use support::console;
use support::exit::Failure;
use support::units::{count, first_of, quoted};
use sweep::cluster::directory::{Submission, experiment_of};

/// Experiments, and files that were left out, that are listed.
const MAX_LISTED: usize = 10;

/// The records below some directories, or in some files.
///
/// # Errors
///
/// [`support::exit::Exit::Input`] if one cannot be read or none holds a record,
/// [`support::exit::Exit::Config`] if one holds more than one level of experiments.
pub fn find(roots: &[PathBuf], recursive: bool) -> Result<Found, Failure> {
    exist(roots)?;
    // Of a submitted sweep, the experiment that its tasks write.
    let roots: Vec<PathBuf> = roots.iter().map(|root| experiment_of(root)).collect();
    let depth = survey::depth(&roots, recursive)?;
    let found = find_records_within(&roots, depth);
    if let Ok(found) = &found {
        if found.records.is_empty() {
            return Err(nothing(&roots, found));
        }
        tell_unsealed(&found.records);
    }
    found.map_err(|error| {
        // If two records of a run disagree, one may have been edited.
        if let StoreError::Conflicts(conflicts) = &error {
            let places = conflicts.iter().flat_map(|conflict| &conflict.places);
            let paths: BTreeSet<_> = places.map(|place| &place.path).collect();
            let records = paths.iter().filter_map(|path| read_record(path).ok());
            edit_notes(
                &records.collect::<Vec<_>>(),
                paths
                    .iter()
                    .filter_map(|path| Some(path.parent()?.to_owned())),
            );
        }
        Failure::input(error)
    })
}

/// The failure of directories without a record, and how to get one.
fn nothing(roots: &[PathBuf], found: &Found) -> Failure {
    let paths: Vec<String> = roots.iter().map(|p| p.display().to_string()).collect();
    let begun = roots.iter().filter_map(|root| Runs::below(root).ok());
    let begun: usize = begun.map(|found| found.runs.len()).sum();
    let none = |runs| format!("none of its {} is recorded", count(runs, "run"));
    let (problem, help) = match (begun, submitted(roots)) {
        // `longreach run` would train runs of a submitted sweep elsewhere, all of them.
        (_, Some((place, runs))) if found.excluded.is_empty() => (
            none(runs),
            format!(
                "`longreach status {place}` says what became of them, `longreach submit --again \
                 {place}` submits what is left"
            ),
        ),
        (0, _) => (
            no_record(found),
            "name a directory that `longreach run` wrote, such as runs/quickstart, or a file of \
             records"
                .to_owned(),
        ),
        _ if !found.excluded.is_empty() => (
            no_record(found),
            "`longreach status` says what is wrong with each run".to_owned(),
        ),
        (runs, _) => (
            none(runs),
            "`longreach run` with its config finishes them".to_owned(),
        ),
    };
    Failure::input(format!("{}: {problem}", paths.join(", "))).with_help(help)
}

/// The submitted sweep that an experiment is of, as a word of a shell, and its runs.
fn submitted(roots: &[PathBuf]) -> Option<(String, usize)> {
    let [experiment] = roots else { return None };
    let experiment = std::path::absolute(experiment).ok()?;
    let place = rundir::directory_of(rundir::directory_of(&experiment));
    let submission = Submission::read(place).ok()?;
    let is_of = experiment.ends_with(submission.experiment(Path::new("")));
    is_of.then(|| (quoted(&place.to_string_lossy()), submission.runs))
}

/// Prints how many records have no seal, if any.
pub fn tell_unsealed(records: &[RunRecord]) {
    console::notes(&unsealed_note(records).into_iter().collect::<Vec<_>>());
}

/// What is said of a record without a seal, if it has none.
///
/// # Errors
///
/// [`support::exit::Exit::Input`] for a record that does not match its seal.
pub fn check_seal(record: &RunRecord, directory: &Path) -> Result<Option<String>, Failure> {
    let name = directory.file_name().unwrap_or_default().display();
    match record.seal_holds() {
        Some(true) => Ok(None),
        None => Ok(Some(format!(
            "{name}: its record has no seal, so that an edit would not show"
        ))),
        Some(false) => Err(Failure::input(format!(
            "{}: {RECORD_FILE} was changed after it was written: it does not match its seal",
            directory.display()
        ))
        .with_allowed("a record as it was written")
        .with_help(format!(
            "`longreach verify --retrain` says what changed; without {RECORD_FILE} `longreach run` \
             trains the run again"
        ))),
    }
}

/// Numbers of runs and of later evaluations, by experiment.
pub fn by_experiment(records: &[RunRecord]) -> BTreeMap<&str, [usize; 2]> {
    let mut counts = BTreeMap::new();
    for record in records {
        let count: &mut [usize; 2] = counts.entry(record.experiment.as_str()).or_default();
        // [runs, evaluations]
        count[usize::from(record.evaluation_of.is_some())] += 1;
    }
    counts
}

/// Prints which experiments are read.
pub fn print_sources(records: &[RunRecord]) {
    let experiments = by_experiment(records);
    if experiments.is_empty() {
        return;
    }
    let listed = experiments.iter().map(|(name, [runs, evaluations])| {
        let evaluations = if *evaluations > 0 {
            format!(", {}", count(*evaluations, "evaluation"))
        } else {
            String::new()
        };
        format!("{} ({}{evaluations})", excerpt(name), count(*runs, "run"))
    });
    let listed: Vec<String> = listed.collect();
    console::tell(&format!(
        "reading {}: {}",
        count(experiments.len(), "experiment"),
        first_of(&listed, MAX_LISTED)
    ));
}

/// How many records were read, how many were left out, and why.
pub fn read_and_left_out(found: &Found) -> String {
    let mut text = format!(
        "{} read, {} left out",
        count(found.records.len(), "record"),
        found.excluded.len()
    );
    for excluded in found.excluded.iter().take(MAX_LISTED) {
        text.push_str(&format!("\nleft out {}", why(excluded)));
    }
    if found.excluded.len() > MAX_LISTED {
        text.push_str(&format!(
            "\nleft out: {} more",
            found.excluded.len() - MAX_LISTED
        ));
    }
    text
}

/// Which file or line was left out, and why.
pub fn why(excluded: &Excluded) -> String {
    let line = excluded.line.map(|line| format!(":{line}"));
    let path = excerpt(&excluded.path.display().to_string());
    format!(
        "{path}{}: {}",
        line.unwrap_or_default(),
        excerpt(&excluded.reason)
    )
}

/// Checks that every path exists, and is no file of another format, such as gzip.
///
/// # Errors
///
/// [`support::exit::Exit::Input`] for the first that does not, or is.
pub fn exist(roots: &[PathBuf]) -> Result<(), Failure> {
    for root in roots {
        if !root.exists() {
            return Err(
                Failure::input(format!("{} does not exist", root.display())).with_help(
                    "name a directory that `longreach run` wrote, such as runs/quickstart",
                ),
            );
        }
        let place = root.canonicalize().unwrap_or_default();
        let start = rundir::read::start(&place, 1 << 12).unwrap_or_default();
        if let Some((problem, help)) = tasks::begins_as(&start, "records") {
            let root = root.display();
            return Err(Failure::input(format!("{root} {problem}")).with_help(help));
        }
        refuse_config(root)?;
    }
    Ok(())
}

/// Refuses a config: its records are those of its runs.
fn refuse_config(root: &Path) -> Result<(), Failure> {
    if !root.is_file() || root.extension().is_none_or(|extension| extension != "toml") {
        return Ok(());
    }
    let help = match experiment::plan(root, &[]) {
        Ok(plan) => {
            let name = plan.name;
            format!("`longreach run` writes its runs to runs/{name}: name that directory")
        }
        Err(_) => "name a directory that `longreach run` wrote, such as runs/quickstart".to_owned(),
    };
    let root = root.display();
    Err(Failure::input(format!("{root} is a config, not records")).with_help(help))
}

/// What there is instead of records: nothing, or what was left out.
pub fn no_record(found: &Found) -> String {
    let left = found.excluded.len();
    match found.excluded.first() {
        None => "no record".to_owned(),
        Some(first) => format!("no record; {left} left out, the first: {}", why(first)),
    }
}

/// Prints and returns notes on records and run directories that were edited after the run.
pub fn edit_notes(
    records: &[RunRecord],
    directories: impl Iterator<Item = PathBuf>,
) -> Vec<String> {
    let mut notes = integrity_notes(records);
    notes.extend(directory_notes(directories));
    for note in &notes {
        console::tell(&format!(
            "warning: {note}; `longreach verify` checks run directories in full"
        ));
    }
    notes
}
