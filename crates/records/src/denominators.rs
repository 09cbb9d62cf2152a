//! How often linear attention divided by what is not a sum of weights.

use serde::{Deserialize, Serialize};

/// The denominators of one evaluation under linear attention that sums products of transformed
/// features (`model.normalizer = "rotated"`): one for each query, head and layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Denominators {
    /// Denominators in all.
    pub count: u64,
    /// Those below 0: the keys most similar to the query got negative weights.
    pub negative: u64,
    /// Those of a magnitude below 1e-6, which were replaced by 1e-6 with their sign: the weights do
    /// not sum to 1.
    pub clamped: u64,
}

impl Denominators {
    /// The sums of several evaluations; `None` of none.
    pub fn sum(all: impl Iterator<Item = Self>) -> Option<Self> {
        all.reduce(|a, b| Self {
            count: a.count.saturating_add(b.count),
            negative: a.negative.saturating_add(b.negative),
            clamped: a.clamped.saturating_add(b.clamped),
        })
    }

    /// Whether these counts are possible.
    pub fn is_possible(&self) -> bool {
        self.count > 0 && self.negative.max(self.clamped) <= self.count
    }
}
