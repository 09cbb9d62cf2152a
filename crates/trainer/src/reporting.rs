//! `longreach report`: records in, tables and figures out; and the same at the end of a sweep.

use crate::exit::{Exit, Failure};
use results::compare::Comparison;
use results::{Excluded, Format, Report, ReportError, ReportSpec, RunRecord, StoreError, find_records, report};
use std::path::{Path, PathBuf};

/// Writes the report of some records and returns it with the paths written.
///
/// # Errors
///
/// [`Exit::Input`] if there is nothing to report, [`Exit::Resources`] if the directory cannot be written.
pub fn write(records: &[RunRecord], excluded: &[Excluded], spec: &ReportSpec, out: &Path) -> Result<(Report, Vec<PathBuf>), Failure> {
    let report = report(records, excluded, spec).map_err(|error| match error {
        ReportError::UnknownBaseline { .. } => Failure::new(Exit::Config, format!("--baseline: {error}")),
        error => Failure::input(error),
    })?;
    let paths = report.write(out).map_err(Failure::resources)?;
    Ok((report, paths))
}

/// Reports on everything found under some directories; the report goes to `out`, or to `report` beside what was found, and is headed by
/// the experiments' names unless there is a title.
///
/// # Errors
///
/// [`Exit::Input`] if a directory cannot be read or holds no record.
pub fn from_directories(
    roots: &[PathBuf],
    out: Option<&Path>,
    title: Option<String>,
    spec: ReportSpec,
) -> Result<(String, Vec<PathBuf>), Failure> {
    exist(roots)?;
    let found = find_records(roots).map_err(Failure::input)?;
    let experiments: std::collections::BTreeSet<&str> = found.records.iter().map(|record| record.experiment.as_str()).collect();
    let title = title.unwrap_or_else(|| experiments.into_iter().collect::<Vec<_>>().join(", "));
    let out = out.map_or_else(|| default_out(&roots[0]), Path::to_owned);
    let spec = ReportSpec { title, ..spec };
    let (report, paths) = write(&found.records, &found.excluded, &spec, &out)?;
    Ok((report.summary, paths))
}

/// Writes every record found under some directories into one file, and tells how many there were and what was left out.
///
/// # Errors
///
/// [`Exit::Input`] if a directory cannot be read or none holds a record,
/// [`Exit::Resources`] if the file cannot be written.
pub fn gather(roots: &[PathBuf], out: &Path, bins: Option<usize>) -> Result<String, Failure> {
    exist(roots)?;
    let found = results::gather_jsonl(roots, out, bins).map_err(|error| match error {
        StoreError::Invalid { .. } | StoreError::Twins(_) => Failure::input(error),
        StoreError::Io(_) => Failure::resources(error),
    })?;
    let mut told = format!("wrote {}: {}", out.display(), crate::plan::count(found.records.len(), "record"));
    for excluded in &found.excluded {
        let line = excluded.line.map_or_else(String::new, |line| format!(":{line}"));
        told.push_str(&format!("\nleft out {}{line}: {}", excluded.path.display(), excluded.reason));
    }
    Ok(told)
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
            return Err(Failure::input(format!("{} holds no record", root.display())));
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
                "{} does not exist\n  = help: name a directory that `longreach run` wrote, such as runs/quickstart",
                root.display()
            );
            return Err(Failure::input(message));
        }
    }
    Ok(())
}

fn default_out(root: &Path) -> PathBuf {
    if root.is_dir() { root.join("report") } else { root.parent().map_or_else(|| PathBuf::from("report"), |parent| parent.join("report")) }
}

/// A message for a terminal: the summary and where the files are.
pub fn told(summary: &str, paths: &[PathBuf]) -> String {
    let page = paths.iter().find(|path| path.extension().is_some_and(|extension| extension == "html"));
    let page = page.or(paths.first()).map_or_else(String::new, |path| format!("\n\nreport: {}", path.display()));
    let others = paths.len().saturating_sub(1);
    let others = if others > 0 { format!(" (and {others} more files beside it)") } else { String::new() };
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
        other => Err(format!("unknown format `{other}`; allowed: md, html, csv, tex")),
    }
}
