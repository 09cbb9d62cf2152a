//! HoPE: pairs that training does not turn once are not rotated.

use super::{OriginalLength, Scaling, Unscaled, turns};
use crate::ConfigError;
use crate::frequencies::Frequencies;
use serde::{Deserialize, Serialize};

/// HoPE: a pair that does not complete a turn within the training length, `2 pi / theta > L`, is
/// not rotated; the others are as in plain RoPE. Chen et al. 2025, as Levy et al. 2026 (arXiv
/// 2609.34556), section 2.2 and equation 2, define it.
///
/// `proportional` with the share of the pairs that turn is the same.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct HopeScaling {
    /// `L` in tokens, 1 to 1000000000; the training length unless given.
    pub original_max_position_embeddings: Option<usize>,
}

impl Scaling for HopeScaling {
    const NAME: Option<&'static str> = Some("HoPE");

    fn scale(&self, plain: &Unscaled, _length: f64) -> Frequencies {
        let length = self.original_max_position_embeddings.value();
        let kept = |theta: &f64| {
            if turns(*theta, length) < 1.0 {
                0.0
            } else {
                *theta
            }
        };
        Frequencies::new(plain.inv_freq.iter().map(kept).collect())
    }

    fn check(&self, _dim: usize) -> Result<(), ConfigError> {
        self.original_max_position_embeddings.check()
    }

    resolved_by_lengths!();
}
