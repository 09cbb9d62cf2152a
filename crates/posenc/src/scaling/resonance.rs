//! Resonance RoPE: wavelengths of whole tokens.

use super::{Scaling, Unscaled};
use crate::ConfigError;
use crate::frequencies::Frequencies;
use serde::{Deserialize, Serialize};
use std::f64::consts::PI;

/// Resonance RoPE: every wavelength rounded to a whole number of tokens, so that a pair repeats
/// exactly. Wang et al. 2024 (arXiv 2403.00071).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ResonanceScaling {}

impl Scaling for ResonanceScaling {
    fn scale(&self, plain: &Unscaled, _length: f64) -> Frequencies {
        // No plain frequency exceeds 1: wavelengths are at least 2 pi and never round to 0.
        let resonant = |theta: &f64| 2.0 * PI / (2.0 * PI / theta).round();
        Frequencies::new(plain.inv_freq.iter().map(resonant).collect())
    }

    fn check(&self, _dim: usize) -> Result<(), ConfigError> {
        Ok(())
    }
}
