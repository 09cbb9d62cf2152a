//! `learned_bias`: a trained bias per head and distance, clipped; for example beside RoPE.
//!
//! - Formula: a trained bias per head and distance, `table[min(|query - key|, max_distance), h]`,
//!   added to the logits.
//! - Source: T5's bias (Raffel et al. 2019, arXiv 1910.10683) without buckets; clipping as in Shaw
//!   et al. 2018 (arXiv 1803.02155).
//! - Parameters: `table`, `[max_distance + 1, H]`, shared by layers.
//! - Limits: none: distances past the end share the last row. Rows that training never reached keep
//!   their initial values.

use crate::ConfigError;
use crate::distances::{Distances, by_head};
use crate::facts::{Facts, Hooks, Lengths, ModelShape};
use crate::hooks::{BiasAlone, BiasBlocks, Context, PositionalEncoding, PrepareResult};
use crate::init::{Distribution, ParamSpec, Parameters};
use crate::positions::Positions;
use crate::spec::{About, EncodingSpec};
use crate::values::{in_range_if_set, unset};
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use schema::in_range;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;
use std::ops::Range;

/// `kind = "learned_bias"`: configuration of [`LearnedBias`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct LearnedBiasConfig {
    /// The largest distance in tokens with its own row, 1 to 10000000; the largest of training
    /// unless given.
    pub max_distance: Option<usize>,
    /// Standard deviation of the initial biases, 0 to 10.
    #[default = 0.02]
    pub init_std: f64,
}

/// A trained bias per distance.
#[derive(Module, Debug)]
pub struct LearnedBias {
    table: Param<Tensor<2>>,
}

struct PreparedLearnedBias {
    /// Per model, head and distance.
    table: Tensor<3>,
    distances: Distances,
}

impl PositionalEncoding for LearnedBias {
    fn prepare(&self, positions: &Positions, context: &Context) -> PrepareResult<'_> {
        Ok(Box::new(BiasAlone(PreparedLearnedBias {
            table: by_head(self.table.val(), context.groups),
            distances: Distances::new(positions, &context.device),
        })))
    }

    fn acts_in_groups(&self) -> bool {
        true
    }
}

impl BiasBlocks for &PreparedLearnedBias {
    fn block(&self, queries: Range<usize>, keys: Range<usize>) -> Tensor<4> {
        let last = self.table.dims()[2] - 1;
        let distinct = self.distances.distinct(queries, keys);
        let rows = distinct.rows(&self.table.device(), |distance| {
            (distance.abs().round() as usize).min(last)
        });
        distinct.spread(self.table.clone().select(2, rows))
    }

    fn by_distance(&self) -> bool {
        self.distances.by_index()
    }
}

impl EncodingSpec for LearnedBiasConfig {
    type Module = LearnedBias;
    const ABOUT: About = About {
        summary: "a trained bias per head and distance, clipped; for example beside RoPE",
        formula: "logits + table[min(|query - key|, max_distance), h]",
        source: "Raffel et al. 2019, arXiv 1910.10683; Shaw et al. 2018, arXiv 1803.02155",
        deviations: "distances count alike in both directions",
    };

    fn check(&self, _shape: &ModelShape) -> Result<(), ConfigError> {
        let hint = "leave it out for the training length";
        in_range_if_set("max_distance", self.max_distance, 1..=10_000_000, hint)?;
        in_range("init_std", self.init_std, 0.0..=10.0, "0.02 by default")
    }

    fn resolve(&mut self, lengths: &Lengths) {
        self.max_distance
            .get_or_insert((lengths.train_len - 1).max(1));
    }

    fn unresolved(&self) -> Option<String> {
        unset("max_distance", self.max_distance)
    }

    fn parameters(&self, shape: &ModelShape) -> Vec<ParamSpec> {
        let init = Distribution::Normal(self.init_std);
        let table = self
            .max_distance
            .map(|last| ParamSpec::new("table", [last + 1, shape.n_heads], init));
        table.into_iter().collect()
    }

    fn properties(&self, _shape: &ModelShape) -> Facts {
        Facts {
            relative: true,
            by_distance: true,
            ..Facts::new(Hooks::LOGITS_BIAS)
        }
    }

    fn build(&self, _shape: &ModelShape, parameters: &mut Parameters) -> LearnedBias {
        LearnedBias {
            table: parameters.take("table"),
        }
    }
}
