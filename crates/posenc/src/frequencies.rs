//! Inverse frequencies of rotations, in host f64.

use std::f64::consts::PI;

/// Plain inverse frequencies `base^(-2i/d)`, radians per token; pair 0 is the fastest. RoFormer
/// (arXiv 2104.09864), section 3.2.2.
///
/// An odd `dim` rounds up to whole pairs, as DeepMind's sinusoidal tables do.
pub fn inv_freq(dim: usize, base: f64) -> Vec<f64> {
    (0..dim.div_ceil(2))
        .map(|i| libm::pow(base, -(2.0 * i as f64) / dim as f64))
        .collect()
}

/// Frequencies of the pairs of a head, and the factor on cos and sin.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Frequencies {
    /// Radians per token of each pair, fastest first.
    pub inv_freq: Vec<f64>,
    /// Multiplies cos and sin, hence the logits by its square.
    pub attention_factor: f64,
}

impl Frequencies {
    /// Frequencies with attention factor 1.
    pub fn new(inv_freq: Vec<f64>) -> Self {
        Self {
            inv_freq,
            attention_factor: 1.0,
        }
    }

    /// Wavelength of each pair in tokens, `2 pi / inv_freq`.
    pub fn wavelengths(&self) -> Vec<f64> {
        self.inv_freq.iter().map(|f| 2.0 * PI / f).collect()
    }
}
