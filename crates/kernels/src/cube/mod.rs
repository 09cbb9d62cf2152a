//! The fused operations on the backends of CubeCL: choosing between them and the definitions.
//!
//! | module | content |
//! |---|---|
//! | `tensors` | Burn's tensors, queues of operations |
//! | `rows` | units that share a row, and their sums |
//! | `sums` | sums over parts of several cubes |
//! | `pairs` | pairs of dimensions that are rotated together |
//! | `gemm` | matrix products |
//! | `attention`, `rotate`, `norm`, `nll`, `activation`, `embedding`, `adamw`, `square_sums` | the kernels |
//! | `launches` | counting launches |

mod activation;
mod adamw;
mod attention;
mod embedding;
mod gemm;
mod launches;
mod nll;
mod norm;
mod pairs;
mod rotate;
mod rows;
mod square_sums;
mod sums;
mod tensors;

use crate::op::{apply, values};
use crate::{AdamWUpdate, Bias, Matmul, Rotation};
use attention::{Attention, BiasShape, Rotated, pack, shared_bytes};
use burn::backend::DispatchTensor;
use burn::tensor::{Device, Int, Tensor};
pub use launches::Launches;
use tensors::{device, integers, is_supported, tensor};

/// Bytes of memory of a device of CubeCL, if its driver says.
pub(crate) fn device_memory(device: &Device) -> Option<u64> {
    let nothing = Tensor::<1>::empty([1], device);
    let client = self::device(&nothing)?.client();
    client.properties().memory.max_memory()
}

/// A product, if there are kernels for these tensors.
///
/// Leading dimensions of `a` and `b` are equal, or 1.
pub(crate) fn matmul<const D: usize>(
    a: &Tensor<D>,
    b: &Tensor<D>,
    matmul: Matmul,
) -> Option<Tensor<D>> {
    if !(is_supported(a) && is_supported(b)) {
        return None;
    }
    let (mut left, mut right) = (a.dims(), b.dims());
    let [k, m] = [left[D - 1], right[D - 1]];
    if D > 2 && right[..D - 2].iter().all(|size| *size == 1) {
        // One product for all of a batch.
        let rows = left[..D - 1].iter().product();
        let [a, b] = [a.clone().reshape([rows, k]), b.clone().reshape([k, m])];
        left[D - 1] = m;
        return Some(self::matmul::<2>(&a, &b, matmul)?.reshape(left));
    }
    for i in 0..D - 2 {
        let size = left[i].max(right[i]);
        (left[i], right[i]) = (size, size);
    }
    let op = gemm::Product {
        shapes: [left.to_vec(), right.to_vec()],
        factors: gemm::Factors::of(matmul),
    };
    let inputs = [a.clone().expand(left), b.clone().expand(right)];
    Some(apply(op, inputs.map(|x| Some(x.into_dispatch()))))
}

/// Attention, if there are kernels for these tensors.
pub(crate) fn attention(
    [q, k, v]: [&Tensor<4>; 3],
    bias: &Option<Tensor<4>>,
    scale: f64,
    first_query: usize,
) -> Option<Tensor<4>> {
    let device = device(q)?;
    let op = Attention {
        projected: false,
        shape: q.dims(),
        keys: k.dims()[2],
        bias: bias.as_ref().map(|bias| BiasShape::Dense(bias.dims())),
        rotation: None,
        scale,
        // Past all keys there is nothing more to see.
        first_query: first_query.min(k.dims()[2]),
        shared_bytes: shared_bytes(&device),
    };
    let mut inputs = [Some(q), Some(k), Some(v), bias.as_ref()].into_iter();
    if !(inputs.clone().flatten().all(is_supported) && op.fits(&device)) {
        return None;
    }
    let inputs = [(); 4].map(|()| inputs.next().flatten().cloned().map(Tensor::into_dispatch));
    Some(apply(op, inputs))
}

/// Attention with its rotation and bias, `[B, H, L, E]`, if there are kernels for these tensors.
/// Columns of `projected`, `[B L, 3 H E]`, are queries, keys and values.
pub(crate) fn projected_attention(
    projected: &Tensor<2>,
    shape: [usize; 4],
    rotation: &Option<Rotation>,
    bias: &Option<Bias>,
    scale: f64,
) -> Option<Tensor<4>> {
    // Tables that take a gradient are left to the definition.
    if !(is_supported(projected) && rotation.as_ref().is_none_or(has_constant_tables)) {
        return None;
    }
    let bias = match bias {
        None => None,
        Some(bias) => Some(prepared(bias.clone())?),
    };
    let device = device(projected)?;
    let op = Attention {
        projected: true,
        shape,
        keys: shape[2],
        bias: bias.as_ref().map(|(_, shape)| *shape),
        rotation: rotation.as_ref().map(packed),
        scale,
        first_query: 0,
        shared_bytes: shared_bytes(&device),
    };
    op.fits(&device).then(|| {
        let projected = projected.clone().into_dispatch();
        apply(
            op,
            [Some(projected), None, None, bias.map(|(bias, _)| bias)],
        )
    })
}

/// What is added to the logits, and its shape, if the kernels can read it. A network is
/// materialised.
fn prepared(bias: Bias) -> Option<(DispatchTensor, BiasShape)> {
    match bias {
        Bias::Network(network) => prepared(Bias::Dense(crate::diagonal_network(*network))),
        Bias::Dense(bias) => is_supported(&bias).then(|| {
            let shape = BiasShape::Dense(bias.dims());
            (bias.into_dispatch(), shape)
        }),
        Bias::ByDistance(bias) => is_supported(&bias).then(|| {
            let shape = BiasShape::ByDistance(bias.dims());
            (bias.into_dispatch(), shape)
        }),
        Bias::Decays(sums) => is_supported(&sums).then(|| {
            let shape = BiasShape::Decays(sums.dims());
            (sums.into_dispatch(), shape)
        }),
    }
}

fn has_constant_tables(rotation: &Rotation) -> bool {
    let mut tables = rotation.queries.iter().chain(&rotation.keys);
    tables.all(|table| is_supported(table) && !table.is_tracked())
}

/// The four tables in one.
fn packed(rotation: &Rotation) -> Rotated {
    let tables = rotation.queries.iter().chain(&rotation.keys);
    let tables = tables.map(|x| values::<burn::backend::Cube>(x.clone().into_dispatch()));
    let [groups, _, length, pairs] = rotation.keys[0].dims();
    Rotated {
        pairs,
        interleaved: rotation.interleaved,
        tables: pack(tables.collect(), [groups, length, pairs]),
    }
}

/// A rotation of x by cos and sin, if there are kernels for these tensors.
pub(crate) fn rotate(inputs: [&Tensor<4>; 3], interleaved: bool) -> Option<Tensor<4>> {
    let [x, cos, sin] = inputs;
    let op = rotate::Rotate {
        shape: x.dims(),
        tables: cos.dims(),
        interleaved,
        trained: cos.is_tracked() || sin.is_tracked(),
    };
    (inputs.into_iter().all(is_supported))
        .then(|| apply(op, inputs.map(|x| Some(x.clone().into_dispatch()))))
}

/// A norm of rows, if there are kernels for these tensors: a LayerNorm with a shift, an RMSNorm
/// without one. If there are several scales and shifts in a row, each is for as many rows.
pub(crate) fn norm(
    x: &Tensor<2>,
    scale: &Tensor<1>,
    shift: Option<&Tensor<1>>,
    eps: f64,
) -> Option<Tensor<2>> {
    let device = device(x)?;
    let ([rows, width], [scales]) = (x.dims(), scale.dims());
    let supported = is_supported(x) && is_supported(scale) && shift.is_none_or(is_supported);
    if !(supported && scales.is_multiple_of(width)) {
        return None;
    }
    let op = norm::RowNorm {
        rows,
        width,
        parts: scales / width,
        shift: shift.is_some(),
        eps: eps as f32,
    };
    let shift = shift.map(|shift| shift.clone().into_dispatch());
    op.fits(&device).then(|| {
        let [x, scale] = [x.clone().into_dispatch(), scale.clone().into_dispatch()];
        apply(op, [Some(x), Some(scale), shift])
    })
}

/// The loss of every row, if there are kernels for these tensors.
pub(crate) fn nll(logits: &Tensor<2>, targets: &Tensor<1, Int>) -> Option<Tensor<1>> {
    let device = device(logits)?;
    if !(is_supported(logits) && rows::fits(&device)) {
        return None;
    }
    let [rows, width] = logits.dims();
    let op = nll::Nll {
        rows,
        width,
        targets: integers(targets)?,
    };
    Some(apply(op, [Some(logits.clone().into_dispatch())]))
}

/// Rows of tables, if there are kernels for these tensors.
pub(crate) fn embedding(
    table: &Tensor<2>,
    tokens: &Tensor<2, Int>,
    groups: usize,
) -> Option<Tensor<3>> {
    let device = device(table)?;
    let op = embedding::Embedding {
        table: table.dims(),
        groups,
        shape: tokens.dims(),
        tokens: integers(tokens)?,
    };
    let some = tokens.shape().num_elements() > 0;
    (some && is_supported(table) && op.fits(&device))
        .then(|| apply(op, [Some(table.clone().into_dispatch())]))
}

/// GELU, if there are kernels for this tensor.
pub(crate) fn gelu(x: &Tensor<2>) -> Option<Tensor<2>> {
    let op = activation::Gelu { shape: x.dims() };
    is_supported(x).then(|| apply(op, [Some(x.clone().into_dispatch())]))
}

/// SwiGLU, if there are kernels for these tensors.
pub(crate) fn swiglu(gate: &Tensor<2>, up: &Tensor<2>) -> Option<Tensor<2>> {
    let op = activation::Swiglu { shape: gate.dims() };
    let inputs = [gate, up];
    (inputs.into_iter().all(is_supported))
        .then(|| apply(op, inputs.map(|x| Some(x.clone().into_dispatch()))))
}

/// Parameters and moments after an update, if there are kernels for all these tensors.
pub(crate) fn adamw(updates: &[AdamWUpdate]) -> Option<Vec<[Tensor<1>; 3]>> {
    let supported = |update: &AdamWUpdate| {
        let moments = update.moments.iter().flatten();
        let mut inputs = [&update.theta, &update.grad].into_iter().chain(moments);
        inputs.all(|x| is_supported(x) && !x.is_autodiff())
    };
    if updates.is_empty() || !updates.iter().all(supported) {
        return None;
    }
    let inner = |x: &Tensor<1>| values::<burn::backend::Cube>(x.clone().into_dispatch());
    let parameters = updates.iter().map(|update| adamw::Parameter {
        theta: inner(&update.theta),
        grad: inner(&update.grad),
        moments: update
            .moments
            .as_ref()
            .map(|pair| pair.each_ref().map(inner)),
        steps: update.steps.clone(),
        n: update.theta.dims()[0],
    });
    let updated = adamw::adamw(parameters.collect()).into_iter();
    Some(updated.map(|x| x.map(tensor)).collect())
}

/// Sums of squares, if there are kernels for these tensors.
pub(crate) fn square_sums(vectors: &[Tensor<1>], parts: usize) -> Option<Tensor<1>> {
    let device = device(vectors.first()?)?;
    let most = usize::from(u16::MAX);
    if !(vectors.iter().all(is_supported) && parts <= most && rows::fits(&device)) {
        return None;
    }
    let vectors = vectors
        .iter()
        .map(|x| values::<burn::backend::Cube>(x.clone().into_dispatch()));
    Some(tensor(square_sums::square_sums(vectors.collect(), parts)))
}
