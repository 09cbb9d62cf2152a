//! Shares of a stick that keys break off, from the nearest to the query on, as a bias on logits.

use super::open_keys::{Sigmoids, seen_rows};
use super::simd::{Lanes, dispatch};
use super::tensors::{PerInput, contiguous, tensor};
use super::twice::Twice;
use crate::op::{FusedOp, required};
use burn::backend::TensorMetadata;
use burn_flex::FlexTensor;
use pulp::{Simd, WithSimd};

/// Replaces numbers by their softplus.
struct Softplus<'a>(&'a mut [f32]);

impl WithSimd for Softplus<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let (x, tail) = S::as_mut_simd_f32s(self.0);
        let (pairs, last) = x.as_chunks_mut::<2>();
        for x in pairs {
            *x = Twice(s).softplus(*x);
        }
        for x in last {
            *x = s.softplus(*x);
        }
        let last = s.softplus(s.partial_load_f32s(tail));
        s.partial_store_f32s(tail, last);
    }
}

/// [`crate::break_stick`] of logits.
pub(super) struct BreakStick {
    pub(super) first_query: usize,
}

impl FusedOp<1> for BreakStick {
    type Backend = burn::backend::Flex;
    /// The logits.
    type Saved = FlexTensor;

    fn forward(&self, inputs: PerInput<1>, _: bool) -> (FlexTensor, FlexTensor) {
        let [logits] = inputs.map(|input| contiguous(required(input)));
        let shape: [usize; 4] = logits.shape().dims();
        let values = logits.storage::<f32>();
        let mut bias = vec![0.0; values.len()];
        seen_rows(
            self.first_query,
            shape,
            values,
            &mut bias,
            |row, z, bias| {
                bias.copy_from_slice(z);
                dispatch(Softplus(bias));
                let (earlier, own) = bias.split_at_mut(z.len().min(self.first_query + row));
                let mut sum = 0.0;
                for bias in earlier.iter_mut().rev() {
                    sum += *bias;
                    *bias = -sum;
                }
                // Fewer keys than positions: the own key is not among them.
                if let [own] = own {
                    *own = -sum - z[z.len() - 1];
                }
            },
        );
        (tensor(bias, shape), logits)
    }

    fn backward(&self, logits: &FlexTensor, grad: FlexTensor, _: [bool; 1]) -> PerInput<1> {
        let shape: [usize; 4] = grad.shape().dims();
        let (grad, logits) = (contiguous(grad), logits.storage::<f32>());
        let grad = grad.storage::<f32>();
        let mut output = vec![0.0; grad.len()];
        seen_rows(self.first_query, shape, logits, &mut output, |_, z, y| {
            y.copy_from_slice(z);
            dispatch(Sigmoids(y));
        });
        seen_rows(
            self.first_query,
            shape,
            grad,
            &mut output,
            |row, grad, y| {
                let (earlier, own) = y.split_at_mut(grad.len().min(self.first_query + row));
                let mut sum = 0.0;
                if let [own] = own {
                    sum = grad[grad.len() - 1];
                    *own = -sum;
                }
                // The softplus of a key is in the bias of every key up to it, and of the own one.
                for (gate, grad) in earlier.iter_mut().zip(grad) {
                    sum += grad;
                    *gate *= -sum;
                }
            },
        );
        [Some(tensor(output, shape))]
    }
}
