//! The attention block: norm, projection, attention, projection and the residual sum.
//!
//! One sequence runs through the whole block before the next one, if that keeps all threads busy,
//! so that its values stay in L2. Queries and keys are rotated as soon as they are projected. They
//! and their gradients are stored tile by tile and head by head, in memory that is reused from
//! layer to layer and from step to step.

mod backward;
mod forward;
mod state;
mod two_rounds;

pub(super) use state::{AttentionBlock, BiasInputs};

use super::attention::{BlockBias, NetworkBias};
use super::buffer_pool::Buffer;
use super::partial_sums::NormTensors;
use super::residual::bias_grad;
use super::tensors::{PerInput, contiguous};
use crate::op::{FusedOp, required};
use burn_flex::FlexTensor;
use state::Saved;

impl FusedOp<12> for AttentionBlock {
    type Backend = burn::backend::Flex;
    type Saved = Saved;

    fn forward(&self, inputs: PerInput<12>, tracked: bool) -> (FlexTensor, Saved) {
        let inputs = inputs.map(|x| x.map(contiguous));
        let [x, scale, shift, qkv, output, output_bias, bias, rest @ ..] = inputs;
        let [_, heads, length, _] = self.shape;
        // Without a backward pass the buffers stay empty, and each sequence uses scratch.
        let sequences = if tracked { self.shape[0] } else { 0 };
        let mut saved = Saved {
            x: required(x),
            norm: NormTensors {
                scale: required(scale),
                shift,
                eps: self.eps,
            },
            qkv: required(qkv),
            output: required(output),
            bias: bias.map(|bias| match self.bias {
                BiasInputs::Dense => BlockBias::dense(&bias, 0),
                BiasInputs::ByDistance => BlockBias::by_distance(&bias),
                BiasInputs::Decays => BlockBias::decays(&bias),
                BiasInputs::Network => {
                    let [units, w1, b1, w2, b2] = rest.map(required);
                    BlockBias::network(NetworkBias::new([bias, units, w1, b1, w2, b2]))
                }
            }),
            projected: Buffer::new(sequences * self.qkv_layout(1).len()),
            attended: Buffer::new(sequences * self.output_layout(1).len()),
            log_sum: Buffer::new(sequences * heads * length),
        };
        let y = self.forward_sequences(&mut saved, output_bias.as_ref());
        (y, saved)
    }

    fn backward(&self, saved: &Saved, grad: FlexTensor, wanted: [bool; 12]) -> PerInput<12> {
        let mut grad = contiguous(grad);
        let bias_wanted = saved.bias.is_some() && wanted[6..].contains(&true);
        let output_bias = wanted[5].then(|| bias_grad(&grad));
        let ([scale, shift, qkv, output], bias) =
            saved.backward(self, grad.storage_mut(), bias_wanted);
        // `grad` has become the gradient of x in place.
        let mut bias = bias.into_iter();
        let [b0, b1, b2, b3, b4, b5] = [(); 6].map(|()| bias.next());
        let grad = Some(grad);
        [
            grad,
            scale,
            shift,
            qkv,
            output,
            output_bias,
            b0,
            b1,
            b2,
            b3,
            b4,
            b5,
        ]
    }
}
