//! The scaling of Llama 3.1: NTK by parts with Meta's defaults.

use super::{Factor, OriginalLength, Scaling, Unscaled, blend, check_not_falling, turns};
use crate::ConfigError;
use crate::frequencies::Frequencies;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// Llama 3: wavelengths over `L / low_freq_factor` are stretched by `s`, those under `L /
/// high_freq_factor` are left alone, with a ramp between. Meta's code for Llama 3.1; Hugging Face
/// `llama3`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Llama3Scaling {
    /// Factor `s`, 1 to 1000000; `"auto"`: test length over `L`, at least 1; in `model.pe`
    /// training length over `L`.
    #[default(Factor::Auto)]
    pub factor: Factor,
    /// `L` in tokens, 1 to 1000000000; the training length unless given.
    pub original_max_position_embeddings: Option<usize>,
    /// Number of turns within `L` below which a pair is interpolated in full, 1e-6 to 1e6.
    #[default = 1.0]
    pub low_freq_factor: f64,
    /// Number of turns within `L` above which a pair is left alone, 1e-6 to 1e6; not below
    /// `low_freq_factor`.
    #[default = 4.0]
    pub high_freq_factor: f64,
}

impl Scaling for Llama3Scaling {
    const NAME: Option<&'static str> = Some("Llama 3");

    fn scale(&self, plain: &Unscaled, _length: f64) -> Frequencies {
        let original = self.original_max_position_embeddings.value();
        let (low, high) = (self.low_freq_factor, self.high_freq_factor);
        blend(plain, self.factor.value(), |theta| {
            let turns = turns(theta, original);
            // Equal bounds leave no ramp between, as in Llama 4 Scout.
            if low == high {
                return f64::from(turns >= low);
            }
            ((turns - low) / (high - low)).clamp(0.0, 1.0)
        })
    }

    fn check(&self, _dim: usize) -> Result<(), ConfigError> {
        self.original_max_position_embeddings.check()?;
        self.factor.check("factor")?;
        let low = ("low_freq_factor", self.low_freq_factor);
        let high = ("high_freq_factor", self.high_freq_factor);
        check_not_falling(low, high, "Llama 3.1 uses 1 and 4")
    }

    resolved_by_lengths!(factor);
}
