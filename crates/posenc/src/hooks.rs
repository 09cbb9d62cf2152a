//! The one interface: an encoding is prepared for positions, then hooks in at five places.
//!
//! Shapes: `B` batch, `H` heads, `Q` and `K` query and key length, `D` d_model, `E` head_dim.

use crate::Positions;
use burn::tensor::{Bool, Device, Tensor, TensorData};
use std::ops::Range;

/// A trainable or fixed encoding of position.
pub trait PositionalEncoding {
    /// Does all position-only work (cos and sin tables, distances) once per forward pass.
    ///
    /// # Panics
    ///
    /// If a position lies at or beyond [`max_position`](Self::max_position): callers ask first and
    /// report `unsupported`.
    fn prepare<'a>(&'a self, positions: &Positions, device: &Device) -> Box<dyn Prepared + 'a>;

    /// First position without a value, if there is one. A limit is data, not a panic.
    fn max_position(&self) -> Option<usize> {
        None
    }
}

/// Cos and sin of the angles by which pairs of dimensions turn, `[1, 1, length, pairs]`, perhaps
/// times factors. Pairs are those of the first dimensions of a head; the rest stays.
pub struct Rotation {
    /// Cos and sin for queries.
    pub queries: [Tensor<4>; 2],
    /// Cos and sin for keys.
    pub keys: [Tensor<4>; 2],
    /// Whether pair i is `(2i, 2i + 1)` instead of `(i, i + pairs)`.
    pub interleaved: bool,
}

/// All that an encoding does to queries and keys of a layer, where that is little enough for
/// attention to do it in passing.
pub struct Plain {
    /// How pairs of dimensions turn.
    pub rotation: Option<Rotation>,
    /// What the product of query and key is multiplied by, beside the division by the square root
    /// of head_dim.
    pub factor: f64,
}

impl Default for Plain {
    /// Nothing.
    fn default() -> Self {
        Self {
            rotation: None,
            factor: 1.0,
        }
    }
}

/// An encoding bound to the positions of one forward pass. Every default is the identity.
pub trait Prepared {
    /// Adds to the embedded input `[B, Q, D]`, once, before block 0.
    fn embed(&self, x: Tensor<3>) -> Tensor<3> {
        x
    }

    /// Transforms queries `[B, H, Q, E]` and keys `[B, H, K, E]` of a layer, before the product.
    ///
    /// Takes both because some encodings scale one by the inverse of the other (xPos). Both may
    /// come back wider, by the same width (PoPE); the division by the square root of the
    /// model's head_dim stays. In linear attention q and k are the feature maps.
    fn transform_qk(&self, layer: usize, q: Tensor<4>, k: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        let _ = layer;
        (q, k)
    }

    /// What `transform_qk` does in this layer, if a [`Plain`] can say it and the layer has neither
    /// a content bias nor an output bias.
    ///
    /// Attention then need not call the other hooks of the layer but `logits_bias`. `None` is
    /// always right, and slower.
    fn plain(&self, layer: usize) -> Option<Plain> {
        let _ = layer;
        None
    }

    /// A bias on the logits that depends on positions alone, added after the division by
    /// sqrt(head_dim).
    fn logits_bias(&self, layer: usize) -> Option<Bias<'_>> {
        let _ = layer;
        None
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
    /// `weights` computes the softmax of the block, `[B, H, q_len, k_len]`, when called: fused
    /// attention does not hold it, so that only an encoding with a value term (Shaw) pays for
    /// it. Linear attention cannot host such an encoding.
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

/// What a content-dependent bias may look at: one block of queries against the keys it can see.
pub struct Content<'a> {
    /// Queries of the block after `transform_qk`, `[B, H, q_len, E]`, not yet divided by
    /// sqrt(head_dim).
    pub q: &'a Tensor<4>,
    /// Keys of the block after `transform_qk`, `[B, H, k_len, E]`.
    pub k: &'a Tensor<4>,
    /// Gives *all* prepared queries and keys as they were before `transform_qk`, or, inside a
    /// `stack`, as the other parts left them; a block slices them by `queries` and `keys`.
    pub raw: &'a dyn Fn() -> (Tensor<4>, Tensor<4>),
    /// What q, k and v of the layer are projected from, `[B, K, D]`, for *all* prepared keys; a
    /// block slices it by `keys`.
    pub hidden: &'a Tensor<3>,
    /// Rows of the block, as indices into the prepared queries.
    pub queries: Range<usize>,
    /// Columns of the block, as indices into the prepared keys; always from 0.
    pub keys: Range<usize>,
    /// The key index of the block's first query: row i sees the keys `0..=first_query + i`, as far
    /// as there are any. Past all keys where attention is bidirectional, which no encoding
    /// with [`Facts::causal`](crate::Facts) is hosted by.
    pub first_query: usize,
    /// What the product of q and k is multiplied by, `1 / sqrt(head_dim)`.
    pub scale: f64,
}

impl Content<'_> {
    /// `scale q k^T`, `[B, H, q_len, k_len]`, before any bias or mask.
    ///
    /// Computed when asked for: fused attention never holds the logits, and most encodings have no
    /// use for them.
    pub fn logits(&self) -> Tensor<4> {
        (self.q.clone() * self.scale).matmul(self.k.clone().swap_dims(2, 3))
    }

    /// `[1, 1, q_len, k_len]`, true where the key comes after the query and is hidden from it.
    pub fn causal_mask(&self) -> Tensor<4, Bool> {
        let rows = self.queries.len();
        let hidden = (0..rows).flat_map(|row| {
            self.keys
                .clone()
                .map(move |key| key > self.first_query + row)
        });
        let data = TensorData::new(hidden.collect::<Vec<bool>>(), [1, 1, rows, self.keys.len()]);
        Tensor::from_data(data, &self.q.device())
    }
}

/// A position-only bias that can be materialised for any block of queries and keys, so that no `[H,
/// L, L]` tensor is ever needed.
pub trait BiasBlocks {
    /// The bias for these rows and columns, `[1, H or 1, q_len, k_len]`.
    fn block(&self, queries: Range<usize>, keys: Range<usize>) -> Tensor<4>;

    /// Whether, where there are as many queries as keys, the bias depends on nothing but how many
    /// indices a key lies before its query.
    fn by_distance(&self) -> bool {
        false
    }

    /// Whether `bias(m, n) = bias(m, c) + bias(c, n)` for every key `n <= c <= m`: a decay, which
    /// linear attention can carry along in its state.
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

    /// The sum for every number of indices from 0 up to `length - 1` that a key may lie before its
    /// query, `[H or 1, length]`, if it depends on that alone: as many numbers as one row has,
    /// for all of them.
    pub fn by_distance(&self, length: usize) -> Option<Tensor<2>> {
        if !self.terms.iter().all(|term| term.by_distance()) {
            return None;
        }
        let last = self.block(length - 1..length, 0..length);
        let heads = last.dims()[1];
        Some(last.reshape([heads, length]).flip([1]))
    }

    /// The sum for these rows and columns, `[1, H or 1, q_len, k_len]`.
    ///
    /// # Panics
    ///
    /// If the bias has no term; [`Prepared::logits_bias`] returns `None` instead of an empty sum.
    pub fn block(&self, queries: Range<usize>, keys: Range<usize>) -> Tensor<4> {
        let blocks = self
            .terms
            .iter()
            .map(|term| term.block(queries.clone(), keys.clone()));
        blocks
            .reduce(|sum, block| sum + block)
            .expect("a bias has at least one term")
    }
}
