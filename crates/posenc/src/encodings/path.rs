//! `path`: every token between key and query reflects what the query sees of the key.
//!
//! - Formula: logits are `q_m H_m H_(m-1) ... H_(n+1) k_n / sqrt(E)`, `H_t = I - beta_t w_t w_t^T`,
//!   `beta = 2 sigmoid(u.x + b)`, w of length 1, from a causal convolution over `kernel` tokens and
//!   SiLU of `U D x`. `forget` adds FoX's `sum of ln f_l over l = n+1..m` (PaTH-FoX).
//! - Source: Yang et al. 2025, PaTH attention (arXiv 2505.16381); flash-linear-attention,
//!   `layers/path_attn.py` and `ops/path_attn/naive.py`.
//! - Parameters: per layer L: `layers.L.down`, `[D, rank]`; `up`, `[rank, H E]`; `convolution`,
//!   `[kernel, H E]`; `beta_weight`, `[D, H]`; `beta_bias`, `[H]`; with gates `gates.0.weight`,
//!   `[D, H]`, and `gates.0.bias`, `[H]`.
//! - Limits: none by construction. Causal only: reflections between a key and a later query.
//!   Positions are not read. Linear attention cannot host it here. Time grows with E times the
//!   square of the length, as in attention.

use super::fox::FoxLayer;
use crate::ConfigError;
use crate::facts::{Facts, Hooks, ModelShape};
use crate::halves::{Halves, chunked, half, half_mask, in_pairs, joined};
use crate::hooks::{Content, Context, PositionalEncoding, PrepareResult, Prepared};
use crate::init::{Distribution, ParamSpec, Parameters};
use crate::ops::Ops;
use crate::positions::Positions;
use crate::sequence::{by_head, causal_convolution, per_channel, projected, unit};
use crate::spec::{About, EncodingSpec};
use crate::tensors::{cells, cut, padded, straight_through};
use burn::module::{Module, Param};
use burn::tensor::{Tensor, TensorData, activation};
use schema::in_range;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

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

/// `kind = "path"`: configuration of [`PathProduct`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct PathProductConfig {
    /// Number of dimensions between the two projections of w, 1 to 4096.
    #[default = 32]
    pub rank: usize,
    /// Number of tokens that the convolution of w reads, 0 to 64; 0 for no convolution.
    #[default = 3]
    pub kernel: usize,
    /// Gates of forgetting beside the reflections.
    #[default(PathForget::None)]
    pub forget: PathForget,
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
    fn prepare(&self, _positions: &Positions, context: &Context) -> PrepareResult<'_> {
        Ok(Box::new(PreparedPath {
            encoding: self,
            groups: context.groups,
        }))
    }

    fn acts_in_groups(&self) -> bool {
        true
    }
}

/// The least number of tokens whose reflections are multiplied out at once.
const CHUNK: usize = 16;

fn transposed(x: Tensor<4>) -> Tensor<4> {
    x.swap_dims(2, 3)
}

/// `x`, `[.., n, n]`, with zeros on the diagonal `offset` and above it.
fn below(x: Tensor<4>, offset: usize) -> Tensor<4> {
    let (n, shape) = (x.dims()[3], x.dims());
    let above = cells([n, n], &x.device(), |row, column| column >= row + offset);
    x.mask_fill(above.expand(shape), 0.0)
}

/// `(I + L)^-1` of strictly lower triangular `L`, `[.., n, n]`.
///
/// Blocks on the diagonal are inverted, from single cells on. For neighbours A and D with C below
/// A, the inverse has `-D^-1 C A^-1` in the place of C.
fn inverse(ops: &dyn Ops, lower: Tensor<4>) -> Tensor<4> {
    let (tracked, device, shape) = (lower.clone(), lower.device(), lower.dims());
    let n = shape[3];
    let lower = lower.detach();
    let unit: Vec<f64> = (0..n * n)
        .map(|at| f64::from(u8::from(at % (n + 1) == 0)))
        .collect();
    let unit = TensorData::new(unit, [1, 1, n, n]);
    let mut inverse = Tensor::<4>::from_data(unit, (&device, lower.dtype()));
    let mut rows = 1;
    while rows < n {
        let outside = cells([n, n], &device, |row, column| {
            let (row, column) = (row / rows, column / rows);
            row % 2 == 0 || row != column + 1
        });
        let corner = lower.clone().mask_fill(outside.expand(shape), 0.0);
        let corner = if rows == 1 {
            corner
        } else {
            ops.matmul(ops.matmul(inverse.clone(), corner), inverse.clone())
        };
        inverse = inverse - corner;
        rows *= 2;
    }
    // The gradient of an inverse needs two products with the inverse, not those of all steps.
    let change = straight_through(tracked);
    inverse.clone() - ops.matmul(ops.matmul(inverse.clone(), change), inverse)
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

/// Blocks of tokens with what leads past them: queries `[S, N, s, E]` carried to the start of their
/// block, keys `[S, M, s, E]` carried to the end of theirs, and the products of the reflections of
/// whole blocks, as `I - P`, `[S, M, E, E]`. Blocks of queries are the last of those of keys.
struct Blocks {
    q: Tensor<4>,
    k: Tensor<4>,
    whole: Tensor<4>,
    /// Logits inside the blocks of queries, `[S, N, s, s]`.
    logits: Tensor<4>,
}

impl Blocks {
    /// Chunks `[S, N, C, E]` of queries and `[S, M, C, E]` of keys, w and `beta w`.
    ///
    /// The product of the reflections of a chunk is `I - W^T T (beta W)` with a triangular T.
    fn new(ops: &dyn Ops, q: Tensor<4>, k: Tensor<4>, [w, scaled]: [Tensor<4>; 2]) -> Self {
        let multiply = |a: &Tensor<4>, b: Tensor<4>| ops.matmul(a.clone(), b);
        let own = |x: &Tensor<4>| last_blocks(x, q.dims()[1]);
        let triangular = below(multiply(&scaled, transposed(w.clone())), 0);
        let triangular = inverse(ops, triangular);
        let met = below(multiply(&scaled, transposed(k.clone())), 0);
        let met = multiply(&triangular, met);
        let reflected = multiply(&triangular, scaled);
        let seen = below(multiply(&q, transposed(own(&w))), 1);
        let logits = multiply(&q, transposed(own(&k))) - multiply(&seen, own(&met));
        let whole = multiply(&transposed(w.clone()), reflected.clone());
        Self {
            k: k - multiply(&transposed(met), w),
            q: q.clone() - multiply(&seen, own(&reflected)),
            whole,
            logits,
        }
    }

    /// Logits inside blocks of twice as many tokens, `[S, N / 2, 2 s, 2 s]`.
    fn logits_of_pairs(&self, ops: &dyn Ops) -> Tensor<4> {
        let [q, k] = [&self.q, &self.k].map(|x| in_pairs(x.clone()));
        let across = half(&last_blocks(&k, q.dims()[1]), false);
        joined(self.logits.clone(), ops.matmul(q, transposed(across)))
    }

    /// Blocks of twice as many tokens.
    fn in_pairs(self, ops: &dyn Ops) -> Self {
        let logits = self.logits_of_pairs(ops);
        let rows = self.q.dims()[2];
        let [q, k, whole] = [self.q, self.k, self.whole].map(in_pairs);
        let [earlier, later] = [false, true].map(|second| half(&whole, second));
        // Queries of the second half pass the first, and keys of the first half pass the second.
        let stay = |x: Tensor<4>, second: bool| {
            let mask = half_mask(rows, second, &x.device()).expand(x.dims());
            x.mask_fill(mask, 0.0)
        };
        let moved = ops.matmul(q.clone(), last_blocks(&earlier, q.dims()[1]));
        let q = q - stay(moved, false);
        let moved = ops.matmul(k.clone(), transposed(later.clone()));
        let k = k - stay(moved, true);
        let both = ops.matmul(later.clone(), earlier.clone());
        Self {
            q,
            k,
            whole: earlier + later - both,
            logits,
        }
    }
}

/// The last `count` blocks of `[S, M, s, E]`.
fn last_blocks(x: &Tensor<4>, count: usize) -> Tensor<4> {
    let all = x.dims()[1];
    cut(x, 1, all - count..all)
}

/// `q_m H_m ... H_(n+1) k_n` of queries `[B, H, Q, E]`, the first of which is key `first`, and the
/// keys up to the last query, `[B, H, K, E]`; anything where the key comes after the query.
fn products(
    ops: &dyn Ops,
    [q, k]: [Tensor<4>; 2],
    [w, scaled]: [Tensor<4>; 2],
    first: usize,
) -> Tensor<4> {
    let ([batch, heads, q_len, _], k_len) = (q.dims(), k.dims()[2]);
    let halves = Halves::new(q_len.max(CHUNK), CHUNK);
    // Keys before the queries are cut into blocks of as many tokens.
    let block = halves.length();
    let earlier = first.div_ceil(block);
    let front = earlier * block - first;
    let q = chunked(q, halves, 0, 1);
    let [k, w, scaled] = [k, w, scaled].map(|x| chunked(x, halves, front, earlier + 1));
    let mut blocks = Blocks::new(ops, q, k, [w, scaled]);
    // Past the last doubling nothing is carried, unless keys come before the block.
    let carried = match earlier {
        0 => halves.levels.saturating_sub(1),
        _ => halves.levels,
    };
    for _ in 0..carried {
        blocks = blocks.in_pairs(ops);
    }
    let logits = if carried < halves.levels {
        blocks.logits_of_pairs(ops)
    } else {
        blocks.logits
    };
    let (mut q, k, whole) = (blocks.q, blocks.k, blocks.whole);
    let at = |x: &Tensor<4>, block: usize| x.clone().slice_dim(1, block..block + 1);
    let mut columns = vec![logits];
    for block in (0..earlier).rev() {
        columns.push(ops.matmul(q.clone(), transposed(at(&k, block))));
        if block > 0 {
            q = q.clone() - ops.matmul(q, at(&whole, block));
        }
    }
    columns.reverse();
    let logits = Tensor::cat(columns, 3);
    let logits = logits.reshape([batch, heads, block, (earlier + 1) * block]);
    cut(&cut(&logits, 2, 0..q_len), 3, front..front + k_len)
}

impl Prepared for PreparedPath<'_> {
    fn content_bias(&self, layer: usize, content: &Content<'_>) -> Option<Tensor<4>> {
        let (config, heads) = (&self.encoding.config, self.encoding.n_heads);
        let layer = &self.encoding.layers[layer];
        let hidden = content.hidden.clone();
        let reflections = layer.reflections(content.ops, &hidden, heads, self.groups);
        // The keys up to the last query.
        let seen = content.first_query + content.queries.len();
        let part = |x: Tensor<4>| cut(&x, 2, 0..seen);
        let rows = [content.q.clone() * content.scale, part(content.k.clone())];
        let turned = products(
            content.ops,
            rows,
            reflections.map(part),
            content.first_query,
        );
        let mut bias = padded(turned, content.keys.len()) - content.logits();
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
    const NAME: Option<&'static str> = Some("PaTH");
    const ABOUT: About = About {
        summary: "the key passes through a Householder reflection for each token up to the query",
        formula: "logits = q_m H_m ... H_(n+1) k_n / sqrt(E), H_t = I - beta_t w_t w_t^T",
        source: "Yang et al. 2025, arXiv 2505.16381",
        deviations: "none; `forget = \"scaled\"` divides the gates' sum by sqrt(E) as well, as \
                     that code does. Its full-rank projection of w is not offered; `kernel = 0` \
                     is w without convolution and SiLU",
    };

    fn check(&self, _shape: &ModelShape) -> Result<(), ConfigError> {
        in_range("rank", self.rank, 1..=4096, "the authors use 32")?;
        let hint = "the authors use 3; 0 is not a convolution";
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
            bias_kept: 6.0,
            // Inside a chunk.
            transform_kept: 10.0,
            bias_workspace: 7.0,
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
