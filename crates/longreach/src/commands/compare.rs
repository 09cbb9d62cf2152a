//! `longreach compare`: whether two sets of records are identical, or equal within a tolerance.

use crate::commands::records::exist;
use crate::console;
use crate::exit::{Exit, Failure};
use results::compare::{Closeness, Comparison};
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
    /// Compare number by number: allow a relative difference of this much, absolute for numbers
    /// below 1, such as 2e-3 between two kinds of device
    #[arg(long, value_name = "X", value_parser = tolerance)]
    tolerance: Option<f64>,
}

const EXAMPLES: &str = r#"Examples:
  longreach compare experiments/001-quickstart/results.jsonl runs/quickstart
  longreach compare runs/cpu runs/cuda --tolerance 2e-3

Exits with 0 if every run is in both and identical, or every number is in both and within the
tolerance, else with 1."#;

/// Prints how the two sets differ.
///
/// # Errors
///
/// [`Exit::Input`] if a set cannot be read or holds no record.
pub fn run(arguments: &Args) -> Result<Exit, Failure> {
    let (first, second) = (records(&arguments.first)?, records(&arguments.second)?);
    let is_equal = match arguments.tolerance {
        None => {
            let compared = Comparison::of(&first, &second);
            console::print(&compared.to_string());
            compared.is_identical()
        }
        Some(tolerance) => {
            let compared = Closeness::of(&first, &second, tolerance);
            console::print(&compared.to_string());
            compared.is_within()
        }
    };
    Ok(if is_equal {
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

fn tolerance(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok();
    let value = value.filter(|value| value.is_finite() && *value >= 0.0);
    value.ok_or_else(|| "not a number of at least 0, such as 2e-3".to_owned())
}
