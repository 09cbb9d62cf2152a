//! NTK-aware scaling: a larger base.

use super::{Factor, OriginalLength, Scaling, Unscaled, resolve_factor};
use crate::ConfigError;
use crate::facts::Lengths;
use crate::frequencies::{Frequencies, inv_freq};
use serde::{Deserialize, Serialize};

/// NTK-aware: `base' = base s^(d/(d-2))`, which stretches the slowest pair by `s` and leaves the
/// fastest alone. bloc97 2023; Hugging Face and jquesnelle/yarn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct NtkScaling {
    /// Factor `s`, 1 to 1000000; `"auto"`: test length over `L`, at least 1; in `model.pe`
    /// training length over `L`.
    pub factor: Factor,
    /// `L` in tokens, 1 to 1000000000, for `factor = "auto"` only; the training length unless
    /// given.
    pub original_max_position_embeddings: Option<usize>,
}

impl Scaling for NtkScaling {
    const NAME: Option<&'static str> = Some("NTK");
    const READS_BASE: bool = true;

    fn scale(&self, plain: &Unscaled, _length: f64) -> Frequencies {
        let base = stretched_base(plain.base, plain.dim, self.factor.value());
        Frequencies::new(inv_freq(plain.dim, base))
    }

    fn check(&self, dim: usize) -> Result<(), ConfigError> {
        self.original_max_position_embeddings.check()?;
        self.factor.check("factor")?;
        check_dim("ntk", dim)
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

/// `base s^(d/(d-2))`.
pub(super) fn stretched_base(base: f64, dim: usize, factor: f64) -> f64 {
    // The slowest pair is base^(-(d-2)/d), so this exponent divides it by exactly `factor`.
    base * libm::pow(factor, dim as f64 / (dim as f64 - 2.0))
}

/// Refuses dimensions for which the exponent `d/(d-2)` has no value.
pub(super) fn check_dim(kind: &str, dim: usize) -> Result<(), ConfigError> {
    if dim > 2 {
        return Ok(());
    }
    Err(ConfigError::new(
        "kind",
        kind,
        format!("has no value for {dim} rotated dimensions: its exponent is d/(d-2)"),
        "4 or more",
        "use a larger head_dim or rotary_dim, or linear scaling",
    ))
}
