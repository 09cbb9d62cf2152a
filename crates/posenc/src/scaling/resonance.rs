//! Resonance RoPE: wavelengths of whole tokens.

use super::{Scaling, Unscaled};
use crate::ConfigError;
use crate::frequencies::Frequencies;
use schema::in_range;
use serde::{Deserialize, Serialize};
use std::f64::consts::PI;

/// Resonance RoPE: every wavelength rounded to a whole number of tokens, so that a pair repeats
/// exactly. Wang et al. 2024 (arXiv 2403.00071).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct ResonanceScaling {
    /// The wavelengths of the pairs, in tokens, 1 to 1000000000, in place of the rounded ones; at
    /// most one for each pair, a shorter list is repeated. 1 is not a rotation. The periodic RoPE
    /// of Jerad et al. 2026 (arXiv 2608.11909).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub periods: Option<Vec<usize>>,
}

impl Scaling for ResonanceScaling {
    const NAME: Option<&'static str> = Some("Resonance");

    fn scale(&self, plain: &Unscaled, _length: f64) -> Frequencies {
        let pairs = plain.inv_freq.len();
        if let Some(periods) = &self.periods {
            let periods = periods.iter().cycle().take(pairs);
            // A period of 1 is no rotation: angle 0, exact at any position.
            let theta = |period: &usize| match period {
                1 => 0.0,
                period => 2.0 * PI / *period as f64,
            };
            return Frequencies::new(periods.map(theta).collect());
        }
        // No plain frequency exceeds 1: wavelengths are at least 2 pi and never round to 0.
        let resonant = |theta: &f64| 2.0 * PI / (2.0 * PI / theta).round();
        Frequencies::new(plain.inv_freq.iter().map(resonant).collect())
    }

    fn replaces_plain(&self) -> bool {
        self.periods.is_some()
    }

    fn check(&self, dim: usize) -> Result<(), ConfigError> {
        let Some(periods) = &self.periods else {
            return Ok(());
        };
        for (i, period) in periods.iter().enumerate() {
            let hint = "whole tokens of a turn; 1 leaves a pair unrotated";
            in_range(&format!("periods.{i}"), *period, 1..=1_000_000_000, hint)?;
        }
        let pairs = dim.div_ceil(2);
        if (1..=pairs).contains(&periods.len()) {
            return Ok(());
        }
        Err(ConfigError::new(
            "periods",
            format!("{periods:?}"),
            format!("has {} numbers for {pairs} pairs", periods.len()),
            format!("1 to {pairs} whole numbers"),
            "give a number for each pair, or fewer, which are repeated",
        ))
    }
}
