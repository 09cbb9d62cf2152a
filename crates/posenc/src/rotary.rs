//! What all rotary encodings share: layouts, and frequencies with their scaling, in host f64.

use crate::ConfigError;
pub use crate::frequencies::{Frequencies, inv_freq};
use crate::scaling::{RopeScaling, Unscaled};
use crate::values::refuse_unresolved;
use serde::{Deserialize, Serialize};
use std::ops::Bound;

/// Values of `base` that have a meaning: base 1 rotates all pairs alike.
pub(crate) const BASES: (Bound<f64>, Bound<f64>) = (Bound::Excluded(1.0), Bound::Included(1e15));

/// Which two dimensions of a head form pair i. Equal up to a permutation of the head; never to be
/// mixed in one model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RotaryLayout {
    /// `(2i, 2i + 1)`: the paper, GPT-J.
    Interleaved,
    /// `(i, i + r/2)`: NeoX, Llama, Qwen.
    #[default]
    Half,
}

/// How the frequencies of the pairs fall off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FrequencySpacing {
    /// `base^(-2i/r)`: the paper.
    #[default]
    Geometric,
    /// `1/(1 + 2i)`: folklore, without a claim of merit; `base` has no effect.
    Linear,
}

/// The rotation that a rotary encoding is built on.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Rotary {
    /// Base of the frequencies.
    pub base: f64,
    /// Rotated dimensions of a head.
    pub dim: usize,
    /// How the frequencies fall off.
    pub spacing: FrequencySpacing,
    /// Rescaling of the frequencies.
    pub scaling: Option<RopeScaling>,
}

impl Rotary {
    /// Geometric frequencies of `base` over `dim` dimensions.
    pub fn new(base: f64, dim: usize) -> Self {
        Self {
            base,
            dim,
            spacing: FrequencySpacing::Geometric,
            scaling: None,
        }
    }

    /// The same over the whole head unless `rotary_dim` is given.
    pub(crate) fn of_head(base: f64, rotary_dim: Option<usize>, head_dim: usize) -> Self {
        Self::new(base, rotary_dim.unwrap_or(head_dim))
    }

    /// Frequencies before any scaling.
    pub fn unscaled(&self) -> Frequencies {
        Frequencies::new(match self.spacing {
            FrequencySpacing::Geometric => inv_freq(self.dim, self.base),
            FrequencySpacing::Linear => (0..self.dim.div_ceil(2))
                .map(|i| 1.0 / (1.0 + 2.0 * i as f64))
                .collect(),
        })
    }

    /// Frequencies and attention factor for a sequence of `length` tokens.
    ///
    /// # Errors
    ///
    /// If a key of the scaling depends on lengths and is not resolved.
    pub fn frequencies(&self, length: f64) -> Result<Frequencies, ConfigError> {
        let plain = self.unscaled();
        let Some(scaling) = &self.scaling else {
            return Ok(plain);
        };
        refuse_unresolved(scaling.unresolved().map(|key| format!("scaling.{key}")))?;
        let unscaled = Unscaled {
            inv_freq: plain.inv_freq,
            dim: self.dim,
            base: self.base,
        };
        Ok(scaling.scale(&unscaled, length))
    }
}
