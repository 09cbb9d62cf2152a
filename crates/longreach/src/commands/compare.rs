//! `longreach compare`: the differences of sets of records, and whether they agree.

use crate::commands::records::{edit_notes, exist, no_record, read_and_left_out, tell_unsealed};
use experiment::runs_on_disk::recorded::with_sweeps;
use records::analysis::roles::Roles;
use records::compare::{Closeness, Comparison};
use records::{Found, RunRecord, find_records};
use report::{ComparisonSpec, ReportError, ScoreComparison};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use support::console;
use support::exit::{Exit, Failure};

/// Compare sets of records: configs, weights, losses, every score
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A directory with runs, a record, or a .jsonl file of records, with the selection.jsonl
    /// beside it
    first: PathBuf,
    /// Others of these, each compared with the first
    #[arg(required = true, value_name = "OTHER")]
    others: Vec<PathBuf>,
    /// Ignore differences up to this, relative or, for numbers below 1, absolute; such as 2e-3
    /// between two kinds of device
    #[arg(long, value_name = "X", value_parser = tolerance)]
    tolerance: Option<f64>,
    /// The score to compare [default: the one that the report leads with]
    #[arg(long, value_name = "NAME")]
    metric: Option<String>,
    /// Print every score, also where there are many
    #[arg(long)]
    all: bool,
    /// Print JSON: a list with one comparison for each of the others
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = r#"Examples:
  longreach compare experiments/001-quickstart/results.jsonl runs/quickstart
  longreach compare runs/cpu runs/cuda --tolerance 2e-3
  longreach compare runs/base runs/wider runs/deeper  # differences, seed by seed

Exits with 0 if the sets agree, and with 1 if they do not or if a record cannot be read. Sets that
share runs agree if every run is in both and identical; with --tolerance, if every number of
every run but the loss by position is in both and within it. Sets that share no run agree if the
other has every method and length of the first and no score of it is worse."#;

/// Prints how the sets differ.
///
/// # Errors
///
/// [`Exit::Input`] if a set cannot be read or holds no record, [`Exit::Config`] for a metric that
/// the sets do not share.
pub fn run(arguments: &Args) -> Result<Exit, Failure> {
    let mut agrees = true;
    let mut read = |root: &Path| {
        let found = records(root)?;
        // What cannot be read cannot agree.
        if !found.excluded.is_empty() {
            agrees = false;
            console::tell(&format!(
                "{}: {}",
                root.display(),
                read_and_left_out(&found)
            ));
        }
        Ok(found.records)
    };
    let first = read(&arguments.first)?;
    let others = arguments.others.iter().map(|root| read(root));
    let others = others.collect::<Result<Vec<_>, Failure>>()?;
    let spec = ComparisonSpec {
        metric: arguments.metric.clone(),
        tolerance: arguments.tolerance,
        names: experiment::spec::NAMES,
    };
    let mut compared = Vec::new();
    for (root, other) in arguments.others.iter().zip(&others) {
        let name = |path: &Path| path.display().to_string();
        let (a, b) = (name(&arguments.first), name(root));
        let sides = ScoreComparison::of((&a, &first), (&b, other), &spec).map_err(refused)?;
        let same = (sides.runs_in_both > 0).then(|| Same::of(&first, other, arguments.tolerance));
        agrees &= match &same {
            Some(same) => same.agrees(),
            None => sides.covers_first() && !sides.has_regressed(),
        };
        if !arguments.json {
            if !compared.is_empty() {
                console::print("");
            }
            print(&sides, same.as_ref(), arguments.all);
        }
        compared.push(sides);
    }
    if arguments.json {
        console::print(&console::json(&compared)?);
    }
    Ok(if agrees { Exit::Done } else { Exit::SomeFailed })
}

/// The runs that two sets share.
enum Same {
    Exactly(Comparison),
    Closely(Closeness),
}

impl Same {
    fn of(first: &[RunRecord], second: &[RunRecord], tolerance: Option<f64>) -> Self {
        match tolerance {
            None => Self::Exactly(Comparison::of(first, second)),
            Some(tolerance) => Self::Closely(Closeness::of(first, second, tolerance)),
        }
    }

    fn agrees(&self) -> bool {
        match self {
            Self::Exactly(compared) => compared.is_identical(),
            Self::Closely(compared) => compared.is_within(),
        }
    }
}

/// Prints one comparison. Where everything is identical there is nothing to show beside each
/// other.
fn print(sides: &ScoreComparison, same: Option<&Same>, all: bool) {
    if let Some(same) = same {
        console::print(&match same {
            Same::Exactly(compared) => compared.to_string(),
            Same::Closely(compared) => compared.to_string(),
        });
        if matches!(same, Same::Exactly(compared) if compared.is_identical()) {
            return;
        }
        console::print("");
    }
    console::print(&console::plain(&sides.text(all)));
}

fn refused(error: ReportError) -> Failure {
    match error {
        ReportError::UnknownMetric { .. } => Failure::config(format!("--metric: {error}")),
        error => Failure::input(error),
    }
}

fn records(root: &Path) -> Result<Found, Failure> {
    let roots = [root.to_owned()];
    exist(&roots)?;
    let files = with_sweeps(&roots);
    let mut found = find_records(&files).map_err(Failure::input)?;
    if files.len() > roots.len() {
        // The sweeps of other experiments may lie in the same file.
        let results = found.records.iter().filter(|record| !record.is_of_sweep());
        let own: BTreeSet<String> = results.map(|record| record.experiment.clone()).collect();
        let is_own = |record: &RunRecord| own.contains(&record.experiment);
        found.records.retain(is_own);
    }
    if found.records.is_empty() {
        let message = format!("{}: {}", root.display(), no_record(&found));
        return Err(Failure::input(message));
    }
    if Roles::of(&found.records).results.is_empty() {
        let records = found.records.len();
        let error = ReportError::NoResults { records };
        return Err(Failure::input(format!("{}: {error}", root.display())));
    }
    tell_unsealed(&found.records);
    edit_notes(&found.records, std::iter::empty());
    Ok(found)
}

fn tolerance(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok();
    let value = value.filter(|value| value.is_finite() && *value >= 0.0);
    value.ok_or_else(|| "not a number of at least 0, such as 2e-3".to_owned())
}
