//! p-RoPE: the slowest pairs are not rotated.

use super::{Scaling, Unscaled};
use crate::ConfigError;
use crate::frequencies::Frequencies;
use schema::in_range;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// p-RoPE: only the fastest share `fraction` of the pairs rotates, with the frequencies they have
/// in the full head; the rest is not rotated. 1 is plain RoPE, 0 no encoding. Barbero et al. 2024
/// (arXiv 2410.06205), appendix D; Hugging Face `proportional`.
///
/// Not partial rotation (`rotary_dim`), which pairs inside a slice of the head and spreads all
/// frequencies over it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct ProportionalScaling {
    /// Share p of the pairs that rotate, 0 to 1; rounded down to whole pairs.
    #[default = 0.75]
    pub fraction: f64,
}

impl Scaling for ProportionalScaling {
    fn scale(&self, plain: &Unscaled, _length: f64) -> Frequencies {
        let mut inv_freq = plain.inv_freq.clone();
        let rotated = (self.fraction * inv_freq.len() as f64).floor() as usize;
        // Pairs are fastest first, so these are the slowest; angle 0 leaves them without position.
        inv_freq[rotated..].fill(0.0);
        Frequencies::new(inv_freq)
    }

    fn check(&self, _dim: usize) -> Result<(), ConfigError> {
        in_range("fraction", self.fraction, 0.0..=1.0, "the paper uses 0.75")
    }
}
