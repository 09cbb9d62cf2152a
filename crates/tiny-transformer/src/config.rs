//! Sizes and variants of the model.

use posenc::{ConfigError, Facts, ModelShape};
use serde::{Deserialize, Serialize};

/// Normalisation before each half of a block and before the head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NormKind {
    /// Mean and variance, with scale and shift.
    #[default]
    LayerNorm,
    /// Root mean square, with scale. Zhang and Sennrich 2019 (arXiv 1910.07467).
    RmsNorm,
}

/// Non-linearity of the feed-forward half.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// `gelu(x W_up) W_down`, exact (erf) form.
    #[default]
    Gelu,
    /// `(silu(x W_gate) * x W_up) W_down`. Shazeer 2020 (arXiv 2002.05202).
    Swiglu,
}

/// Everything about the model but its encoding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransformerConfig {
    /// Number of token kinds.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub d_model: usize,
    /// Number of blocks.
    pub n_layers: usize,
    /// Attention heads per block.
    pub n_heads: usize,
    /// Width of one head; `d_model / n_heads` in most models.
    pub head_dim: usize,
    /// Inner width of the feed-forward half.
    pub d_ff: usize,
    /// Normalisation.
    pub norm: NormKind,
    /// Non-linearity.
    pub activation: Activation,
    /// Whether the head is the transposed embedding.
    pub tied_head: bool,
    /// Probability of zeroing an element after the embedding and after each half of a block, in training.
    pub dropout: f64,
    /// Standard deviation of the initial embedding.
    pub embedding_std: f64,
}

impl TransformerConfig {
    /// The sizes an encoding needs to know.
    pub fn shape(&self) -> ModelShape {
        ModelShape { d_model: self.d_model, n_layers: self.n_layers, n_heads: self.n_heads, head_dim: self.head_dim }
    }

    /// Refuses sizes that make no model.
    ///
    /// # Errors
    ///
    /// The first key that cannot work, with what is allowed.
    pub fn check(&self) -> Result<(), ConfigError> {
        let sizes = [
            ("vocab_size", self.vocab_size, 1 << 20),
            ("d_model", self.d_model, 1 << 16),
            ("n_layers", self.n_layers, 1024),
            ("n_heads", self.n_heads, 1024),
            ("head_dim", self.head_dim, 1 << 14),
            ("d_ff", self.d_ff, 1 << 18),
        ];
        for (key, value, high) in sizes {
            if value == 0 || value > high {
                let hint = if value == 0 { "set it to at least 1" } else { "this suite is for small models" };
                return Err(ConfigError::new(key, value, "out of range", format!("a whole number from 1 to {high}"), hint));
            }
        }
        for (key, value, low, high, hint) in [
            ("dropout", self.dropout, 0.0, 0.99, "0 turns dropout off"),
            ("embedding_std", self.embedding_std, 1e-6, 10.0, "the default is 0.02"),
        ] {
            if !value.is_finite() || !(low..=high).contains(&value) {
                return Err(ConfigError::new(key, value, "out of range", format!("a number from {low} to {high}"), hint));
            }
        }
        Ok(())
    }

    /// Trainable numbers of the model with an encoding of these facts.
    pub fn num_params(&self, encoding: &Facts) -> u64 {
        let [v, d, l, ff] = [self.vocab_size, self.d_model, self.n_layers, self.d_ff].map(|n| n as u64);
        let inner = (self.n_heads * self.head_dim) as u64;
        let norm = d * if self.norm == NormKind::LayerNorm { 2 } else { 1 };
        let mlp = d * ff * if self.activation == Activation::Swiglu { 3 } else { 2 };
        let block = 4 * d * inner + mlp + 2 * norm;
        v * d * if self.tied_head { 1 } else { 2 } + l * block + norm + encoding.num_params() as u64
    }
}
