//! `longreach gather`: the records of many runs in one file.

mod selection;

use crate::commands::numbers::whole;
use crate::commands::records::{edit_notes, find, print_sources, read_and_left_out};
use crate::commands::replace::check_replaced;
use records::store::{SELECTION_FILE, gather_found};
use records::{Found, RunRecord, StoreError, read_jsonl};
use selection::{kept_beside, places};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use support::console;
use support::exit::{Exit, Failure};
use support::units::{count, quoted};

/// Write the records of many runs into one file, one per line
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Directories with runs, records, or .jsonl files of records with the selection.jsonl beside
    /// them
    #[arg(required = true, value_name = "DIR")]
    directories: Vec<PathBuf>,
    /// The file to write; selection runs are added to selection.jsonl beside it
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Keep at most N bins of the loss by position
    #[arg(long, value_name = "N", value_parser = whole::<u16>(1..=65_535))]
    bins: Option<u16>,
    /// Read experiments at any level below a directory
    #[arg(long)]
    recursive: bool,
}

const EXAMPLES: &str = r#"Examples:
  longreach gather runs/quickstart --out results.jsonl
  longreach gather runs/a runs/b --out both.jsonl --bins 16"#;

/// Refuses a new file whose name no command reads as records.
fn check_name(out: &Path) -> Result<(), Failure> {
    if out.exists() || out.extension().is_some_and(|ending| ending == "jsonl") {
        return Ok(());
    }
    Err(Failure::config(format!(
        "--out {}: records are read from files whose name ends with .jsonl",
        out.display()
    ))
    .with_help(format!(
        "--out {}",
        quoted(&out.with_extension("jsonl").to_string_lossy())
    )))
}

/// Writes the file and prints how many records it holds and what was left out.
///
/// # Errors
///
/// [`Exit::Input`] if a directory cannot be read or none holds a record, [`Exit::Config`] if one
/// holds more than one level of experiments or the file something else than records of these
/// experiments, [`Exit::Resources`] if it cannot be written.
pub fn run(arguments: &Args) -> Result<Exit, Failure> {
    let out = &arguments.out;
    check_name(out)?;
    let mut found = find(&places(&arguments.directories), arguments.recursive)?;
    edit_notes(&found.records, std::iter::empty());
    print_sources(&found.records);
    // These are not results; results were chosen by them.
    let swept: Vec<RunRecord> = found
        .records
        .extract_if(.., |record| record.is_of_sweep())
        .collect();
    let beside = out.with_file_name(SELECTION_FILE);
    if !swept.is_empty() && *out == beside {
        let problem = format!("--out {}: selection runs go there", out.display());
        return Err(Failure::config(problem).with_help("name the results otherwise: results.jsonl"));
    }
    let kept = kept_beside(out, &swept, &found.records)?;
    let (swept_count, kept_count) = (swept.len(), kept.len());
    let swept: Vec<RunRecord> = swept.into_iter().chain(kept).collect();
    let bins = arguments.bins.map(usize::from);
    let of_sweep = || match kept_count {
        0 => count(swept_count, "selection run"),
        kept => format!(
            "{}, and {kept} that were there",
            count(swept_count, "selection run")
        ),
    };
    if found.records.is_empty() && swept_count > 0 {
        return gather_sweep(found, swept, &beside, bins, &of_sweep());
    }
    if !found.records.is_empty() {
        check_file(out, &found.records)?;
    }
    console::tell(&format!("writing to {}", out.display()));
    let found = gather_found(found, out, bins).map_err(failure)?;
    let wrote = format!("wrote {}: {}", out.display(), read_and_left_out(&found));
    if swept_count > 0 && out.is_file() {
        let runs = of_sweep();
        let swept = Found {
            records: swept,
            ..Found::default()
        };
        gather_found(swept, &beside, bins).map_err(failure)?;
        console::print(&format!("wrote {}: {runs}", beside.display()));
    }
    // Records that went to `/dev/stdout` or a pipe are followed by nothing else.
    if out.is_file() {
        console::print(&wrote);
    } else {
        console::tell(&wrote);
        if swept_count > 0 {
            let left = count(swept_count, "selection run");
            console::tell(&format!(
                "{left} left out: they are only written beside an --out that is a regular file"
            ));
        }
    }
    Ok(Exit::Done)
}

fn failure(error: StoreError) -> Failure {
    match error {
        StoreError::Write(refused) => refused.into(),
        StoreError::Io(_) => Failure::resources(error),
        _ => Failure::input(error),
    }
}

/// Writes the selection runs of an experiment that has no result yet.
fn gather_sweep(
    found: Found,
    swept: Vec<RunRecord>,
    path: &Path,
    bins: Option<usize>,
    runs: &str,
) -> Result<Exit, Failure> {
    let swept = Found {
        records: swept,
        ..found
    };
    let swept = gather_found(swept, path, bins).map_err(failure)?;
    let (place, read) = (path.display(), read_and_left_out(&swept));
    console::print(&format!(
        "wrote {place}: {runs}; no result is recorded yet\n{read}"
    ));
    Ok(Exit::Done)
}

/// Refuses to write over records of other experiments, and over a file of something else.
fn check_file(path: &Path, records: &[RunRecord]) -> Result<(), Failure> {
    let of = |record: &RunRecord| record.experiment.clone();
    let known: BTreeSet<String> = records.iter().map(of).collect();
    let is_ours = |there: Found| {
        let mut records = there.records.iter();
        there.excluded.is_empty() && records.all(|record| known.contains(&record.experiment))
    };
    check_replaced(path, |path| read_jsonl(path).is_ok_and(is_ours))
}
