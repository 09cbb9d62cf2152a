//! EVQ-Cosh: frequencies at the quantiles of a hyperbolic cosine.

use super::{Factor, OriginalLength as _, Scaling, Unscaled};
use crate::ConfigError;
use crate::facts::Lengths;
use crate::frequencies::Frequencies;
use schema::in_range;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// EVQ-Cosh: `theta_k = base^(-phi_k)`, `phi_k = 1 - asinh((1 - u_k) sinh tau) / tau`, `u_k = (k +
/// 1/2) / pairs`; for training, at every length. tau = 0 is the geometric table on that grid: the
/// larger tau, the more pairs are fast. `schedules.py` of misaya-yang/hybrid-rope.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct EvqCoshScaling {
    /// How far the table is from a geometric one, 0 to 100. `"auto"`: the rule of the authors'
    /// notes, max(d / sqrt(L), 1.4), with d the rotated dimensions of a head.
    #[default(Factor::Fixed(1.5))]
    pub tau: Factor,
    /// Whether the grid lies between the points of RoPE's, whose `u_k` is `k / pairs`.
    #[default = true]
    pub midpoint: bool,
    /// `L` in tokens, 1 to 1000000000, for `tau = "auto"` only; the training length unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub original_max_position_embeddings: Option<usize>,
}

impl EvqCoshScaling {
    fn tau(&self, dim: usize) -> f64 {
        let by_rule = || dim as f64 / self.original_max_position_embeddings.value().sqrt();
        self.tau.fixed().unwrap_or_else(|| by_rule().max(1.4))
    }
}

impl Scaling for EvqCoshScaling {
    const NAME: Option<&'static str> = Some("EVQ-cosh");
    const READS_BASE: bool = true;

    fn scale(&self, plain: &Unscaled, _length: f64) -> Frequencies {
        let (pairs, tau) = (plain.inv_freq.len(), self.tau(plain.dim));
        let theta = |k: usize| {
            let u = (k as f64 + if self.midpoint { 0.5 } else { 0.0 }) / pairs as f64;
            // The limit of the formula, which divides by tau.
            let phi = if tau < 1e-8 {
                u
            } else {
                1.0 - libm::asinh((1.0 - u) * libm::sinh(tau)) / tau
            };
            libm::pow(plain.base, -phi)
        };
        Frequencies::new((0..pairs).map(theta).collect())
    }

    fn check(&self, _dim: usize) -> Result<(), ConfigError> {
        self.original_max_position_embeddings.check()?;
        let Some(tau) = self.tau.fixed() else {
            return Ok(());
        };
        let hint = "the authors use 1.5 to 5, or \"auto\"; 0 is a geometric table";
        in_range("tau", tau, 0.0..=100.0, hint)?;
        match self.original_max_position_embeddings {
            None => Ok(()),
            Some(length) => Err(ConfigError::new(
                crate::values::ORIGINAL,
                length,
                "has no effect: only tau = \"auto\" reads it",
                "nothing, with a number for tau",
                "leave it out, or set tau = \"auto\"",
            )),
        }
    }

    fn resolve(&mut self, lengths: &Lengths) {
        if self.tau == Factor::Auto {
            self.original_max_position_embeddings.resolve(lengths);
        }
    }

    fn unresolved(&self) -> Option<&'static str> {
        let is_open = self.tau == Factor::Auto;
        is_open.then(|| self.original_max_position_embeddings.unresolved())?
    }
}
