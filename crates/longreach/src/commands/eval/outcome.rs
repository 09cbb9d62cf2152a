//! Outcome of the evaluations of `longreach eval`.

use records::RunRecord;
use records::store::EVALS_DIR;
use report::{ReportSpec, report};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use support::exit::{Exit, Failure};
use support::units::count;

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

/// The experiment's directory of a record: of `RUN/evals/ID.json`, or of a run's own record where
/// that is the evaluation asked for.
fn experiment_of(record: &Path) -> Option<&Path> {
    let folder = record.parent()?;
    let run = if folder.file_name()? == EVALS_DIR {
        folder.parent()?
    } else {
        folder
    };
    run.parent()
}

impl Outcome {
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
            ..ReportSpec::default()
        };
        let summary = report(&records, &[], &spec)
            .map_err(Failure::input)?
            .summary;
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
            .map(|place| place.display().to_string())
            .collect();
        Ok(format!(
            "{summary}\n\n{}: {} (`longreach report {}` shows them)",
            count(self.evaluated.len(), "record"),
            places.join(", "),
            experiments.join(" ")
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
