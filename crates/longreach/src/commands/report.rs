//! `longreach report`: records in, tables and figures out; and the same at the end of a sweep.

mod links;
mod rerun_command;
pub(super) mod spec_of;

use crate::commands::records::{edit_notes, find, print_sources, read_and_left_out, tell_unsealed};
use config::claims;
use experiment::plan::planner;
use experiment::runs_on_disk::belonging::{Belonging, belonging};
use experiment::runs_on_disk::files::refuse_link;
use experiment::runs_on_disk::kept_configs::{self, Config};
use experiment::runs_on_disk::survey;
use experiment::runs_on_disk::timings::timings;
use records::store::{EVALS_DIR, Found, find_records_within};
use records::{Excluded, RunRecord};
use report::{Format, Report, ReportError, ReportSpec, RunPlace, report};
use schema::text::excerpt;
use std::collections::{BTreeMap, HashSet};
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use support::console;
use support::exit::{Exit, Failure};
use support::units::{count, first_of};
use sweep::cluster::directory::experiment_of;

/// Turn records into tables, figures and a self-contained HTML page
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Directories with runs, records, or .jsonl files of records
    #[arg(required = true, value_name = "DIR")]
    directories: Vec<PathBuf>,
    /// Files to write, beside the figures as SVG
    #[arg(
        long,
        value_delimiter = ',',
        value_parser = format,
        default_value = "md,html,csv,tex",
        value_name = "FORMAT,..."
    )]
    format: Vec<Format>,
    /// Directory to write to [default: DIR/report, or DIR/report-all if the runs of an experiment
    /// belong to several configs or several paths are given, DIR being the first]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Heading of the report [default: the name of the config or of the experiments]
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    title: Option<String>,
    /// Method to compare the others with, seed by seed; `first` is the first of each setting
    #[arg(long, value_name = "METHOD")]
    baseline: Option<String>,
    /// Claims and published numbers of a source to check the records against: a TOML file
    #[arg(long, value_name = "FILE")]
    claims: Option<PathBuf>,
    /// Check the records against 22 expectations from the literature, of which 18 are about records
    #[arg(long)]
    assertions: bool,
    /// Order lines and rows by the axes and variants of this config; repeat for several configs.
    /// Anything that no config names comes last
    #[arg(long, value_name = "CONFIG")]
    order: Vec<PathBuf>,
    /// Report on the runs of one config: its id in EXPERIMENT/configs, or a config file
    #[arg(long, value_name = "ID|FILE")]
    config: Option<String>,
    /// Read experiments at any level below a directory
    #[arg(long)]
    recursive: bool,
    /// Leave out the evaluations that `longreach eval` added
    #[arg(long)]
    no_evals: bool,
}

const EXAMPLES: &str = r#"Examples:
  longreach report runs/quickstart
  longreach report runs/quickstart --config configs/quickstart.toml  # the runs of one config
  longreach report runs/a runs/b --format tex,csv --out paper/tables
  longreach report runs/quickstart --baseline rope                   # differences, seed by seed
  longreach report results.jsonl --claims claims.toml                # agrees, disagrees, undecided
  longreach report results.jsonl --order experiment.toml             # rows in the config's order"#;

/// Parses one of `md`, `html`, `csv` and `tex`.
fn format(text: &str) -> Result<Format, String> {
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

/// Writes the report and prints its summary.
///
/// # Errors
///
/// [`Exit::Input`] if a directory cannot be read or holds no record; [`Exit::Config`] if it holds
/// more than one level of experiments, or `--config` names no config.
pub fn run(mut arguments: Args) -> Result<Exit, Failure> {
    // Of a submitted sweep, the experiment that its tasks write.
    for directory in &mut arguments.directories {
        *directory = experiment_of(directory);
    }
    let claims = arguments.claims.as_deref().map(claims::read).transpose()?;
    let orders = arguments.order.iter().map(|path| planner::order(path));
    let spec = ReportSpec {
        formats: arguments.format.iter().copied().collect(),
        baseline: arguments.baseline.clone(),
        claims: claims.unwrap_or_default(),
        assertions: arguments.assertions,
        order: orders.collect::<Result<Vec<_>, _>>()?.concat(),
        names: experiment::spec::NAMES,
        width: console::width(),
        colors: console::has_colors(),
        ..ReportSpec::default()
    };
    console::print_colored(&from_directories(&arguments, spec)?);
    Ok(Exit::Done)
}

/// Name of the directory for the report of the runs of one config.
const REPORT_DIR: &str = "report";
/// Name of the directory for a report over the runs of several configs.
const REPORT_ALL_DIR: &str = "report-all";

/// Writes the report of some records; returns it with the paths of its files. If it cannot be
/// written, its summary is printed all the same.
///
/// # Errors
///
/// [`Exit::Input`] if there is nothing to report, or `out` is a link that the user did not name;
/// [`Exit::Resources`] if the directory cannot be written.
fn write(
    records: &[RunRecord],
    excluded: &[Excluded],
    spec: &ReportSpec,
    out: &Path,
    is_named: bool,
) -> Result<(Report, Vec<PathBuf>), Failure> {
    let report = report(records, excluded, spec).map_err(|error| match error {
        ReportError::UnknownBaseline { .. } => Failure::config(format!("--baseline: {error}")),
        error => Failure::input(error),
    })?;
    let written = if is_named {
        save(&report, out)
    } else {
        refuse_link(out, "a report").and_then(|()| save(&report, out))
    };
    match written {
        Ok(paths) => Ok((report, paths)),
        Err(failure) => {
            console::print(report.summary.trim_end());
            Err(failure)
        }
    }
}

/// How long a report waits for another one that is being written into its directory.
const WAIT_FOR_ANOTHER: Duration = Duration::from_secs(10);
/// Endings of the files of reports.
const ENDINGS: [&str; 5] = ["md", "html", "csv", "tex", "svg"];
/// Files that a note names.
const MOST_NAMED: usize = 5;

/// Writes the files of a report, those of another one before or after, and prints which files of
/// the directory it does not hold.
fn save(report: &Report, out: &Path) -> Result<Vec<PathBuf>, Failure> {
    rundir::system().create_dirs(out)?;
    // The lock is the directory's own, so that no file is left. A system without such locks, or a
    // report that hangs, only means that files of two reports may lie side by side, each whole.
    let lock = if out.is_dir() {
        File::open(out).ok()
    } else {
        None
    };
    let started = Instant::now();
    while let Some(Err(TryLockError::WouldBlock)) = lock.as_ref().map(File::try_lock) {
        if started.elapsed() > WAIT_FOR_ANOTHER {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    rundir::system().remove_abandoned(out);
    let paths = report.write(out).map_err(Failure::resources)?;
    let entries = std::fs::read_dir(out).into_iter().flatten().flatten();
    let mut others: Vec<String> = entries
        .map(|entry| entry.path())
        .filter(|path| {
            let ending = path.extension().and_then(|ending| ending.to_str());
            !paths.contains(path) && ending.is_some_and(|ending| ENDINGS.contains(&ending))
        })
        .filter_map(|path| Some(excerpt(&path.file_name()?.to_string_lossy())))
        .filter(|name| !name.starts_with('.'))
        .collect();
    others.sort();
    if !others.is_empty() {
        console::tell(&format!(
            "note: {} also holds {} of an older report, or yours: {}",
            out.display(),
            count(others.len(), "file"),
            first_of(&others, MOST_NAMED)
        ));
    }
    Ok(paths)
}

/// Writes the report at the end of a sweep: the records of its runs and their later evaluations, as
/// `longreach report` on the experiment's directory does.
///
/// # Errors
///
/// [`Exit::Input`] if there is nothing to report, [`Exit::Resources`] if the directory cannot be
/// written.
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
    let placed = records.iter().map(place).collect();
    let runs = places(&out, Some(&config.id), &records, placed, &[]);
    let mut all = records;
    let mut missing = None;
    // Damaged files are listed by `report`; here they are ignored.
    if let Ok(found) = find_records_within(&[experiment.to_owned()], 1) {
        missing = config.missing(&found.records);
        let own = all.iter();
        let own: HashSet<_> = own.map(|run| (&run.experiment, &run.run_id)).collect();
        let is_ours = |record: &RunRecord| {
            let of = record.evaluation_of.as_ref();
            of.is_some_and(|id| own.contains(&(&record.experiment, id)))
        };
        let mut evaluations: Vec<RunRecord> = found.records.into_iter().filter(is_ours).collect();
        config.label(&mut evaluations);
        all.extend(evaluations);
    }
    tell_unsealed(&all);
    let mut notes = tell_missing(missing);
    notes.extend(edit_notes(
        &all,
        all.iter().map(|record| experiment.join(&record.run_id)),
    ));
    let (report, paths) = write(
        &all,
        &[],
        &ReportSpec {
            runs,
            notes,
            ..spec_of::spec_of(config)
        },
        &out,
        false,
    )?;
    Ok(summary(&report.summary, &paths))
}

/// Prints and returns a note on runs that are not recorded, if there is one.
fn tell_missing(missing: Option<String>) -> Vec<String> {
    let notes: Vec<String> = missing.into_iter().collect();
    console::notes(&notes);
    notes
}

/// A run by experiment and run id, and its directory if it has one.
type PlacedRun = ((String, String), Option<PathBuf>);

/// Link, timings and config of each run, with paths from `out`. The other parameters are those of
/// [`rerun_command::configs`].
fn places(
    out: &Path,
    chosen: Option<&str>,
    records: &[RunRecord],
    runs: Vec<PlacedRun>,
    roots: &[PathBuf],
) -> BTreeMap<(String, String), RunPlace> {
    let directories = runs.iter().filter_map(|(_, run)| run.as_deref());
    let configs = rerun_command::configs(out, chosen, records, directories, roots);
    let mut places: BTreeMap<(String, String), RunPlace> = BTreeMap::new();
    for (run, config) in configs {
        places.entry(run).or_default().config = Some(config);
    }
    for (run, directory) in runs {
        let Some(directory) = directory else { continue };
        let place = places.entry(run).or_default();
        let link = links::relative(out, &directory).map(|path| path + "/");
        place.link = link.or(place.link.take());
        place.timings = timings(&directory).or(place.timings.take());
    }
    places
}

/// The records asked for, and the directories of all that were found.
fn records_of(request: &Args) -> Result<(Found, Vec<PlacedRun>), Failure> {
    let mut found = find(&request.directories, request.recursive)?;
    let directories = std::mem::take(&mut found.directories);
    // `directories` runs parallel to `records`, so they are paired before any is dropped.
    let runs = found
        .records
        .iter()
        .map(|record| (record.experiment.clone(), record.run_id.clone()));
    let placed = runs.zip(directories).collect();
    if request.no_evals {
        let records = &mut found.records;
        records.retain(|record| record.evaluation_of.is_none());
        let is_eval = |path: &Path| path.parent().is_some_and(|dir| dir.ends_with(EVALS_DIR));
        found.excluded.retain(|excluded| !is_eval(&excluded.path));
    }
    Ok((found, placed))
}

/// Reports on everything found under some directories, and returns what to print. Prints what is
/// read and where the report goes before anything is written.
///
/// The report of an experiment's directory is the one that `run` writes, if all its records belong
/// to one config. If not, or if several paths are given, it goes to a directory beside that one, so
/// that neither replaces the other.
///
/// # Errors
///
/// [`Exit::Input`] if a directory cannot be read or holds no record; [`Exit::Config`] if it holds
/// more than one level of experiments, or `--config` names no config.
fn from_directories(request: &Args, spec: ReportSpec) -> Result<String, Failure> {
    let (mut found, placed) = records_of(request)?;
    let read = found.records.len();
    let (config, lines) = config_of(request, &mut found.records)?;
    // Without a config the lines are printed in the report too.
    let mixed = config.is_none() && !lines.is_empty();
    let mut spec = spec_of::titled(request, spec, config.as_ref(), &mut found.records);
    if config.is_none() && spec.order.is_empty() {
        spec.order = spec_of::orders(placed.iter().filter_map(|(_, run)| run.as_deref()));
    }
    let several = mixed || request.directories.len() > 1;
    let name = if several { REPORT_ALL_DIR } else { REPORT_DIR };
    let out = request
        .out
        .clone()
        .unwrap_or_else(|| beside(&request.directories[0], name));
    print_sources(&found.records);
    spec.notes = match &config {
        None => lines.clone(),
        Some(config) => tell_missing(config.missing(&found.records)),
    };
    let directories = placed.iter().filter_map(|(_, directory)| directory.clone());
    spec.notes.extend(edit_notes(&found.records, directories));
    console::notes(&lines);
    if mixed {
        console::tell(
            "  = help: `--config ID` or `--config FILE` reports on the runs of one config, as \
             `run` does",
        );
    }
    console::tell(&format!("writing to {}", out.display()));
    let chosen = config.as_ref().map(|config| config.id.as_str());
    let roots = &request.directories;
    spec.runs = places(&out, chosen, &found.records, placed, roots);
    let (report, paths) = write(
        &found.records,
        &found.excluded,
        &spec,
        &out,
        request.out.is_some(),
    )?;
    let others = read - found.records.len();
    let others = if others > 0 {
        format!("\nnot of this config: {}", count(others, "record"))
    } else {
        String::new()
    };
    Ok(format!(
        "{}\n{}{others}",
        summary(&report.summary, &paths),
        console::plain(&read_and_left_out(&found))
    ))
}

/// The config that the records of an experiment belong to, if they belong to exactly one or one was
/// named; otherwise notes on the configs. If one was named, only its records are kept.
fn config_of(
    request: &Args,
    records: &mut Vec<RunRecord>,
) -> Result<(Option<Config>, Vec<String>), Failure> {
    let experiment = match request.directories.as_slice() {
        [root] if survey::is_experiment(root) => Some(root),
        _ => None,
    };
    match (&request.config, experiment) {
        (None, Some(experiment)) if !records.is_empty() => {
            let Belonging {
                config,
                covering,
                mut lines,
            } = belonging(experiment, records);
            if config.is_none() {
                let why = match covering {
                    0 => "the runs here do not all belong to one config".to_owned(),
                    configs => format!(
                        "the runs here belong to each of {configs} configs, whose reports differ: \
                         --config ID takes one"
                    ),
                };
                lines.insert(0, why);
            }
            Ok((config, lines))
        }
        (None, _) => Ok((None, Vec::new())),
        (Some(name), None) => {
            let help = "name a directory such as runs/quickstart, and nothing else";
            Err(
                Failure::config(format!("--config {name}: selects runs of one experiment"))
                    .with_allowed("with one experiment's directory")
                    .with_help(help),
            )
        }
        (Some(name), Some(experiment)) => {
            let config = kept_configs::named(experiment, name)?;
            records.retain(|record| config.has(record));
            if records.is_empty() {
                let problem = format!(
                    "--config {name}: none of its runs is recorded in {}",
                    experiment.display()
                );
                return Err(Failure::input(problem)
                    .with_help("`longreach run` with this config records them"));
            }
            Ok((Some(config), Vec::new()))
        }
    }
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

/// The summary of a report with the place of its files.
fn summary(summary: &str, paths: &[PathBuf]) -> String {
    // Pages of single experiments lie beside the one over all.
    let named = |name: &str| paths.iter().find(|path| path.ends_with(name));
    let page = named("report.html")
        .or_else(|| named("report.md"))
        .or(paths.first());
    let page = page.map_or_else(String::new, |path| {
        format!(
            "\n\nreport: {}",
            console::plain(&path.display().to_string())
        )
    });
    let others = paths.len().saturating_sub(1);
    let others = if others > 0 {
        format!(" (and {others} more files beside it)")
    } else {
        String::new()
    };
    format!("{}{page}{others}", summary.trim_end())
}
