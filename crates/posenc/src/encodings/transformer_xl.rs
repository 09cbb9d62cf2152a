//! `transformer_xl`: separate products of queries with keys and with a projected sinusoid of the
//! distance, each with a trained bias on the query.
//!
//! - Formula: `q.k + q.r(m - n) + u.k + v.r(m - n)`, all over sqrt(head_dim), with `r(d) = W_R
//!   R(d)` and R(d) = [sin | cos] of the distance.
//! - Source: Dai et al. 2019 (arXiv 1901.02860), section 3.3 and appendix B; per layer as in XLNet
//!   (Yang et al. 2019, arXiv 1906.08237).
//! - Parameters: per layer L: `layers.L.projection`, `[D, H E]`; `layers.L.u` and `layers.L.v`,
//!   `[H, E]`.
//! - Limits: none by construction. Linear attention cannot host it.

use crate::ConfigError;
use crate::distances::Distances;
use crate::facts::{Facts, Hooks, ModelShape};
use crate::hooks::{Content, Context, PositionalEncoding, PrepareResult, Prepared};
use crate::init::{Distribution, ParamSpec, Parameters};
use crate::positions::Positions;
use crate::rotary::{BASES, inv_freq};
use crate::spec::{About, EncodingSpec};
use crate::tensors::{for_batch, upload};
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use schema::in_range;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// `kind = "transformer_xl"`: configuration of [`TransformerXl`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct TransformerXlConfig {
    /// Base of the sinusoidal table's wavelengths, above 1 and at most 1e15.
    #[default = 10_000.0]
    pub base: f64,
    /// Standard deviation of the initial u and v, 0 to 10.
    #[default = 0.02]
    pub init_std: f64,
}

impl TransformerXlConfig {
    /// R of one distance, `d_model` numbers: sines, then cosines.
    pub fn row(&self, distance: f64, d_model: usize) -> Vec<f64> {
        let frequencies = inv_freq(d_model, self.base);
        let mut row: Vec<f64> = frequencies
            .iter()
            .map(|f| libm::sin(distance * f))
            .collect();
        row.extend(frequencies.iter().map(|f| libm::cos(distance * f)));
        // An odd width drops the last cosine.
        row.truncate(d_model);
        row
    }
}

/// Separate attention to content and to distance, each with its own bias on the query.
#[derive(Module, Debug)]
pub struct TransformerXl {
    layers: Vec<TransformerXlLayer>,
    #[module(skip)]
    config: TransformerXlConfig,
}

/// Parameters of one layer.
#[derive(Module, Debug)]
pub struct TransformerXlLayer {
    projection: Param<Tensor<2>>,
    u: Param<Tensor<2>>,
    v: Param<Tensor<2>>,
}

struct PreparedTransformerXl<'a> {
    encoding: &'a TransformerXl,
    distances: Distances,
    context: Context,
}

impl PositionalEncoding for TransformerXl {
    fn prepare(&self, positions: &Positions, context: &Context) -> PrepareResult<'_> {
        Ok(Box::new(PreparedTransformerXl {
            encoding: self,
            distances: Distances::new(positions, &context.device),
            context: context.clone(),
        }))
    }

    fn acts_in_groups(&self) -> bool {
        true
    }
}

impl Prepared for PreparedTransformerXl<'_> {
    fn content_bias(&self, layer: usize, content: &Content<'_>) -> Option<Tensor<4>> {
        let parameters = &self.encoding.layers[layer];
        let projection = parameters.projection.val();
        let Context { device, groups, .. } = &self.context;
        let ([rows, inner], [all_heads, head_dim]) = (projection.dims(), parameters.u.val().dims());
        let (d_model, heads) = (rows / groups, all_heads / groups);
        let batch = content.q.dims()[0];
        let distinct = self.distances.visible(content);
        let count = distinct.distances.len();
        let table = distinct
            .distances
            .iter()
            .flat_map(|distance| self.encoding.config.row(*distance, d_model))
            .collect();
        let table: Tensor<4> = upload(table, [1, 1, count, d_model], device);
        let projection = projection.reshape([*groups, 1, d_model, inner]);
        // [1 or B, H, E, distances]
        let r = content
            .ops
            .matmul(table, projection)
            .reshape([*groups, count, heads, head_dim])
            .permute([0, 2, 3, 1]);
        let r = for_batch(r, batch);
        let per_head = |x: &Param<Tensor<2>>| {
            let per_model = x.val().reshape([*groups, heads, 1, head_dim]);
            for_batch(per_model, batch)
        };
        // [B, H, q_len, distances]: products per distinct distance, spread over the cells below.
        let q = (content.q.clone() + per_head(&parameters.v)) * content.scale;
        let by_distance = content.ops.matmul(q, r);
        let (q_len, k_len) = (content.queries.len(), content.keys.len());
        let cells = distinct.cells(device).reshape([1, 1, q_len, k_len]);
        // [B, H, 1, k_len]: u does not depend on the query.
        let u = per_head(&parameters.u) * content.scale;
        let by_key = content.ops.matmul(u, content.k.clone().swap_dims(2, 3));
        Some(content.ops.gather_columns(by_distance, cells) + by_key)
    }
}

impl EncodingSpec for TransformerXlConfig {
    type Module = TransformerXl;
    const NAME: Option<&'static str> = Some("Transformer-XL");
    const ABOUT: About = About {
        summary: "separate products of queries with keys and with a projected sinusoid of the \
                  distance, each with a trained bias on the query",
        formula: "(q + u).k + (q + v).W_R R(m - n), over sqrt(d)",
        source: "Dai et al. 2019, arXiv 1901.02860; Yang et al. 2019, arXiv 1906.08237",
        deviations: "none; the segment memory of the paper is a longer list of keys, not an \
                     encoding",
    };

    fn check(&self, _shape: &ModelShape) -> Result<(), ConfigError> {
        in_range("base", self.base, BASES, "the paper uses 10000")?;
        in_range("init_std", self.init_std, 0.0..=10.0, "XLNet uses 0.02")
    }

    fn parameters(&self, shape: &ModelShape) -> Vec<ParamSpec> {
        let ModelShape {
            d_model,
            n_layers,
            n_heads,
            head_dim,
        } = *shape;
        let spread = Distribution::Normal(1.0 / (3.0 * d_model as f64).sqrt());
        let start = Distribution::Normal(self.init_std);
        let of = |layer: usize| {
            [
                ("projection", [d_model, n_heads * head_dim], spread),
                ("u", [n_heads, head_dim], start),
                ("v", [n_heads, head_dim], start),
            ]
            .map(|(name, shape, init)| {
                ParamSpec::new(format!("layers.{layer}.{name}"), shape, init)
            })
        };
        (0..n_layers).flat_map(of).collect()
    }

    fn properties(&self, _shape: &ModelShape) -> Facts {
        Facts {
            relative: true,
            by_distance: true,
            reads_transformed_qk: true,
            bias_kept: 3.0,
            ..Facts::new(Hooks::CONTENT_BIAS)
        }
    }

    fn build(&self, _shape: &ModelShape, parameters: &mut Parameters) -> TransformerXl {
        TransformerXl {
            layers: parameters.take_groups("layers", |layer| TransformerXlLayer {
                projection: layer.take("projection"),
                u: layer.take("u"),
                v: layer.take("v"),
            }),
            config: self.clone(),
        }
    }
}
