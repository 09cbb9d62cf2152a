//! What to compare.

use records::names::Names;

/// What to compare.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ComparisonSpec {
    /// Metric of the scores; the leading one of each setting if none is given.
    pub metric: Option<String>,
    /// Relative differences up to this, absolute for numbers below 1, are none.
    pub tolerance: Option<f64>,
    /// Names of kinds for people.
    pub names: Names,
}
