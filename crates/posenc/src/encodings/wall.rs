//! `wall`: every channel of queries and keys decays with distance at a rate that tokens set.
//!
//! - Formula: logits are `sum over e of q_me k_ne exp(P_me - P_ne) / sqrt(E)`, P the sums up to the
//!   token of `ln sigmoid(W x_l + b)`, per head and dimension e.
//! - Source: Wall attention, Tilde Research 2026; flash-linear-attention, `layers/wall_attn.py` and
//!   `ops/wall_attn/naive.py`; there is no paper yet.
//! - Parameters: per layer L: `layers.L.weight`, `[D, H E]`; `layers.L.bias`, `[H E]`, starting at
//!   `init_bias`.
//! - Limits: none by construction. Causal only: decays between a key and a later query. Positions
//!   are not read. Linear attention cannot host it here.

use crate::ConfigError;
use crate::facts::{Facts, Hooks, ModelShape};
use crate::halves::{Halves, chunked, half, in_pairs, joined};
use crate::hooks::{Content, Context, PositionalEncoding, PrepareResult, Prepared};
use crate::init::{Distribution, ParamSpec, Parameters};
use crate::ops::Ops;
use crate::positions::Positions;
use crate::sequence::{by_head, per_channel, projected};
use crate::spec::{About, EncodingSpec};
use crate::tensors::{cut, padded};
use burn::module::{Module, Param};
use burn::tensor::{Tensor, activation};
use schema::in_range;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;
use std::ops::Range;

/// `kind = "wall"`: configuration of [`Wall`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct WallConfig {
    /// The gates' bias at start, -20 to 20: the larger, the slower channels decay.
    #[default = 8.0]
    pub init_bias: f64,
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
    fn prepare(&self, _positions: &Positions, context: &Context) -> PrepareResult<'_> {
        Ok(Box::new(PreparedWall {
            encoding: self,
            groups: context.groups,
        }))
    }

    fn acts_in_groups(&self) -> bool {
        true
    }
}

/// The least number of tokens whose decays are computed pair by pair.
const CHUNK: usize = 8;

/// The logits of pairs in a chunk, `[S, N, C, C]`, of queries, keys and running sums, each `[S, N,
/// C, E]`.
fn inside(q: &Tensor<4>, k: &Tensor<4>, sums: &Tensor<4>) -> Tensor<4> {
    let [sequences, chunks, rows, _] = q.dims();
    let between = sums.clone().unsqueeze_dim::<5>(3) - sums.clone().unsqueeze_dim::<5>(2);
    // Keys after the query are masked; without the bound their factors could overflow.
    let factor = between.clamp_max(0.0).exp();
    let pairs = q.clone().unsqueeze_dim::<5>(3) * k.clone().unsqueeze_dim::<5>(2);
    let logits = (pairs * factor).sum_dim(4);
    logits.reshape([sequences, chunks, rows, rows])
}

/// `exp(-|a - b|)`: sums fall from token to token, so that this is the decay between two tokens,
/// whichever comes first. It never exceeds 1.
fn decay(a: Tensor<4>, b: Tensor<4>) -> Tensor<4> {
    ((a - b).abs() * -1.0).exp()
}

/// The decayed products of queries `[B, H, Q, E]`, the first of which is key `first`, and the keys
/// up to the last query, `[B, H, K, E]`, with the running sums of the keys, `[B, H, K, E]`; finite
/// where the key comes after the query.
fn products(ops: &dyn Ops, q: Tensor<4>, [k, sums]: [Tensor<4>; 2], first: usize) -> Tensor<4> {
    let ([batch, heads, rows, _], halves) = (q.dims(), Halves::new(q.dims()[2], CHUNK));
    let part = |x: &Tensor<4>, range: Range<usize>| cut(x, 2, range);
    let own = |x: &Tensor<4>| chunked(part(x, first..first + rows), halves, 0, 1);
    let (mut own_q, mut own_k, mut own_sums) =
        (chunked(q.clone(), halves, 0, 1), own(&k), own(&sums));
    let mut logits = inside(&own_q, &own_k, &own_sums);
    for _ in 0..halves.levels {
        [own_q, own_k, own_sums] = [own_q, own_k, own_sums].map(in_pairs);
        let half_rows = own_q.dims()[2] / 2;
        // Queries and keys decay to the last key of the first half.
        let border = own_sums.clone().slice_dim(2, half_rows - 1..half_rows);
        let factor = decay(own_sums.clone(), border);
        let across = half(&(own_k.clone() * factor.clone()), false).swap_dims(2, 3);
        logits = joined(logits, ops.matmul(own_q.clone() * factor, across));
    }
    let shape = [batch, heads, halves.length(), halves.length()];
    let logits = logits.reshape(shape);
    let logits = cut(&part(&logits, 0..rows), 3, 0..rows);
    if first == 0 {
        return logits;
    }
    let border = part(&sums, first - 1..first);
    let q = q * decay(part(&sums, first..first + rows), border.clone());
    let k = part(&k, 0..first) * decay(part(&sums, 0..first), border);
    Tensor::cat(vec![ops.matmul(q, k.swap_dims(2, 3)), logits], 3)
}

impl Prepared for PreparedWall<'_> {
    fn content_bias(&self, layer: usize, content: &Content<'_>) -> Option<Tensor<4>> {
        let layer = &self.encoding.layers[layer];
        // The keys up to the last query.
        let seen = content.first_query + content.queries.len();
        let hidden = cut(content.hidden, 1, 0..seen);
        let batch = hidden.dims()[0];
        let opened = projected(content.ops, hidden, layer.weight.val(), self.groups);
        let opened = opened + per_channel(layer.bias.val(), batch, self.groups);
        let steps = by_head(activation::log_sigmoid(opened), self.encoding.n_heads);
        let keys = [cut(content.k, 2, 0..seen), steps.cumsum(2)];
        let q = content.q.clone() * content.scale;
        let decayed = products(content.ops, q, keys, content.first_query);
        let bias = padded(decayed, content.keys.len()) - content.logits();
        let shape = bias.dims();
        Some(bias.mask_fill(content.causal_mask().expand(shape), 0.0))
    }
}

impl EncodingSpec for WallConfig {
    type Module = Wall;
    const NAME: Option<&'static str> = Some("Wall");
    const ABOUT: About = About {
        summary: "every channel of queries and keys decays with distance at a rate that tokens set",
        formula: "logits = sum_e q_me k_ne prod_{l=n+1..m} sigmoid(W x_l + b)_e / sqrt(E)",
        source: "Wall attention, flash-linear-attention (no paper)",
        deviations: "none. The optional scalar gate is a `stack` with `fox` at `init_bias = 8`; \
                     the optional gate on the output is not an encoding",
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
            bias_work: 4.0 + 0.5 * shape.head_dim as f64,
            bias_kept: 8.0,
            // Inside a chunk one number for each channel of a pair.
            transform_kept: 38.0,
            bias_workspace: 7.0,
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
