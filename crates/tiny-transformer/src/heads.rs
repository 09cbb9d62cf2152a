//! What attention shares with encodings: fused operations, and transforms of queries and keys,
//! fused where they allow.

use burn::tensor::{Device, Tensor};
use kernels::FusedOps;
use posenc::{Context, FusedQk, Prepared, Qk, Rotation};

/// Whether a table of a rotation takes a gradient.
pub(crate) fn is_trained(rotation: &Rotation) -> bool {
    let mut tables = rotation.queries.iter().chain(&rotation.keys);
    tables.any(Tensor::is_tracked)
}

/// The result of [`Prepared::transform_qk`], by fused rotations where the encoding describes itself
/// as one.
pub(crate) fn transform_qk(
    encoding: &dyn Prepared,
    layer: usize,
    q: Tensor<4>,
    k: Tensor<4>,
    hidden: &Tensor<3>,
) -> Qk {
    let Some(FusedQk {
        rotation, factor, ..
    }) = encoding.fused_qk(layer)
    else {
        return encoding.transform_qk(layer, q, k, hidden);
    };
    let (q, k) = match rotation {
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

/// What encodings are prepared with.
pub(crate) fn context(device: &Device) -> Context {
    Context::new(device).with_ops(&FusedOps)
}
