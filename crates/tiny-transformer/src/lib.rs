//! A small pre-norm transformer, decoder-only or, with [`Mask::Bidirectional`], an encoder, that
//! hosts any encoding of position through the hooks of [`posenc`] and names none.
//!
//! Attention is closed: `softmax(mask(q k^T / sqrt(head_dim) + logits_bias + content_bias)) v +
//! output_bias`, with `(q, k)` as the encoding's `transform_qk` returns them, or linear in the
//! length with feature maps of them. Long sequences go block by block over queries, each against
//! the keys it can see, so that no `[heads, length, length]` tensor exists at any length.
//!
//! Every weight is asked for by its path ([`posenc::Init`]), so two models that differ in their
//! encoding share all other weights.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod attention;
mod block;
mod config;
mod linear;
mod model;
mod norm;

pub use attention::{Attention, Past};
pub use block::{Block, Mlp};
pub use config::{
    Activation, AttentionKind, FeatureMap, Mask, NormKind, Normalizer, QkNorm, TransformerConfig,
};
pub use kernels::Matmul;
pub use linear::{feature_map, linear_attention};
pub use model::{Cache, Observe, Pass, Transformer};
pub use norm::Norm;
