//! Softmax over the keys that each query sees.

use super::simd::{Lanes, dispatch, lane_groups, lane_groups_mut, sum_over};
use super::tensors::{PerInput, contiguous, tensor};
use super::threads::for_each;
use super::twice::Twice;
use crate::op::{FusedOp, required};
use burn::backend::TensorMetadata;
use burn_flex::FlexTensor;
use pulp::{Simd, WithSimd};

/// The softmax of rows of logits, in place. Row i reads its first `visible + i` numbers; the rest
/// becomes 0.
struct Forward<'a> {
    rows: &'a mut [f32],
    width: usize,
    visible: usize,
}

impl WithSimd for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        for (i, row) in self.rows.chunks_exact_mut(self.width).enumerate() {
            let (row, hidden) = row.split_at_mut((self.visible + i).min(self.width));
            hidden.fill(0.0);
            let largest = row.iter().fold(f32::NEG_INFINITY, |a, b| a.max(*b));
            // `max` ignores NaN, which must stay.
            if largest == f32::NEG_INFINITY && !row.iter().any(|x| x.is_nan()) {
                row.fill(0.0);
                continue;
            }
            let shift = s.splat(largest);
            let (x, tail) = lane_groups_mut::<S>(row);
            let (pairs, last) = x.as_chunks_mut::<2>();
            for x in pairs {
                *x = Twice(s).exp(Twice(s).sub(*x, [shift; 2]));
            }
            for x in last {
                *x = s.exp(s.sub(*x, shift));
            }
            for tail in tail.chunks_mut(S::F32_LANES) {
                let last = s.exp(s.sub(s.partial_load_f32s(tail), shift));
                s.partial_store_f32s(tail, last);
            }
            let sum = sum_over!(s, x.len(), |i| x[i]);
            let sum = tail.iter().fold(sum, |a, b| a + b);
            let divisor = s.splat(sum);
            for x in x {
                *x = s.div(*x, divisor);
            }
            tail.iter_mut().for_each(|x| *x /= sum);
        }
    }
}

/// `w (grad - sum over the row of w grad)`, in place of `grad`. Weights of hidden keys are 0.
struct Backward<'a> {
    weights: &'a [f32],
    grad: &'a mut [f32],
    width: usize,
    visible: usize,
}

impl WithSimd for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let rows = self.weights.chunks_exact(self.width);
        for (i, (weights, grad)) in rows.zip(self.grad.chunks_exact_mut(self.width)).enumerate() {
            let visible = (self.visible + i).min(self.width);
            let (grad, hidden) = grad.split_at_mut(visible);
            hidden.fill(0.0);
            let (w, w_tail) = lane_groups::<S>(&weights[..visible]);
            let (g, g_tail) = lane_groups_mut::<S>(grad);
            let sum = sum_over!(s, w.len(), |i| s.mul(w[i], g[i]));
            let tails = w_tail.iter().zip(g_tail.iter());
            let sum = tails.fold(sum, |sum, (w, g)| sum + w * g);
            let shift = s.splat(sum);
            for (w, g) in w.iter().zip(g) {
                *g = s.mul(*w, s.sub(*g, shift));
            }
            for (w, g) in w_tail.iter().zip(g_tail) {
                *g = w * (*g - sum);
            }
        }
    }
}

/// The softmax of logits `[B, H, Q, K]`, of which row i sees the first `first_query + i + 1`.
pub(super) struct CausalSoftmax {
    pub(super) first_query: usize,
}

impl FusedOp<1> for CausalSoftmax {
    type Backend = burn::backend::Flex;
    /// The weights.
    type Saved = FlexTensor;

    fn forward(&self, inputs: PerInput<1>, _: bool) -> (FlexTensor, FlexTensor) {
        let [logits] = inputs.map(required);
        let shape @ [_, _, queries, width]: [usize; 4] = logits.shape().dims();
        let mut values = contiguous(logits).storage::<f32>().to_vec();
        let work = 4 * values.len();
        // One batch and head is a task.
        let tasks = values.chunks_mut((queries * width).max(1)).collect();
        for_each(tasks, work, |rows| {
            dispatch(Forward {
                rows,
                width,
                visible: self.first_query + 1,
            });
        });
        let weights = tensor(values, shape);
        (weights.clone(), weights)
    }

    fn backward(&self, weights: &FlexTensor, grad: FlexTensor, _: [bool; 1]) -> PerInput<1> {
        let shape @ [_, _, queries, width]: [usize; 4] = weights.shape().dims();
        let mut grad = contiguous(grad).storage::<f32>().to_vec();
        let each = (queries * width).max(1);
        let work = 2 * grad.len();
        let tasks = grad
            .chunks_mut(each)
            .zip(weights.storage::<f32>().chunks(each))
            .collect();
        for_each(tasks, work, |(grad, weights)| {
            dispatch(Backward {
                weights,
                grad,
                width,
                visible: self.first_query + 1,
            });
        });
        [Some(tensor(grad, shape))]
    }
}
