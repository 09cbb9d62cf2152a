//! The result of `longreach inspect`, as JSON shows it.

use crate::numbers::Numbers;
use serde::Serialize;

/// The numbers of an encoding with what they were computed for.
#[derive(Debug, Serialize)]
pub struct Inspection {
    /// The numbers of the encoding.
    #[serde(flatten)]
    pub numbers: Numbers,
    /// Positions shown.
    pub positions: Vec<f64>,
    /// Training length.
    pub train_len: usize,
    /// Length of the sequence.
    pub seq_len: usize,
    /// Sizes of the model.
    pub model: Model,
    /// Pictures written, if any were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<Vec<String>>,
}

/// Sizes of the model around an encoding.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Model {
    /// Width.
    pub d_model: usize,
    /// Attention heads.
    pub n_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Layers.
    pub n_layers: usize,
}
