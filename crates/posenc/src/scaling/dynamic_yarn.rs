//! YaRN by the length of every forward pass.

use super::yarn::{YarnScaling, check_ramp};
use super::{Factor, OriginalLength, Scaling, Unscaled};
use crate::ConfigError;
use crate::frequencies::Frequencies;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// YaRN with `s = max(1, T/L)` taken from the length of every forward pass, without state between
/// them. jquesnelle/yarn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct DynamicYarnScaling {
    /// `L` in tokens, 1 to 1000000000; the training length unless given.
    pub original_max_position_embeddings: Option<usize>,
    /// Number of turns within `L` above which a pair is left alone, 1e-6 to 1e6; not below
    /// `beta_slow`.
    #[default(YarnScaling::default().beta_fast)]
    pub beta_fast: f64,
    /// Number of turns within `L` below which a pair is interpolated in full, 1e-6 to 1e6.
    #[default(YarnScaling::default().beta_slow)]
    pub beta_slow: f64,
    /// Factor on cos and sin, 0.001 to 1000; `0.1 ln s + 1` unless given.
    pub attention_factor: Option<f64>,
    /// Whether the ramp's ends are rounded to whole dimensions.
    #[default(YarnScaling::default().truncate)]
    pub truncate: bool,
}

impl Scaling for DynamicYarnScaling {
    const NAME: Option<&'static str> = Some("dynamic YaRN");
    const READS_LENGTH: bool = true;
    const READS_BASE: bool = true;

    fn scale(&self, plain: &Unscaled, length: f64) -> Frequencies {
        // 1 up to L, where YaRN leaves all frequencies alone.
        let factor = (length / self.original_max_position_embeddings.value()).max(1.0);
        let at_length = YarnScaling {
            factor: Factor::Fixed(factor),
            original_max_position_embeddings: self.original_max_position_embeddings,
            beta_fast: self.beta_fast,
            beta_slow: self.beta_slow,
            attention_factor: self.attention_factor,
            truncate: self.truncate,
            ..YarnScaling::default()
        };
        at_length.scale(plain, length)
    }

    fn check(&self, _dim: usize) -> Result<(), ConfigError> {
        self.original_max_position_embeddings.check()?;
        check_ramp(self.beta_slow, self.beta_fast, self.attention_factor)
    }

    resolved_by_lengths!();
}
