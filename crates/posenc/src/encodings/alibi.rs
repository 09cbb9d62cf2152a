//! Formula: `-slope_h |query - key|` added to the logits after the division by sqrt(head_dim).
//! Source: Press et al. 2021 (arXiv 2108.12409), section 3; the authors' code for head counts that are no power of two.
//! Deviations: the symmetric form for keys after the query, which a causal mask hides; the authors add `slope_h key`, equal up to
//! a constant per row, which the softmax does not see.
//! Parameters: none.
//! Limits: none; distances are exact below 2^24.

use super::upload;
use crate::catalogue::{About, Facts, Hooks, ModelShape, Spec};
use crate::{Bias, BiasBlocks, ConfigError, Init, PositionalEncoding, Positions, Prepared};
use burn::module::Module;
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Configuration of [`Alibi`]: nothing to set; any number of heads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlibiConfig {}

/// Linear penalty on distance, one fixed slope per head.
#[derive(Module, Debug)]
pub struct Alibi {
    n_heads: usize,
}

struct PreparedAlibi {
    slopes: Tensor<4>,
    queries: Tensor<4>,
    keys: Tensor<4>,
}

/// Slopes of the heads: `2^(-8h/H)` for `h = 1..=H` where `H` is a power of two; otherwise those of the largest power of two
/// `P < H`, followed by every other slope of `2P`, in that order and unsorted.
pub fn slopes(n_heads: usize) -> Vec<f64> {
    let of_power = |p: usize| (1..=p).map(move |h| libm::exp2(-8.0 * h as f64 / p as f64));
    let power = if n_heads == 0 { 0 } else { 1 << n_heads.ilog2() };
    of_power(power).chain(of_power(2 * power).step_by(2)).take(n_heads).collect()
}

impl PositionalEncoding for Alibi {
    fn prepare<'a>(&'a self, positions: &Positions, device: &Device) -> Box<dyn Prepared + 'a> {
        let (queries, keys) = (positions.queries().to_vec(), positions.keys().to_vec());
        let (q_len, k_len) = (queries.len(), keys.len());
        Box::new(PreparedAlibi {
            slopes: upload(slopes(self.n_heads), [1, self.n_heads, 1, 1], device),
            queries: upload(queries, [1, 1, q_len, 1], device),
            keys: upload(keys, [1, 1, 1, k_len], device),
        })
    }
}

impl Prepared for PreparedAlibi {
    fn logits_bias(&self, _layer: usize) -> Option<Bias<'_>> {
        Some(Bias::new(self))
    }
}

impl BiasBlocks for &PreparedAlibi {
    fn block(&self, queries: Range<usize>, keys: Range<usize>) -> Tensor<4> {
        let distance = (self.queries.clone().slice_dim(2, queries) - self.keys.clone().slice_dim(3, keys)).abs();
        distance * self.slopes.clone().neg()
    }
}

impl Spec for AlibiConfig {
    type Module = Alibi;
    const ABOUT: About = About {
        summary: "a penalty on the logits linear in distance, one fixed slope per head",
        formula: "logits - slope_h |query - key|, slope_h = 2^(-8h/H)",
        source: "Press et al. 2021, arXiv 2108.12409",
    };

    fn check(&self, _shape: &ModelShape) -> Result<(), ConfigError> {
        Ok(())
    }

    fn facts(&self, _shape: &ModelShape) -> Facts {
        let hooks = Hooks { logits_bias: true, ..Hooks::default() };
        Facts { hooks, parameters: vec![], max_position: None, reads_length: false, relative: true }
    }

    fn init(&self, shape: &ModelShape, _init: &Init<'_>) -> Alibi {
        Alibi { n_heads: shape.n_heads }
    }
}
