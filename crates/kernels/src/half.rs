//! The attention half of a block in one operation: norm, projection, attention, projection, and the sum with its input.
//!
//! Queries, keys and values stay side by side in the rows they were projected into and are read there; their gradients are written
//! into rows of the same form. Both live in memory that is used again from layer to layer and from step to step.

use crate::attention::{Bias, Call, Rotation, attend, by_head, pull, sinks};
use crate::flex::{Input, Strided, dense, record, tensor};
use crate::linear::{self, InputGrad, NormTensors, packed, packed_transposed};
use crate::memory::Buffer;
use crate::product::{From, Matrix};
use burn::backend::TensorMetadata;
use burn_flex::FlexTensor;

/// All there is to know beside the tensors.
pub(crate) struct Settings {
    /// `[B, H, L, E]`.
    pub(crate) shape: [usize; 4],
    pub(crate) eps: f64,
    pub(crate) shift: bool,
    /// Whether there is a bias, and if so, whether it is one by distance.
    pub(crate) bias: Option<bool>,
    pub(crate) rotation: Option<Rotation>,
    pub(crate) scale: f64,
}

/// What the gradient needs.
struct Kept {
    settings: Settings,
    x: FlexTensor,
    norm: NormTensors,
    qkv: FlexTensor,
    output: FlexTensor,
    bias: Option<Bias>,
    /// Queries, keys and values, side by side.
    projected: Buffer,
    /// What attention gives, `[B, L, H, E]`.
    attended: Buffer,
    log_sum: Buffer,
}

impl Settings {
    fn call<'a>(&'a self, projected: &'a [f32], bias: Option<&'a Bias>) -> Call<'a> {
        let [q, k, v] = [0, 1, 2].map(|part| Strided::part(projected, self.shape, part, 3));
        Call { q, k, v, bias, rotation: self.rotation.as_ref(), scale: self.scale as f32, first_query: 0 }
    }
}

/// `x + attention(norm(x) qkv) output` of the inputs x, scale, shift, qkv, output and bias, of which shift and bias may not exist.
pub(crate) fn attention_half<const N: usize>(inputs: [Input; N], settings: Settings) -> Input {
    record(
        inputs,
        |inputs, tracked| {
            let mut inputs = inputs.map(dense).into_iter();
            let mut next = || inputs.next().expect("as many inputs as there are");
            let x = next();
            let norm = NormTensors { scale: next(), shift: settings.shift.then(&mut next), eps: settings.eps };
            let (qkv, output) = (next(), next());
            let bias = settings.bias.map(|by_distance| if by_distance { Bias::distances(&next()) } else { Bias::cells(&next(), 0) });
            let [batch, heads, length, head_dim] = settings.shape;
            let ([n, d], inner) = (x.shape().dims(), heads * head_dim);
            let mut projected = Buffer::new(n * 3 * inner);
            let weight = packed(&qkv);
            linear::forward(x.storage(), Some(norm.view()), Matrix::panels(&weight, d, 3 * inner), &mut projected, From::Zero);
            let mut attended = Buffer::new(n * inner);
            let mut log_sum = Buffer::new(if tracked { batch * heads * length } else { 0 });
            attend(&settings.call(&projected, bias.as_ref()), &mut attended, &mut log_sum);
            let mut y = x.storage::<f32>().to_vec();
            let weight = packed(&output);
            linear::forward(&attended, None, Matrix::panels(&weight, inner, d), &mut y, From::Target);
            (tensor(y, [n, d]), Kept { settings, x, norm, qkv, output, bias, projected, attended, log_sum })
        },
        |kept: &Kept, grad, wanted| {
            let Kept { settings, x, norm, qkv, output, bias, projected, attended, log_sum } = kept;
            let [_, heads, _, head_dim] = settings.shape;
            let ([_, d], inner): ([usize; 2], _) = (x.shape().dims(), heads * head_dim);
            let mut grad = dense(grad);
            let mut attended_grad = Buffer::new(attended.len());
            let weight = packed_transposed(output);
            let target = InputGrad { values: &mut attended_grad, from: From::Zero };
            let output_grad = linear::backward(attended, None, Matrix::panels(&weight, d, inner), grad.storage(), target);
            let mut projected_grad = Buffer::new(projected.len());
            let parts = by_head(&mut projected_grad, settings.shape, 3).try_into().expect("queries, keys and values");
            let [attended, attended_grad] = [attended, &attended_grad].map(|values| Strided::part(values, settings.shape, 0, 1));
            let call = settings.call(projected, bias.as_ref());
            let bias_grad = pull(&call, &attended, &attended_grad, log_sum, sinks(heads, parts), bias.is_some() && wanted[N - 1]);
            let weight = packed_transposed(qkv);
            let target = InputGrad { values: grad.storage_mut(), from: From::Target };
            let weight = Matrix::panels(&weight, 3 * inner, d);
            let grads = linear::backward(x.storage(), Some(norm.view()), weight, &projected_grad, target);
            let grads = std::iter::once(grad).chain(grads).chain(output_grad).map(Some);
            let mut grads = grads.chain(bias.iter().map(|_| bias_grad.clone()));
            std::array::from_fn(|_| grads.next().flatten())
        },
    )
}
