//! A small decoder-only, pre-norm transformer that hosts any encoding of position through the hooks of [`posenc`] and names none.
//!
//! Attention is closed: `softmax(mask(q k^T / sqrt(head_dim) + logits_bias + content_bias)) v`, with `(q, k)` as the encoding's
//! `transform_qk` returns them. Long sequences go block by block over queries, each against the keys it can see, so that no
//! `[heads, length, length]` tensor exists at any length.
//!
//! Every weight is asked for by its path ([`posenc::Init`]), so two models that differ in their encoding share all other weights.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod attention;
mod block;
mod config;
mod model;
mod norm;

pub use attention::Attention;
pub use block::{Block, Mlp};
pub use config::{Activation, NormKind, TransformerConfig};
pub use model::{Pass, Transformer};
pub use norm::Norm;
