//! `hard_alibi`: some heads see only the last few tokens, the others see everything and no
//! position.
//!
//! - Formula: head h = 0, 1, ... of the first `masked_heads` sees the keys at distance 0..=h only;
//!   the other heads see everything.
//! - Source: Jelassi et al. 2024, Repeat After Me (arXiv 2402.01032), appendix; the authors'
//!   `hard_alibi_model.py`.
//! - Parameters: none.
//! - Limits: none.

use crate::ConfigError;
use crate::distances::Distances;
use crate::facts::{Facts, Hooks, Lengths, ModelShape};
use crate::hooks::{BiasAlone, BiasBlocks, Context, PositionalEncoding, PrepareResult};
use crate::init::Parameters;
use crate::positions::Positions;
use crate::spec::{About, EncodingSpec, NumberTable};
use crate::tensors::upload;
use burn::module::Module;
use burn::tensor::{Device, Tensor};
use schema::in_range;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// `kind = "hard_alibi"`: configuration of [`HardAlibi`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct HardAlibiConfig {
    /// Number of heads with a limited view, 1 to those of the model; half of them unless given.
    pub masked_heads: Option<usize>,
}

impl HardAlibiConfig {
    fn masked(&self, n_heads: usize) -> usize {
        self.masked_heads.unwrap_or(n_heads.div_ceil(2))
    }
}

/// Heads that see the last few tokens only, beside heads without any position.
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
    fn prepare(&self, positions: &Positions, context: &Context) -> PrepareResult<'_> {
        let distances = Distances::new(positions, &context.device);
        Ok(Box::new(BiasAlone(PreparedHardAlibi {
            encoding: [self.n_heads, self.masked],
            distances,
            device: context.device.clone(),
        })))
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
        distinct.spread(upload(values, [1, heads, count], &self.device))
    }

    fn by_distance(&self) -> bool {
        self.distances.by_index()
    }
}

impl EncodingSpec for HardAlibiConfig {
    type Module = HardAlibi;
    const NAME: Option<&'static str> = Some("hard ALiBi");
    const ABOUT: About = About {
        summary: "some heads see only the last few tokens, the others see everything and no \
                  position",
        formula: "logits - infinity where |query - key| > h, for heads h = 0..masked_heads",
        source: "Jelassi et al. 2024, arXiv 2402.01032",
        deviations: "none",
    };

    fn check(&self, shape: &ModelShape) -> Result<(), ConfigError> {
        let n_heads = shape.n_heads;
        let hint = format!("leave it out for half of the heads; n_heads = {n_heads}");
        in_range("masked_heads", self.masked(n_heads), 1..=n_heads, &hint)
    }

    fn properties(&self, _shape: &ModelShape) -> Facts {
        Facts {
            relative: true,
            by_distance: true,
            ..Facts::new(Hooks::LOGITS_BIAS)
        }
    }

    fn numbers(&self, shape: &ModelShape, _lengths: &Lengths) -> Vec<NumberTable> {
        let masked = self.masked(shape.n_heads);
        let seen = |head: usize| vec![head as f64, head as f64 + 1.0];
        let (title, columns) = ("heads with a limited view", ["head", "tokens seen"]);
        vec![NumberTable::new(title, columns, (0..masked).map(seen))]
    }

    fn build(&self, shape: &ModelShape, _parameters: &mut Parameters) -> HardAlibi {
        HardAlibi {
            n_heads: shape.n_heads,
            masked: self.masked(shape.n_heads),
        }
    }
}
