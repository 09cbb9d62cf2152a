//! Softmax and negative log-likelihood in one pass.

use super::simd::{LANE_GROUP, Lanes, dispatch, lane_groups, sum_over};
use super::tensors::{PerInput, contiguous, tensor};
use super::threads::for_each;
use crate::op::{FusedOp, required};
use burn::backend::TensorMetadata;
use burn_flex::FlexTensor;
use pulp::{Simd, WithSimd};

/// Rows per task.
const ROWS: usize = 32;

/// Per row: the negative log-likelihood of its target, and the logarithm of its sum of
/// exponentials.
struct Forward<'a> {
    logits: &'a [f32],
    targets: &'a [usize],
    nll: &'a mut [f32],
    log_sum: &'a mut [f32],
}

impl WithSimd for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let width = self.logits.len() / self.targets.len();
        let rows = self.logits.chunks_exact(width).zip(self.targets);
        for ((row, target), (nll, log_sum)) in rows.zip(self.nll.iter_mut().zip(self.log_sum)) {
            let (vectors, tail) = lane_groups::<S>(row);
            // Four maxima side by side: one would be a chain of dependent steps.
            let mut largest = [s.splat(f32::NEG_INFINITY); 4];
            for (i, x) in vectors.iter().enumerate() {
                largest[i % 4] = s.larger(*x, largest[i % 4]);
            }
            let largest = s.larger(
                s.larger(largest[0], largest[1]),
                s.larger(largest[2], largest[3]),
            );
            let largest = tail.iter().fold(
                s.reduce_max_f32s(largest),
                |a, b| if *b > a { *b } else { a },
            );
            // No exponential exceeds 1, and one is 1: no overflow, and no logarithm of 0.
            let shift = s.splat(largest);
            let sum = sum_over!(s, vectors.len(), |i| s.exp(s.sub(vectors[i], shift)));
            // Lanes past the end of the row would add exponentials of 0, so the tail is summed one
            // by one.
            let mut rest = [0.0; LANE_GROUP];
            for (x, y) in tail.chunks(S::F32_LANES).zip(rest.chunks_mut(S::F32_LANES)) {
                s.partial_store_f32s(y, s.exp(s.sub(s.partial_load_f32s(x), shift)));
            }
            let sum = rest[..tail.len()].iter().fold(sum, |a, b| a + b);
            let log = sum.ln();
            // Logits are subtracted first: `largest + log` would round away the low bits of `log`.
            *nll = (largest - row[*target]) + log;
            *log_sum = largest + log;
        }
    }
}

/// The gradient of the logits: `(softmax - onehot) grad`.
struct Backward<'a> {
    logits: &'a [f32],
    targets: &'a [usize],
    log_sum: &'a [f32],
    grad: &'a [f32],
    output: &'a mut [f32],
}

impl WithSimd for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let width = self.logits.len() / self.targets.len();
        let rows = self
            .logits
            .chunks_exact(width)
            .zip(self.output.chunks_exact_mut(width));
        for (((row, output), target), (log_sum, grad)) in rows
            .zip(self.targets)
            .zip(self.log_sum.iter().zip(self.grad))
        {
            // exp(x - log_sum) is the softmax: the row is not summed again.
            let (shift, factor) = (s.splat(*log_sum), s.splat(*grad));
            let (x, x_tail) = S::as_simd_f32s(row);
            let (y, y_tail) = S::as_mut_simd_f32s(output);
            for (x, y) in x.iter().zip(y) {
                *y = s.mul(s.exp(s.sub(*x, shift)), factor);
            }
            let tail = s.exp(s.sub(s.partial_load_f32s(x_tail), shift));
            s.partial_store_f32s(y_tail, s.mul(tail, factor));
            output[*target] -= *grad;
        }
    }
}

/// [`crate::nll`] of logits; the targets take no gradient.
pub(super) struct Nll {
    pub(super) targets: Vec<usize>,
}

/// What the backward pass needs.
pub(super) struct Saved {
    logits: FlexTensor,
    /// Logarithm of the sum of exponentials of every row.
    log_sum: Vec<f32>,
}

impl FusedOp<1> for Nll {
    type Backend = burn::backend::Flex;
    type Saved = Saved;

    fn forward(&self, inputs: PerInput<1>, _: bool) -> (FlexTensor, Saved) {
        let [logits] = inputs.map(required);
        let [n, width] = logits.shape().dims();
        assert!(
            self.targets.iter().all(|t| *t < width),
            "every target is one of {width} classes"
        );
        let logits = contiguous(logits);
        let (mut nll, mut log_sum) = (vec![0.0; n], vec![0.0; n]);
        let inputs = logits
            .storage::<f32>()
            .chunks(ROWS * width.max(1))
            .zip(self.targets.chunks(ROWS));
        let outputs = nll.chunks_mut(ROWS).zip(log_sum.chunks_mut(ROWS));
        let task = |((logits, targets), (nll, log_sum))| Forward {
            logits,
            targets,
            nll,
            log_sum,
        };
        for_each(inputs.zip(outputs).map(task).collect(), n * width, dispatch);
        (tensor(nll, [n]), Saved { logits, log_sum })
    }

    fn backward(&self, saved: &Saved, grad: FlexTensor, _: [bool; 1]) -> PerInput<1> {
        let shape @ [n, width]: [usize; 2] = saved.logits.shape().dims();
        let grad = contiguous(grad);
        let mut output = vec![0.0; n * width];
        let rows = ROWS * width.max(1);
        let inputs = saved
            .logits
            .storage::<f32>()
            .chunks(rows)
            .zip(self.targets.chunks(ROWS))
            .zip(saved.log_sum.chunks(ROWS));
        let outputs = grad
            .storage::<f32>()
            .chunks(ROWS)
            .zip(output.chunks_mut(rows));
        let task = |(((logits, targets), log_sum), (grad, output))| Backward {
            logits,
            targets,
            log_sum,
            grad,
            output,
        };
        for_each(inputs.zip(outputs).map(task).collect(), n * width, dispatch);
        [Some(tensor(output, shape))]
    }
}
