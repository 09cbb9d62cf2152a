//! Sums of gates from every key to the query: positions counted by content.

use super::simd::{Lanes, dispatch};
use super::tensors::{PerInput, contiguous, tensor};
use super::threads::for_each;
use super::twice::Twice;
use crate::op::{FusedOp, required};
use burn::backend::TensorMetadata;
use burn_flex::FlexTensor;
use pulp::{Simd, WithSimd};

/// Replaces numbers by their sigmoids.
pub(super) struct Sigmoids<'a>(pub(super) &'a mut [f32]);

impl WithSimd for Sigmoids<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let (x, tail) = S::as_mut_simd_f32s(self.0);
        let (pairs, last) = x.as_chunks_mut::<2>();
        for x in pairs {
            *x = Twice(s).sigmoid(*x);
        }
        for x in last {
            *x = s.sigmoid(*x);
        }
        let last = s.sigmoid(s.partial_load_f32s(tail));
        s.partial_store_f32s(tail, last);
    }
}

/// [`crate::count_open_keys`] of logits.
pub(super) struct CountOpenKeys {
    pub(super) first_query: usize,
    pub(super) limit: f32,
}

/// What the backward pass needs: gates and counts.
pub(super) struct Saved {
    gates: Vec<f32>,
    counts: FlexTensor,
}

/// Runs `f` on the index of every query and its rows of two tensors, `[B, H, Q, K]`, up to its own
/// key.
pub(super) fn seen_rows(
    first_query: usize,
    [_, _, queries, width]: [usize; 4],
    x: &[f32],
    y: &mut [f32],
    f: impl Fn(usize, &[f32], &mut [f32]) + Sync + Send,
) {
    let (each, work) = ((queries * width).max(1), 4 * y.len());
    let tasks = x.chunks(each).zip(y.chunks_mut(each)).collect();
    for_each(tasks, work, |(x, y)| {
        let rows = x.chunks_exact(width).zip(y.chunks_exact_mut(width));
        for (i, (x, y)) in rows.enumerate() {
            let seen = (first_query + i + 1).min(width);
            f(i, &x[..seen], &mut y[..seen]);
        }
    });
}

impl FusedOp<1> for CountOpenKeys {
    type Backend = burn::backend::Flex;
    type Saved = Saved;

    fn forward(&self, inputs: PerInput<1>, _: bool) -> (FlexTensor, Saved) {
        let [logits] = inputs.map(required);
        let shape: [usize; 4] = logits.shape().dims();
        let logits = contiguous(logits);
        let logits = logits.storage::<f32>();
        let mut gates = vec![0.0; logits.len()];
        seen_rows(
            self.first_query,
            shape,
            logits,
            &mut gates,
            |_, x, gates| {
                gates.copy_from_slice(x);
                dispatch(Sigmoids(gates));
            },
        );
        // Hidden keys count nothing.
        let mut counts = vec![0.0; gates.len()];
        seen_rows(
            self.first_query,
            shape,
            &gates,
            &mut counts,
            |_, gates, counts| {
                let mut sum = 0.0;
                for (gate, count) in gates.iter().zip(counts).rev() {
                    sum += gate;
                    // Not `min`, which ignores NaN.
                    *count = if sum > self.limit { self.limit } else { sum };
                }
            },
        );
        let counts = tensor(counts, shape);
        (counts.clone(), Saved { gates, counts })
    }

    fn backward(&self, saved: &Saved, grad: FlexTensor, _: [bool; 1]) -> PerInput<1> {
        let shape: [usize; 4] = grad.shape().dims();
        let grad = contiguous(grad);
        let mut output = grad.storage::<f32>().to_vec();
        let counts = saved.counts.storage::<f32>();
        // Every count up to its own key includes a gate. Counts at the limit have no gradient.
        seen_rows(
            self.first_query,
            shape,
            counts,
            &mut output,
            |_, counts, output| {
                let mut sum = 0.0;
                for (count, output) in counts.iter().zip(output) {
                    if *count < self.limit {
                        sum += *output;
                    }
                    *output = sum;
                }
            },
        );
        // Gates of hidden keys are 0.
        for (output, gate) in output.iter_mut().zip(&saved.gates) {
            *output *= gate * (1.0 - gate);
        }
        [Some(tensor(output, shape))]
    }
}
