//! MrRoPE: a conversion of the radix of positions, pair by pair.

use super::yarn::check_ramp;
use super::{Factor, OriginalLength, Scaling, Unscaled, ramp_ends};
use crate::ConfigError;
use crate::frequencies::Frequencies;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// How the stretch of the positions is shared out over the pairs of the ramp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MrropeForm {
    /// More to every slower pair: the paper's best, and what its code runs.
    #[default]
    Pro,
    /// The same to each pair.
    Uni,
}

/// MrRoPE: with the ends of YaRN's ramp, pairs up to `low` keep their frequency, pairs from `high`
/// on are divided by `s`, and pair i between is divided by `s^((i - low)(i - low + 1) / ((high -
/// low)(high - low + 1)))` (Pro) or `s^((i - low) / (high - low))` (Uni); YaRN's attention factor.
/// MrRoPE (arXiv 2601.22181); Pro as in its authors' `LlamaYaRNRadix.py`, which has several
/// variants beside the one it calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct MrropeScaling {
    /// How the stretch is shared out.
    #[default(MrropeForm::Pro)]
    pub form: MrropeForm,
    /// Factor `s`, 1 to 1000000; `"auto"`: test length over `L`, at least 1; in `model.pe`
    /// training length over `L`.
    #[default(Factor::Auto)]
    pub factor: Factor,
    /// `L` in tokens, 1 to 1000000000; the training length unless given.
    pub original_max_position_embeddings: Option<usize>,
    /// Number of turns within `L` above which a pair is left alone, 1e-6 to 1e6; not below
    /// `beta_slow`.
    #[default = 32.0]
    pub beta_fast: f64,
    /// Number of turns within `L` below which a pair is interpolated in full, 1e-6 to 1e6.
    #[default = 1.0]
    pub beta_slow: f64,
    /// Factor on cos and sin, 0.001 to 1000; `0.1 ln s + 1` unless given.
    pub attention_factor: Option<f64>,
}

impl Scaling for MrropeScaling {
    const NAME: Option<&'static str> = Some("MrRoPE");
    const READS_BASE: bool = true;

    fn scale(&self, plain: &Unscaled, _length: f64) -> Frequencies {
        let s = self.factor.value();
        let original = self.original_max_position_embeddings.value();
        let (low, high) = ramp_ends(plain, original, [self.beta_fast, self.beta_slow], true);
        let width = high - low;
        let scaled = plain.inv_freq.iter().enumerate().map(|(i, theta)| {
            // Whole numbers below, between and above the ends; no pair lies between equal ones.
            let step = i as f64 - low;
            let share = match self.form {
                _ if step <= 0.0 => 0.0,
                _ if step >= width => 1.0,
                MrropeForm::Pro => step * (step + 1.0) / (width * (width + 1.0)),
                MrropeForm::Uni => step / width,
            };
            theta / libm::pow(s, share)
        });
        let formula = if s <= 1.0 {
            1.0
        } else {
            0.1 * libm::log(s) + 1.0
        };
        Frequencies {
            inv_freq: scaled.collect(),
            attention_factor: self.attention_factor.unwrap_or(formula),
        }
    }

    fn check(&self, _dim: usize) -> Result<(), ConfigError> {
        self.original_max_position_embeddings.check()?;
        self.factor.check("factor")?;
        check_ramp(self.beta_slow, self.beta_fast, self.attention_factor)
    }

    resolved_by_lengths!(factor);
}
