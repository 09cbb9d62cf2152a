//! Attention as a separate operation, on tensors in any layout.

use super::backward::{attention_backward, grads_by_head};
use super::bias::BlockBias;
use super::call::AttentionCall;
use super::forward::attention_forward;
use super::qkv_layout::{PartView, QkvLayout};
use crate::flex::buffer_pool::Buffer;
use crate::flex::tensors::{PerInput, Strided, strided_output};
use crate::op::{FusedOp, required};
use burn_flex::FlexTensor;

/// `softmax(scale q k^T + bias) v` of q, k, v and, optionally, a dense bias.
pub(crate) struct Attention {
    pub(crate) scale: f64,
    pub(crate) first_query: usize,
}

impl FusedOp<4> for Attention {
    type Backend = burn::backend::Flex;
    type Saved = Saved;

    fn forward(&self, inputs: PerInput<4>, tracked: bool) -> (FlexTensor, Saved) {
        let [q, k, v, bias] = inputs;
        let bias = bias.map(|bias| BlockBias::dense(&bias, self.first_query));
        let inputs = [q, k, v].map(required);
        forward(inputs, bias, self.scale, self.first_query, tracked)
    }

    fn backward(&self, saved: &Saved, grad: FlexTensor, wanted: [bool; 4]) -> PerInput<4> {
        backward(saved, &grad, wanted[3])
    }
}

/// What the backward pass needs.
pub(crate) struct Saved {
    layouts: [QkvLayout; 3],
    /// Scaled queries, keys and values.
    inputs: [Buffer; 3],
    bias: Option<BlockBias>,
    output: Buffer,
    log_sum: Vec<f32>,
    scale: f32,
    first_query: usize,
}

impl Saved {
    fn call(&self) -> AttentionCall<'_> {
        let view = |i: usize| PartView {
            values: &self.inputs[i],
            layout: self.layouts[i],
            part: 0,
        };
        let bias = self.bias.as_ref();
        AttentionCall {
            q: view(0),
            k: view(1),
            v: view(2),
            bias,
            first_sequence: 0,
            rotation: None,
            scale: self.scale,
            first_query: self.first_query,
        }
    }
}

fn forward(
    inputs: [FlexTensor; 3],
    bias: Option<BlockBias>,
    scale: f64,
    first_query: usize,
    tracked: bool,
) -> (FlexTensor, Saved) {
    let inputs = inputs.each_ref().map(Strided::new);
    let layouts = inputs.each_ref().map(|x| QkvLayout {
        shape: x.shape,
        parts: 1,
    });
    let shape = layouts[0].shape;
    let scale = scale as f32;
    // Scaling a query scales all its logits.
    let factors = [scale, 1.0, 1.0];
    let inputs = std::array::from_fn(|i| layouts[i].load(&inputs[i], factors[i]));
    let mut output = Buffer::new(layouts[0].len());
    let mut log_sum = vec![
        0.0;
        if tracked {
            shape[..3].iter().product()
        } else {
            0
        }
    ];
    let saved = Saved {
        layouts,
        inputs,
        bias,
        output: Buffer::new(0),
        log_sum: Vec::new(),
        scale,
        first_query,
    };
    attention_forward(&saved.call(), &mut output, &mut log_sum);
    let result = strided_output(layouts[0].unload(&output), shape);
    (
        result,
        Saved {
            output,
            log_sum,
            ..saved
        },
    )
}

/// The gradients of q, k, v and, if wanted, of the bias.
fn backward(saved: &Saved, grad: &FlexTensor, bias_wanted: bool) -> PerInput<4> {
    let layouts = saved.layouts;
    let layout = layouts[0];
    let grad = layout.load(&Strided::new(grad), 1.0);
    let mut grads = layouts.map(|layout| Buffer::new(layout.len()));
    let parts = {
        let [q, k, v] = grads.each_mut();
        [
            layouts[0].tiles_by_head(q).remove(0),
            layouts[1].tiles_by_head(k).remove(0),
            layouts[2].tiles_by_head(v).remove(0),
        ]
    };
    let [output, grad] = [&saved.output, &grad].map(|values| PartView {
        values,
        layout,
        part: 0,
    });
    let bias = attention_backward(
        &saved.call(),
        output,
        grad,
        &saved.log_sum,
        grads_by_head(layout.shape[1], parts),
        bias_wanted,
    );
    let grad = |i: usize| {
        Some(strided_output(
            layouts[i].unload(&grads[i]),
            layouts[i].shape,
        ))
    };
    [grad(0), grad(1), grad(2), bias.into_iter().next()]
}
