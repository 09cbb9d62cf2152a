//! `relative_projection`: a bias by distance that every query mixes from a few trained curves.
//!
//! - Formula: logits get `sum over b of (W x_m + c)_{h,b} D[b, m - n]`, from the layer's input, for
//!   distances from 0 to `max_distance`, and nothing else.
//! - Source: the positional bias that x-transformers names Inkling (`RelativeProjPositionalBias`),
//!   after a model of Thinking Machines; there is no paper yet.
//! - Parameters: per layer L: `layers.L.weight`, `[D, H b]`; `layers.L.bias`, `[H b]`;
//!   `layers.L.curves`, `[b, max_distance]`.
//! - Limits: none; no bias from `max_distance` on. Linear attention cannot host it.

use crate::ConfigError;
use crate::distances::Distances;
use crate::facts::{Facts, Hooks, Lengths, ModelShape};
use crate::hooks::{Content, Context, PositionalEncoding, PrepareResult, Prepared};
use crate::init::{Distribution, ParamSpec, Parameters};
use crate::positions::Positions;
use crate::sequence::{by_head, per_channel, projected};
use crate::spec::{About, EncodingSpec};
use crate::values::{in_range_if_set, unset};
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use schema::in_range;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// `kind = "relative_projection"`: configuration of [`RelativeProjection`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct RelativeProjectionConfig {
    /// Number b of curves to mix, 1 to 4096.
    #[default = 16]
    pub curves: usize,
    /// Distances in tokens from this one on get no bias, 1 to 1000000; the training length unless
    /// given.
    pub max_distance: Option<usize>,
    /// Standard deviation of the initial curves, 0 to 10.
    #[default = 0.02]
    pub init_std: f64,
}

/// A bias by distance that queries mix from trained curves.
#[derive(Module, Debug)]
pub struct RelativeProjection {
    layers: Vec<RelativeProjectionLayer>,
    n_heads: usize,
}

/// The projection and curves of one layer.
#[derive(Module, Debug)]
pub struct RelativeProjectionLayer {
    weight: Param<Tensor<2>>,
    bias: Param<Tensor<1>>,
    curves: Param<Tensor<2>>,
}

struct PreparedRelativeProjection<'a> {
    encoding: &'a RelativeProjection,
    distances: Distances,
    groups: usize,
}

impl PositionalEncoding for RelativeProjection {
    fn prepare(&self, positions: &Positions, context: &Context) -> PrepareResult<'_> {
        Ok(Box::new(PreparedRelativeProjection {
            encoding: self,
            distances: Distances::new(positions, &context.device),
            groups: context.groups,
        }))
    }

    fn acts_in_groups(&self) -> bool {
        true
    }
}

impl Prepared for PreparedRelativeProjection<'_> {
    fn content_bias(&self, layer: usize, content: &Content<'_>) -> Option<Tensor<4>> {
        let (heads, layer) = (self.encoding.n_heads, &self.encoding.layers[layer]);
        let (groups, [all_curves, reach]) = (self.groups, layer.curves.val().dims());
        let count = all_curves / groups;
        let rows = content.queries.len();
        // Where attention is bidirectional the first query is the first key.
        let first = if content.first_query < content.hidden.dims()[1] {
            content.first_query
        } else {
            content.queries.start
        };
        let queries = content.hidden.clone().slice_dim(1, first..first + rows);
        let batch = queries.dims()[0];
        let shares = projected(content.ops, queries, layer.weight.val(), groups);
        let shares = shares + per_channel(layer.bias.val(), batch, groups);
        // [B, H, q_len, b], then a bias per distance, and a last column of 0 for all others.
        let shares = by_head(shares, heads).reshape([batch, heads * rows, count]);
        let by_distance = projected(content.ops, shares, layer.curves.val(), groups);
        let by_distance = by_distance.reshape([batch, heads, rows, reach]);
        let device = by_distance.device();
        let none = Tensor::zeros([batch, heads, rows, 1], (&device, by_distance.dtype()));
        let table = Tensor::cat(vec![by_distance, none], 3);
        let distinct = self.distances.visible(content);
        let column = |distance: f64| match distance.round() {
            at if at >= 0.0 && at < reach as f64 => at as i32,
            _ => reach as i32,
        };
        let cells = distinct.each_cell(&device, column);
        Some(content.ops.gather_columns(table, cells))
    }
}

impl EncodingSpec for RelativeProjectionConfig {
    type Module = RelativeProjection;
    const ABOUT: About = About {
        summary: "a bias by distance that every query mixes from a few trained curves",
        formula: "logits + sum_b (W x_m + c)_{h,b} D[b, m - n]",
        source: "Inkling, by x-transformers (no paper)",
        deviations: "none",
    };

    fn check(&self, _shape: &ModelShape) -> Result<(), ConfigError> {
        in_range("curves", self.curves, 1..=4096, "x-transformers uses 16")?;
        let hint = "leave it out for the training length; x-transformers uses 1024";
        in_range_if_set("max_distance", self.max_distance, 1..=1_000_000, hint)?;
        in_range(
            "init_std",
            self.init_std,
            0.0..=10.0,
            "x-transformers uses 0.02",
        )
    }

    fn resolve(&mut self, lengths: &Lengths) {
        self.max_distance.get_or_insert(lengths.train_len);
    }

    fn unresolved(&self) -> Option<String> {
        unset("max_distance", self.max_distance)
    }

    fn parameters(&self, shape: &ModelShape) -> Vec<ParamSpec> {
        let (d_model, width) = (shape.d_model, shape.n_heads * self.curves);
        let most = 1.0 / (d_model as f64).sqrt();
        let uniform = Distribution::Uniform(-most, most);
        let of = |layer: usize| {
            let path = |name: &str| format!("layers.{layer}.{name}");
            let curves = self.max_distance.map(|reach| {
                let spread = Distribution::Normal(self.init_std);
                ParamSpec::new(path("curves"), [self.curves, reach], spread)
            });
            let weight = ParamSpec::new(path("weight"), [d_model, width], uniform);
            let bias = ParamSpec::new(path("bias"), [width], uniform);
            [weight, bias].into_iter().chain(curves)
        };
        (0..shape.n_layers).flat_map(of).collect()
    }

    fn properties(&self, _shape: &ModelShape) -> Facts {
        Facts {
            relative: true,
            by_distance: true,
            bias_kept: 2.0,
            ..Facts::new(Hooks::CONTENT_BIAS)
        }
    }

    fn build(&self, shape: &ModelShape, parameters: &mut Parameters) -> RelativeProjection {
        RelativeProjection {
            layers: parameters.take_groups("layers", |layer| RelativeProjectionLayer {
                weight: layer.take("weight"),
                bias: layer.take("bias"),
                curves: layer.take("curves"),
            }),
            n_heads: shape.n_heads,
        }
    }
}
