//! Two sets of records compared: run by run for equality, or number by number within a tolerance.

mod exact;
mod tolerance;

pub use exact::disagreement;
pub use exact::fuller_first;
pub use exact::{Comparison, Difference};
pub use tolerance::{Closeness, LargestDifference};

use crate::record::RunRecord;
use std::collections::BTreeMap;

/// Records by run id, and later evaluations by the run that they evaluate too: one may have the id
/// of a run that was trained with its lengths. If there are several, the last.
fn by_id(records: &[RunRecord]) -> BTreeMap<(&str, Option<&str>), &RunRecord> {
    let pairs = records.iter().map(|record| {
        let key = (record.run_id.as_str(), record.evaluation_of.as_deref());
        (key, record)
    });
    pairs.collect()
}
