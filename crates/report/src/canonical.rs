//! Records in canonical order, each run once; records that disagree are refused.

use super::error::ReportError;
use records::analysis::identity::MethodSpecs;
use records::compare::{disagreement, fuller_first};
use records::order;
use records::record::RunRecord;
use records::spec::canonical_text;
use std::collections::{BTreeMap, BTreeSet};

/// Sorted; each run once in each experiment that it is part of, and each of its later evaluations.
///
/// # Errors
///
/// Two records of one run, or of one specification and seed, with different numbers.
pub(super) fn canonical(records: &[RunRecord]) -> Result<Vec<&RunRecord>, ReportError> {
    let mut sorted: Vec<&RunRecord> = records.iter().collect();
    sorted.sort_by(|a, b| order::canonical(a, b).then_with(|| fuller_first(a, b)));
    let specs = MethodSpecs::new(&sorted);
    // One run has one id, and one specification under one seed is one run.
    let (mut by_id, mut by_spec) = (BTreeMap::new(), BTreeMap::new());
    for record in &sorted {
        let of = record.evaluation_of.as_deref();
        let spec = (canonical_text(&specs.of(record)), record.seed, of);
        let by_id = by_id.entry((&record.run_id, of)).or_insert(*record);
        // Records of other versions, and made-up ones, may hold no specification at all.
        let by_spec = if record.spec.is_empty() {
            *by_id
        } else {
            *by_spec.entry(spec).or_insert(*record)
        };
        for other in [*by_id, by_spec] {
            if let Some(what) = disagreement(other, record) {
                let both = |a: &str, b: &str| {
                    if a == b {
                        a.to_owned()
                    } else {
                        format!("{a} and {b}")
                    }
                };
                let (run_id, experiments) = (
                    both(&other.run_id, &record.run_id),
                    both(&other.experiment, &record.experiment),
                );
                return Err(ReportError::Conflict {
                    run_id,
                    experiments,
                    what,
                });
            }
        }
    }
    let mut seen = BTreeSet::new();
    sorted.retain(|r| seen.insert((&r.experiment, &r.run_id, &r.evaluation_of)));
    Ok(sorted)
}
