//! The operations a small transformer spends its time in, fused: one pass over memory each, with
//! hand-written gradients.
//!
//! Every operation here is defined by the function of the same name in [`mod@reference`], written
//! with plain tensor operations. Fused versions run for `f32` tensors, with and without autodiff:
//! on the Flex backend all but [`embedding`], [`square_sums`] and [`matmul`](fn@matmul); on CubeCL
//! backends these three, [`attention`] (also inside [`attention_block`]), [`layer_norm`],
//! [`rms_norm`], [`gelu`], [`swiglu`], [`nll`], [`rotate`] and [`adamw`]. Elsewhere the definition
//! runs.
//!
//! Results are bitwise equal for any number of threads and any width of vectors, and on a GPU from
//! run to run: work is split over independent outputs, and sums have a fixed order.
//!
//! # Groups
//!
//! Several models of one shape can be computed side by side. The rows or sequences of an input then
//! come in G equal parts, one for each model, and every parameter has those of all models, one
//! after the other along its first dimension. Part g of the input meets part g of the parameters.
//! Shapes are written for G = 1; where `x` is `[N, K]` and `w` is `[K, M]`, G models have
//! `[G N, K]` and `[G K, M]`. G follows from the shapes of the parameters. Tables and biases that
//! all models share have a first dimension of 1.
//!
//! Each model gets the numbers that it would get alone: the same bits on the CPU, and up to
//! rounding elsewhere, where matrix products may run in other tiles.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::too_many_lines, clippy::print_stdout))]

mod checks;
mod fused_ops;
mod groups;
mod matmul;
#[cfg(any(feature = "flex", feature = "cube"))]
mod op;
pub mod reference;
mod update;

// The operations of the Flex backend, or a stub that runs the definitions.
#[cfg(feature = "flex")]
mod flex;
#[cfg(not(feature = "flex"))]
#[path = "no_flex.rs"]
mod flex;

// Likewise for the backends of CubeCL.
#[cfg(feature = "cube")]
mod cube;
#[cfg(not(feature = "cube"))]
#[path = "no_cube.rs"]
mod cube;

use burn::tensor::{Device, Int, Tensor};
pub use fused_ops::FusedOps;
pub use matmul::Matmul;
pub use ops::{CellNetwork, DiagonalNetwork, Rotation};
pub use update::{AdamWStep, AdamWUpdate};

/// GEMM on plain slices for the benchmarks of this crate. Not part of the interface.
#[cfg(feature = "flex")]
#[doc(hidden)]
pub use flex::bench;

/// Counts launches of kernels on backends of CubeCL, for profiles and tests. Not part of the
/// interface.
#[doc(hidden)]
pub use cube::Launches;

/// Runs `f` on a worker of the thread pool that fused operations use; an error if the system does
/// not start the threads. Avoids the wake-up latency of entering the pool once per operation.
pub fn on_threads<R: Send>(f: impl FnOnce() -> R + Send) -> std::io::Result<R> {
    flex::on_threads(f)
}

/// Frees the memory that fused operations keep for the next ones. Called between kinds of work,
/// such as evaluations at two lengths, so that what one needs does not add to the other.
pub fn free_buffers() {
    flex::free_buffers();
}

/// Why fused operations cannot use the vector width that the environment variable
/// `LONGREACH_VECTOR_BITS` asks for; `None` if they can. The only value is 256, which needs AVX2.
/// Where there is a reason, every fused operation panics with it.
pub fn vector_problem() -> Option<String> {
    flex::vector_problem()
}

/// The parameters of a norm over rows: a LayerNorm with a shift, an RMSNorm without one.
pub struct Norm {
    /// Factor of every column, `[W]`.
    pub scale: Tensor<1>,
    /// Added to every column, `[W]`.
    pub shift: Option<Tensor<1>>,
    /// Added to the variance, or to the mean square.
    pub eps: f64,
}

/// The parameters of a linear layer, `x w + bias`.
pub struct Linear {
    /// `[K, M]`.
    pub w: Tensor<2>,
    /// `[M]`.
    pub bias: Option<Tensor<1>>,
}

impl From<Tensor<2>> for Linear {
    /// Without a bias.
    fn from(w: Tensor<2>) -> Self {
        Self { w, bias: None }
    }
}

/// The layers of a feed-forward block. `gate` has a bias if `up` has one.
pub struct MlpWeights {
    /// `[D, F]`.
    pub up: Linear,
    /// `[D, F]`, for SwiGLU.
    pub gate: Option<Linear>,
    /// `[F, D]`.
    pub down: Linear,
    /// How products with these weights are computed.
    pub matmul: Matmul,
}

/// The projections of an attention block.
pub struct AttentionWeights {
    /// `[D, 3 H E]`: queries, then keys, then values.
    pub qkv: Linear,
    /// `[H E, D]`.
    pub output: Linear,
    /// H.
    pub heads: usize,
    /// How products with these weights are computed.
    pub matmul: Matmul,
}

/// What is added to the logits of attention.
#[derive(Clone)]
pub enum Bias {
    /// One value per query and key, `[1 or G or B, 1 or H, Q, K]`.
    Dense(Tensor<4>),
    /// One value per distance from query back to key, counted in indices from 0: `[1 or G, 1 or H,
    /// n]`, n at least the number of keys.
    ByDistance(Tensor<3>),
    /// Running sums of a decay that every token sets for itself, `[B, H, L]`: query m and key n get
    /// `sums[m] - sums[n]`. A softmax does not change when all logits of a query change by the same
    /// amount, so the gradient of `sums[m]` as the sum of a query is 0; the fused version leaves it
    /// out.
    Decays(Tensor<3>),
    /// A network over all queries (rows) and keys (columns) of the sequence, with 1 or H outputs,
    /// the same for all groups.
    /// The fused version computes it tile by tile, once per sequence of the batch in each pass.
    Network(Box<DiagonalNetwork>),
}

/// `norm(x) w`, `[N, M]`, of `x`, `[N, K]`, and `w`, `[K, M]`; without a norm `x w`.
///
/// # Panics
///
/// If `w` does not have one row per column of `x`, in each group.
pub fn linear(x: Tensor<2>, norm: Option<Norm>, w: Tensor<2>, matmul: Matmul) -> Tensor<2> {
    checks::linear(&x, norm.as_ref(), &w);
    flex::linear(x, norm, w, matmul)
}

/// `x + gelu(norm(x) up) down`, `[N, D]`; with a gate `x + swiglu(norm(x) gate, norm(x) up) down`.
/// Layers add their biases.
///
/// # Panics
///
/// If the weights do not fit `x` or each other.
pub fn mlp(x: Tensor<2>, norm: Norm, weights: MlpWeights) -> Tensor<2> {
    checks::mlp(&x, &norm, &weights);
    flex::mlp(x, norm, weights)
}

/// `x + attention(norm(x))` for `x`, `[B, L, D]`: each sequence attends to itself, causally, as
/// [`attention`] defines it, with queries and keys rotated by `rotation` and logits scaled by
/// `scale`.
///
/// # Panics
///
/// If weights, tables or bias do not fit `x`.
pub fn attention_block(
    x: Tensor<3>,
    norm: Norm,
    weights: AttentionWeights,
    rotation: Option<Rotation>,
    bias: Option<Bias>,
    scale: f64,
) -> Tensor<3> {
    checks::attention_block(&x, &norm, &weights, rotation.as_ref(), bias.as_ref());
    flex::attention_block(x, norm, weights, rotation, bias, scale)
}

/// `a b`, `[.., N, M]`, of `a`, `[.., N, K]`, and `b`, `[.., K, M]`. Leading dimensions are equal,
/// or 1.
///
/// On the backends of CubeCL factors are rounded as `matmul` says, and [`Matmul::F32`] rounds none
/// where Burn's product would take TF32. Elsewhere this is Burn's product.
pub fn matmul<const D: usize>(a: Tensor<D>, b: Tensor<D>, matmul: Matmul) -> Tensor<D> {
    groups::multiplied(a, b, matmul)
}

/// Whether [`attention_block`] of this input materialises a [`Bias::Network`], `[H, L, L]`.
pub fn materialises_networks(x: &Tensor<3>) -> bool {
    flex::materialises_networks(x)
}

/// Negative log-likelihood in nats, `[N]`, of `targets`, `[N]`, under the softmax of `logits`, `[N,
/// V]`.
///
/// # Panics
///
/// On the CPU, if a target is not in `0..V`. On other backends the loss of such a row has no
/// meaning.
pub fn nll(logits: Tensor<2>, targets: Tensor<1, Int>) -> Tensor<1> {
    assert_eq!(logits.dims()[0], targets.dims()[0], "one target per row");
    cube::nll(&logits, &targets).unwrap_or_else(|| flex::nll(logits, targets))
}

/// Rows of `table`, `[V, D]`, for `tokens`, `[B, L]`: `[B, L, D]`. Tokens of each of `groups` are
/// those of its own table, from 0.
///
/// # Panics
///
/// If tables and tokens cannot be divided among the groups; on the CPU also if a token is not in
/// `0..V`.
pub fn embedding(table: Tensor<2>, tokens: Tensor<2, Int>, groups: usize) -> Tensor<3> {
    let rows = [table.dims()[0], tokens.dims()[0]];
    assert!(
        groups > 0 && rows.iter().all(|rows| rows.is_multiple_of(groups)),
        "tables and tokens of {groups} groups"
    );
    cube::embedding(&table, &tokens, groups)
        .unwrap_or_else(|| reference::embedding(table, tokens, groups))
}

/// `(x - mean) / sqrt(variance + eps) * scale + shift` over the rows of `x`, `[N, W]`; `scale` and
/// `shift` are `[W]`.
///
/// # Panics
///
/// If `scale` or `shift` does not have W elements, in each group.
pub fn layer_norm(x: Tensor<2>, scale: Tensor<1>, shift: Tensor<1>, eps: f64) -> Tensor<2> {
    checks::norm(&x, &scale, Some(&shift));
    cube::norm(&x, &scale, Some(&shift), eps)
        .unwrap_or_else(|| flex::layer_norm(x, scale, shift, eps))
}

/// `x / sqrt(mean(x^2) + eps) * scale` over the rows of `x`, `[N, W]`; `scale` is `[W]`.
///
/// # Panics
///
/// If `scale` does not have W elements, in each group.
pub fn rms_norm(x: Tensor<2>, scale: Tensor<1>, eps: f64) -> Tensor<2> {
    checks::norm(&x, &scale, None);
    cube::norm(&x, &scale, None, eps).unwrap_or_else(|| flex::rms_norm(x, scale, eps))
}

/// `x Phi(x)`, `Phi` the normal distribution function: the exact GELU, not its tanh approximation.
pub fn gelu(x: Tensor<2>) -> Tensor<2> {
    cube::gelu(&x).unwrap_or_else(|| flex::gelu(x))
}

/// `gate sigmoid(gate) up`; both of one shape.
///
/// # Panics
///
/// If the shapes differ.
pub fn swiglu(gate: Tensor<2>, up: Tensor<2>) -> Tensor<2> {
    assert_eq!(gate.dims(), up.dims(), "gate and up have one shape");
    cube::swiglu(&gate, &up).unwrap_or_else(|| flex::swiglu(gate, up))
}

/// Causal attention: `softmax(scale q k^T + bias) v`, `[B, H, Q, E]`.
///
/// `q` is `[B, H, Q, E]`, `k` and `v` are `[B, H, K, E]`. Query row i has absolute index
/// `first_query + i` and sees the keys `0..=first_query + i`, at most all K; later keys are never
/// read. With a `first_query` of `K` every query sees every key: bidirectional attention.
///
/// `bias`, `[1 or G or B, 1 or H, Q, K]`, is added to the logits. It may be -inf: a row that then
/// sees nothing gives 0 and takes no gradient.
///
/// Inputs may be strided views. The result is laid out as `[B, Q, H, E]`, so that joining the heads
/// moves nothing.
///
/// # Panics
///
/// If shapes do not fit together, or there is no key.
pub fn attention(
    q: Tensor<4>,
    k: Tensor<4>,
    v: Tensor<4>,
    bias: Option<Tensor<4>>,
    scale: f64,
    first_query: usize,
) -> Tensor<4> {
    checks::attention(&q, &k, &v, bias.as_ref());
    cube::attention([&q, &k, &v], &bias, scale, first_query)
        .unwrap_or_else(|| flex::attention(q, k, v, bias, scale, first_query))
}

/// Repeats a bias with one part for each group, `[1 or G or B, H, Q, K]`, for all sequences of the
/// group: `[1 or B, H, Q, K]`, which can be added to the logits of a batch of B.
///
/// # Panics
///
/// If there are not as many sequences in every group.
pub fn per_sequence(bias: Tensor<4>, batch: usize) -> Tensor<4> {
    let of = bias.dims()[0];
    assert!(groups::is_per_group(of, batch), "bias fits logits");
    groups::spread(bias, batch)
}

/// The weights of [`attention`] on the visible keys, `[B, H, Q, min(first_query + Q, K)]`.
///
/// # Panics
///
/// If shapes do not fit together, or there is no key.
pub fn attention_weights(
    q: Tensor<4>,
    k: Tensor<4>,
    bias: Option<Tensor<4>>,
    scale: f64,
    first_query: usize,
) -> Tensor<4> {
    checks::attention(&q, &k, &k, bias.as_ref());
    flex::attention_weights(q, k, bias, scale, first_query)
}

/// A parameter and its two moments after one AdamW update with `grad`, all `[N]` and outside
/// autodiff. Missing `moments` are 0.
///
/// The parameter consists of one part for each of `steps`, all of the same length, such as those of
/// models that are trained side by side. Each is updated with its own scalars.
///
/// On the CPU bit for bit what the definition gives.
///
/// # Panics
///
/// If there is no step, or the parameter cannot be cut into parts of the same length.
pub fn adamw(
    theta: Tensor<1>,
    grad: Tensor<1>,
    moments: Option<[Tensor<1>; 2]>,
    steps: &[AdamWStep],
) -> [Tensor<1>; 3] {
    let updated = adamw_all(vec![AdamWUpdate {
        theta,
        grad,
        moments,
        steps: steps.to_vec(),
    }]);
    updated.into_iter().next().expect("one parameter")
}

/// [`adamw`] of several parameters, in few launches on a GPU.
///
/// # Panics
///
/// As [`adamw`].
pub fn adamw_all(updates: Vec<AdamWUpdate>) -> Vec<[Tensor<1>; 3]> {
    for update in &updates {
        checks::adamw(&update.theta, &update.steps);
    }
    if let Some(updated) = cube::adamw(&updates) {
        return updated;
    }
    let updates = updates.into_iter();
    updates.map(flex::adamw).collect()
}

/// Memory of a GPU in bytes, as its driver reports it; `None` if it does not, and on a CPU. Other
/// processes may use part of it.
pub fn device_memory(device: &Device) -> Option<u64> {
    cube::device_memory(device)
}

/// The sum of the squares of each part of each of `vectors`, which are outside autodiff and consist
/// of `parts` parts of one length each: `[n parts]`, vector by vector.
///
/// # Panics
///
/// If there is no vector, or one cannot be cut into parts of the same length.
pub fn square_sums(vectors: Vec<Tensor<1>>, parts: usize) -> Tensor<1> {
    checks::square_sums(&vectors, parts);
    cube::square_sums(&vectors, parts).unwrap_or_else(|| reference::square_sums(vectors, parts))
}

/// Rotates the pairs of the first `2 R` dimensions of `x`, `[B, H, L, E]`, by the angles whose
/// `cos` and `sin` are `[1 or G or B, 1 or H, L, R]`; the other dimensions pass through. Pair i is
/// `(2i, 2i + 1)` if `interleaved`, else `(i, i + R)`. Tables may take a gradient.
///
/// # Panics
///
/// If the tables do not fit `x`.
pub fn rotate(x: Tensor<4>, cos: Tensor<4>, sin: Tensor<4>, interleaved: bool) -> Tensor<4> {
    checks::rotate(&x, &cos, &sin);
    cube::rotate([&x, &cos, &sin], interleaved)
        .unwrap_or_else(|| flex::rotate(x, cos, sin, interleaved))
}

/// `x[b, h, i, columns[b, h, i, j]]`, `[B, H, Q, K]`, of `x`, `[B, H, Q, N]`, and `columns`,
/// `[1 or B, 1 or H, Q, K]`.
///
/// # Panics
///
/// If shapes do not fit together; on the CPU also if a column is not in `0..N`.
pub fn gather_columns(x: Tensor<4>, columns: Tensor<4, Int>) -> Tensor<4> {
    let [batch, heads, rows, _] = x.dims();
    checks::columns([batch, heads, rows], &columns);
    flex::gather_columns(x, columns)
}

/// The transpose of [`gather_columns`]: `y[b, h, i, c]` is the sum of `x[b, h, i, j]` over the j
/// with `columns[b, h, i, j] = c`. `x` is `[B, H, Q, K]`, `columns` is `[1 or B, 1 or H, Q, K]`,
/// the result `[B, H, Q, n]`.
///
/// # Panics
///
/// If shapes do not fit together; on the CPU also if a column is not in `0..n`.
pub fn scatter_columns(x: Tensor<4>, columns: Tensor<4, Int>, n: usize) -> Tensor<4> {
    let [batch, heads, rows, places] = x.dims();
    checks::columns([batch, heads, rows], &columns);
    assert_eq!(columns.dims()[3], places, "a column for every number");
    flex::scatter_columns(x, columns, n)
}

/// `x[b, h, i, at[b, h, i, j]]`, `[B, H, Q, K]`, of `x`, `[B, H, Q, N]`, and places `at`,
/// `[B, H, Q, K]`, from 0 to N - 1. Between two columns it is interpolated; the gradient of a place
/// is the slope above it.
///
/// # Panics
///
/// If shapes do not fit together. Places outside of 0 to N - 1 are not looked for, and give numbers
/// without meaning.
pub fn interpolate_columns(x: Tensor<4>, at: Tensor<4>) -> Tensor<4> {
    let [batch, heads, rows, n] = x.dims();
    assert_eq!(at.dims()[..3], [batch, heads, rows], "places fit rows");
    assert!(n > 0, "a column to read");
    flex::interpolate_columns(x, at)
}

/// Positions counted by content: the sum of `sigmoid(logits)` from each key to the query's own, at
/// most `limit`. `logits` and the result are `[B, H, Q, K]`; query row i sees the keys
/// `0..=first_query + i`, and the result for later keys is 0.
pub fn count_open_keys(logits: Tensor<4>, first_query: usize, limit: f64) -> Tensor<4> {
    flex::count_open_keys(logits, first_query, limit)
}

/// What to add to `logits`, `[B, H, Q, K]`, so that their softmax breaks a stick: every key, from
/// the nearest on, takes a share of what is left, and the query's own key, `first_query` plus its
/// row, keeps the rest. With `s(a)` the sum of `softplus(logits)` from key a to the one before the
/// own key m, it is `-s(n)` for a key n < m, and `-s(0) - z_m` for m; 0 for later keys.
pub fn break_stick(logits: Tensor<4>, first_query: usize) -> Tensor<4> {
    flex::break_stick(logits, first_query)
}

/// `W2 leaky_relu(W1 x + b1) + b2` of the C numbers `x[b, :, i, j]` of every cell of `x`,
/// `[B, C, Q, K]`: `[B, H, Q, K]`. Its hidden layer is never materialised.
///
/// # Panics
///
/// If shapes do not fit together.
pub fn cell_network(x: Tensor<4>, network: CellNetwork) -> Tensor<4> {
    checks::cell_network(&x, &network);
    flex::cell_network(x, network)
}

/// `f(diagonals[R - 1 - i + j] / units[i])`, `[1, H, R, C]`, for row i and column j: a network of
/// one input for every cell of a matrix. Its hidden layer is never materialised.
///
/// # Panics
///
/// If shapes do not fit together, or there are fewer diagonals than rows.
pub fn diagonal_network(network: DiagonalNetwork) -> Tensor<4> {
    checks::diagonal_network(&network);
    flex::diagonal_network(network)
}
