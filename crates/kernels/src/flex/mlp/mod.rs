//! The feed-forward block: norm, product, activation, product and the residual sum, chunk by chunk.
//!
//! The intermediate values of a chunk of rows stay in L2. The inputs of the activation are saved
//! for the backward pass, packed: reading them back is faster than recomputing them. Everything
//! else is recomputed.

mod backward;
mod forward;
mod panel_grads;
mod two_rounds;
mod weights;

use super::partial_sums::NormTensors;
use super::residual::bias_grad;
use super::tensors::{PerInput, contiguous};
use crate::op::{FusedOp, required};
use burn_flex::FlexTensor;

/// `x + down(activation(up(norm(x))))` of x, scale, shift, up, gate, down and the bias of down, of
/// which shift, gate and bias are optional. Up and gate may have their bias as a further row.
pub(super) struct Mlp {
    pub(super) eps: f64,
}

impl FusedOp<7> for Mlp {
    type Backend = burn::backend::Flex;
    type Saved = weights::Saved;

    fn forward(&self, inputs: PerInput<7>, tracked: bool) -> (FlexTensor, weights::Saved) {
        let [x, scale, shift, up, gate, down, bias] = inputs.map(|x| x.map(contiguous));
        let norm = NormTensors {
            scale: required(scale),
            shift,
            eps: self.eps,
        };
        let weights = weights::Weights {
            up: required(up),
            gate,
            down: required(down),
        };
        forward::forward(required(x), norm, weights, bias, tracked)
    }

    fn backward(
        &self,
        saved: &weights::Saved,
        grad: FlexTensor,
        [.., bias_wanted]: [bool; 7],
    ) -> PerInput<7> {
        let grad = contiguous(grad);
        let bias = bias_wanted.then(|| bias_grad(&grad));
        let [x, scale, shift, up, gate, down] = backward::backward(saved, grad);
        [x, scale, shift, up, gate, down, bias]
    }
}
