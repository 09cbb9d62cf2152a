//! NTK by parts: interpolates slow pairs only.

use super::{Factor, OriginalLength, Scaling, Unscaled, blend, check_rising, turns};
use crate::ConfigError;
use crate::frequencies::Frequencies;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// NTK by parts: pairs that turn more than `beta` times within `L` keep their frequency, pairs that
/// turn less than `alpha` times are interpolated, with a ramp linear in the number of turns
/// between. Peng et al. 2023 (arXiv 2309.00071), eq. 17, 18 and 20, as the paper has it; YaRN's
/// code has a ramp linear in the pair index.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct NtkByPartsScaling {
    /// Factor `s`, 1 to 1000000; `"auto"`: test length over `L`, at least 1; in `model.pe`
    /// training length over `L`.
    #[default(Factor::Auto)]
    pub factor: Factor,
    /// `L` in tokens, 1 to 1000000000; the training length unless given.
    pub original_max_position_embeddings: Option<usize>,
    /// Number of turns within `L` below which a pair is interpolated in full, 1e-6 to 1e6.
    #[default = 1.0]
    pub alpha: f64,
    /// Number of turns within `L` above which a pair is left alone, 1e-6 to 1e6; more than `alpha`.
    #[default = 32.0]
    pub beta: f64,
}

impl Scaling for NtkByPartsScaling {
    const NAME: Option<&'static str> = Some("NTK by parts");

    fn scale(&self, plain: &Unscaled, _length: f64) -> Frequencies {
        let original = self.original_max_position_embeddings.value();
        let ramp = |theta| {
            ((turns(theta, original) - self.alpha) / (self.beta - self.alpha)).clamp(0.0, 1.0)
        };
        blend(plain, self.factor.value(), ramp)
    }

    fn check(&self, _dim: usize) -> Result<(), ConfigError> {
        self.original_max_position_embeddings.check()?;
        self.factor.check("factor")?;
        let (alpha, beta) = (("alpha", self.alpha), ("beta", self.beta));
        check_rising(alpha, beta, "the paper uses 1 and 32")
    }

    resolved_by_lengths!(factor);
}
