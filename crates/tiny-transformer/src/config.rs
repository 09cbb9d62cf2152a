//! Sizes and variants of the model.

use kernels::Matmul;
use posenc::{ConfigError, Facts, ModelShape};
use schema::{in_range, is_default};
use serde::{Deserialize, Serialize};

/// Normalisation before attention, before the feed-forward network and before the head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NormKind {
    /// Mean and variance, with scale and shift.
    #[default]
    LayerNorm,
    /// Root mean square, with scale. Zhang and Sennrich 2019 (arXiv 1910.07467).
    RmsNorm,
}

/// Non-linearity of the feed-forward network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// `gelu(x W_up) W_down`, exact (erf) form.
    #[default]
    Gelu,
    /// `(silu(x W_gate) * x W_up) W_down`. Shazeer 2020 (arXiv 2002.05202).
    Swiglu,
}

/// The second half of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MlpKind {
    /// A norm and two layers with a non-linearity between them.
    #[default]
    Dense,
    /// Nothing: blocks are attention alone. `d_ff` is 0.
    None,
}

/// Normalisation of every head's queries and keys, before an encoding transforms them. Henry et al.
/// 2020 (arXiv 2010.04245), Dehghani et al. 2023 (arXiv 2302.05442).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QkNorm {
    /// As projected.
    #[default]
    None,
    /// LayerNorm with a scale and a shift that all heads of a block share, one pair for queries and
    /// one for keys.
    LayerNorm,
    /// RMSNorm with a scale, shared in the same way.
    RmsNorm,
}

impl QkNorm {
    pub(crate) fn kind(self) -> Option<NormKind> {
        match self {
            QkNorm::None => None,
            QkNorm::LayerNorm => Some(NormKind::LayerNorm),
            QkNorm::RmsNorm => Some(NormKind::RmsNorm),
        }
    }
}

/// How attention weighs the values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttentionKind {
    /// Softmax over scaled products.
    #[default]
    Softmax,
    /// Products of feature maps, in time linear in the length.
    Linear,
}

/// Which keys a query may see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mask {
    /// Its own and those before.
    #[default]
    Causal,
    /// All, as in an encoder.
    Bidirectional,
}

/// The features of linear attention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeatureMap {
    /// `elu(x) + 1`. Katharopoulos et al. 2020 (arXiv 2006.16236).
    #[default]
    Elu,
    /// `max(x, 0)`.
    Relu,
}

/// The denominator of linear attention when an encoding transforms its features, phi(q) to R
/// phi(q).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Normalizer {
    /// `sum R phi(q) . R phi(k)`, as the numerator; may cross 0 and is kept away from it by 1e-6.
    Rotated,
    /// `sum phi(q) . phi(k)`; weights may be negative and do not sum to 1. RoFormer, eq. 19.
    #[default]
    Unrotated,
    /// Similarity `1 + R q/|q| . R k/|k|` above and below: never negative where R keeps norms.
    /// Takes no feature map.
    Cosine,
}

/// Everything about the model except its encoding.
///
/// ```
/// use tiny_transformer::{NormKind, TransformerConfig};
///
/// let config = TransformerConfig::new(64)
///     .with_d_model(64)
///     .with_layers(2)
///     .with_norm(NormKind::RmsNorm);
/// assert_eq!((config.head_dim, config.d_ff), (16, 256));
/// config.check().expect("sizes that work");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
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
    /// The second half of a block.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mlp: MlpKind,
    /// Inner width of the feed-forward network; 0 where blocks have none.
    pub d_ff: usize,
    /// Normalisation.
    pub norm: NormKind,
    /// Non-linearity.
    pub activation: Activation,
    /// Whether the head is the transposed embedding.
    pub tied_head: bool,
    /// Whether the linear layers of blocks have biases, which start at 0. GPT-2 has them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub biases: bool,
    /// Probability of dropping an element after the embedding, attention and feed-forward network,
    /// in training.
    pub dropout: f64,
    /// Standard deviation of the initial embedding.
    pub embedding_std: f64,
    /// Standard deviation of initial matrices, divided by the root of the number of residual sums
    /// for those that write to the residual stream; none: that of PyTorch's linear layers,
    /// `1 / sqrt(3 fan_in)`. GPT-2 has 0.02.
    #[serde(default, skip_serializing_if = "is_default")]
    pub matrix_std: Option<f64>,
    /// Normalisation of queries and keys.
    #[serde(default, skip_serializing_if = "is_default")]
    pub qk_norm: QkNorm,
    /// How attention weighs the values.
    #[serde(default, skip_serializing_if = "is_default")]
    pub attention: AttentionKind,
    /// Which keys a query may see.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mask: Mask,
    /// The features of linear attention.
    #[serde(default, skip_serializing_if = "is_default")]
    pub feature_map: FeatureMap,
    /// The denominator of linear attention.
    #[serde(default, skip_serializing_if = "is_default")]
    pub normalizer: Normalizer,
    /// The format that factors of matrix products are rounded to on GPUs; always f32 on a CPU. It
    /// only affects rounding and speed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub matmul: Matmul,
}

impl Default for TransformerConfig {
    /// 4 layers of width 128 with 4 heads, over 256 kinds of token; softmax attention, causal.
    fn default() -> Self {
        Self {
            vocab_size: 256,
            d_model: 128,
            n_layers: 4,
            n_heads: 4,
            head_dim: 32,
            mlp: MlpKind::default(),
            d_ff: 512,
            norm: NormKind::default(),
            activation: Activation::default(),
            tied_head: false,
            biases: false,
            dropout: 0.0,
            embedding_std: 0.02,
            matrix_std: None,
            qk_norm: QkNorm::default(),
            attention: AttentionKind::default(),
            mask: Mask::default(),
            feature_map: FeatureMap::default(),
            normalizer: Normalizer::default(),
            matmul: Matmul::default(),
        }
    }
}

/// One `with_` method per listed field.
macro_rules! builder {
    ($($method:ident $field:ident: $type:ty;)+) => {
        $(
            #[doc = concat!("Sets [`", stringify!($field), "`](Self::", stringify!($field), ").")]
            #[must_use]
            pub fn $method(self, $field: $type) -> Self {
                Self { $field, ..self }
            }
        )+
    };
}

impl TransformerConfig {
    /// The default model over `vocab_size` kinds of token.
    pub fn new(vocab_size: usize) -> Self {
        Self {
            vocab_size,
            ..Self::default()
        }
    }

    /// Sets `d_model`, and `d_ff` to four times it where blocks have an MLP; `head_dim` becomes
    /// `d_model / n_heads`.
    #[must_use]
    pub fn with_d_model(self, d_model: usize) -> Self {
        Self {
            d_model,
            head_dim: d_model / self.n_heads.max(1),
            ..self
        }
        .with_mlp(self.mlp)
    }

    /// Sets `mlp`, and `d_ff` to what fits it: four times `d_model`, or 0.
    #[must_use]
    pub fn with_mlp(self, mlp: MlpKind) -> Self {
        let d_ff = match mlp {
            MlpKind::Dense => self.d_model.saturating_mul(4),
            MlpKind::None => 0,
        };
        Self { mlp, d_ff, ..self }
    }

    /// Sets `n_heads`; `head_dim` becomes `d_model / n_heads`.
    #[must_use]
    pub fn with_heads(self, n_heads: usize) -> Self {
        Self {
            n_heads,
            head_dim: self.d_model / n_heads.max(1),
            ..self
        }
    }

    builder! {
        with_layers n_layers: usize;
        with_head_dim head_dim: usize;
        with_d_ff d_ff: usize;
        with_norm norm: NormKind;
        with_activation activation: Activation;
        with_tied_head tied_head: bool;
        with_biases biases: bool;
        with_dropout dropout: f64;
        with_embedding_std embedding_std: f64;
        with_matrix_std matrix_std: Option<f64>;
        with_qk_norm qk_norm: QkNorm;
        with_attention attention: AttentionKind;
        with_mask mask: Mask;
        with_feature_map feature_map: FeatureMap;
        with_normalizer normalizer: Normalizer;
        with_matmul matmul: Matmul;
    }
}

impl TransformerConfig {
    /// The sizes an encoding needs to know.
    pub fn shape(&self) -> ModelShape {
        ModelShape {
            d_model: self.d_model,
            n_layers: self.n_layers,
            n_heads: self.n_heads,
            head_dim: self.head_dim,
        }
    }

    /// Whether blocks have an MLP.
    pub fn has_mlp(&self) -> bool {
        self.mlp == MlpKind::Dense
    }

    /// How often something is added to the residual stream.
    pub(crate) fn residual_sums(&self) -> usize {
        self.n_layers * if self.has_mlp() { 2 } else { 1 }
    }

    /// Whether attention may divide by 0 or by a negative number: linear attention that sums
    /// products of transformed features.
    pub fn may_divide_by_zero(&self) -> bool {
        self.attention == AttentionKind::Linear && self.normalizer == Normalizer::Rotated
    }

    /// Refuses sizes that make no model.
    ///
    /// # Errors
    ///
    /// The first key that cannot work, with what is allowed.
    #[expect(clippy::too_many_lines, reason = "one rule per key")]
    pub fn check(&self) -> Result<(), ConfigError> {
        let hint = "at least 1; this suite is for small models";
        in_range("vocab_size", self.vocab_size, 1..=1 << 20, hint)?;
        in_range("d_model", self.d_model, 1..=1 << 16, hint)?;
        in_range("n_layers", self.n_layers, 1..=1024, hint)?;
        in_range("n_heads", self.n_heads, 1..=1024, hint)?;
        in_range("head_dim", self.head_dim, 1..=1 << 14, hint)?;
        if self.has_mlp() {
            in_range("d_ff", self.d_ff, 1..=1 << 18, hint)?;
        }
        in_range("dropout", self.dropout, 0.0..=0.99, "0 turns dropout off")?;
        let std = 1e-6..=10.0;
        in_range(
            "embedding_std",
            self.embedding_std,
            std.clone(),
            "the default is 0.02",
        )?;
        in_range(
            "matrix_std",
            self.matrix_std.unwrap_or(1.0),
            std,
            "GPT-2 has 0.02",
        )?;
        self.check_mlp()?;
        if self.attention == AttentionKind::Softmax
            && !(is_default(&self.feature_map) && is_default(&self.normalizer))
        {
            let (key, value) = if is_default(&self.feature_map) {
                ("normalizer", format!("{:?}", self.normalizer))
            } else {
                ("feature_map", format!("{:?}", self.feature_map))
            };
            let value = value.to_lowercase();
            let hint = format!("add attention = \"linear\" or remove {key}");
            return Err(ConfigError::new(
                key,
                value,
                "softmax attention has none",
                "only with attention = \"linear\"",
                hint,
            ));
        }
        if self.normalizer == Normalizer::Cosine && !is_default(&self.feature_map) {
            return Err(ConfigError::new(
                "feature_map",
                format!("{:?}", self.feature_map).to_lowercase(),
                "is not used by normalizer = \"cosine\", whose features are unit vectors",
                "only with another normalizer",
                "remove feature_map",
            ));
        }
        if self.attention == AttentionKind::Linear && self.mask == Mask::Bidirectional {
            let hint = "add attention = \"softmax\" or remove mask";
            return Err(ConfigError::new(
                "mask",
                "bidirectional",
                "linear attention is causal here",
                "causal",
                hint,
            ));
        }
        Ok(())
    }

    /// Refuses what belongs to an MLP where blocks have none.
    fn check_mlp(&self) -> Result<(), ConfigError> {
        let (key, value, allowed) = if self.has_mlp() {
            return Ok(());
        } else if self.d_ff != 0 {
            ("d_ff", self.d_ff.to_string(), "0")
        } else if !is_default(&self.activation) {
            (
                "activation",
                "swiglu".to_owned(),
                "gelu, which nothing uses",
            )
        } else {
            return Ok(());
        };
        let hint = format!("remove {key}, or mlp = \"none\"");
        let problem = "belongs to an MLP, and mlp = \"none\" asks for blocks without one";
        Err(ConfigError::new(key, value, problem, allowed, hint))
    }

    /// Refuses an encoding that this attention cannot host.
    ///
    /// # Errors
    ///
    /// Names `mask` or `attention`.
    pub fn check_encoding(&self, encoding: &Facts) -> Result<(), ConfigError> {
        if self.mask == Mask::Bidirectional && encoding.causal_only {
            let problem =
                "does not fit the encoding, which has no meaning for keys after the query";
            let hint = "use another encoding, its bidirectional form where it has one, or mask = \
                        \"causal\"";
            return Err(ConfigError::new(
                "mask",
                "bidirectional",
                problem,
                "causal",
                hint,
            ));
        }
        if self.attention == AttentionKind::Softmax || encoding.linear {
            return Ok(());
        }
        let problem = format!(
            "linear attention cannot host this encoding, whose hooks are {}",
            encoding.hooks
        );
        let allowed = "softmax; linear hosts what only adds to the input or transforms queries \
                       and keys, and biases that are decays";
        Err(ConfigError::new(
            "attention",
            "linear",
            problem,
            allowed,
            "use attention = \"softmax\" or another encoding",
        ))
    }

    /// Trainable numbers of the model with an encoding of these facts.
    pub fn num_params(&self, encoding: &Facts) -> u64 {
        let [v, d, l, ff] =
            [self.vocab_size, self.d_model, self.n_layers, self.d_ff].map(|n| n as u64);
        let inner = (self.n_heads * self.head_dim) as u64;
        let each = |kind: NormKind| if kind == NormKind::LayerNorm { 2 } else { 1 };
        let norm = d * each(self.norm);
        let qk_norm = self
            .qk_norm
            .kind()
            .map_or(0, |kind| 2 * self.head_dim as u64 * each(kind));
        let inward = if self.activation == Activation::Swiglu {
            2
        } else {
            1
        };
        let mlp = (inward + 1) * d * ff;
        let mlp_biases = inward * ff + if self.has_mlp() { d } else { 0 };
        let biases = u64::from(self.biases) * (3 * inner + d + mlp_biases);
        let norms = norm * if self.has_mlp() { 2 } else { 1 };
        // Projections of attention, feed-forward block, biases, norms, norms of queries and keys.
        let block = 4 * d * inner + mlp + biases + norms + qk_norm;
        v * d * if self.tied_head { 1 } else { 2 } + l * block + norm + encoding.num_params() as u64
    }
}
