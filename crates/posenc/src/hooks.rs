//! The one interface: an encoding is prepared for positions, then hooks in at four places.
//!
//! Shapes: `B` batch, `H` heads, `Q` and `K` query and key length, `D` d_model, `E` head_dim.

use crate::Positions;
use burn::tensor::{Device, Tensor};
use std::ops::Range;

/// A trainable or fixed encoding of position.
pub trait PositionalEncoding {
    /// Does all position-only work (cos and sin tables, distances) once per forward pass.
    ///
    /// # Panics
    ///
    /// If a position lies at or beyond [`max_position`](Self::max_position): callers ask first and report `unsupported`.
    fn prepare<'a>(&'a self, positions: &Positions, device: &Device) -> Box<dyn Prepared + 'a>;

    /// First position without a value, if there is one. A limit is data, not a panic.
    fn max_position(&self) -> Option<usize> {
        None
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
    /// Takes both because some encodings scale one by the inverse of the other (xPos).
    fn transform_qk(&self, layer: usize, q: Tensor<4>, k: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        let _ = layer;
        (q, k)
    }

    /// A bias on the logits that depends on positions alone, added after the division by sqrt(head_dim).
    fn logits_bias(&self, layer: usize) -> Option<Bias<'_>> {
        let _ = layer;
        None
    }

    /// A bias on the logits that sees queries, keys and logits: `[B, H, q_len, k_len]` for the block in `content`.
    ///
    /// Linear attention cannot host an encoding that uses this hook.
    fn content_bias(&self, layer: usize, content: &Content<'_>) -> Option<Tensor<4>> {
        let _ = (layer, content);
        None
    }
}

/// What a content-dependent bias may look at: one block of queries against the keys it can see.
pub struct Content<'a> {
    /// Queries of the block after `transform_qk`, `[B, H, q_len, E]`, not yet divided by sqrt(head_dim).
    pub q: &'a Tensor<4>,
    /// Keys of the block after `transform_qk`, `[B, H, k_len, E]`.
    pub k: &'a Tensor<4>,
    /// Rows of the block, as indices into the prepared queries.
    pub queries: Range<usize>,
    /// Columns of the block, as indices into the prepared keys.
    pub keys: Range<usize>,
}

impl Content<'_> {
    /// `q k^T / sqrt(head_dim)`, `[B, H, q_len, k_len]`, before any bias or mask.
    ///
    /// Computed when asked for: fused attention never holds the logits, and most encodings have no use for them.
    pub fn logits(&self) -> Tensor<4> {
        let scale = 1.0 / (self.q.dims()[3] as f64).sqrt();
        (self.q.clone() * scale).matmul(self.k.clone().swap_dims(2, 3))
    }
}

/// A position-only bias that can be materialised for any block of queries and keys, so that no `[H, L, L]` tensor is ever needed.
pub trait BiasBlocks {
    /// The bias for these rows and columns, `[1, H or 1, q_len, k_len]`.
    fn block(&self, queries: Range<usize>, keys: Range<usize>) -> Tensor<4>;
}

/// A sum of position-only biases.
#[derive(Default)]
pub struct Bias<'a> {
    terms: Vec<Box<dyn BiasBlocks + 'a>>,
}

impl<'a> Bias<'a> {
    /// A bias of one term.
    pub fn new(term: impl BiasBlocks + 'a) -> Self {
        Self { terms: vec![Box::new(term)] }
    }

    /// The sum of two biases.
    #[must_use]
    pub fn plus(mut self, other: Bias<'a>) -> Self {
        self.terms.extend(other.terms);
        self
    }

    /// The sum for these rows and columns, `[1, H or 1, q_len, k_len]`.
    ///
    /// # Panics
    ///
    /// If the bias has no term; [`Prepared::logits_bias`] returns `None` instead of an empty sum.
    pub fn block(&self, queries: Range<usize>, keys: Range<usize>) -> Tensor<4> {
        let blocks = self.terms.iter().map(|term| term.block(queries.clone(), keys.clone()));
        blocks.reduce(|sum, block| sum + block).expect("a bias has at least one term")
    }
}
