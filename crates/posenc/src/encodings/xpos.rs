//! `xpos`: rotation of queries and keys whose product also decays with distance, slower pairs less.
//!
//! - Formula: RoPE with pair i of q at position m scaled by `zeta_i^((m - c)/scale_base)` and of k
//!   at n by the inverse, so that their product carries `zeta_i^((m - n)/scale_base)`; `zeta_i =
//!   (2i/r + gamma)/(1 + gamma)`.
//! - Source: Sun et al. 2022 (arXiv 2212.10554), section 3; torchscale. `block_size`: the paper's
//!   blockwise causal attention, section 3.3.
//! - Parameters: none.
//! - Limits: causal only, since the factor grows for keys after the query; `max_position` keeps the
//!   powers inside f32.

use crate::ConfigError;
use crate::facts::{Facts, Hooks, Lengths, ModelShape};
use crate::hooks::{
    Bias, Context, FusedQk, PositionalEncoding, PrepareResult, Prepared, Qk, within_limit,
};
use crate::init::Parameters;
use crate::mask::Window;
use crate::positions::Positions;
use crate::rotary::{BASES, Rotary, RotaryLayout};
use crate::rotary_tables::{RotaryTables, check_rotary_dim};
use crate::spec::{About, EncodingSpec, NumberTable};
use crate::tensors::upload;
use crate::values::in_range_if_set;
use burn::module::Module;
use burn::tensor::Tensor;
use schema::in_range;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// Largest exponent of e in a factor: f32 ends at e^88, and factors of query and key multiply.
const LARGEST_EXPONENT: f64 = 80.0;

/// `kind = "xpos"`: configuration of [`Xpos`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct XposConfig {
    /// Base of the frequencies, above 1 and at most 1e15.
    #[default = 10_000.0]
    pub base: f64,
    /// Which dimensions form a pair.
    #[default(RotaryLayout::Half)]
    pub layout: RotaryLayout,
    /// Number of rotated dimensions of each head, even, 2 to the dimensions of a head; the whole
    /// head unless given.
    pub rotary_dim: Option<usize>,
    /// Strength of the decay, 0.001 to 1000: the larger gamma, the weaker the decay.
    #[default = 0.4]
    pub gamma: f64,
    /// Number of tokens after which pair i has decayed by `zeta_i`, 1 to 1e9.
    #[default = 512.0]
    pub scale_base: f64,
    /// A query sees its own block of this many tokens and the one before it, 1 to 1000000000;
    /// everything unless given.
    pub block_size: Option<usize>,
}

impl XposConfig {
    /// `zeta_i` of each pair of `dim` dimensions.
    pub fn zeta(&self, dim: usize) -> Vec<f64> {
        (0..dim / 2)
            .map(|i| (2.0 * i as f64 / dim as f64 + self.gamma) / (1.0 + self.gamma))
            .collect()
    }

    /// Positions whose factors stay inside f32 on both sides of the middle.
    fn max_position(&self) -> usize {
        let steepest = -libm::log(self.gamma / (1.0 + self.gamma));
        (2.0 * LARGEST_EXPONENT / steepest * self.scale_base).floor() as usize
    }
}

/// Rotation with a decay in the product of queries and keys.
#[derive(Module, Debug)]
pub struct Xpos {
    head_dim: usize,
    #[module(skip)]
    config: XposConfig,
}

struct PreparedXpos {
    layout: RotaryLayout,
    queries: RotaryTables,
    keys: RotaryTables,
    blocks: Option<Window>,
}

impl PositionalEncoding for Xpos {
    fn prepare(&self, positions: &Positions, context: &Context) -> PrepareResult<'_> {
        within_limit(positions, self.max_position())?;
        let dim = self.config.rotary_dim.unwrap_or(self.head_dim);
        let frequencies = Rotary::new(self.config.base, dim).unscaled();
        let zeta = self.config.zeta(dim);
        let smallest = positions
            .queries()
            .iter()
            .chain(positions.keys())
            .copied()
            .fold(f64::INFINITY, f64::min);
        // Only differences of exponents matter; counted from the middle, the largest is half as
        // large.
        let middle = f64::midpoint(smallest, positions.length() - 1.0);
        let tables = |positions: &[f64], sign: f64| {
            // Queries get the power, keys its inverse: the product keeps the distance only.
            let power = |p: &f64, zeta: &f64| {
                libm::pow(*zeta, sign * (p - middle) / self.config.scale_base)
            };
            let factors = positions
                .iter()
                .flat_map(|p| zeta.iter().map(move |zeta| power(p, zeta)))
                .collect();
            let factors = upload(
                factors,
                [1, 1, positions.len(), zeta.len()],
                &context.device,
            );
            RotaryTables::new(positions, &frequencies, context).scaled(factors)
        };
        Ok(Box::new(PreparedXpos {
            layout: self.config.layout,
            queries: tables(positions.queries(), 1.0),
            keys: tables(positions.keys(), -1.0),
            blocks: self.config.block_size.map(|size| {
                let block = move |p: f64| (p / size as f64).floor();
                Window::new(positions, &context.device, move |query, key| {
                    block(query) - block(key) <= 1.0
                })
            }),
        }))
    }

    fn max_position(&self) -> Option<usize> {
        Some(self.config.max_position())
    }
}

impl Prepared for PreparedXpos {
    fn transform_qk(&self, _: usize, q: Tensor<4>, k: Tensor<4>, _: &Tensor<3>) -> Qk {
        (
            self.queries.apply(q, self.layout),
            self.keys.apply(k, self.layout),
        )
    }

    fn fused_qk(&self, _layer: usize) -> Option<FusedQk> {
        RotaryTables::fused_qk(&self.queries, &self.keys, self.layout)
    }

    fn logits_bias(&self, _layer: usize) -> Option<Bias<'_>> {
        self.blocks.as_ref().map(Bias::new)
    }

    fn bias_layer(&self, _layer: usize) -> usize {
        0
    }
}

impl EncodingSpec for XposConfig {
    type Module = Xpos;
    const NAME: Option<&'static str> = Some("xPos");
    const ABOUT: About = About {
        summary: "rotation of queries and keys whose product also decays with distance, slower \
                  pairs less",
        formula: "RoPE, and pair i of q_m . k_n times zeta_i^((m - n)/scale_base), zeta_i = (2i/r \
                  + gamma)/(1 + gamma)",
        source: "Sun et al. 2022, arXiv 2212.10554",
        deviations: "c is the middle of the positions, torchscale's and x-transformers' differ; \
                     products do not depend on it",
    };

    fn check(&self, shape: &ModelShape) -> Result<(), ConfigError> {
        in_range("base", self.base, BASES, "the paper uses 10000")?;
        in_range("gamma", self.gamma, 1e-3..=1e3, "the paper uses 0.4")?;
        in_range(
            "scale_base",
            self.scale_base,
            1.0..=1e9,
            "torchscale uses 512",
        )?;
        let hint = "the paper uses half the training length";
        in_range_if_set("block_size", self.block_size, 1..=1_000_000_000, hint)?;
        check_rotary_dim(self.rotary_dim, shape).map(drop)
    }

    fn properties(&self, _shape: &ModelShape) -> Facts {
        let blocks = self.block_size.is_some();
        Facts {
            max_position: Some(self.max_position()),
            // Blocks begin at fixed positions.
            relative: !blocks,
            linear: !blocks,
            causal_only: true,
            rotates_qk: true,
            exclusive_in_stack: true,
            ..Facts::new(Hooks::TRANSFORM_QK | Hooks::LOGITS_BIAS.when(blocks))
        }
    }

    fn rotary(&self, shape: &ModelShape) -> Option<Rotary> {
        Some(Rotary::of_head(self.base, self.rotary_dim, shape.head_dim))
    }

    fn numbers(&self, shape: &ModelShape, _lengths: &Lengths) -> Vec<NumberTable> {
        let zeta = self.zeta(self.rotary_dim.unwrap_or(shape.head_dim));
        // A pair's share of the logits at a distance is zeta^(distance / scale_base).
        let row = |(i, zeta): (usize, &f64)| {
            let halves = self.scale_base * libm::log(0.5) / libm::log(*zeta);
            vec![i as f64, *zeta, halves]
        };
        let columns = ["pair", "zeta", "halves every"];
        let rows = zeta.iter().enumerate().map(row);
        vec![NumberTable::new(
            "decay of the pairs, in tokens",
            columns,
            rows,
        )]
    }

    fn build(&self, shape: &ModelShape, _parameters: &mut Parameters) -> Xpos {
        Xpos {
            head_dim: shape.head_dim,
            config: self.clone(),
        }
    }
}
