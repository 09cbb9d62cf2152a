//! Why there is no report.

use records::store::Excluded;
use records::text;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// Nothing to report on.
    #[error("no records to report on{}", excluded_text(.excluded))]
    Empty {
        /// Files and lines that were left out.
        excluded: Vec<Excluded>,
    },
    /// No record is a result.
    #[error(
        "none of the {records} records is a result: they are of selection runs (eval.rows = \
         \"selection\") or of trainings with half the steps; name the records of the results, whose \
         report lists all that was tried"
    )]
    NoResults {
        /// Number of records.
        records: usize,
    },
    /// No method has the name of the baseline.
    #[error("the baseline \"{}\" is none of the methods: {}", text::printable(baseline), quoted(.known))]
    UnknownBaseline {
        /// As asked for.
        baseline: String,
        /// Names of the methods.
        known: Vec<String>,
    },
    /// No setting has a metric of that name in both sets.
    #[error("no score is named \"{}\"; allowed: {}", text::name(metric, 80), text::printable(&.known.join(", ")))]
    UnknownMetric {
        /// As asked for.
        metric: String,
        /// Names of the metrics of both sets.
        known: Vec<String>,
    },
    /// Two records of one run disagree.
    #[error(
        "run {} of {} is recorded twice with different numbers: its records differ in {what}",
        text::printable(run_id),
        text::printable(experiments)
    )]
    Conflict {
        /// Their run; both ids where two runs of one specification and seed have different ones.
        run_id: String,
        /// The experiments they are part of.
        experiments: String,
        /// What differs, in a few words.
        what: String,
    },
    /// A file could not be rendered.
    #[error("cannot render {file}: {reason}")]
    Render {
        /// Which.
        file: &'static str,
        /// Why.
        reason: String,
    },
}

/// Names in quotes: some have commas of their own.
fn quoted(names: &[String]) -> String {
    let names = names.iter().map(|name| format!("\"{name}\""));
    text::printable(&names.collect::<Vec<_>>().join(", "))
}

fn excluded_text(excluded: &[Excluded]) -> String {
    match excluded.first() {
        None => String::new(),
        Some(first) => format!(
            "; {} left out, the first: {}",
            excluded.len(),
            text::printable(&format!("{}: {}", place(first), first.reason))
        ),
    }
}

/// The last three parts of a path: enough to find a file, and independent of the machine.
pub(super) fn place(excluded: &Excluded) -> String {
    let parts: Vec<_> = excluded
        .path
        .components()
        .map(|c| c.as_os_str().to_string_lossy())
        .collect();
    let tail = parts[parts.len().saturating_sub(3)..].join("/");
    match excluded.line {
        Some(line) => format!("{tail}:{line}"),
        None => tail,
    }
}
