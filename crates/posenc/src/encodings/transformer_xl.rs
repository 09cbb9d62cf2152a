//! Formula: `q.k + q.r(m - n) + u.k + v.r(m - n)`, all over sqrt(head_dim), with `r(d) = W_R R(d)`
//! and R(d) = [sin | cos] of the distance. Source: Dai et al. 2019 (arXiv 1901.02860), section 3.3
//! and appendix B; per layer as in XLNet (Yang et al. 2019, arXiv 1906.08237). Deviations: none;
//! the segment memory of the paper is a longer list of keys, not an encoding. Parameters: per layer
//! L: `layers.L.projection`, `[D, H E]`; `layers.L.u` and `layers.L.v`, `[H, E]`. Limits: none by
//! construction. Linear attention cannot host it.

use super::upload;
use crate::catalogue::{About, Facts, Hooks, ModelShape, Spec};
use crate::distances::Distances;
use crate::error::in_range;
use crate::frequencies::inv_freq;
use crate::{ConfigError, Content, Distribution, Init, PositionalEncoding, Positions, Prepared};
use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};

/// Configuration of [`TransformerXl`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TransformerXlConfig {
    /// Base of the sinusoidal table's wavelengths.
    pub base: f64,
    /// Standard deviation of the initial u and v.
    pub init_std: f64,
}

impl Default for TransformerXlConfig {
    fn default() -> Self {
        Self {
            base: 10_000.0,
            init_std: 0.02,
        }
    }
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
        row.truncate(d_model);
        row
    }
}

/// Attention to content and to distance apart, each with its own query.
#[derive(Module, Debug)]
pub struct TransformerXl {
    layers: Vec<TransformerXlLayer>,
    #[module(skip)]
    config: TransformerXlConfig,
}

/// What one layer trains.
#[derive(Module, Debug)]
pub struct TransformerXlLayer {
    projection: Param<Tensor<2>>,
    u: Param<Tensor<2>>,
    v: Param<Tensor<2>>,
}

struct PreparedTransformerXl<'a> {
    encoding: &'a TransformerXl,
    distances: Distances,
    device: Device,
}

impl PositionalEncoding for TransformerXl {
    fn prepare<'a>(&'a self, positions: &Positions, device: &Device) -> Box<dyn Prepared + 'a> {
        Box::new(PreparedTransformerXl {
            encoding: self,
            distances: Distances::new(positions, device),
            device: device.clone(),
        })
    }
}

impl Prepared for PreparedTransformerXl<'_> {
    fn content_bias(&self, layer: usize, content: &Content<'_>) -> Option<Tensor<4>> {
        let parameters = &self.encoding.layers[layer];
        let projection = parameters.projection.val();
        let [d_model, _] = projection.dims();
        let [heads, head_dim] = parameters.u.val().dims();
        let distinct = self
            .distances
            .distinct(content.queries.clone(), content.keys.clone());
        let count = distinct.distances.len();
        let table = distinct
            .distances
            .iter()
            .flat_map(|distance| self.encoding.config.row(*distance, d_model))
            .collect();
        let table: Tensor<2> = upload(table, [count, d_model], &self.device);
        // [1, H, E, distances]
        let r = table
            .matmul(projection)
            .reshape([1, count, heads, head_dim])
            .permute([0, 2, 3, 1]);
        let per_head = |x: &Param<Tensor<2>>| x.val().reshape([1, heads, 1, head_dim]);
        let by_distance = ((content.q.clone() + per_head(&parameters.v)) * content.scale).matmul(r);
        let [batch, _, q_len, _] = by_distance.dims();
        let k_len = content.keys.len();
        let cells = distinct
            .cells(&self.device)
            .reshape([1, 1, q_len, k_len])
            .expand([batch, heads, q_len, k_len]);
        let by_key =
            (per_head(&parameters.u) * content.scale).matmul(content.k.clone().swap_dims(2, 3));
        Some(by_distance.gather(3, cells) + by_key)
    }
}

impl Spec for TransformerXlConfig {
    type Module = TransformerXl;
    const ABOUT: About = About {
        summary: "queries meet keys and, apart from them, a projected sinusoid of the distance, \
                  each with a trained bias on the query",
        formula: "(q + u).k + (q + v).W_R R(m - n), over sqrt(d)",
        source: "Dai et al. 2019, arXiv 1901.02860; Yang et al. 2019, arXiv 1906.08237",
    };

    fn check(&self, _shape: &ModelShape) -> Result<(), ConfigError> {
        in_range("base", self.base, 1.0 + 1e-9, 1e15, "the paper uses 10000")?;
        in_range("init_std", self.init_std, 0.0, 10.0, "XLNet uses 0.02")
    }

    fn facts(&self, shape: &ModelShape) -> Facts {
        let ModelShape {
            d_model,
            n_layers,
            n_heads,
            head_dim,
        } = *shape;
        let of = |layer: usize| {
            let sizes = [
                ("projection", vec![d_model, n_heads * head_dim]),
                ("u", vec![n_heads, head_dim]),
                ("v", vec![n_heads, head_dim]),
            ];
            sizes.map(|(name, shape)| (format!("layers.{layer}.{name}"), shape))
        };
        Facts {
            hooks: Hooks {
                content_bias: true,
                ..Hooks::default()
            },
            parameters: (0..n_layers).flat_map(of).collect(),
            relative: true,
            by_distance: true,
            meets: true,
            ..Facts::default()
        }
    }

    fn init(&self, shape: &ModelShape, init: &Init<'_>) -> TransformerXl {
        let ModelShape {
            d_model,
            n_layers,
            n_heads,
            head_dim,
        } = *shape;
        let scope = init.scope("layers");
        let layer = |layer: usize| {
            let init = scope.scope(layer);
            let spread = 1.0 / (3.0 * d_model as f64).sqrt();
            TransformerXlLayer {
                projection: init.param(
                    "projection",
                    [d_model, n_heads * head_dim],
                    Distribution::Normal(spread),
                ),
                u: init.param(
                    "u",
                    [n_heads, head_dim],
                    Distribution::Normal(self.init_std),
                ),
                v: init.param(
                    "v",
                    [n_heads, head_dim],
                    Distribution::Normal(self.init_std),
                ),
            }
        };
        TransformerXl {
            layers: (0..n_layers).map(layer).collect(),
            config: self.clone(),
        }
    }
}
