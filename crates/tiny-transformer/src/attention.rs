//! Causal multi-head attention that knows an encoding by its hooks alone.

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use posenc::{Content, Distribution, Init, ModelShape, Prepared};
use std::ops::Range;

/// Query, key, value and output projections of one block.
#[derive(Module, Debug)]
pub struct Attention {
    /// `[d_model, 3 n_heads head_dim]`: queries, then keys, then values.
    qkv: Param<Tensor<2>>,
    /// `[n_heads head_dim, d_model]`.
    output: Param<Tensor<2>>,
    n_heads: usize,
    head_dim: usize,
}

impl Attention {
    pub(crate) fn new(shape: &ModelShape, init: &Init<'_>) -> Self {
        let inner = shape.n_heads * shape.head_dim;
        // The output of each half of a block is scaled down so that the residual stream starts with the same variance at any depth.
        let depth = (2.0 * shape.n_layers as f64).sqrt();
        Self {
            qkv: init.param("qkv", [shape.d_model, 3 * inner], Distribution::Normal(fan_in(shape.d_model))),
            output: init.param("output", [inner, shape.d_model], Distribution::Normal(fan_in(inner) / depth)),
            n_heads: shape.n_heads,
            head_dim: shape.head_dim,
        }
    }

    /// Attends `x`, `[B, L, d_model]`, to itself and everything before it.
    ///
    /// At most `max_logits` logits (batch x heads x queries x keys) are held at once: longer sequences go block by block over
    /// queries, and keys after a block are never looked at.
    pub fn forward(&self, x: Tensor<3>, layer: usize, encoding: &dyn Prepared, max_logits: usize) -> Tensor<3> {
        let [batch, length, d_model] = x.dims();
        let inner = self.n_heads * self.head_dim;
        let projected = x.reshape([batch * length, d_model]).matmul(self.qkv.val());
        let [q, k, v] = [0, 1, 2].map(|part| {
            let part = projected.clone().slice_dim(1, part * inner..(part + 1) * inner);
            part.reshape([batch, length, self.n_heads, self.head_dim]).swap_dims(1, 2)
        });
        let (q, k) = encoding.transform_qk(layer, q, k);
        let rows = (max_logits / (batch * self.n_heads * length)).clamp(1, length);
        let mut blocks: Vec<Tensor<4>> =
            (0..length).step_by(rows).map(|start| self.block(&q, &k, &v, layer, encoding, start..(start + rows).min(length))).collect();
        let attended = if blocks.len() == 1 { blocks.remove(0) } else { Tensor::cat(blocks, 2) };
        let attended = attended.swap_dims(1, 2).reshape([batch * length, inner]);
        attended.matmul(self.output.val()).reshape([batch, length, d_model])
    }

    /// One block of queries against all keys up to its last row.
    fn block(
        &self,
        q: &Tensor<4>,
        k: &Tensor<4>,
        v: &Tensor<4>,
        layer: usize,
        encoding: &dyn Prepared,
        queries: Range<usize>,
    ) -> Tensor<4> {
        let keys = 0..queries.end;
        let rows_of = |t: &Tensor<4>, range: &Range<usize>| {
            let whole = t.dims()[2] == range.len();
            if whole { t.clone() } else { t.clone().slice_dim(2, range.clone()) }
        };
        let (q, k, v) = (rows_of(q, &queries), rows_of(k, &keys), rows_of(v, &keys));
        let content = Content { q: &q, k: &k, queries: queries.clone(), keys: keys.clone() };
        let content_bias = encoding.content_bias(layer, &content);
        let logits_bias = encoding.logits_bias(layer).map(|bias| bias.block(queries.clone(), keys));
        let bias = match (logits_bias, content_bias) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
        let scale = 1.0 / (self.head_dim as f64).sqrt();
        kernels::attention(q, k, v, bias, scale, queries.start)
    }
}

/// Standard deviation that keeps the variance of a product with unit-variance inputs below 1, PyTorch's default for linear layers.
pub(crate) fn fan_in(width: usize) -> f64 {
    1.0 / (3.0 * width as f64).sqrt()
}
