//! Multi-head attention, causal or bidirectional. It knows an encoding only by its hooks.

use crate::config::{AttentionKind, FeatureMap, Mask, Normalizer, TransformerConfig};
use crate::heads::{is_trained, transform_qk, wide_attention};
use crate::init::matrix_std;
use crate::layer_biases::LayerBiases;
use crate::linear::{affine, bias, linear};
use crate::linear_attention::{feature_map, linear_attention};
use crate::norm::Norm;
use crate::pass::{Pass, Past};
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use kernels::{FusedOps, Matmul};
use posenc::{Block, Content, Distribution, Init, Prepared, Qk};
use std::ops::Range;

/// Largest number of elements, heads x queries x keys, up to which training materialises a bias
/// that is a network: 2^20, 4 MiB for each layer. All sequences of a batch then share it in both
/// passes. A larger one is computed tile by tile for each sequence.
pub const SHARED_BIAS: usize = 1 << 20;

/// Query, key, value and output projections of one block.
#[derive(Module, Debug)]
pub struct Attention {
    /// `[d_model, 3 n_heads head_dim]`: queries, then keys, then values.
    qkv: Param<Tensor<2>>,
    qkv_bias: Option<Param<Tensor<1>>>,
    /// `[n_heads head_dim, d_model]`.
    output: Param<Tensor<2>>,
    output_bias: Option<Param<Tensor<1>>>,
    /// Norm over each head's query, if queries and keys are normalised.
    q_norm: Option<Norm>,
    /// Norm over each head's key.
    k_norm: Option<Norm>,
    n_heads: usize,
    head_dim: usize,
    #[module(skip)]
    kind: AttentionKind,
    #[module(skip)]
    mask: Mask,
    #[module(skip)]
    feature_map: FeatureMap,
    #[module(skip)]
    normalizer: Normalizer,
    #[module(skip)]
    matmul: Matmul,
}

/// The inputs of softmax attention that all blocks of queries share.
struct Inputs<'a> {
    q: Tensor<4>,
    k: Tensor<4>,
    v: Tensor<4>,
    raw: &'a dyn Fn() -> Qk,
    hidden: &'a Tensor<3>,
    layer: usize,
    encoding: &'a dyn Prepared,
    /// Key index of the first query; past all keys where every query sees every key.
    first_query: usize,
}

impl Attention {
    pub(crate) fn new(config: &TransformerConfig, init: &Init<'_>) -> Self {
        let shape = config.shape();
        let norm = |name| {
            config
                .qk_norm
                .kind()
                .map(|kind| Norm::new(kind, shape.head_dim, &init.scope(name)))
        };
        let inner = shape.n_heads * shape.head_dim;
        // Scaled down with depth, so that the residual stream starts with the same variance at any
        // depth.
        let depth = (config.residual_sums() as f64).sqrt();
        Self {
            qkv: init.param(
                "qkv",
                [shape.d_model, 3 * inner],
                Distribution::Normal(matrix_std(config, shape.d_model)),
            ),
            qkv_bias: bias(config, "qkv_bias", 3 * inner, init),
            output: init.param(
                "output",
                [inner, shape.d_model],
                Distribution::Normal(matrix_std(config, inner) / depth),
            ),
            output_bias: bias(config, "output_bias", shape.d_model, init),
            q_norm: norm("q_norm"),
            k_norm: norm("k_norm"),
            n_heads: shape.n_heads,
            head_dim: shape.head_dim,
            kind: config.attention,
            mask: config.mask,
            feature_map: config.feature_map,
            normalizer: config.normalizer,
            matmul: config.matmul,
        }
    }

    /// The attention of `x`, `[B, L, d_model]`, to the tokens in `past` and to itself: causal, or
    /// in both directions. `x` is appended to `past`.
    ///
    /// At most `pass.max_logits` logits (batch x heads x queries x keys) are held at once: longer
    /// sequences go block by block over queries. Keys after a causal block are never read.
    pub fn forward(
        &self,
        x: Tensor<3>,
        layer: usize,
        encoding: &dyn Prepared,
        pass: &Pass<'_>,
        past: Option<&mut Past>,
    ) -> Tensor<3> {
        let [batch, length, d_model] = x.dims();
        let inner = self.n_heads * self.head_dim;
        let projected = linear(
            x.clone().reshape([batch * length, d_model]),
            &self.qkv,
            self.qkv_bias.as_ref(),
            self.matmul,
        );
        let part = |index: usize, norm: &Option<Norm>| {
            let part = projected
                .clone()
                .slice_dim(1, index * inner..(index + 1) * inner);
            // [B, L, H, E]: the norm runs over one head. The result is [B, H, L, E].
            let part = part.reshape([batch, length, self.n_heads, self.head_dim]);
            norm.as_ref()
                .map_or_else(|| part.clone(), |norm| norm.forward(part.clone()))
                .swap_dims(1, 2)
        };
        let (q, mut k, mut v) = (part(0, &self.q_norm), part(1, &self.k_norm), part(2, &None));
        let mut hidden = x;
        // Keys are cached before the encoding transforms them: a rotation may depend on the length.
        if let Some(past) = past {
            (k, v, hidden) = past.extend(k, v, hidden);
        }
        // A first query past all keys sees every key.
        let own = if self.mask == Mask::Causal { length } else { 0 };
        let first_query = k.dims()[2] - own;
        let attended = match self.kind {
            AttentionKind::Softmax => {
                // Queries and keys before the transform, for hooks that read content.
                let raw = || (q.clone(), k.clone());
                let (q, k) = transform_qk(encoding, layer, q.clone(), k.clone(), &hidden);
                self.softmax(
                    &Inputs {
                        q,
                        k,
                        v,
                        raw: &raw,
                        hidden: &hidden,
                        layer,
                        encoding,
                        first_query,
                    },
                    pass.max_logits,
                )
            }
            AttentionKind::Linear => {
                let [q, k] = [q, k].map(|x| feature_map(x, self.feature_map, self.normalizer));
                linear_attention(
                    [q, k, v],
                    &hidden,
                    layer,
                    encoding,
                    self.normalizer,
                    first_query,
                    pass.denominators,
                )
            }
        };
        // [B, H, L, E] to [B L, H E].
        let attended = attended.swap_dims(1, 2).reshape([batch * length, inner]);
        let bias = self.output_bias.as_ref();
        linear(attended, &self.output, bias, self.matmul).reshape([batch, length, d_model])
    }

    /// `x + attention(norm(x))` of `x`, `[B, L, d_model]`, as one fused operation; `None` if the
    /// encoding or the settings of this block do not allow it. `biases` are those of the pass.
    pub fn forward_residual(
        &self,
        x: &Tensor<3>,
        norm: &Norm,
        layer: usize,
        encoding: &dyn Prepared,
        biases: &LayerBiases,
        max_logits: usize,
    ) -> Option<Tensor<3>> {
        let [batch, length, _] = x.dims();
        // The fused operation is causal softmax attention without norms on queries and keys.
        if self.kind != AttentionKind::Softmax || self.mask != Mask::Causal || self.q_norm.is_some()
        {
            return None;
        }
        let fused = encoding.fused_qk(layer)?;
        // Trained tables need a separate rotation.
        if fused.rotation.as_ref().is_some_and(is_trained) {
            return None;
        }
        let hidden = || norm.forward(x.clone());
        // A dense bias is built for all queries at once, so it has to respect `max_logits`.
        let fits = batch * self.n_heads * length * length <= max_logits;
        let bias = match (encoding.logits_bias(layer), encoding.decays(layer, &hidden)) {
            (None, decays) => decays.map(kernels::Bias::Decays),
            // The fused operation adds one bias.
            (Some(_), Some(_)) => return None,
            (Some(bias), None) => Some(biases.of(encoding, layer, || {
                if let Some(values) = bias.by_distance(length) {
                    return Some(kernels::Bias::ByDistance(values));
                }
                if let Some(network) = bias.network()
                    && !kernels::materialises_networks(x)
                    && !(x.is_tracked() && self.n_heads * length * length <= SHARED_BIAS)
                {
                    return Some(kernels::Bias::Network(Box::new(network)));
                }
                fits.then(|| kernels::Bias::Dense(bias.block(0..length, 0..length)))
            })?),
        };
        let weights = kernels::AttentionWeights {
            qkv: affine(&self.qkv, self.qkv_bias.as_ref()),
            output: affine(&self.output, self.output_bias.as_ref()),
            heads: self.n_heads,
            matmul: self.matmul,
        };
        let scale = fused.factor / (self.head_dim as f64).sqrt();
        Some(kernels::attention_block(
            x.clone(),
            norm.parameters(),
            weights,
            fused.rotation,
            bias,
            scale,
        ))
    }

    fn softmax(&self, inputs: &Inputs<'_>, max_logits: usize) -> Tensor<4> {
        let [batch, heads, length, _] = inputs.q.dims();
        let keys = inputs.k.dims()[2];
        // At least one row, even if its logits alone pass the limit.
        let rows = (max_logits / (batch * heads * keys)).clamp(1, length);
        let blocks = (0..length)
            .step_by(rows)
            .map(|start| self.block(inputs, start..(start + rows).min(length)));
        let mut blocks: Vec<Tensor<4>> = blocks.collect();
        if blocks.len() == 1 {
            blocks.remove(0)
        } else {
            Tensor::cat(blocks, 2)
        }
    }

    /// One block of queries against all keys up to its last row, or against all.
    fn block(&self, inputs: &Inputs<'_>, queries: Range<usize>) -> Tensor<4> {
        let Inputs {
            raw,
            hidden,
            layer,
            encoding,
            ..
        } = *inputs;
        let first_query = inputs.first_query + queries.start;
        // Causal blocks end at the key of their last query. Bidirectional ones see every key, as
        // `first_query` lies past all keys.
        let keys = 0..(inputs.first_query + queries.end).min(inputs.k.dims()[2]);
        let rows_of = |t: &Tensor<4>, range: &Range<usize>| {
            let whole = t.dims()[2] == range.len();
            if whole {
                t.clone()
            } else {
                t.clone().slice_dim(2, range.clone())
            }
        };
        let (q, k, v) = (
            rows_of(&inputs.q, &queries),
            rows_of(&inputs.k, &keys),
            rows_of(&inputs.v, &keys),
        );
        let scale = 1.0 / (self.head_dim as f64).sqrt();
        let block = Block {
            queries: queries.clone(),
            keys: keys.clone(),
            first_query,
        };
        // `q` and `k` here are transformed, `raw` is not.
        let content = Content::new([&q, &k], raw, hidden, block, scale).with_ops(&FusedOps);
        let content_bias = encoding.content_bias(layer, &content);
        let logits_bias = encoding
            .logits_bias(layer)
            .map(|bias| bias.block(queries.clone(), keys.clone()));
        let bias = match (logits_bias, content_bias) {
            (Some(a), Some(b)) => Some(kernels::per_sequence(a, b.dims()[0]) + b),
            (a, b) => a.or(b),
        };
        // A closure: only an encoding with an output bias reads the weights.
        let weights =
            || kernels::attention_weights(q.clone(), k.clone(), bias.clone(), scale, first_query);
        let term = encoding.output_bias(layer, &content, &weights);
        let attended = wide_attention(q.clone(), k.clone(), v, bias.clone(), scale, first_query);
        match term {
            Some(term) => attended + term,
            None => attended,
        }
    }
}
