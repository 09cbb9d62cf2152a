//! What attention shares with encodings: transforms of queries and keys, fused where they allow,
//! and fused operations.

use burn::tensor::{Int, Tensor};
use posenc::{FusedQk, Ops, Prepared};

/// The tables of an encoding's rotation for the fused operations.
pub(crate) fn fused_rotation(rotation: posenc::Rotation) -> kernels::Rotation {
    kernels::Rotation {
        queries: rotation.queries,
        keys: rotation.keys,
        interleaved: rotation.interleaved,
    }
}

/// The result of [`Prepared::transform_qk`], by fused rotations where the encoding describes itself
/// as one.
pub(crate) fn transform_qk(
    encoding: &dyn Prepared,
    layer: usize,
    q: Tensor<4>,
    k: Tensor<4>,
    hidden: &Tensor<3>,
) -> (Tensor<4>, Tensor<4>) {
    let Some(FusedQk {
        rotation, factor, ..
    }) = encoding.fused_qk(layer)
    else {
        return encoding.transform_qk(layer, q, k, hidden);
    };
    let (q, k) = match rotation.map(fused_rotation) {
        None => (q, k),
        Some(tables) => {
            let rotate =
                |x, [cos, sin]: [Tensor<4>; 2]| kernels::rotate(x, cos, sin, tables.interleaved);
            (rotate(q, tables.queries), rotate(k, tables.keys))
        }
    };
    // A factor on q is a factor on every logit.
    (if factor == 1.0 { q } else { q * factor }, k)
}

/// [`kernels::attention`] for queries and keys that may be wider than the values.
pub(crate) fn wide_attention(
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
    // Values padded with 0 give the same first columns.
    let padding = Tensor::zeros([batch, heads, keys, wide - width], (&v.device(), v.dtype()));
    let v = Tensor::cat(vec![v, padding], 3);
    kernels::attention(q, k, v, bias, scale, first_query).slice_dim(3, 0..width)
}

/// The operations that encodings ask for, fused where the backend has them.
pub(crate) struct FusedOps;

impl Ops for FusedOps {
    fn gather_columns(&self, x: Tensor<4>, columns: Tensor<4, Int>) -> Tensor<4> {
        kernels::gather_columns(x, columns)
    }

    fn scatter_columns(&self, x: Tensor<4>, columns: Tensor<4, Int>, n: usize) -> Tensor<4> {
        kernels::scatter_columns(x, columns, n)
    }

    fn interpolate_columns(&self, x: Tensor<4>, at: Tensor<4>) -> Tensor<4> {
        kernels::interpolate_columns(x, at)
    }

    fn count_open_keys(&self, logits: Tensor<4>, first_query: usize, limit: f64) -> Tensor<4> {
        kernels::count_open_keys(logits, first_query, limit)
    }
}
