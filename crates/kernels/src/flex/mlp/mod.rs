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
use super::tensors::contiguous;
use crate::op::{FusedOp, required};
use burn_flex::FlexTensor;

/// `x + down(activation(up(norm(x))))` of x, scale, shift, up, gate and down, of which shift and
/// gate are optional.
pub(super) struct Mlp {
    pub(super) eps: f64,
}

impl FusedOp<6> for Mlp {
    type Backend = burn::backend::Flex;
    type Saved = weights::Saved;

    fn forward(
        &self,
        inputs: [Option<FlexTensor>; 6],
        tracked: bool,
    ) -> (FlexTensor, weights::Saved) {
        let [x, scale, shift, up, gate, down] = inputs.map(|x| x.map(contiguous));
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
        forward::forward(required(x), norm, weights, tracked)
    }

    fn backward(
        &self,
        saved: &weights::Saved,
        grad: FlexTensor,
        _: [bool; 6],
    ) -> [Option<FlexTensor>; 6] {
        backward::backward(saved, grad)
    }
}
