//! Formula: head h = 0, 1, ... of the first `masked_heads` sees the keys at distance 0..=h alone;
//! the other heads see everything. Source: Jelassi et al. 2024, Repeat After Me (arXiv 2402.01032),
//! appendix; the authors' `hard_alibi_model.py`. Deviations: none.
//! Parameters: none.
//! Limits: none.

use super::upload;
use crate::catalogue::{About, Facts, Hooks, ModelShape, Spec};
use crate::distances::Distances;
use crate::{Bias, BiasBlocks, ConfigError, Init, Plain, PositionalEncoding, Positions, Prepared};
use burn::module::Module;
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Configuration of [`HardAlibi`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HardAlibiConfig {
    /// Heads with a short sight; half of them unless given.
    pub masked_heads: Option<usize>,
}

impl HardAlibiConfig {
    fn masked(&self, n_heads: usize) -> usize {
        self.masked_heads.unwrap_or(n_heads.div_ceil(2))
    }
}

/// Heads that see a few tokens back, beside heads without any position.
#[derive(Module, Debug)]
pub struct HardAlibi {
    n_heads: usize,
    masked: usize,
}

struct PreparedHardAlibi {
    encoding: [usize; 2],
    distances: Distances,
    device: Device,
}

impl PositionalEncoding for HardAlibi {
    fn prepare<'a>(&'a self, positions: &Positions, device: &Device) -> Box<dyn Prepared + 'a> {
        let distances = Distances::new(positions, device);
        Box::new(PreparedHardAlibi {
            encoding: [self.n_heads, self.masked],
            distances,
            device: device.clone(),
        })
    }
}

impl Prepared for PreparedHardAlibi {
    fn plain(&self, _layer: usize) -> Option<Plain> {
        Some(Plain::default())
    }

    fn logits_bias(&self, _layer: usize) -> Option<Bias<'_>> {
        Some(Bias::new(self))
    }
}

impl BiasBlocks for &PreparedHardAlibi {
    fn block(&self, queries: Range<usize>, keys: Range<usize>) -> Tensor<4> {
        let [heads, masked] = self.encoding;
        let distinct = self.distances.distinct(queries, keys);
        let count = distinct.distances.len();
        let bias = |h: usize, distance: f64| {
            if h < masked && distance.abs() > h as f64 {
                f64::NEG_INFINITY
            } else {
                0.0
            }
        };
        let values = (0..heads)
            .flat_map(|h| {
                distinct
                    .distances
                    .iter()
                    .map(move |distance| bias(h, *distance))
            })
            .collect();
        distinct.spread(upload(values, [heads, count], &self.device))
    }

    fn by_distance(&self) -> bool {
        self.distances.by_index()
    }
}

impl Spec for HardAlibiConfig {
    type Module = HardAlibi;
    const ABOUT: About = About {
        summary: "some heads see only the last few tokens, the others see everything and no \
                  position",
        formula: "logits - infinity where |query - key| > h, for heads h = 0..masked_heads",
        source: "Jelassi et al. 2024, arXiv 2402.01032",
    };

    fn check(&self, shape: &ModelShape) -> Result<(), ConfigError> {
        let masked = self.masked(shape.n_heads);
        if masked == 0 || masked > shape.n_heads {
            let allowed = format!("1 to n_heads = {}", shape.n_heads);
            return Err(ConfigError::new(
                "masked_heads",
                masked,
                "out of range",
                allowed,
                "leave it out for half of the heads",
            ));
        }
        Ok(())
    }

    fn facts(&self, _shape: &ModelShape) -> Facts {
        Facts {
            hooks: Hooks {
                logits_bias: true,
                ..Hooks::default()
            },
            relative: true,
            by_distance: true,
            ..Facts::default()
        }
    }

    fn init(&self, shape: &ModelShape, _init: &Init<'_>) -> HardAlibi {
        HardAlibi {
            n_heads: shape.n_heads,
            masked: self.masked(shape.n_heads),
        }
    }
}
