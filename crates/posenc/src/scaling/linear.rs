//! Position interpolation.

use super::{Factor, OriginalLength, Scaling, Unscaled, resolve_factor};
use crate::ConfigError;
use crate::facts::Lengths;
use crate::frequencies::Frequencies;
use serde::{Deserialize, Serialize};

/// Position interpolation: `theta_i / s`. Chen et al. 2023 (arXiv 2306.15595).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct LinearScaling {
    /// Factor `s`, 1 to 1000000; `"auto"`: test length over `L`, at least 1; in `model.pe`
    /// training length over `L`.
    pub factor: Factor,
    /// `L` in tokens, 1 to 1000000000, for `factor = "auto"` only; the training length unless
    /// given.
    pub original_max_position_embeddings: Option<usize>,
}

impl Scaling for LinearScaling {
    const NAME: Option<&'static str> = Some("position interpolation");

    fn scale(&self, plain: &Unscaled, _length: f64) -> Frequencies {
        let factor = self.factor.value();
        Frequencies::new(plain.inv_freq.iter().map(|theta| theta / factor).collect())
    }

    fn check(&self, _dim: usize) -> Result<(), ConfigError> {
        self.original_max_position_embeddings.check()?;
        self.factor.check("factor")
    }

    fn resolve(&mut self, lengths: &Lengths) {
        let original = &mut self.original_max_position_embeddings;
        resolve_factor(&mut self.factor, original, lengths);
    }

    fn unresolved(&self) -> Option<&'static str> {
        // The original length matters to `auto` only.
        self.factor.unresolved()
    }
}
