//! Multi-head attention, causal or bidirectional, that knows an encoding by its hooks alone.

use crate::config::{AttentionKind, FeatureMap, Mask, Normalizer, TransformerConfig};
use crate::linear::{feature_map, linear_attention};
use crate::norm::Norm;
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use kernels::Matmul;
use posenc::{Block, Content, Distribution, FusedQk, Init, Prepared, Rotation};
use std::ops::Range;

/// Query, key, value and output projections of one block.
#[derive(Module, Debug)]
pub struct Attention {
    /// `[d_model, 3 n_heads head_dim]`: queries, then keys, then values.
    qkv: Param<Tensor<2>>,
    /// `[n_heads head_dim, d_model]`.
    output: Param<Tensor<2>>,
    /// Over each head's query, where queries and keys are normalised.
    q_norm: Option<Norm>,
    /// Over each head's key.
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

/// What one layer keeps of the tokens before: keys *before* `transform_qk`, so that encodings that
/// read the length stay right when it grows; values; and what both were projected from.
#[derive(Clone, Debug, Default)]
pub struct Past {
    held: Option<(Tensor<4>, Tensor<4>, Tensor<3>)>,
}

/// Everything of one layer's pass that its blocks share.
struct Whole<'a> {
    q: Tensor<4>,
    k: Tensor<4>,
    v: Tensor<4>,
    raw: &'a dyn Fn() -> (Tensor<4>, Tensor<4>),
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
        // The output of each half of a block is scaled down so that the residual stream starts with
        // the same variance at any depth.
        let depth = (2.0 * shape.n_layers as f64).sqrt();
        Self {
            qkv: init.param(
                "qkv",
                [shape.d_model, 3 * inner],
                Distribution::Normal(fan_in(shape.d_model)),
            ),
            output: init.param(
                "output",
                [inner, shape.d_model],
                Distribution::Normal(fan_in(inner) / depth),
            ),
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

    /// Attends `x`, `[B, L, d_model]`, to what `past` holds, to itself and to everything before it,
    /// or after it too where attention is bidirectional; `past` holds it afterwards too.
    ///
    /// At most `max_logits` logits (batch x heads x queries x keys) are held at once: longer
    /// sequences go block by block over queries, and keys after a block are never looked at.
    pub fn forward(
        &self,
        x: Tensor<3>,
        layer: usize,
        encoding: &dyn Prepared,
        max_logits: usize,
        past: Option<&mut Past>,
    ) -> Tensor<3> {
        let [batch, length, d_model] = x.dims();
        let inner = self.n_heads * self.head_dim;
        let projected = kernels::linear(
            x.clone().reshape([batch * length, d_model]),
            None,
            self.qkv.val(),
            self.matmul,
        );
        let part = |index: usize, norm: &Option<Norm>| {
            let part = projected
                .clone()
                .slice_dim(1, index * inner..(index + 1) * inner);
            let part = part.reshape([batch, length, self.n_heads, self.head_dim]);
            norm.as_ref()
                .map_or_else(|| part.clone(), |norm| norm.forward(part.clone()))
                .swap_dims(1, 2)
        };
        let (q, mut k, mut v) = (part(0, &self.q_norm), part(1, &self.k_norm), part(2, &None));
        let mut hidden = x;
        if let Some(past) = past {
            if let Some((keys, values, before)) = past.held.take() {
                k = Tensor::cat(vec![keys, k], 2);
                v = Tensor::cat(vec![values, v], 2);
                hidden = Tensor::cat(vec![before, hidden], 1);
            }
            past.held = Some((k.clone(), v.clone(), hidden.clone()));
        }
        let first_query = if self.mask == Mask::Causal {
            k.dims()[2] - length
        } else {
            k.dims()[2]
        };
        let attended = match self.kind {
            AttentionKind::Softmax => {
                let raw = || (q.clone(), k.clone());
                let (q, k) = transformed(encoding, layer, q.clone(), k.clone());
                self.softmax(
                    &Whole {
                        q,
                        k,
                        v,
                        raw: &raw,
                        hidden: &hidden,
                        layer,
                        encoding,
                        first_query,
                    },
                    max_logits,
                )
            }
            AttentionKind::Linear => {
                let [q, k] = [q, k].map(|x| feature_map(x, self.feature_map, self.normalizer));
                linear_attention(q, k, v, layer, encoding, self.normalizer, first_query)
            }
        };
        let attended = attended.swap_dims(1, 2).reshape([batch * length, inner]);
        kernels::linear(attended, None, self.output.val(), self.matmul)
            .reshape([batch, length, d_model])
    }

    /// The sum of `x`, `[B, L, d_model]`, and what it gives after `norm`, in one operation, where
    /// the encoding is plain enough.
    pub fn added(
        &self,
        x: &Tensor<3>,
        norm: &Norm,
        layer: usize,
        encoding: &dyn Prepared,
        max_logits: usize,
    ) -> Option<Tensor<3>> {
        let [batch, length, _] = x.dims();
        if self.kind != AttentionKind::Softmax || self.mask != Mask::Causal || self.q_norm.is_some()
        {
            return None;
        }
        let fused = encoding.fused_qk(layer)?;
        let bias = match encoding.logits_bias(layer) {
            None => None,
            Some(bias) => Some(match bias.by_distance(length) {
                Some(values) => kernels::Bias::ByDistance(values),
                None if batch * self.n_heads * length * length <= max_logits => {
                    kernels::Bias::Dense(bias.block(0..length, 0..length))
                }
                None => return None,
            }),
        };
        let rotation = fused.rotation.map(
            |Rotation {
                 queries,
                 keys,
                 interleaved,
                 ..
             }| kernels::Rotation {
                queries,
                keys,
                interleaved,
            },
        );
        let weights = kernels::AttentionWeights {
            qkv: self.qkv.val(),
            output: self.output.val(),
            heads: self.n_heads,
            matmul: self.matmul,
        };
        let scale = fused.factor / (self.head_dim as f64).sqrt();
        Some(kernels::attention_block(
            x.clone(),
            norm.parameters(),
            weights,
            rotation,
            bias,
            scale,
        ))
    }

    fn softmax(&self, whole: &Whole<'_>, max_logits: usize) -> Tensor<4> {
        let [batch, heads, length, _] = whole.q.dims();
        let keys = whole.k.dims()[2];
        let rows = (max_logits / (batch * heads * keys)).clamp(1, length);
        let blocks = (0..length)
            .step_by(rows)
            .map(|start| self.block(whole, start..(start + rows).min(length)));
        let mut blocks: Vec<Tensor<4>> = blocks.collect();
        if blocks.len() == 1 {
            blocks.remove(0)
        } else {
            Tensor::cat(blocks, 2)
        }
    }

    /// One block of queries against all keys up to its last row, or against all.
    fn block(&self, whole: &Whole<'_>, queries: Range<usize>) -> Tensor<4> {
        let Whole {
            raw,
            hidden,
            layer,
            encoding,
            ..
        } = *whole;
        let first_query = whole.first_query + queries.start;
        let keys = 0..(whole.first_query + queries.end).min(whole.k.dims()[2]);
        let rows_of = |t: &Tensor<4>, range: &Range<usize>| {
            let whole = t.dims()[2] == range.len();
            if whole {
                t.clone()
            } else {
                t.clone().slice_dim(2, range.clone())
            }
        };
        let (q, k, v) = (
            rows_of(&whole.q, &queries),
            rows_of(&whole.k, &keys),
            rows_of(&whole.v, &keys),
        );
        let scale = 1.0 / (self.head_dim as f64).sqrt();
        let block = Block {
            queries: queries.clone(),
            keys: keys.clone(),
            first_query,
        };
        let content = Content::new([&q, &k], raw, hidden, block, scale);
        let content_bias = encoding.content_bias(layer, &content);
        let logits_bias = encoding
            .logits_bias(layer)
            .map(|bias| bias.block(queries.clone(), keys.clone()));
        let bias = match (logits_bias, content_bias) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
        let weights =
            || kernels::reference::weights(q.clone(), k.clone(), bias.clone(), scale, first_query);
        let term = encoding.output_bias(layer, &content, &weights);
        let attended = attention(q.clone(), k.clone(), v, bias.clone(), scale, first_query);
        match term {
            Some(term) => attended + term,
            None => attended,
        }
    }
}

/// What [`Prepared::transform_qk`] gives, in one operation each where the encoding says that it
/// turns them.
pub(crate) fn transformed(
    encoding: &dyn Prepared,
    layer: usize,
    q: Tensor<4>,
    k: Tensor<4>,
) -> (Tensor<4>, Tensor<4>) {
    let Some(FusedQk {
        rotation, factor, ..
    }) = encoding.fused_qk(layer)
    else {
        return encoding.transform_qk(layer, q, k);
    };
    let (q, k) = match rotation {
        None => (q, k),
        Some(Rotation {
            queries,
            keys,
            interleaved,
            ..
        }) => {
            let turn = |x, [cos, sin]: [Tensor<4>; 2]| kernels::rotate(x, cos, sin, interleaved);
            (turn(q, queries), turn(k, keys))
        }
    };
    (if factor == 1.0 { q } else { q * factor }, k)
}

/// [`kernels::attention`] for queries and keys that may be wider than the values.
fn attention(
    q: Tensor<4>,
    k: Tensor<4>,
    v: Tensor<4>,
    bias: Option<Tensor<4>>,
    scale: f64,
    first_query: usize,
) -> Tensor<4> {
    let ([batch, heads, keys, width], wide) = (v.dims(), q.dims()[3]);
    if wide == width {
        return kernels::attention(q, k, v, bias, scale, first_query);
    }
    let rest = Tensor::zeros([batch, heads, keys, wide - width], (&v.device(), v.dtype()));
    kernels::attention(
        q,
        k,
        Tensor::cat(vec![v, rest], 3),
        bias,
        scale,
        first_query,
    )
    .slice_dim(3, 0..width)
}

/// Standard deviation that keeps the variance of a product with unit-variance inputs below 1,
/// PyTorch's default for linear layers.
pub(crate) fn fan_in(width: usize) -> f64 {
    1.0 / (3.0 * width as f64).sqrt()
}
