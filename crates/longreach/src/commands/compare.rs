//! `longreach compare`: whether two sets of records are identical.

use crate::commands::records::exist;
use crate::console;
use crate::exit::{Exit, Failure};
use results::compare::Comparison;
use results::{RunRecord, find_records};
use std::path::{Path, PathBuf};

/// Compare two sets of records: weights, losses, every score
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A directory with runs, a record, or a .jsonl file of records
    first: PathBuf,
    /// Another of these
    second: PathBuf,
}

const EXAMPLES: &str = r#"Example:
  longreach compare experiments/001-quickstart/results.jsonl runs/quickstart

Exits with 0 if every run is in both and identical, else with 1."#;

/// Prints how the two sets differ.
///
/// # Errors
///
/// [`Exit::Input`] if a set cannot be read or holds no record.
pub fn run(arguments: &Args) -> Result<Exit, Failure> {
    let compared = Comparison::of(&records(&arguments.first)?, &records(&arguments.second)?);
    console::print(&compared.to_string());
    Ok(if compared.is_identical() {
        Exit::Done
    } else {
        Exit::SomeFailed
    })
}

fn records(root: &Path) -> Result<Vec<RunRecord>, Failure> {
    let roots = [root.to_owned()];
    exist(&roots)?;
    let found = find_records(&roots).map_err(Failure::input)?;
    if found.records.is_empty() {
        let message = format!("{} holds no record", root.display());
        return Err(Failure::input(message));
    }
    Ok(found.records)
}
