//! YaRN: interpolates slow pairs and sharpens the softmax.

use super::{Factor, OriginalLength, Scaling, Unscaled, check_not_falling, ramp_ends};
use crate::ConfigError;
use crate::frequencies::Frequencies;
use crate::values::in_range_if_set;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// YaRN: pairs that turn often in training keep their frequency, pairs that never complete a turn
/// are interpolated, a linear ramp over the pair index lies between, and cos and sin carry an
/// attention factor. Peng et al. 2023 (arXiv 2309.00071), in the form of the authors' code and
/// Hugging Face (the paper's ramp is linear in the number of turns instead).
///
/// With `L` under about 201 and `beta_fast = 32` the ramp starts at pair 0: nearly plain
/// interpolation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct YarnScaling {
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
    /// Numerator's multiplier where the attention factor is a ratio (DeepSeek), 0 to 1000; only
    /// together with `mscale_all_dim`, and not with `attention_factor`.
    pub mscale: Option<f64>,
    /// Denominator's multiplier of that ratio, 0 to 1000.
    pub mscale_all_dim: Option<f64>,
    /// Whether the logits are also multiplied by `(0.1 m ln s + 1)^2`, m = `mscale_all_dim`, as the
    /// models of DeepSeek do beside this scaling.
    #[serde(skip_serializing_if = "schema::is_default")]
    pub scale_logits: bool,
    /// Whether the ramp's ends are rounded to whole dimensions.
    #[default = true]
    pub truncate: bool,
}

impl YarnScaling {
    /// `0.1 m ln s + 1`.
    fn mscale(&self, m: f64) -> f64 {
        match self.factor.value() {
            s if s <= 1.0 => 1.0,
            s => 0.1 * m * libm::log(s) + 1.0,
        }
    }

    /// `0.1 ln s + 1`, or what the options ask for.
    fn attention_factor(&self) -> f64 {
        let mscale = |m| self.mscale(m);
        match (self.attention_factor, self.mscale, self.mscale_all_dim) {
            (Some(factor), _, _) => factor,
            // A multiplier of 0 counts as absent, as in Hugging Face.
            (None, Some(m), Some(all)) if m != 0.0 && all != 0.0 => mscale(m) / mscale(all),
            _ => mscale(1.0),
        }
    }

    /// The factor on the logits that DeepSeek's models have, if it is left out here.
    pub fn left_out(&self) -> Option<f64> {
        let m = self
            .mscale_all_dim
            .filter(|m| *m != 0.0 && !self.scale_logits);
        m.map(|m| self.mscale(m).powi(2))
            .filter(|factor| *factor != 1.0)
    }

    fn check_mscale(&self) -> Result<(), ConfigError> {
        let hint = "leave both mscale keys out for 0.1 ln(factor) + 1";
        let keys = [
            ("mscale", self.mscale),
            ("mscale_all_dim", self.mscale_all_dim),
        ];
        for (key, value) in keys {
            in_range_if_set(key, value, 0.0..=1e3, hint)?;
            if let (Some(value), Some(_)) = (value, self.attention_factor) {
                return Err(ConfigError::new(
                    key,
                    value,
                    "has no effect beside attention_factor",
                    "either",
                    format!("remove {key} or attention_factor"),
                ));
            }
        }
        if self.scale_logits && self.mscale_all_dim.is_none() {
            return Err(ConfigError::new(
                "scale_logits",
                true,
                "needs mscale_all_dim, the m of its factor",
                "false without mscale_all_dim",
                "add mscale and mscale_all_dim, or remove scale_logits",
            ));
        }
        let (given, missing, value) = match keys {
            [(given, Some(value)), (missing, None)] => (given, missing, value),
            [(missing, None), (given, Some(value))] => (given, missing, value),
            _ => return Ok(()),
        };
        Err(ConfigError::new(
            given,
            value,
            format!("has no effect without {missing}"),
            "both or neither",
            format!("add {missing} or remove {given}"),
        ))
    }
}

impl Scaling for YarnScaling {
    const NAME: Option<&'static str> = Some("YaRN");
    const READS_BASE: bool = true;

    fn scale(&self, plain: &Unscaled, _length: f64) -> Frequencies {
        let s = self.factor.value();
        let original = self.original_max_position_embeddings.value();
        let turns = [self.beta_fast, self.beta_slow];
        let (low, mut high) = ramp_ends(plain, original, turns, self.truncate);
        // A ramp of no width would divide by 0; Hugging Face widens it by as much.
        if low == high {
            high += 0.001;
        }
        let scaled = plain.inv_freq.iter().enumerate().map(|(i, theta)| {
            // 0 leaves the pair alone, 1 interpolates it in full.
            let ramp = ((i as f64 - low) / (high - low)).clamp(0.0, 1.0);
            theta / s * ramp + theta * (1.0 - ramp)
        });
        Frequencies {
            inv_freq: scaled.collect(),
            attention_factor: self.attention_factor(),
        }
    }

    fn logits_factor(&self) -> f64 {
        let m = self.mscale_all_dim.filter(|_| self.scale_logits);
        m.map_or(1.0, |m| self.mscale(m).powi(2))
    }

    fn check(&self, _dim: usize) -> Result<(), ConfigError> {
        self.original_max_position_embeddings.check()?;
        self.factor.check("factor")?;
        check_ramp(self.beta_slow, self.beta_fast, self.attention_factor)?;
        self.check_mscale()
    }

    resolved_by_lengths!(factor);
}

/// Refuses ends of the ramp that do not rise, and an attention factor out of range.
pub(super) fn check_ramp(
    beta_slow: f64,
    beta_fast: f64,
    attention_factor: Option<f64>,
) -> Result<(), ConfigError> {
    let (slow, fast) = (("beta_slow", beta_slow), ("beta_fast", beta_fast));
    // Equal ends make a step instead of a ramp, as at Hugging Face.
    check_not_falling(slow, fast, "the paper uses 1 and 32")?;
    let hint = "leave it out for 0.1 ln(factor) + 1";
    in_range_if_set("attention_factor", attention_factor, 1e-3..=1e3, hint)
}
