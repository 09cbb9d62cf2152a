//! EVQ-Cosh: frequencies at the quantiles of a hyperbolic cosine.

use super::{Scaling, Unscaled};
use crate::ConfigError;
use crate::rotary::Frequencies;
use schema::in_range;
use serde::{Deserialize, Serialize};

/// EVQ-Cosh: `theta_k = base^(-phi_k)`, `phi_k = 1 - asinh((1 - u_k) sinh tau) / tau`, `u_k = (k +
/// 1/2) / pairs`; for training, at every length. tau = 0 is the geometric table on that grid: the
/// larger tau, the more pairs are fast. `schedules.py` of misaya-yang/hybrid-rope.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct EvqCoshScaling {
    /// How far the table is from a geometric one.
    pub tau: f64,
    /// Whether the grid lies between the points of RoPE's, whose `u_k` is `k / pairs`.
    pub midpoint: bool,
}

impl Default for EvqCoshScaling {
    fn default() -> Self {
        Self {
            tau: 1.5,
            midpoint: true,
        }
    }
}

impl Scaling for EvqCoshScaling {
    const READS_BASE: bool = true;

    fn scale(&self, plain: &Unscaled, _length: f64) -> Frequencies {
        let pairs = plain.inv_freq.len();
        let theta = |k: usize| {
            let u = (k as f64 + if self.midpoint { 0.5 } else { 0.0 }) / pairs as f64;
            // The limit of the formula, which divides by tau.
            let phi = if self.tau < 1e-8 {
                u
            } else {
                1.0 - libm::asinh((1.0 - u) * libm::sinh(self.tau)) / self.tau
            };
            libm::pow(plain.base, -phi)
        };
        Frequencies::new((0..pairs).map(theta).collect())
    }

    fn check(&self, _dim: usize) -> Result<(), ConfigError> {
        let hint = "the authors use 1.5 to 5; 0 is a geometric table";
        in_range("tau", self.tau, 0.0..=100.0, hint)
    }
}
