//! `waveprune`: rotary attention in which each pair of dimensions sees one turn and no further.
//!
//! - Formula: pair i adds `q_i.R((m - n) theta_i) k_i / sqrt(head_dim)` to the logit of a query at
//!   m and a key at n while `theta_i |m - n| < 2 pi`, and nothing beyond; `theta_i = base^(-2i/r)`.
//!   Dimensions that are not rotated count at every distance.
//! - Source: WavePrune, Du et al. 2026 (arXiv 2610.06963), by its abstract and by notes of a reader
//!   of section 3.1; the paper itself was not read.
//! - Parameters: none.
//! - Limits: none of length. A product of queries and keys for each pair that ends within the
//!   sequence. Linear attention cannot host it.

use crate::ConfigError;
use crate::facts::{Facts, Hooks, Lengths, ModelShape};
use crate::hooks::{Content, Context, PositionalEncoding, PrepareResult, Prepared, Qk};
use crate::init::Parameters;
use crate::positions::Positions;
use crate::rotary::{BASES, Rotary, RotaryLayout};
use crate::rotary_tables::{RotaryTables, check_rotary_dim};
use crate::spec::{About, EncodingSpec, NumberTable};
use crate::tensors::upload;
use burn::module::Module;
use burn::tensor::Tensor;
use schema::in_range;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// `kind = "waveprune"`: configuration of [`WavePrune`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct WavePruneConfig {
    /// Base of the frequencies, above 1 and at most 1e15.
    #[default = 10_000.0]
    pub base: f64,
    /// Which dimensions form a pair.
    #[default(RotaryLayout::Half)]
    pub layout: RotaryLayout,
    /// Number of rotated dimensions of each head, even, 2 to the dimensions of a head; the whole
    /// head unless given.
    pub rotary_dim: Option<usize>,
}

impl WavePruneConfig {
    fn rotation(&self, head_dim: usize) -> Rotary {
        Rotary::of_head(self.base, self.rotary_dim, head_dim)
    }
}

/// Rotation whose pairs see one turn.
#[derive(Module, Debug)]
pub struct WavePrune {
    head_dim: usize,
    #[module(skip)]
    config: WavePruneConfig,
}

struct PreparedWavePrune {
    layout: RotaryLayout,
    queries: RotaryTables,
    keys: RotaryTables,
    /// Positions of queries, `[1, 1, Q, 1]`, and keys, `[1, 1, 1, K]`.
    positions: [Tensor<4>; 2],
    /// Wavelengths in tokens, shortest first.
    wavelengths: Vec<f64>,
    /// The largest distance between a query and a key.
    farthest: f64,
}

impl PositionalEncoding for WavePrune {
    fn prepare(&self, positions: &Positions, context: &Context) -> PrepareResult<'_> {
        let frequencies = self.config.rotation(self.head_dim).unscaled();
        let tables = |positions: &[f64]| RotaryTables::new(positions, &frequencies, context);
        let ends = |x: &[f64]| {
            let low = x.iter().copied().fold(f64::INFINITY, f64::min);
            [low, x.iter().copied().fold(f64::NEG_INFINITY, f64::max)]
        };
        let (of_queries, of_keys) = (positions.queries(), positions.keys());
        let ([first, last], [low, high]) = (ends(of_queries), ends(of_keys));
        let on_device = |x: &[f64], shape| upload(x.to_vec(), shape, &context.device);
        Ok(Box::new(PreparedWavePrune {
            layout: self.config.layout,
            queries: tables(of_queries),
            keys: tables(of_keys),
            positions: [
                on_device(of_queries, [1, 1, of_queries.len(), 1]),
                on_device(of_keys, [1, 1, 1, of_keys.len()]),
            ],
            wavelengths: frequencies.wavelengths(),
            farthest: (last - low).max(high - first),
        }))
    }
}

impl PreparedWavePrune {
    /// The two dimensions of a pair, `[B, H, T, 2]`.
    fn pair(&self, x: &Tensor<4>, pair: usize) -> Tensor<4> {
        let dims = |from: usize, count: usize| x.clone().slice_dim(3, from..from + count);
        match self.layout {
            RotaryLayout::Interleaved => dims(2 * pair, 2),
            RotaryLayout::Half => {
                let second = pair + self.wavelengths.len();
                Tensor::cat(vec![dims(pair, 1), dims(second, 1)], 3)
            }
        }
    }
}

impl Prepared for PreparedWavePrune {
    fn transform_qk(&self, _: usize, q: Tensor<4>, k: Tensor<4>, _: &Tensor<3>) -> Qk {
        let (queries, keys) = (&self.queries, &self.keys);
        (queries.apply(q, self.layout), keys.apply(k, self.layout))
    }

    fn content_bias(&self, _layer: usize, content: &Content<'_>) -> Option<Tensor<4>> {
        let [m, n] = self.positions.clone();
        let m = m.slice_dim(2, content.queries.clone());
        let distance = (m - n.slice_dim(3, content.keys.clone())).abs();
        let [batch, heads, rows, _] = content.q.dims();
        let shape = [batch, heads, rows, content.keys.len()];
        let nothing: Tensor<4> = Tensor::zeros(shape, (&content.q.device(), content.q.dtype()));
        // What a pair adds beyond its turn is taken back.
        let ends = self.wavelengths.iter().enumerate();
        let ends = ends.take_while(|(_, end)| **end <= self.farthest);
        Some(ends.fold(nothing, |bias, (pair, end)| {
            let q = self.pair(content.q, pair) * -content.scale;
            let k = self.pair(content.k, pair).swap_dims(2, 3);
            let beyond = distance.clone().greater_equal_elem(*end).float();
            bias + content.ops.matmul(q, k) * beyond
        }))
    }
}

impl EncodingSpec for WavePruneConfig {
    type Module = WavePrune;
    const NAME: Option<&'static str> = Some("WavePrune");
    const ABOUT: About = About {
        summary: "rotary attention in which each pair contributes to the logit only up to one full \
                  rotation",
        formula: "logits without pair i where theta_i |m - n| >= 2 pi",
        source: "WavePrune, Du et al. 2026, arXiv 2610.06963",
        deviations: "written from the abstract and from notes of a reader, not from the paper: \
                     a pair's part of the logit is 0 beyond its first turn. A pair that has turned \
                     exactly once is beyond. The authors' kernel, which gives groups of 16 \
                     dimensions one window, is not offered",
    };

    fn check(&self, shape: &ModelShape) -> Result<(), ConfigError> {
        in_range("base", self.base, BASES, "RoPE's paper uses 10000")?;
        check_rotary_dim(self.rotary_dim, shape).map(drop)
    }

    fn properties(&self, shape: &ModelShape) -> Facts {
        let pairs = self.rotary_dim.unwrap_or(shape.head_dim) / 2;
        Facts {
            relative: true,
            rotates_qk: true,
            // The bias subtracts products of these pairs, so no other part may rotate them.
            exclusive_in_stack: true,
            bias_workspace: 5.5,
            bias_kept: 3.5,
            // A product and two operations for each pair.
            bias_work: 3.0 * pairs as f64,
            ..Facts::new(Hooks::TRANSFORM_QK | Hooks::CONTENT_BIAS)
        }
    }

    fn rotary(&self, shape: &ModelShape) -> Option<Rotary> {
        Some(self.rotation(shape.head_dim))
    }

    fn numbers(&self, shape: &ModelShape, _lengths: &Lengths) -> Vec<NumberTable> {
        let wavelengths = self.rotation(shape.head_dim).unscaled().wavelengths();
        let row = |(pair, end): (usize, f64)| vec![pair as f64, end.ceil()];
        let rows = wavelengths.into_iter().enumerate().map(row);
        let (title, columns) = ("first distance without a pair", ["pair", "distance"]);
        vec![NumberTable::new(title, columns, rows)]
    }

    fn build(&self, shape: &ModelShape, _parameters: &mut Parameters) -> WavePrune {
        WavePrune {
            head_dim: shape.head_dim,
            config: self.clone(),
        }
    }
}
