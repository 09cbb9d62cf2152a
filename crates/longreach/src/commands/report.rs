//! `longreach report`: records in, tables and figures out; and the same at the end of a sweep.

use crate::console;
use crate::exit::{Exit, Failure};
use crate::run_dir::integrity::{directory_notes, integrity_notes};
use crate::run_dir::kept_configs::{self, Belonging, Config};
use crate::run_dir::survey;
use crate::units::count;
use results::compare::Comparison;
use results::store::{EVALS_DIR, find_records_within, gather_found};
use results::{
    Claims, Excluded, Format, Found, Report, ReportError, ReportSpec, RunRecord, StoreError,
    find_records, report,
};
use schema::text::excerpt;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Name of the directory for the report of the runs of one config.
const REPORT_DIR: &str = "report";
/// Name of the directory for a report over the runs of several configs.
const REPORT_ALL_DIR: &str = "report-all";
/// Experiments, and files that were left out, that are listed.
const MAX_LISTED: usize = 10;

/// Writes the report of some records and returns it with the paths written.
///
/// # Errors
///
/// [`Exit::Input`] if there is nothing to report, [`Exit::Resources`] if the directory cannot be
/// written.
pub fn write(
    records: &[RunRecord],
    excluded: &[Excluded],
    spec: &ReportSpec,
    out: &Path,
) -> Result<(Report, Vec<PathBuf>), Failure> {
    let report = report(records, excluded, spec).map_err(|error| match error {
        ReportError::UnknownBaseline { .. } => {
            Failure::new(Exit::Config, format!("--baseline: {error}"))
        }
        error => Failure::input(error),
    })?;
    let paths = report.write(out).map_err(Failure::resources)?;
    Ok((report, paths))
}

/// Writes the report at the end of a sweep: the records of its runs and their later evaluations, as
/// `longreach report` on the experiment's directory does.
///
/// # Errors
///
/// As [`write()`].
pub fn of_sweep(
    records: Vec<RunRecord>,
    config: &Config,
    experiment: &Path,
) -> Result<String, Failure> {
    let out = experiment.join(REPORT_DIR);
    let place = |record: &RunRecord| {
        let run = (record.experiment.clone(), record.run_id.clone());
        (run, Some(experiment.join(&record.run_id)))
    };
    let run_links = links(&out, records.iter().map(place).collect());
    let mut all = records;
    // Damaged files below the directory concern `report`, which lists them.
    if let Ok(found) = find_records_within(&[experiment.to_owned()], 1) {
        let is_ours = |record: &RunRecord| {
            let of = record.evaluation_of.as_deref();
            of.is_some_and(|id| {
                all.iter()
                    .any(|own| own.run_id == id && own.experiment == record.experiment)
            })
        };
        let mut evaluations: Vec<RunRecord> = found.records.into_iter().filter(is_ours).collect();
        config.label(&mut evaluations);
        all.extend(evaluations);
    }
    let notes = edits(
        &all,
        all.iter().map(|record| experiment.join(&record.run_id)),
    );
    let (report, paths) = write(
        &all,
        &[],
        &ReportSpec {
            run_links,
            notes,
            ..config.report_spec()
        },
        &out,
    )?;
    Ok(told(&report.summary, &paths))
}

/// Notes on records and run directories that do not say what was run, which are printed too.
fn edits(records: &[RunRecord], directories: impl Iterator<Item = PathBuf>) -> Vec<String> {
    let mut notes = integrity_notes(records);
    notes.extend(directory_notes(directories));
    for note in &notes {
        console::tell(&format!(
            "warning: {note}; `longreach verify` looks at run directories in full"
        ));
    }
    notes
}

/// Relative addresses of run directories by experiment and run id, seen from the directory of a
/// report.
fn links(
    out: &Path,
    runs: Vec<((String, String), Option<PathBuf>)>,
) -> BTreeMap<(String, String), String> {
    let absolute = |path: &Path| std::path::absolute(path).ok();
    let Some(out) = absolute(out) else {
        return BTreeMap::new();
    };
    let link = |(run, directory): ((String, String), Option<PathBuf>)| {
        let directory = absolute(&directory?)?;
        let shared = out
            .components()
            .zip(directory.components())
            .take_while(|(a, b)| a == b)
            .count();
        let up = out.components().skip(shared).map(|_| "..".to_owned());
        let down = directory
            .components()
            .skip(shared)
            .map(|part| part.as_os_str().to_str().map(str::to_owned));
        let parts: Vec<String> = up.map(Some).chain(down).collect::<Option<_>>()?;
        Some((run, parts.join("/") + "/"))
    };
    runs.into_iter().filter_map(link).collect()
}

/// What to report on, and where to write the report.
#[derive(Debug, Default)]
pub struct Request {
    /// Directories of records, or files.
    pub roots: Vec<PathBuf>,
    /// Where to; `report` beside what was found unless given.
    pub out: Option<PathBuf>,
    /// Heading; that of the config, or the experiments' names, unless given.
    pub title: Option<String>,
    /// Restricts the report to the runs of one config: its id or a file.
    pub config: Option<String>,
    /// Whether experiments at any level below a root are read.
    pub recursive: bool,
    /// Whether later evaluations are left out.
    pub no_evals: bool,
}

/// Reports on everything found under some directories, and returns what to print. Prints what is
/// read and where the report goes before anything is written.
///
/// The report of an experiment's directory is the one that `run` writes, if all its records belong
/// to one config. If not, it goes to a directory beside that one, so that neither replaces the
/// other.
///
/// # Errors
///
/// [`Exit::Input`] if a directory cannot be read or holds no record; [`Exit::Config`] if it holds
/// more than one level of experiments, or `--config` names no config.
pub fn from_directories(request: &Request, spec: ReportSpec) -> Result<String, Failure> {
    let mut found = find(&request.roots, request.recursive)?;
    let directories = std::mem::take(&mut found.directories);
    let place = |(record, directory): (&RunRecord, Option<PathBuf>)| {
        (
            (record.experiment.clone(), record.run_id.clone()),
            directory,
        )
    };
    let placed: Vec<((String, String), Option<PathBuf>)> =
        found.records.iter().zip(directories).map(place).collect();
    if request.no_evals {
        found
            .records
            .retain(|record| record.evaluation_of.is_none());
        found.excluded.retain(|excluded| {
            !excluded
                .path
                .parent()
                .is_some_and(|directory| directory.ends_with(EVALS_DIR))
        });
    }
    let read = found.records.len();
    let (config, lines) = config_of(request, &mut found.records)?;
    // Without a config the lines are printed in the report too.
    let mixed = config.is_none() && !lines.is_empty();
    let spec = match config {
        Some(config) => {
            config.label(&mut found.records);
            let theirs = config.report_spec();
            ReportSpec {
                title: request.title.clone().unwrap_or(theirs.title),
                claims: if spec.claims == Claims::default() {
                    theirs.claims
                } else {
                    spec.claims
                },
                assertions: spec.assertions || theirs.assertions,
                order: if spec.order.is_empty() {
                    theirs.order
                } else {
                    spec.order
                },
                ..spec
            }
        }
        None => {
            let experiments: Vec<&str> = by_experiment(&found.records).into_keys().collect();
            let title = request
                .title
                .clone()
                .unwrap_or_else(|| experiments.join(", "));
            ReportSpec {
                title,
                notes: lines.clone(),
                ..spec
            }
        }
    };
    let name = if mixed { REPORT_ALL_DIR } else { REPORT_DIR };
    let out = request
        .out
        .clone()
        .unwrap_or_else(|| beside(&request.roots[0], name));
    tell_what_is_read(&found.records);
    let directories = placed.iter().filter_map(|(_, directory)| directory.clone());
    let notes = edits(&found.records, directories);
    let spec = ReportSpec {
        notes: spec.notes.iter().cloned().chain(notes).collect(),
        ..spec
    };
    lines
        .iter()
        .for_each(|line| console::tell(&format!("note: {line}")));
    if mixed {
        console::tell(
            "  = help: `--config ID` or `--config FILE` reports on the runs of one config, as \
             `run` does",
        );
    }
    console::tell(&format!("writing to {}", out.display()));
    let run_links = links(&out, placed);
    let spec = ReportSpec { run_links, ..spec };
    let (report, paths) = write(&found.records, &found.excluded, &spec, &out)?;
    let others = read - found.records.len();
    let others = if others > 0 {
        format!("\nnot of this config: {}", count(others, "record"))
    } else {
        String::new()
    };
    Ok(format!(
        "{}\n{}{others}",
        told(&report.summary, &paths),
        read_and_left_out(&found)
    ))
}

/// The config that the records of an experiment belong to, if they belong to exactly one or one was
/// named; else what there is to say about it. Keeps the records of a config that was named, and no
/// others.
fn config_of(
    request: &Request,
    records: &mut Vec<RunRecord>,
) -> Result<(Option<Config>, Vec<String>), Failure> {
    let experiment = match request.roots.as_slice() {
        [root] if survey::is_experiment(root) => Some(root),
        _ => None,
    };
    match (&request.config, experiment) {
        (None, Some(experiment)) if !records.is_empty() => {
            let Belonging { config, mut lines } = kept_configs::belonging(experiment, records);
            if config.is_none() {
                lines.insert(
                    0,
                    "the runs here do not all belong to one config".to_owned(),
                );
            }
            Ok((config, lines))
        }
        (None, _) => Ok((None, Vec::new())),
        (Some(name), None) => {
            let help = "name a directory such as runs/quickstart, and nothing else";
            let message = format!(
                "--config {name}: selects runs of one experiment\n  = allowed: with one \
                 experiment's directory\n  = help: {help}"
            );
            Err(Failure::new(Exit::Config, message))
        }
        (Some(name), Some(experiment)) => {
            let config = kept_configs::named(experiment, name)?;
            records.retain(|record| config.has(record));
            if records.is_empty() {
                let problem = format!(
                    "--config {name}: none of its runs is recorded in {}",
                    experiment.display()
                );
                return Err(Failure::input(format!(
                    "{problem}\n  = help: `longreach run` with this config records them"
                )));
            }
            Ok((Some(config), Vec::new()))
        }
    }
}

/// The records below some directories, or in some files.
fn find(roots: &[PathBuf], recursive: bool) -> Result<Found, Failure> {
    exist(roots)?;
    let depth = survey::depth(roots, recursive)?;
    find_records_within(roots, depth).map_err(|error| {
        // An edit may be why two records of a run disagree.
        if let StoreError::Conflicts(conflicts) = &error {
            let places = conflicts.iter().flat_map(|conflict| &conflict.places);
            edits(
                &[],
                places.filter_map(|place| Some(place.path.parent()?.to_owned())),
            );
        }
        Failure::input(error)
    })
}

/// Numbers of runs and of later evaluations, by experiment.
fn by_experiment(records: &[RunRecord]) -> BTreeMap<&str, [usize; 2]> {
    let mut counts = BTreeMap::new();
    for record in records {
        let count: &mut [usize; 2] = counts.entry(record.experiment.as_str()).or_default();
        count[usize::from(record.evaluation_of.is_some())] += 1;
    }
    counts
}

fn tell_what_is_read(records: &[RunRecord]) {
    let experiments = by_experiment(records);
    let listed = experiments
        .iter()
        .take(MAX_LISTED)
        .map(|(name, [runs, evaluations])| {
            let evaluations = if *evaluations > 0 {
                format!(", {}", count(*evaluations, "evaluation"))
            } else {
                String::new()
            };
            format!("{} ({}{evaluations})", excerpt(name), count(*runs, "run"))
        });
    let mut listed: Vec<String> = listed.collect();
    if experiments.len() > MAX_LISTED {
        listed.push(format!("{} more", experiments.len() - MAX_LISTED));
    }
    console::tell(&format!(
        "reading {}: {}",
        count(experiments.len(), "experiment"),
        listed.join(", ")
    ));
}

/// How many records were read, how many were left out, and why.
fn read_and_left_out(found: &Found) -> String {
    let mut told = format!(
        "{} read, {} left out",
        count(found.records.len(), "record"),
        found.excluded.len()
    );
    for excluded in found.excluded.iter().take(MAX_LISTED) {
        let line = excluded
            .line
            .map_or_else(String::new, |line| format!(":{line}"));
        let path = excerpt(&excluded.path.display().to_string());
        told.push_str(&format!(
            "\nleft out {path}{line}: {}",
            excerpt(&excluded.reason)
        ));
    }
    if found.excluded.len() > MAX_LISTED {
        told.push_str(&format!(
            "\nleft out: {} more",
            found.excluded.len() - MAX_LISTED
        ));
    }
    told
}

/// Writes every record found under some directories into one file, and tells how many there were
/// and what was left out.
///
/// # Errors
///
/// [`Exit::Input`] if a directory cannot be read or none holds a record, [`Exit::Config`] if one
/// holds more than one level of experiments, [`Exit::Resources`] if the file cannot be written.
pub fn gather(
    roots: &[PathBuf],
    out: &Path,
    bins: Option<usize>,
    recursive: bool,
) -> Result<String, Failure> {
    let found = find(roots, recursive)?;
    tell_what_is_read(&found.records);
    console::tell(&format!("writing to {}", out.display()));
    let found = gather_found(found, out, bins).map_err(|error| match error {
        StoreError::Invalid { .. } | StoreError::Conflicts(_) => Failure::input(error),
        StoreError::Io(_) | StoreError::Write(_) => Failure::resources(error),
    })?;
    Ok(format!(
        "wrote {}: {}",
        out.display(),
        read_and_left_out(&found)
    ))
}

/// Holds the records found under one place against those under another.
///
/// # Errors
///
/// [`Exit::Input`] if a place cannot be read or holds no record.
pub fn compare(first: &Path, second: &Path) -> Result<Comparison, Failure> {
    let [first, second] = [first, second].map(|root| {
        let roots = [root.to_owned()];
        exist(&roots)?;
        let found = find_records(&roots).map_err(Failure::input)?;
        if found.records.is_empty() {
            return Err(Failure::input(format!(
                "{} holds no record",
                root.display()
            )));
        }
        Ok(found.records)
    });
    Ok(Comparison::of(&first?, &second?))
}

/// Whether there is something to read.
fn exist(roots: &[PathBuf]) -> Result<(), Failure> {
    for root in roots {
        if !root.exists() {
            let message = format!(
                "{} does not exist\n  = help: name a directory that `longreach run` wrote, such \
                 as runs/quickstart",
                root.display()
            );
            return Err(Failure::input(message));
        }
    }
    Ok(())
}

/// A directory of this name in a root, or beside it if it is a file.
fn beside(root: &Path, name: &str) -> PathBuf {
    if root.is_dir() {
        root.join(name)
    } else {
        root.parent()
            .map_or_else(|| PathBuf::from(name), |parent| parent.join(name))
    }
}

/// A message for a terminal: the summary and where the files are.
pub fn told(summary: &str, paths: &[PathBuf]) -> String {
    let page = paths.iter().find(|path| {
        path.extension()
            .is_some_and(|extension| extension == "html")
    });
    let page = page.or(paths.first()).map_or_else(String::new, |path| {
        format!("\n\nreport: {}", path.display())
    });
    let others = paths.len().saturating_sub(1);
    let others = if others > 0 {
        format!(" (and {others} more files beside it)")
    } else {
        String::new()
    };
    format!("{}{page}{others}", summary.trim_end())
}

/// Parses `md,html,csv,tex`.
///
/// # Errors
///
/// A message that names the format that is not known.
pub fn format(text: &str) -> Result<Format, String> {
    match text {
        "md" => Ok(Format::Md),
        "html" => Ok(Format::Html),
        "csv" => Ok(Format::Csv),
        "tex" => Ok(Format::Tex),
        other => Err(format!(
            "unknown format `{other}`; allowed: md, html, csv, tex"
        )),
    }
}
