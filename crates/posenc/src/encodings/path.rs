//! `path`: every token between key and query reflects what the query sees of the key.
//!
//! - Formula: logits are `q_m H_m H_(m-1) ... H_(n+1) k_n / sqrt(E)`, `H_t = I - beta_t w_t w_t^T`,
//!   `beta = 2 sigmoid(u.x + b)`, w of length 1, from a causal convolution over `kernel` tokens and
//!   SiLU of `U D x`. `forget` adds FoX's `sum of ln f_l over l = n+1..m` (PaTH-FoX).
//! - Source: Yang et al. 2025, PaTH attention (arXiv 2505.16381); flash-linear-attention,
//!   `layers/path_attn.py` and `ops/path_attn/naive.py`.
//! - Deviations: none; `forget = "scaled"` divides the gates' sum by sqrt(E) as well, as that code
//!   does. Its full-rank projection of w is not offered; `kernel = 0` is w without convolution and
//!   SiLU.
//! - Parameters: per layer L: `layers.L.down`, `[D, rank]`; `up`, `[rank, H E]`; `convolution`,
//!   `[kernel, H E]`; `beta_weight`, `[D, H]`; `beta_bias`, `[H]`; with gates `gates.0.weight`,
//!   `[D, H]`, and `gates.0.bias`, `[H]`.
//! - Limits: none by construction. Causal only: reflections between a key and a later query.
//!   Positions are not read. Linear attention cannot host it here. Time grows with the square of
//!   the length times the square of E over 16.

use super::fox::FoxLayer;
use crate::ConfigError;
use crate::facts::{Facts, Hooks, ModelShape};
use crate::hooks::{Content, Context, PositionalEncoding, PrepareError, Prepared};
use crate::init::{Distribution, ParamSpec, Parameters};
use crate::ops::Ops;
use crate::positions::Positions;
use crate::sequence::{by_head, causal_convolution, per_channel, projected, unit};
use crate::spec::{About, EncodingSpec};
use burn::module::{Module, Param};
use burn::tensor::{Tensor, TensorData, activation};
use schema::in_range;
use serde::{Deserialize, Serialize};

/// Gates of forgetting beside the reflections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PathForget {
    /// None: PaTH.
    #[default]
    None,
    /// Added to the logits: PaTH-FoX.
    Plain,
    /// Divided by the square root of head_dim as the products are: the released code.
    Scaled,
}

/// Configuration of [`PathProduct`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct PathProductConfig {
    /// Dimensions between the two projections of w.
    pub rank: usize,
    /// Tokens that the convolution of w reads; 0 for none.
    pub kernel: usize,
    /// Gates of forgetting beside the reflections.
    pub forget: PathForget,
}

impl Default for PathProductConfig {
    fn default() -> Self {
        Self {
            rank: 32,
            kernel: 3,
            forget: PathForget::None,
        }
    }
}

/// Reflections by every token between key and query.
#[derive(Module, Debug)]
pub struct PathProduct {
    layers: Vec<PathLayer>,
    n_heads: usize,
    #[module(skip)]
    config: PathProductConfig,
}

/// The projections of one layer.
#[derive(Module, Debug)]
pub struct PathLayer {
    down: Param<Tensor<2>>,
    up: Param<Tensor<2>>,
    convolution: Option<Param<Tensor<2>>>,
    beta_weight: Param<Tensor<2>>,
    beta_bias: Param<Tensor<1>>,
    gates: Vec<FoxLayer>,
}

struct PreparedPath<'a> {
    encoding: &'a PathProduct,
    groups: usize,
}

impl PositionalEncoding for PathProduct {
    fn prepare<'a>(
        &'a self,
        _positions: &Positions,
        context: &Context,
    ) -> Result<Box<dyn Prepared + 'a>, PrepareError> {
        Ok(Box::new(PreparedPath {
            encoding: self,
            groups: context.groups,
        }))
    }

    fn acts_in_groups(&self) -> bool {
        true
    }
}

/// Tokens whose reflections are multiplied out at once.
const CHUNK: usize = 16;

/// `x`, `[B, H, T, E]`, with `front` zeros before it, in whole chunks: `[B H, T / 16, 16, E]`.
fn chunked(x: Tensor<4>, front: usize) -> Tensor<4> {
    let [batch, heads, length, width] = x.dims();
    let zeros = |rows| Tensor::<4>::zeros([batch, heads, rows, width], (&x.device(), x.dtype()));
    let back = (front + length).next_multiple_of(CHUNK) - front - length;
    let parts = [(front, zeros(front)), (back, zeros(back))];
    let [front, back] = parts.map(|(rows, zeros)| (rows > 0).then_some(zeros));
    let padded: Vec<_> = [front, Some(x), back].into_iter().flatten().collect();
    let padded = Tensor::cat(padded, 2);
    let chunks = padded.dims()[2] / CHUNK;
    padded.reshape([batch * heads, chunks, CHUNK, width])
}

/// Zeros on the diagonal `offset` and above it, `[.., 16, 16]`.
fn below(x: Tensor<4>, offset: i64) -> Tensor<4> {
    x.tril(offset - 1)
}

fn transposed(x: Tensor<4>) -> Tensor<4> {
    x.swap_dims(2, 3)
}

/// `(I + L)^-1` of strictly lower triangular `L`, `[B H, N, 16, 16]`, row by row.
fn inverse(ops: &dyn Ops, lower: &Tensor<4>) -> Tensor<4> {
    let [sequences, chunks, ..] = lower.dims();
    let unit_row = |at: usize| {
        let row: Vec<f64> = (0..CHUNK).map(|c| f64::from(u8::from(c == at))).collect();
        let row = TensorData::new(row, [1, 1, 1, CHUNK]);
        let row = Tensor::<4>::from_data(row, (&lower.device(), lower.dtype()));
        row.expand([sequences, chunks, 1, CHUNK])
    };
    let mut rows = vec![unit_row(0)];
    for at in 1..CHUNK {
        let known = Tensor::cat(rows.clone(), 2);
        let row = lower.clone().slice_dim(2, at..at + 1).slice_dim(3, 0..at);
        rows.push(unit_row(at) - ops.matmul(row, known));
    }
    Tensor::cat(rows, 2)
}

impl PathLayer {
    /// w and `beta w` of all tokens, `[B, H, T, E]` each.
    fn reflections(
        &self,
        ops: &dyn Ops,
        hidden: &Tensor<3>,
        heads: usize,
        groups: usize,
    ) -> [Tensor<4>; 2] {
        let w = projected(ops, hidden.clone(), self.down.val(), groups);
        let w = projected(ops, w, self.up.val(), groups);
        let w = match &self.convolution {
            Some(kernel) => activation::silu(causal_convolution(w, &kernel.val(), groups)),
            None => w,
        };
        let w = unit(by_head(w, heads));
        let opened = projected(ops, hidden.clone(), self.beta_weight.val(), groups);
        let opened = opened + per_channel(self.beta_bias.val(), hidden.dims()[0], groups);
        let beta = by_head(activation::sigmoid(opened), heads) * 2.0;
        [w.clone(), w * beta]
    }
}

/// `q_m H_m ... H_(n+1) k_n` of queries `[B, H, Q, E]`, the first of which is key `first`, and
/// keys `[B, H, K, E]`; anything where the key comes after the query.
///
/// Within a chunk the product of reflections is `I - W^T T (beta W)` with a triangular T; chunks
/// follow one another from the query back to the key.
fn products(
    ops: &dyn Ops,
    [q, k]: [Tensor<4>; 2],
    [w, scaled]: [Tensor<4>; 2],
    first: usize,
) -> Tensor<4> {
    let ([batch, heads, q_len, width], k_len) = (q.dims(), k.dims()[2]);
    let [k, w, scaled] = [k, w, scaled].map(|x| chunked(x, 0));
    let (first_chunk, front) = (first / CHUNK, first % CHUNK);
    let q = chunked(q, front);
    let (chunks, rows) = (k.dims()[1], q.dims()[1]);
    let own = |x: &Tensor<4>| x.clone().slice_dim(1, first_chunk..first_chunk + rows);
    let multiply = |a: Tensor<4>, b: Tensor<4>| ops.matmul(a, b);

    let triangular = below(multiply(scaled.clone(), transposed(w.clone())), 0);
    let triangular = inverse(ops, &triangular);
    let met = below(multiply(scaled.clone(), transposed(k.clone())), 0);
    let met = multiply(triangular.clone(), met);
    let reflected = multiply(triangular, scaled);
    let seen = below(multiply(q.clone(), transposed(own(&w))), 1);
    let inside = multiply(q.clone(), transposed(own(&k)));
    let inside = inside - multiply(seen.clone(), own(&met));
    // Queries before their chunk, keys after theirs, and the product of each whole chunk.
    let q = q - multiply(seen, own(&reflected));
    let k = k - multiply(transposed(met), w.clone());
    let whole = multiply(transposed(w), reflected);

    let flat = |x: Tensor<4>| {
        let [_, count, _, columns] = x.dims();
        x.reshape([batch, heads, count * CHUNK, columns])
    };
    let chunk = |x: &Tensor<4>, at: usize| flat(x.clone().slice_dim(1, at..at + 1));
    let square = |x: &Tensor<4>, at: usize| {
        let one = x.clone().slice_dim(1, at..at + 1);
        one.reshape([batch, heads, width, width])
    };
    let mut columns = Vec::new();
    // Queries of the chunks after the one of the column, carried back to its end.
    let mut carried: Option<Tensor<4>> = None;
    for column in (0..chunks).rev() {
        let mut parts = Vec::new();
        let before = column.saturating_sub(first_chunk).min(rows);
        if before > 0 {
            let shape = [batch, heads, before * CHUNK, CHUNK];
            parts.push(Tensor::zeros(shape, (&k.device(), k.dtype())));
        }
        let holds = (first_chunk..first_chunk + rows).contains(&column);
        if holds {
            parts.push(chunk(&inside, column - first_chunk));
        }
        if let Some(later) = &carried {
            parts.push(multiply(later.clone(), transposed(chunk(&k, column))));
        }
        columns.push(Tensor::cat(parts, 2));
        let moved = carried.map(|later| later.clone() - multiply(later, square(&whole, column)));
        let joined = holds.then(|| chunk(&q, column - first_chunk));
        carried = match (joined, moved) {
            (Some(own), Some(later)) => Some(Tensor::cat(vec![own, later], 2)),
            (own, later) => own.or(later),
        };
    }
    columns.reverse();
    Tensor::cat(columns, 3)
        .slice_dim(2, front..front + q_len)
        .slice_dim(3, 0..k_len)
}

impl Prepared for PreparedPath<'_> {
    fn content_bias(&self, layer: usize, content: &Content<'_>) -> Option<Tensor<4>> {
        let (config, heads) = (&self.encoding.config, self.encoding.n_heads);
        let layer = &self.encoding.layers[layer];
        let hidden = content.hidden.clone();
        let reflections = layer.reflections(content.ops, &hidden, heads, self.groups);
        let reflections = reflections.map(|x| x.slice_dim(2, content.keys.clone()));
        let q = content.q.clone() * content.scale;
        let rows = [q, content.k.clone()];
        let turned = products(content.ops, rows, reflections, content.first_query);
        let mut bias = turned - content.logits();
        if let Some(gates) = layer.gates.first() {
            let decay = gates.decay(1.0, content, self.groups);
            bias = bias
                + match config.forget {
                    PathForget::Scaled => decay * content.scale,
                    _ => decay,
                };
        }
        let shape = bias.dims();
        Some(bias.mask_fill(content.causal_mask().expand(shape), 0.0))
    }
}

impl EncodingSpec for PathProductConfig {
    type Module = PathProduct;
    const ABOUT: About = About {
        summary: "every token between key and query reflects what the query sees of the key",
        formula: "logits = q_m H_m ... H_(n+1) k_n / sqrt(E), H_t = I - beta_t w_t w_t^T",
        source: "Yang et al. 2025, arXiv 2505.16381",
    };

    fn check(&self, _shape: &ModelShape) -> Result<(), ConfigError> {
        in_range("rank", self.rank, 1..=4096, "the authors use 32")?;
        let hint = "the authors use 3; 0 is no convolution";
        in_range("kernel", self.kernel, 0..=64, hint)
    }

    fn parameters(&self, shape: &ModelShape) -> Vec<ParamSpec> {
        let (d_model, heads) = (shape.d_model, shape.n_heads);
        let width = heads * shape.head_dim;
        let linear = |inputs: usize| Distribution::Normal(1.0 / (3.0 * inputs as f64).sqrt());
        let most = 1.0 / (self.kernel.max(1) as f64).sqrt();
        let of = |layer: usize| {
            let spec = |name: &str, sizes: &[usize], init: Distribution| {
                ParamSpec::new(format!("layers.{layer}.{name}"), sizes, init)
            };
            let down = spec("down", &[d_model, self.rank], linear(d_model));
            let mut specs = vec![down, spec("up", &[self.rank, width], linear(self.rank))];
            if self.kernel > 0 {
                let uniform = Distribution::Uniform(-most, most);
                specs.push(spec("convolution", &[self.kernel, width], uniform));
            }
            specs.push(spec("beta_weight", &[d_model, heads], linear(d_model)));
            specs.push(spec("beta_bias", &[heads], Distribution::Constant(0.0)));
            if self.forget != PathForget::None {
                let gates = FoxLayer::declare(0, shape, 0.0).into_iter().map(|gate| {
                    let name = gate.path.replacen("layers", "gates", 1);
                    spec(&name, &gate.shape, gate.init)
                });
                specs.extend(gates);
            }
            specs
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
            // Many products of chunks: a mean over 64 and 256 keys, measured.
            bias_work: 4.0 + 0.5 * shape.head_dim as f64,
            bias_kept: 14.0,
            bias_workspace: 5.0,
            ..Facts::new(Hooks::CONTENT_BIAS)
        }
    }

    fn build(&self, shape: &ModelShape, parameters: &mut Parameters) -> PathProduct {
        PathProduct {
            layers: parameters.take_groups("layers", |layer| PathLayer {
                down: layer.take("down"),
                up: layer.take("up"),
                convolution: layer.take_optional("convolution"),
                beta_weight: layer.take("beta_weight"),
                beta_bias: layer.take("beta_bias"),
                gates: layer.take_groups("gates", FoxLayer::take),
            }),
            n_heads: shape.n_heads,
            config: self.clone(),
        }
    }
}
