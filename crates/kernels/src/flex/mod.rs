//! The fused operations on the Flex backend: choosing between them and their definitions.
//!
//! | module | content |
//! |---|---|
//! | `tensors` | Burn's tensors as slices |
//! | `threads`, `recording`, `buffer_pool` | splitting work, timing its parts, reusing memory |
//! | `simd`, `twice`, `transpose` | vector arithmetic for the instruction set of this machine |
//! | `gemm` | matrix products: layouts, packing, micro-kernels |
//! | `linear`, `mlp`, `attention_block`, `attention` | operations made of matrix products |
//! | `partial_sums`, `two_rounds`, `residual` | gradients of their parameters |
//! | `activation`, `norm`, `nll`, `rotate`, `columns`, `softmax`, `open_keys`, `stick`, `cell_network`, `diagonal_network`, `adamw` | row-wise and element-wise operations |

mod activation;
mod adamw;
mod attention;
mod attention_block;
pub mod bench;
mod buffer_pool;
mod cell_network;
mod columns;
mod diagonal_network;
mod gemm;
mod linear;
mod live_rows;
mod mlp;
mod nll;
mod norm;
mod open_keys;
mod partial_sums;
pub mod recording;
mod residual;
mod rotate;
mod simd;
mod softmax;
mod stick;
mod tensors;
mod threads;
mod transpose;
mod twice;
mod two_rounds;

use crate::groups::{Parts, each, spread};
use crate::op::apply;
use crate::{
    AdamWUpdate, AttentionWeights, Bias, CellNetwork, DiagonalNetwork, Linear, Matmul, MlpWeights,
    Norm, Rotation, reference,
};
use attention_block::BiasInputs;
use burn::backend::{BackendTensor, DispatchAutodiffContext, DispatchTensor, DispatchTensorKind};
use burn::tensor::{Int, Tensor};
use burn_flex::FlexTensor;
use tensors::is_supported;

pub(crate) use buffer_pool::clear as free_buffers;
pub(crate) use simd::vector_problem;
pub(crate) use threads::on_threads;

impl Norm {
    fn is_supported(&self) -> bool {
        is_supported(&self.scale) && self.shift.as_ref().is_none_or(is_supported)
    }

    /// Scale and shift.
    fn into_dispatch(self) -> [Option<DispatchTensor>; 2] {
        [
            Some(self.scale.into_dispatch()),
            self.shift.map(Tensor::into_dispatch),
        ]
    }
}

impl Linear {
    fn is_supported(&self) -> bool {
        is_supported(&self.w) && self.bias.as_ref().is_none_or(is_supported)
    }

    /// A layer of normalised rows: its weights, with the bias as one more row.
    fn with_bias_as_row(self) -> DispatchTensor {
        let rows = match self.bias {
            None => self.w,
            Some(bias) => Tensor::cat(vec![self.w, bias.unsqueeze()], 0),
        };
        rows.into_dispatch()
    }

    /// A layer that adds to the residual sum: weights and bias.
    fn into_dispatch(self) -> [Option<DispatchTensor>; 2] {
        [
            Some(self.w.into_dispatch()),
            self.bias.map(Tensor::into_dispatch),
        ]
    }
}

pub(crate) fn linear(x: Tensor<2>, norm: Option<Norm>, w: Tensor<2>, matmul: Matmul) -> Tensor<2> {
    let supported =
        is_supported(&x) && norm.as_ref().is_none_or(Norm::is_supported) && is_supported(&w);
    if !supported {
        return reference::linear_in(x, norm, w, matmul);
    }
    let groups = w.dims()[0] / x.dims()[1];
    if groups > 1 {
        return each(groups, |g| {
            let [x, w] = [&x, &w].map(|x| x.part(g, groups));
            linear(x, norm.part(g, groups), w, matmul)
        });
    }
    let eps = norm.as_ref().map_or(0.0, |norm| norm.eps);
    let [scale, shift] = norm.map_or([None, None], Norm::into_dispatch);
    let inputs = [
        Some(x.into_dispatch()),
        scale,
        shift,
        Some(w.into_dispatch()),
    ];
    apply(linear::Linear { eps }, inputs)
}

pub(crate) fn mlp(x: Tensor<2>, norm: Norm, weights: MlpWeights) -> Tensor<2> {
    let supported = is_supported(&x)
        && norm.is_supported()
        && [&weights.up, &weights.down]
            .into_iter()
            .chain(&weights.gate)
            .all(Linear::is_supported);
    if !supported {
        return reference::mlp(x, norm, weights);
    }
    let groups = weights.up.w.dims()[0] / x.dims()[1];
    if groups > 1 {
        return each(groups, |g| {
            let (norm, weights) = (norm.part(g, groups), weights.part(g, groups));
            mlp(x.part(g, groups), norm, weights)
        });
    }
    let op = mlp::Mlp { eps: norm.eps };
    let [scale, shift] = norm.into_dispatch();
    let [down, down_bias] = weights.down.into_dispatch();
    let inputs = [
        Some(x.into_dispatch()),
        scale,
        shift,
        Some(weights.up.with_bias_as_row()),
        weights.gate.map(Linear::with_bias_as_row),
        down,
        down_bias,
    ];
    apply(op, inputs)
}

pub(crate) fn attention_block(
    x: Tensor<3>,
    norm: Norm,
    weights: AttentionWeights,
    rotation: Option<Rotation>,
    bias: Option<Bias>,
    scale: f64,
) -> Tensor<3> {
    // Tables that take a gradient are left to the definition.
    let tables = rotation.as_ref().map(attention::RotationTables::new);
    let supported = is_supported(&x)
        && norm.is_supported()
        && [&weights.qkv, &weights.output]
            .into_iter()
            .all(Linear::is_supported)
        && bias.as_ref().is_none_or(|bias| match bias {
            Bias::Dense(bias) => is_supported(bias),
            Bias::ByDistance(bias) | Bias::Decays(bias) => is_supported(bias),
            Bias::Network(network) => network_is_supported(network),
        })
        && !matches!(tables, Some(None));
    if !supported {
        return reference::attention_block(x, norm, weights, rotation, bias, scale);
    }
    let [batch, length, d] = x.dims();
    let groups = weights.qkv.w.dims()[0] / d;
    if groups > 1 {
        return each(groups, |g| {
            let (norm, weights) = (norm.part(g, groups), weights.part(g, groups));
            let (rotation, bias) = (rotation.part(g, groups), bias.part(g, groups));
            attention_block(x.part(g, groups), norm, weights, rotation, bias, scale)
        });
    }
    let head_dim = weights.inner() / weights.heads;
    let op = attention_block::AttentionBlock {
        shape: [batch, weights.heads, length, head_dim],
        eps: norm.eps,
        bias: match bias {
            Some(Bias::ByDistance(_)) => BiasInputs::ByDistance,
            Some(Bias::Decays(_)) => BiasInputs::Decays,
            Some(Bias::Network(_)) => BiasInputs::Network,
            Some(Bias::Dense(_)) | None => BiasInputs::Dense,
        },
        rotation: tables.flatten(),
        scale,
    };
    let [norm_scale, shift] = norm.into_dispatch();
    let [output, output_bias] = weights.output.into_dispatch();
    let [b0, b1, b2, b3, b4, b5] = bias.map_or([const { None }; 6], Bias::into_dispatch);
    let inputs = [
        Some(x.reshape([batch * length, d]).into_dispatch()),
        norm_scale,
        shift,
        Some(weights.qkv.with_bias_as_row()),
        output,
        output_bias,
        b0,
        b1,
        b2,
        b3,
        b4,
        b5,
    ];
    apply::<_, 2, _>(op, inputs).reshape([batch, length, d])
}

pub(crate) fn nll(logits: Tensor<2>, targets: Tensor<1, Int>) -> Tensor<1> {
    if is_supported(&logits)
        && let Some(targets) = tensors::indices(targets.clone())
    {
        return apply(nll::Nll { targets }, [Some(logits.into_dispatch())]);
    }
    reference::nll(logits, targets)
}

pub(crate) fn layer_norm(x: Tensor<2>, scale: Tensor<1>, shift: Tensor<1>, eps: f64) -> Tensor<2> {
    if !(is_supported(&x) && is_supported(&scale) && is_supported(&shift)) {
        return reference::layer_norm(x, scale, shift, eps);
    }
    let groups = scale.dims()[0] / x.dims()[1];
    if groups > 1 {
        return each(groups, |g| {
            let [scale, shift] = [&scale, &shift].map(|p| p.part(g, groups));
            layer_norm(x.part(g, groups), scale, shift, eps)
        });
    }
    let inputs = [
        x.into_dispatch(),
        scale.into_dispatch(),
        shift.into_dispatch(),
    ];
    apply(norm::RowNorm { eps }, inputs.map(Some))
}

pub(crate) fn rms_norm(x: Tensor<2>, scale: Tensor<1>, eps: f64) -> Tensor<2> {
    if !(is_supported(&x) && is_supported(&scale)) {
        return reference::rms_norm(x, scale, eps);
    }
    let groups = scale.dims()[0] / x.dims()[1];
    if groups > 1 {
        return each(groups, |g| {
            rms_norm(x.part(g, groups), scale.part(g, groups), eps)
        });
    }
    let inputs = [Some(x.into_dispatch()), Some(scale.into_dispatch()), None];
    apply(norm::RowNorm { eps }, inputs)
}

pub(crate) fn gelu(x: Tensor<2>) -> Tensor<2> {
    if !is_supported(&x) {
        return reference::gelu(x);
    }
    apply(activation::GeluOp, [Some(x.into_dispatch())])
}

pub(crate) fn swiglu(gate: Tensor<2>, up: Tensor<2>) -> Tensor<2> {
    if !(is_supported(&gate) && is_supported(&up)) {
        return reference::swiglu(gate, up);
    }
    apply(
        activation::SwigluOp,
        [gate, up].map(|x| Some(x.into_dispatch())),
    )
}

pub(crate) fn attention(
    q: Tensor<4>,
    k: Tensor<4>,
    v: Tensor<4>,
    bias: Option<Tensor<4>>,
    scale: f64,
    first_query: usize,
) -> Tensor<4> {
    if ![Some(&q), Some(&k), Some(&v), bias.as_ref()]
        .into_iter()
        .flatten()
        .all(is_supported)
    {
        return reference::attention(q, k, v, bias, scale, first_query);
    }
    let bias = bias.map(|bias| spread(bias, q.dims()[0]));
    let inputs = [Some(q), Some(k), Some(v), bias].map(|x| x.map(Tensor::into_dispatch));
    apply(attention::Attention { scale, first_query }, inputs)
}

pub(crate) fn attention_weights(
    q: Tensor<4>,
    k: Tensor<4>,
    bias: Option<Tensor<4>>,
    scale: f64,
    first_query: usize,
) -> Tensor<4> {
    if ![Some(&q), Some(&k), bias.as_ref()]
        .into_iter()
        .flatten()
        .all(is_supported)
    {
        return reference::attention_weights(q, k, bias, scale, first_query);
    }
    let [batch, _, queries, _] = q.dims();
    let visible = (first_query + queries).min(k.dims()[2]);
    let k = k.slice_dim(2, 0..visible);
    let mut logits = (q * scale).matmul(k.swap_dims(2, 3));
    if let Some(bias) = bias {
        logits = logits + spread(bias.slice_dim(3, 0..visible), batch);
    }
    let op = softmax::CausalSoftmax { first_query };
    apply(op, [Some(logits.into_dispatch())])
}

pub(crate) fn adamw(update: AdamWUpdate) -> [Tensor<1>; 3] {
    let AdamWUpdate {
        theta,
        grad,
        moments,
        steps,
    } = update;
    let zeros = || [(); 2].map(|()| Tensor::zeros(theta.dims(), (&theta.device(), theta.dtype())));
    let [first, second] = moments.unwrap_or_else(zeros);
    if ![&theta, &grad, &first, &second]
        .into_iter()
        .all(|x| is_supported(x) && !x.is_autodiff())
    {
        return reference::adamw(theta, grad, Some([first, second]), &steps);
    }
    // By value, so that tensors nobody else holds are updated in place.
    let [theta, grad, first, second] = [theta, grad, first, second].map(flex_tensor);
    adamw::adamw(theta, grad, [first, second], &steps).map(|x| {
        Tensor::from_dispatch(DispatchTensor {
            kind: DispatchTensorKind::Flex(BackendTensor::Float(x)),
            autodiff: DispatchAutodiffContext::Disabled,
        })
    })
}

pub(crate) fn materialises_networks(x: &Tensor<3>) -> bool {
    !is_supported(x)
}

/// A supported tensor outside autodiff.
fn flex_tensor<const D: usize>(x: Tensor<D>) -> FlexTensor {
    match x.into_dispatch().kind {
        DispatchTensorKind::Flex(BackendTensor::Float(x)) => x,
        _ => unreachable!("checked to be supported, and outside autodiff"),
    }
}

pub(crate) fn rotate(x: Tensor<4>, cos: Tensor<4>, sin: Tensor<4>, interleaved: bool) -> Tensor<4> {
    if ![&x, &cos, &sin].into_iter().all(is_supported) {
        return reference::rotate(x, cos, sin, interleaved);
    }
    let trained = cos.is_tracked() || sin.is_tracked();
    let op = rotate::Rotate {
        interleaved,
        trained,
    };
    apply(op, [x, cos, sin].map(|x| Some(x.into_dispatch())))
}

pub(crate) fn gather_columns(x: Tensor<4>, columns: Tensor<4, Int>) -> Tensor<4> {
    if is_supported(&x)
        && let Some(values) = tensors::indices(columns.clone())
    {
        let columns = columns::Columns::new(values, columns.dims(), x.dims()[3]);
        return apply(columns::Gather { columns }, [Some(x.into_dispatch())]);
    }
    reference::gather_columns(x, columns)
}

pub(crate) fn scatter_columns(x: Tensor<4>, columns: Tensor<4, Int>, n: usize) -> Tensor<4> {
    if is_supported(&x)
        && let Some(values) = tensors::indices(columns.clone())
    {
        let columns = columns::Columns::new(values, columns.dims(), n);
        return apply(columns::Scatter { columns, n }, [Some(x.into_dispatch())]);
    }
    reference::scatter_columns(x, columns, n)
}

pub(crate) fn interpolate_columns(x: Tensor<4>, at: Tensor<4>) -> Tensor<4> {
    if !(is_supported(&x) && is_supported(&at)) {
        return reference::interpolate_columns(x, at);
    }
    let inputs = [x, at].map(|x| Some(x.into_dispatch()));
    apply(columns::Interpolate, inputs)
}

pub(crate) fn count_open_keys(logits: Tensor<4>, first_query: usize, limit: f64) -> Tensor<4> {
    if !is_supported(&logits) {
        return reference::count_open_keys(logits, first_query, limit);
    }
    let op = open_keys::CountOpenKeys {
        first_query,
        limit: limit as f32,
    };
    apply(op, [Some(logits.into_dispatch())])
}

pub(crate) fn break_stick(logits: Tensor<4>, first_query: usize) -> Tensor<4> {
    if !is_supported(&logits) {
        return reference::break_stick(logits, first_query);
    }
    apply(
        stick::BreakStick { first_query },
        [Some(logits.into_dispatch())],
    )
}

pub(crate) fn cell_network(x: Tensor<4>, network: CellNetwork) -> Tensor<4> {
    let vectors = [&network.b1, &network.b2];
    let matrices = [&network.w1, &network.w2];
    let supported = is_supported(&x)
        && vectors.into_iter().all(is_supported)
        && matrices.into_iter().all(is_supported);
    if !supported {
        return reference::cell_network(x, network);
    }
    let groups = network.w1.dims()[0] / x.dims()[1];
    if groups > 1 {
        return each(groups, |g| {
            cell_network(x.part(g, groups), network.part(g, groups))
        });
    }
    let op = cell_network::Network {
        slope: network.slope as f32,
    };
    let inputs = [
        x.into_dispatch(),
        network.w1.into_dispatch(),
        network.b1.into_dispatch(),
        network.w2.into_dispatch(),
        network.b2.into_dispatch(),
    ];
    apply(op, inputs.map(Some))
}

fn network_is_supported(network: &DiagonalNetwork) -> bool {
    let [w1, b1] = &network.hidden;
    let vectors = [&network.diagonals, &network.units, w1, b1, &network.biases];
    vectors.into_iter().all(is_supported) && is_supported(&network.weights)
}

/// Diagonals, units, weights and biases of the hidden layer, and those of the outputs.
fn network_inputs(network: DiagonalNetwork) -> [Option<DispatchTensor>; 6] {
    let [w1, b1] = network.hidden;
    let [diagonals, units, w1, b1, biases] =
        [network.diagonals, network.units, w1, b1, network.biases].map(|x| Some(x.into_dispatch()));
    let weights = Some(network.weights.into_dispatch());
    [diagonals, units, w1, b1, weights, biases]
}

impl Bias {
    /// One tensor, or those of a network.
    fn into_dispatch(self) -> [Option<DispatchTensor>; 6] {
        let one = |x| [Some(x), None, None, None, None, None];
        match self {
            Self::Dense(bias) => one(bias.into_dispatch()),
            Self::ByDistance(bias) => {
                // That of one group.
                let [_, heads, count] = bias.dims();
                one(bias.reshape([heads, count]).into_dispatch())
            }
            Self::Decays(sums) => one(sums.into_dispatch()),
            Self::Network(network) => network_inputs(*network),
        }
    }
}

pub(crate) fn diagonal_network(network: DiagonalNetwork) -> Tensor<4> {
    if !network_is_supported(&network) {
        return reference::diagonal_network(network);
    }
    apply(diagonal_network::DiagonalNetwork, network_inputs(network))
}
