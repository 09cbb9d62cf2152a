//! The fused attention on the backends of CubeCL: choosing between it and the definitions.
//!
//! | module | content |
//! |---|---|
//! | `tensors` | Burn's tensors, queues of operations |
//! | `attention` | the kernels |
//! | `launches` | counting launches |

mod attention;
mod launches;
mod tensors;

use crate::op::{apply, values};
use crate::{AttentionWeights, Bias, Norm, Rotation, reference};
use attention::{Attention, BiasShape, Rotated, shared_bytes};
use burn::backend::DispatchTensor;
use burn::tensor::Tensor;
pub use launches::Launches;
use tensors::{device, is_supported};

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

/// An attention block, if there are kernels for these tensors: the norm and products are those of
/// the backend, attention with its rotation and bias is fused.
pub(crate) fn attention_block(
    x: &Tensor<3>,
    norm: &Norm,
    weights: &AttentionWeights,
    rotation: &Option<Rotation>,
    bias: &Option<Bias>,
    scale: f64,
) -> Option<Tensor<3>> {
    let [batch, length, d] = x.dims();
    let inner = weights.inner();
    // Tables that take a gradient are left to the definition.
    if !(is_supported(x) && rotation.as_ref().is_none_or(has_constant_tables)) {
        return None;
    }
    let bias = match bias {
        None => None,
        Some(bias) => Some(prepared(bias.clone())?),
    };
    let device = device(x)?;
    let op = Attention {
        projected: true,
        shape: [batch, weights.heads, length, inner / weights.heads],
        keys: length,
        bias: bias.as_ref().map(|(_, shape)| *shape),
        rotation: rotation.as_ref().map(packed),
        scale,
        first_query: 0,
        shared_bytes: shared_bytes(&device),
    };
    if !op.fits(&device) {
        return None;
    }
    let norm = Norm {
        scale: norm.scale.clone(),
        shift: norm.shift.clone(),
        eps: norm.eps,
    };
    let rows = reference::normed(x.clone().reshape([batch * length, d]), norm);
    let projected = reference::product(rows, weights.qkv.clone()).into_dispatch();
    let inputs = [Some(projected), None, None, bias.map(|(bias, _)| bias)];
    let attended = apply::<4, 4, _>(op, inputs)
        .swap_dims(1, 2)
        .reshape([batch * length, inner]);
    let output = reference::product(attended, weights.output.clone());
    Some(x.clone() + output.reshape([batch, length, d]))
}

/// What is added to the logits, and its shape, if the kernels can read it. A network is
/// materialised.
fn prepared(bias: Bias) -> Option<(DispatchTensor, BiasShape)> {
    match bias {
        Bias::Network(network) => prepared(Bias::Dense(reference::diagonal_network(*network))),
        Bias::Dense(bias) => is_supported(&bias).then(|| {
            let shape = BiasShape::Dense(bias.dims());
            (bias.into_dispatch(), shape)
        }),
        Bias::ByDistance(bias) => is_supported(&bias).then(|| {
            let shape = BiasShape::ByDistance(bias.dims());
            (bias.into_dispatch(), shape)
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
    let tables = tables.cloned().collect();
    Rotated {
        pairs: rotation.keys[0].dims()[3],
        interleaved: rotation.interleaved,
        tables: values::<burn::backend::Cube>(Tensor::cat(tables, 0).into_dispatch()),
    }
}
