//! Outcome of the evaluations of `longreach eval`.

use crate::commands::report::spec_of;
use experiment::runs_on_disk::files::RECORD_FILE;
use records::metric::{LOSS_NATS, is_share};
use records::store::EVALS_DIR;
use records::text::thousands;
use records::{RunRecord, read_record};
use report::{ReportError, ReportSpec, report};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use support::exit::{Exit, Failure};
use support::units::{count, quoted};

/// Outcome of the evaluations.
pub struct Outcome {
    /// Number of selected runs.
    pub selected: usize,
    /// The records of the evaluations with their paths, including those that existed before.
    pub evaluated: Vec<(RunRecord, PathBuf)>,
    /// Runs that failed: name, directory, and why.
    pub failed: Vec<(String, PathBuf, Failure)>,
    /// Set if a signal stopped the evaluations.
    pub stopped: Option<Exit>,
}

/// The run's directory of a record: of `RUN/evals/ID.json`, or of a run's own record where that is
/// the evaluation asked for.
fn run_of(record: &Path) -> Option<&Path> {
    let folder = record.parent()?;
    if folder.file_name()? == EVALS_DIR {
        folder.parent()
    } else {
        Some(folder)
    }
}

/// The experiment's directory of a record.
fn experiment_of(record: &Path) -> Option<&Path> {
    run_of(record)?.parent()
}

/// The token counts of the losses of a record on text.
fn tokens(record: &RunRecord) -> BTreeSet<u64> {
    let is_text = record.task.corpus.is_some() && !is_share(&record.task.primary_metric);
    let rows = record.evals.iter().filter(|_| is_text);
    rows.filter_map(|row| Some(row.metrics.get(LOSS_NATS)?.n))
        .collect()
}

impl Outcome {
    /// Notes on evaluations that scored other text than their runs.
    pub fn notes(&self) -> BTreeSet<String> {
        let each = self.evaluated.iter().filter_map(|(record, path)| {
            let own = read_record(&run_of(path)?.join(RECORD_FILE)).ok()?;
            let [here, there] = [tokens(record), tokens(&own)].map(|counts| {
                let (least, most) = (*counts.first()?, *counts.last()?);
                let to = (least < most).then(|| format!(" to {}", thousands(most)));
                Some(thousands(least) + &to.unwrap_or_default())
            });
            let (here, there) = (here?, there?);
            (here != there).then(|| {
                format!(
                    "scores here are over {here} tokens, and those of the run over {there}: they \
                     differ in part by the text"
                )
            })
        });
        each.collect()
    }

    /// The order of the methods in the config of each experiment that keeps one.
    fn order(&self) -> Vec<String> {
        spec_of::orders(self.evaluated.iter().filter_map(|(_, path)| run_of(path)))
    }

    /// The table over all evaluated runs, and the paths of the records.
    ///
    /// # Errors
    ///
    /// [`Exit::Input`] if no record has a score.
    pub fn table(&self) -> Result<String, Failure> {
        let records: Vec<RunRecord> = self
            .evaluated
            .iter()
            .map(|(record, _)| record.clone())
            .collect();
        let spec = ReportSpec {
            formats: [].into(),
            names: experiment::spec::NAMES,
            width: support::console::width(),
            order: self.order(),
            ..ReportSpec::default()
        };
        let (summary, is_shown) = match report(&records, &[], &spec) {
            Ok(report) => (report.summary, true),
            Err(ReportError::NoResults { .. }) => {
                let text = "no table: these are selection runs or runs with half the steps, not \
                            results; their records hold the scores";
                (text.to_owned(), false)
            }
            Err(error) => return Err(Failure::input(error)),
        };
        let summary = summary.trim_end();
        if let [(_, path)] = self.evaluated.as_slice() {
            return Ok(format!("{summary}\n\nrecord: {}", path.display()));
        }
        let experiments: BTreeSet<&Path> = self
            .evaluated
            .iter()
            .filter_map(|(_, path)| experiment_of(path))
            .collect();
        let places: Vec<String> = experiments
            .iter()
            .map(|place| place.join("RUN_ID").join(EVALS_DIR).display().to_string())
            .collect();
        let experiments: Vec<String> = experiments
            .iter()
            .map(|place| quoted(&place.to_string_lossy()))
            .collect();
        let shows = match is_shown {
            true => format!(" (`longreach report {}` shows them)", experiments.join(" ")),
            false => String::new(),
        };
        Ok(format!(
            "{summary}\n\n{}: {}{shows}",
            count(self.evaluated.len(), "record"),
            places.join(", ")
        ))
    }

    /// Exit code of the process.
    pub fn exit(&self) -> Exit {
        match (self.stopped, self.failed.as_slice()) {
            (Some(exit), _) => exit,
            (None, []) if self.evaluated.is_empty() => Exit::Diverged,
            (None, []) => Exit::Done,
            (None, _) => Exit::SomeFailed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_places_of_a_record_lead_to_the_experiment() {
        for record in ["runs/copy/abc/record.json", "runs/copy/abc/evals/def.json"] {
            assert_eq!(
                experiment_of(Path::new(record)),
                Some(Path::new("runs/copy"))
            );
        }
    }
}
