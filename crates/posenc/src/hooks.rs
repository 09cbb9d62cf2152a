//! The interface to attention: an encoding is prepared for positions, then acts through five hooks.
//!
//! Shapes: `B` batch, `H` heads, `Q` and `K` query and key length, `D` d_model, `E` head_dim.

use crate::Positions;
use crate::ops::{DiagonalNetwork, Ops, PlainOps, Rotation};
use crate::tensors::later_keys;
use burn::tensor::{Bool, Device, Tensor};
use std::fmt;
use std::ops::Range;

/// What an encoding is prepared with: the device of its tables, and the operations of its host.
#[derive(Clone)]
#[non_exhaustive]
pub struct Context {
    /// The device of the tables.
    pub device: Device,
    /// The host's operations.
    pub ops: &'static dyn Ops,
    /// Number of models that are computed side by side, G. Each parameter then holds those of all
    /// models, one after the other along its first dimension, and a batch consists of G equal
    /// parts. Always 1 for encodings that do not [act in
    /// groups](PositionalEncoding::acts_in_groups).
    pub groups: usize,
}

impl Context {
    /// A device, and the operations as they are defined.
    pub fn new(device: &Device) -> Self {
        Self {
            device: device.clone(),
            ops: &PlainOps,
            groups: 1,
        }
    }

    /// The same with operations of the host.
    #[must_use]
    pub fn with_ops(self, ops: &'static dyn Ops) -> Self {
        Self { ops, ..self }
    }

    /// The same for `groups` models side by side.
    #[must_use]
    pub fn with_groups(self, groups: usize) -> Self {
        Self { groups, ..self }
    }
}

/// What [`PositionalEncoding::prepare`] returns.
pub type PrepareResult<'a> = Result<Box<dyn Prepared + 'a>, PrepareError>;

/// Queries and keys, each `[B, H, Q or K, E]`.
pub type Qk = (Tensor<4>, Tensor<4>);

/// A trainable or fixed encoding of position.
pub trait PositionalEncoding {
    /// Does all position-only work (cos and sin tables, distances) once per forward pass.
    ///
    /// # Errors
    ///
    /// If a position lies at or beyond [`max_position`](Self::max_position).
    fn prepare(&self, positions: &Positions, context: &Context) -> PrepareResult<'_>;

    /// First position without a value, if there is one.
    fn max_position(&self) -> Option<usize> {
        None
    }

    /// Whether [`prepare`](Self::prepare) takes positions that differ between rows
    /// ([`Positions::of_rows`]). For other encodings every row is prepared alone.
    fn reads_rows(&self) -> bool {
        false
    }

    /// Whether [`prepare`](Self::prepare) reads [`Context::groups`]: one encoding with the
    /// parameters of all models side by side then acts for all of them. Other encodings with
    /// parameters act each on its part of the batch ([`side_by_side`](crate::side_by_side)).
    fn acts_in_groups(&self) -> bool {
        false
    }
}

/// Why an encoding cannot be prepared for some positions.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum PrepareError {
    /// A position has no value.
    PastMaxPosition {
        /// The largest position asked for.
        position: f64,
        /// The first position without a value.
        max_position: usize,
    },
}

impl fmt::Display for PrepareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::PastMaxPosition {
            position,
            max_position,
        } = self;
        write!(
            f,
            "position {position} has no value: the encoding ends before position {max_position}"
        )
    }
}

impl std::error::Error for PrepareError {}

/// Refuses positions at or beyond the first one without a value.
pub(crate) fn within_limit(
    positions: &Positions,
    max_position: Option<usize>,
) -> Result<(), PrepareError> {
    match max_position {
        Some(limit) if positions.rows() > limit => Err(PrepareError::PastMaxPosition {
            position: positions.length() - 1.0,
            max_position: limit,
        }),
        _ => Ok(()),
    }
}

/// A transform of queries and keys that is simple enough to fuse into attention.
#[non_exhaustive]
pub struct FusedQk {
    /// Rotation of pairs of dimensions.
    pub rotation: Option<Rotation>,
    /// Factor on the logits, beside the division by the square root of head_dim.
    pub factor: f64,
}

impl FusedQk {
    /// A rotation and a factor on the logits.
    pub fn new(rotation: Option<Rotation>, factor: f64) -> Self {
        Self { rotation, factor }
    }
}

impl Default for FusedQk {
    /// The identity.
    fn default() -> Self {
        Self::new(None, 1.0)
    }
}

/// Rotations of which each pair of a query and a key has one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RotaryZones {
    /// The rotations; the first is that of near pairs.
    pub rotations: Vec<Rotation>,
    /// Which of them a pair has, row by row of the queries.
    pub of: Vec<usize>,
}

/// An encoding bound to the positions of one forward pass. Every default is the identity.
pub trait Prepared {
    /// Adds to the embedded input, `[B, Q, D]`, once, before block 0.
    fn embed(&self, x: Tensor<3>) -> Tensor<3> {
        x
    }

    /// Transforms queries `[B, H, Q, E]` and keys `[B, H, K, E]` of a layer, before the product.
    ///
    /// Takes both because some encodings scale one by the inverse of the other (xPos). Both may
    /// come back wider, by the same width (PoPE); the division by the square root of the
    /// model's head_dim stays. In linear attention q and k are the feature maps.
    ///
    /// `hidden` is the layer's input that q, k and v are projected from, `[B, K, D]`, for *all*
    /// prepared keys: encodings that turn by content read it. Queries are the last of the keys.
    fn transform_qk(&self, layer: usize, q: Tensor<4>, k: Tensor<4>, hidden: &Tensor<3>) -> Qk {
        let _ = (layer, hidden);
        (q, k)
    }

    /// `transform_qk` of this layer in a form that attention can fuse: at most a rotation and a
    /// factor. `None` if it is none of that form, or the layer has an output bias, or a content
    /// bias that is not one of [`decays`](Self::decays).
    ///
    /// Attention then calls no other hook of the layer but `logits_bias` and `decays`. `None` is
    /// always correct, and slower.
    fn fused_qk(&self, layer: usize) -> Option<FusedQk> {
        let _ = layer;
        None
    }

    /// The content bias of this layer as running sums, `[B, H, K]`, if it is a decay that every
    /// token sets for itself: query m and key n get the sum of m minus that of n. Attention can
    /// then fuse it. `hidden` returns the layer's input, as in
    /// [`transform_qk`](Self::transform_qk).
    fn decays(&self, layer: usize, hidden: &dyn Fn() -> Tensor<3>) -> Option<Tensor<3>> {
        let _ = (layer, hidden);
        None
    }

    /// `transform_qk` and `content_bias` of this layer together, if they are one rotation of each
    /// pair. It describes them to programs that apply tables; attention does not call it.
    fn zones(&self, layer: usize) -> Option<RotaryZones> {
        let _ = layer;
        None
    }

    /// A bias on the logits that depends on positions only, added after the division by
    /// sqrt(head_dim).
    fn logits_bias(&self, layer: usize) -> Option<Bias<'_>> {
        let _ = layer;
        None
    }

    /// The first layer whose `logits_bias` has the same values as that of `layer`, so that a host
    /// can compute it once for both. Returning `layer` is always correct, but the host then
    /// computes the bias again.
    fn bias_layer(&self, layer: usize) -> usize {
        // Layers without a bias are alike.
        let has_none = |layer: &usize| self.logits_bias(*layer).is_none();
        let first = (0..=layer).find(has_none).filter(|_| has_none(&layer));
        first.unwrap_or(layer)
    }

    /// A bias on the logits that sees queries, keys and logits: `[B, H, q_len, k_len]` for the
    /// block in `content`.
    ///
    /// Linear attention cannot host an encoding that uses this hook.
    fn content_bias(&self, layer: usize, content: &Content<'_>) -> Option<Tensor<4>> {
        let _ = (layer, content);
        None
    }

    /// A term added to attention's output, `[B, H, q_len, E]`, for the block in `content`.
    ///
    /// `weights` computes the softmax of the block, `[B, H, q_len, k_len]`, when called. Fused
    /// attention does not hold it, so only an encoding with a value term (Shaw) pays for it.
    /// Linear attention cannot host such an encoding.
    fn output_bias(
        &self,
        layer: usize,
        content: &Content<'_>,
        weights: &dyn Fn() -> Tensor<4>,
    ) -> Option<Tensor<4>> {
        let _ = (layer, content, weights);
        None
    }
}

/// An encoding that is one bias, the same in all layers.
pub(crate) struct BiasAlone<B>(pub B);

impl<B> Prepared for BiasAlone<B>
where
    for<'a> &'a B: BiasBlocks,
{
    fn fused_qk(&self, _layer: usize) -> Option<FusedQk> {
        Some(FusedQk::default())
    }

    fn logits_bias(&self, _layer: usize) -> Option<Bias<'_>> {
        Some(Bias::new(&self.0))
    }

    fn bias_layer(&self, _layer: usize) -> usize {
        0
    }
}

/// The first layer with the same `key` as this one.
pub(crate) fn first_alike<K: PartialEq>(layer: usize, key: impl Fn(usize) -> K) -> usize {
    let own = key(layer);
    (0..layer).find(|other| key(*other) == own).unwrap_or(layer)
}

/// What a content-dependent bias may read: one block of queries against the keys it can attend to.
#[non_exhaustive]
pub struct Content<'a> {
    /// Queries of the block after `transform_qk`, `[B, H, q_len, E]`, not yet divided by
    /// sqrt(head_dim).
    pub q: &'a Tensor<4>,
    /// Keys of the block after `transform_qk`, `[B, H, k_len, E]`.
    pub k: &'a Tensor<4>,
    /// Returns *all* prepared queries and keys before `transform_qk`, or, inside a `stack`, as the
    /// other parts left them. A block slices them by `queries` and `keys`.
    pub raw: &'a dyn Fn() -> Qk,
    /// The layer's input that q, k and v are projected from, `[B, K, D]`, for *all* prepared keys.
    /// A block slices it by `keys`.
    pub hidden: &'a Tensor<3>,
    /// Rows of the block, as indices into the prepared queries.
    pub queries: Range<usize>,
    /// Columns of the block, as indices into the prepared keys; always from 0.
    pub keys: Range<usize>,
    /// Key index of the block's first query: row i attends to the keys `0..=first_query + i`, as
    /// far as they exist. At or past the number of keys if attention is bidirectional, which
    /// encodings with [`Facts::causal_only`](crate::Facts::causal_only) do not allow.
    pub first_query: usize,
    /// Factor on the product of q and k, `1 / sqrt(head_dim)`.
    pub scale: f64,
    /// The host's operations.
    pub ops: &'a dyn Ops,
}

/// Rows and columns of a block of logits; see the fields of [`Content`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Indices into the prepared queries.
    pub queries: Range<usize>,
    /// Indices into the prepared keys.
    pub keys: Range<usize>,
    /// Key index of the first query.
    pub first_query: usize,
}

impl<'a> Content<'a> {
    /// A block of transformed queries `q` and keys `k`; the fields say more.
    pub fn new(
        [q, k]: [&'a Tensor<4>; 2],
        raw: &'a dyn Fn() -> Qk,
        hidden: &'a Tensor<3>,
        block: Block,
        scale: f64,
    ) -> Self {
        Self {
            q,
            k,
            raw,
            hidden,
            queries: block.queries,
            keys: block.keys,
            first_query: block.first_query,
            scale,
            ops: &PlainOps,
        }
    }

    /// The same with operations of the host.
    #[must_use]
    pub fn with_ops(self, ops: &'a dyn Ops) -> Self {
        Self { ops, ..self }
    }
}

impl Content<'_> {
    /// `scale q k^T`, `[B, H, q_len, k_len]`, before any bias or mask.
    ///
    /// Computed on request: fused attention never holds the logits, and most encodings do not need
    /// them.
    pub fn logits(&self) -> Tensor<4> {
        let q = self.q.clone() * self.scale;
        self.ops.matmul(q, self.k.clone().swap_dims(2, 3))
    }

    /// `[1, 1, q_len, k_len]`, true where the key comes after the query and is masked.
    pub fn causal_mask(&self) -> Tensor<4, Bool> {
        let (queries, keys) = (self.queries.len(), self.keys.len());
        later_keys(queries, keys, self.first_query, &self.q.device())
    }
}

/// A position-only bias that can be materialised for any block of queries and keys, so that no `[H,
/// L, L]` tensor is ever needed.
pub trait BiasBlocks {
    /// The bias for these rows and columns, `[G, H or 1, q_len, k_len]`. G is 1 except for models
    /// [side by side](crate::side_by_side): part g is then for part g of the batch.
    fn block(&self, queries: Range<usize>, keys: Range<usize>) -> Tensor<4>;

    /// Whether the bias depends on the difference of the indices of query and key only, if there
    /// are as many queries as keys.
    fn by_distance(&self) -> bool {
        false
    }

    /// The bias of all queries, as rows, and keys, as columns, as one network of the diagonal, if
    /// it is one.
    fn network(&self) -> Option<DiagonalNetwork> {
        None
    }

    /// Whether `bias(m, n) = bias(m, c) + bias(c, n)` for every key `n <= c <= m`: a decay, which
    /// linear attention can carry in its state.
    fn is_decay(&self) -> bool {
        false
    }
}

/// A sum of position-only biases.
#[derive(Default)]
pub struct Bias<'a> {
    terms: Vec<Box<dyn BiasBlocks + 'a>>,
}

impl<'a> Bias<'a> {
    /// A bias of one term.
    pub fn new(term: impl BiasBlocks + 'a) -> Self {
        Self {
            terms: vec![Box::new(term)],
        }
    }

    /// The sum of two biases.
    #[must_use]
    pub fn plus(mut self, other: Bias<'a>) -> Self {
        self.terms.extend(other.terms);
        self
    }

    /// Whether every term is a decay; see [`BiasBlocks::is_decay`].
    pub fn is_decay(&self) -> bool {
        self.terms.iter().all(|term| term.is_decay())
    }

    /// Whether every term depends on the distance in indices only; see
    /// [`BiasBlocks::by_distance`].
    pub fn is_by_distance(&self) -> bool {
        self.terms.iter().all(|term| term.by_distance())
    }

    /// The sum by how many indices a key lies before its query, from 0 to `length - 1`, `[G, H or
    /// 1, length]`. `None` if it depends on more than that.
    pub fn by_distance(&self, length: usize) -> Option<Tensor<3>> {
        if !self.is_by_distance() {
            return None;
        }
        // The last query sees every distance, the largest first: reversed, column d is distance d.
        let last = self.block(length - 1..length, 0..length);
        let [groups, heads, ..] = last.dims();
        Some(last.reshape([groups, heads, length]).flip([2]))
    }

    /// The bias as one network; see [`BiasBlocks::network`]. `None` if it is a sum.
    pub fn network(&self) -> Option<DiagonalNetwork> {
        match &self.terms[..] {
            [term] => term.network(),
            _ => None,
        }
    }

    /// The sum for these rows and columns, `[G, H or 1, q_len, k_len]`; see [`BiasBlocks::block`].
    ///
    /// # Panics
    ///
    /// If the bias has no term; [`Prepared::logits_bias`] returns `None` instead of an empty sum.
    pub fn block(&self, queries: Range<usize>, keys: Range<usize>) -> Tensor<4> {
        let terms = self.terms.iter();
        let blocks = terms.map(|term| term.block(queries.clone(), keys.clone()));
        blocks
            .reduce(|sum, block| sum + block)
            .expect("a bias has at least one term")
    }
}
