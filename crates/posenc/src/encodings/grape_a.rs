//! `grape_a`: ALiBi whose slope every key, or query, sets for itself.
//!
//! - Formula: logits get `-(m - n) slope_h softplus(omega_h) g`, with ALiBi's slopes and the gate
//!   `g = softplus(u_h.k_n / sqrt(head_dim))` (key), `softplus(v_h.q_m / sqrt(head_dim))` (query)
//!   or the sum of both; u_h and v_h are divided by their lengths.
//! - Source: GRAPE, 2025 (arXiv 2512.07805); model-architectures/GRAPE, `grape-a-keygated`,
//!   `-querygated` and `-querykeygated`.
//! - Parameters: per layer L: `layers.L.omega`, `[H]`, starting where its softplus is 1;
//!   `layers.L.key` and `layers.L.query`, `[H, E]`, those that are used.
//! - Limits: none. Causal only: distances from key to a later query. Linear attention cannot host
//!   it.

use super::alibi::slopes;
use crate::ConfigError;
use crate::distances::Distances;
use crate::facts::{Facts, Hooks, ModelShape};
use crate::hooks::{Content, Context, PositionalEncoding, PrepareResult, Prepared};
use crate::init::{Distribution, ParamSpec, Parameters};
use crate::ops::Ops;
use crate::positions::Positions;
use crate::spec::{About, EncodingSpec};
use crate::tensors::{for_batch, upload};
use burn::module::{Module, Param};
use burn::tensor::{Tensor, activation};
use serde::{Deserialize, Serialize};

/// What the slope depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum GrapeGate {
    /// The key.
    #[default]
    Key,
    /// The query.
    Query,
    /// The sum of a gate of the key and one of the query.
    Both,
}

/// `kind = "grape_a"`: configuration of [`GrapeA`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct GrapeAConfig {
    /// What the slope depends on.
    pub gate: GrapeGate,
}

/// A linear penalty on distance whose slope content sets.
#[derive(Module, Debug)]
pub struct GrapeA {
    layers: Vec<GrapeALayer>,
}

/// The gates of one layer.
#[derive(Module, Debug)]
pub struct GrapeALayer {
    omega: Param<Tensor<1>>,
    key: Option<Param<Tensor<2>>>,
    query: Option<Param<Tensor<2>>>,
}

struct PreparedGrapeA<'a> {
    encoding: &'a GrapeA,
    distances: Distances,
}

/// Below this length a gate's vector is not stretched to 1.
const SHORTEST: f64 = 1e-6;

/// `softplus(x.v / sqrt(head_dim))` of `x`, `[B, H, T, E]`, for unit vectors along `vector`, `[H,
/// E]` for each model: `[B, H, T]`.
fn gate(ops: &dyn Ops, x: &Tensor<4>, vector: &Param<Tensor<2>>) -> Tensor<3> {
    let ([batch, heads, ..], [rows, width]) = (x.dims(), vector.val().dims());
    let groups = rows / heads;
    let vector = vector.val();
    let length = vector
        .clone()
        .square()
        .sum_dim(1)
        .clamp_min(SHORTEST * SHORTEST)
        .sqrt();
    let unit = (vector / length).reshape([groups, heads, width, 1]);
    let unit = if groups == 1 {
        unit.repeat_dim(0, batch)
    } else {
        for_batch(unit, batch)
    };
    let scale = 1.0 / (width as f64).sqrt();
    let product = ops.matmul(x.clone(), unit) * scale;
    activation::softplus(product, 1.0).squeeze_dim(3)
}

impl PositionalEncoding for GrapeA {
    fn prepare(&self, positions: &Positions, context: &Context) -> PrepareResult<'_> {
        Ok(Box::new(PreparedGrapeA {
            encoding: self,
            distances: Distances::new(positions, &context.device),
        }))
    }

    fn acts_in_groups(&self) -> bool {
        true
    }
}

impl Prepared for PreparedGrapeA<'_> {
    fn content_bias(&self, layer: usize, content: &Content<'_>) -> Option<Tensor<4>> {
        let layer = &self.encoding.layers[layer];
        let ([batch, heads, ..], device) = (content.q.dims(), content.q.device());
        let fixed: Tensor<4> = upload(slopes(heads), [1, heads, 1, 1], &device);
        let omega = activation::softplus(layer.omega.val(), 1.0);
        let groups = omega.dims()[0] / heads;
        let slope = fixed * omega.reshape([groups, heads, 1, 1]);
        let slope = for_batch(slope, batch);
        // [B, H, 1, k_len] and [B, H, q_len, 1].
        let key = layer
            .key
            .as_ref()
            .map(|u| gate(content.ops, content.k, u).unsqueeze_dim::<4>(2));
        let query = layer
            .query
            .as_ref()
            .map(|v| gate(content.ops, content.q, v).unsqueeze_dim::<4>(3));
        let rate = match (key, query) {
            (Some(key), Some(query)) => key + query,
            (key, query) => key.or(query)?,
        };
        let distance = self
            .distances
            .block(content.queries.clone(), content.keys.clone());
        // Keys after the query are masked.
        Some(rate * (distance.clamp_min(0.0) * slope).neg())
    }
}

impl EncodingSpec for GrapeAConfig {
    type Module = GrapeA;
    const NAME: Option<&'static str> = Some("GRAPE-A");
    const ABOUT: About = About {
        summary: "ALiBi whose slope every key, or query, sets for itself",
        formula: "logits - (m - n) slope_h softplus(omega_h) softplus(u_h.k_n / (|u_h| sqrt(d)))",
        source: "GRAPE, 2025, arXiv 2512.07805",
        deviations: "follows the released code, not the paper's eq. 4.6: that has u and v as they are and \
                     omega alone, the code u and v of unit length and ALiBi's slopes; the authors \
                     also normalise queries and keys (`model.qk_norm`)",
    };

    fn check(&self, _shape: &ModelShape) -> Result<(), ConfigError> {
        Ok(())
    }

    fn parameters(&self, shape: &ModelShape) -> Vec<ParamSpec> {
        let (heads, width) = (shape.n_heads, shape.head_dim);
        // softplus(ln(e - 1)) = 1.
        let start = Distribution::Constant(libm::log(libm::expm1(1.0)));
        let spread = Distribution::Normal(1.0 / (width as f64).sqrt());
        let key = (self.gate != GrapeGate::Query).then_some("key");
        let query = (self.gate != GrapeGate::Key).then_some("query");
        let of = |layer: usize| {
            let vectors = key.into_iter().chain(query).map(move |name| {
                ParamSpec::new(format!("layers.{layer}.{name}"), [heads, width], spread)
            });
            let omega = ParamSpec::new(format!("layers.{layer}.omega"), [heads], start);
            [omega].into_iter().chain(vectors)
        };
        (0..shape.n_layers).flat_map(of).collect()
    }

    fn properties(&self, _shape: &ModelShape) -> Facts {
        Facts {
            relative: true,
            by_distance: true,
            causal_only: true,
            reads_transformed_qk: true,
            bias_kept: 2.5,
            ..Facts::new(Hooks::CONTENT_BIAS)
        }
    }

    fn build(&self, _shape: &ModelShape, parameters: &mut Parameters) -> GrapeA {
        GrapeA {
            layers: parameters.take_groups("layers", |layer| GrapeALayer {
                omega: layer.take("omega"),
                key: layer.take_optional("key"),
                query: layer.take_optional("query"),
            }),
        }
    }
}
