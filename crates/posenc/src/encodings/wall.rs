//! `wall`: every channel of queries and keys decays with distance at a rate that tokens set.
//!
//! - Formula: logits are `sum over e of q_me k_ne exp(P_me - P_ne) / sqrt(E)`, P the sums up to the
//!   token of `ln sigmoid(W x_l + b)`, per head and dimension e.
//! - Source: Wall attention, Tilde Research 2026; flash-linear-attention, `layers/wall_attn.py` and
//!   `ops/wall_attn/naive.py`; there is no paper yet.
//! - Deviations: none. The optional scalar gate is a `stack` with `fox` at `init_bias = 8`; the
//!   optional gate on the output is no encoding.
//! - Parameters: per layer L: `layers.L.weight`, `[D, H E]`; `layers.L.bias`, `[H E]`, starting at
//!   `init_bias`.
//! - Limits: none by construction. Causal only: decays between a key and a later query. Positions
//!   are not read. Linear attention cannot host it here.

use crate::ConfigError;
use crate::facts::{Facts, Hooks, ModelShape};
use crate::hooks::{Content, Context, PositionalEncoding, PrepareError, Prepared};
use crate::init::{Distribution, ParamSpec, Parameters};
use crate::ops::Ops;
use crate::positions::Positions;
use crate::sequence::{by_head, per_channel, projected};
use crate::spec::{About, EncodingSpec};
use burn::module::{Module, Param};
use burn::tensor::{Tensor, activation};
use schema::in_range;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Configuration of [`Wall`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct WallConfig {
    /// The gates' bias at start: the larger, the slower channels decay.
    pub init_bias: f64,
}

impl Default for WallConfig {
    fn default() -> Self {
        Self { init_bias: 8.0 }
    }
}

/// Decays of every channel.
#[derive(Module, Debug)]
pub struct Wall {
    layers: Vec<WallLayer>,
    n_heads: usize,
}

/// The gates of one layer.
#[derive(Module, Debug)]
pub struct WallLayer {
    weight: Param<Tensor<2>>,
    bias: Param<Tensor<1>>,
}

struct PreparedWall<'a> {
    encoding: &'a Wall,
    groups: usize,
}

impl PositionalEncoding for Wall {
    fn prepare<'a>(
        &'a self,
        _positions: &Positions,
        context: &Context,
    ) -> Result<Box<dyn Prepared + 'a>, PrepareError> {
        Ok(Box::new(PreparedWall {
            encoding: self,
            groups: context.groups,
        }))
    }

    fn acts_in_groups(&self) -> bool {
        true
    }
}

/// Keys whose decay is measured from the same place.
const CHUNK: usize = 16;

/// The logits of one chunk of keys, `[B, H, rows, chunk]`, for queries that come after all of them.
///
/// Both factors decay from the chunk's last key, so that neither exceeds 1.
fn after(ops: &dyn Ops, q: &[Tensor<4>; 2], k: &[Tensor<4>; 2]) -> Tensor<4> {
    let ([q, reached], [k, passed]) = (q, k);
    let last = passed.dims()[2] - 1;
    let end = passed.clone().slice_dim(2, last..last + 1);
    let q = q.clone() * (reached.clone() - end.clone()).exp();
    let k = k.clone() * (end - passed.clone()).exp();
    ops.matmul(q, k.swap_dims(2, 3))
}

/// The logits of queries that stand inside the chunk of keys, pair by pair.
fn inside(q: &[Tensor<4>; 2], k: &[Tensor<4>; 2]) -> Tensor<4> {
    let ([q, reached], [k, passed]) = (q, k);
    let between = reached.clone().unsqueeze_dim::<5>(3) - passed.clone().unsqueeze_dim::<5>(2);
    // Keys after the query are masked; without the bound their factors could overflow.
    let factor = between.clamp_max(0.0).exp();
    let pairs = q.clone().unsqueeze_dim::<5>(3) * k.clone().unsqueeze_dim::<5>(2);
    let logits = (pairs * factor).sum_dim(4);
    let [batch, heads, rows, keys, _] = logits.dims();
    logits.reshape([batch, heads, rows, keys])
}

impl Prepared for PreparedWall<'_> {
    fn content_bias(&self, layer: usize, content: &Content<'_>) -> Option<Tensor<4>> {
        let layer = &self.encoding.layers[layer];
        let hidden = content.hidden.clone().slice_dim(1, content.keys.clone());
        let batch = hidden.dims()[0];
        let opened = projected(content.ops, hidden, layer.weight.val(), self.groups);
        let opened = opened + per_channel(layer.bias.val(), batch, self.groups);
        let steps = by_head(activation::log_sigmoid(opened), self.encoding.n_heads);
        // [B, H, k_len, E]: the sums up to each token. Queries are among the keys.
        let sums = steps.cumsum(2);
        let (first, keys) = (content.first_query, content.keys.len());
        let rows = first..first + content.queries.len();
        let q = [
            content.q.clone() * content.scale,
            sums.clone().slice_dim(2, rows.clone()),
        ];
        let k = [content.k.clone(), sums];
        let cut = |x: &[Tensor<4>; 2], range: Range<usize>| {
            [0, 1].map(|at| x[at].clone().slice_dim(2, range.clone()))
        };
        let [batch, heads, ..] = q[0].dims();
        let columns = (0..keys).step_by(CHUNK).map(|start| {
            let chunk = start..(start + CHUNK).min(keys);
            let k = cut(&k, chunk.clone());
            // Rows before the chunk, in it and after it.
            let [from, to] = [chunk.start, chunk.end].map(|at| at.clamp(rows.start, rows.end));
            let mut parts = Vec::new();
            if from > rows.start {
                let shape = [batch, heads, from - rows.start, chunk.len()];
                parts.push(Tensor::zeros(shape, (&k[0].device(), k[0].dtype())));
            }
            if to > from {
                let own = cut(&q, from - rows.start..to - rows.start);
                parts.push(inside(&own, &k));
            }
            if rows.end > to {
                let later = cut(&q, to - rows.start..rows.len());
                parts.push(after(content.ops, &later, &k));
            }
            Tensor::cat(parts, 2)
        });
        let decayed = Tensor::cat(columns.collect(), 3);
        let bias = decayed - content.logits();
        let shape = bias.dims();
        Some(bias.mask_fill(content.causal_mask().expand(shape), 0.0))
    }
}

impl EncodingSpec for WallConfig {
    type Module = Wall;
    const ABOUT: About = About {
        summary: "every channel of queries and keys decays with distance at a rate that tokens set",
        formula: "logits = sum_e q_me k_ne prod_{l=n+1..m} sigmoid(W x_l + b)_e / sqrt(E)",
        source: "Wall attention, flash-linear-attention (no paper)",
    };

    fn check(&self, _shape: &ModelShape) -> Result<(), ConfigError> {
        let hint = "0 forgets half at every token, the authors use 8: almost nothing";
        in_range("init_bias", self.init_bias, -20.0..=20.0, hint)
    }

    fn parameters(&self, shape: &ModelShape) -> Vec<ParamSpec> {
        let (d_model, width) = (shape.d_model, shape.n_heads * shape.head_dim);
        let spread = Distribution::Normal(1.0 / (3.0 * d_model as f64).sqrt());
        let start = Distribution::Constant(self.init_bias);
        let of = |layer: usize| {
            let path = |name: &str| format!("layers.{layer}.{name}");
            [
                ParamSpec::new(path("weight"), [d_model, width], spread),
                ParamSpec::new(path("bias"), [width], start),
            ]
        };
        (0..shape.n_layers).flat_map(of).collect()
    }

    fn properties(&self, shape: &ModelShape) -> Facts {
        Facts {
            relative: true,
            by_distance: true,
            ignores_positions: true,
            causal_only: true,
            reads_transformed_qk: true,
            // Inside a chunk every channel of a pair has a factor: a mean over 64 and 256 keys,
            // measured.
            bias_work: 4.0 + 0.75 * shape.head_dim as f64,
            bias_kept: 22.5,
            bias_workspace: 5.0,
            ..Facts::new(Hooks::CONTENT_BIAS)
        }
    }

    fn build(&self, shape: &ModelShape, parameters: &mut Parameters) -> Wall {
        Wall {
            layers: parameters.take_groups("layers", |layer| WallLayer {
                weight: layer.take("weight"),
                bias: layer.take("bias"),
            }),
            n_heads: shape.n_heads,
        }
    }
}
