//! A small pre-norm transformer that hosts any positional encoding.
//!
//! It is decoder-only or, with [`Mask::Bidirectional`], an encoder. It knows an encoding only by
//! the hooks of [`posenc`] and names none.
//!
//! Attention is `softmax(mask(q k^T / sqrt(head_dim) + logits_bias + content_bias)) v +
//! output_bias`, with `(q, k)` from the encoding's `transform_qk`; or linear in the length, with
//! feature maps of them. Long sequences go block by block over queries, each against the keys it
//! can see, and never need a `[heads, length, length]` tensor.
//!
//! Every weight is drawn by its path ([`posenc::Init`]), so that two models that differ in their
//! encoding share all other weights.
#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), warn(clippy::too_many_lines, clippy::print_stdout))]

mod attention;
mod block;
mod config;
mod denominators;
mod heads;
mod init;
mod join;
mod layer_biases;
mod linear;
mod linear_attention;
mod members;
mod model;
mod norm;
mod pass;
mod side_by_side;

pub use attention::{Attention, SHARED_BIAS};
pub use block::{Block, Mlp};
pub use config::{
    Activation, AttentionKind, FeatureMap, Mask, MlpKind, NormKind, Normalizer, QkNorm,
    TransformerConfig,
};
pub use denominators::Denominators;
pub use kernels::Matmul;
pub use layer_biases::LayerBiases;
pub use linear_attention::{feature_map, linear_attention};
pub use members::Members;
pub use model::Transformer;
pub use norm::Norm;
pub use pass::{Cache, Observe, Pass, Past};
