//! One update of AdamW in one pass over memory.

use super::simd::{Lanes, dispatch};
use super::tensors::contiguous;
use super::threads::for_each;
use crate::AdamWStep;
use burn_flex::FlexTensor;
use pulp::{Simd, WithSimd};

/// Elements per task.
const CHUNK: usize = 1 << 13;

struct Update<'a> {
    step: [f32; 9],
    theta: &'a mut [f32],
    grad: &'a [f32],
    first: &'a mut [f32],
    second: &'a mut [f32],
}

/// Parameter, gradient and moments of some elements.
type Four<S> = [<S as Simd>::f32s; 4];

impl Update<'_> {
    /// The operations of the definition, in its order and with its rounding: no fused
    /// multiply-adds.
    ///
    /// Not a closure, which may be compiled without the instruction set of its caller.
    #[inline(always)]
    fn apply<S: Simd>(
        s: S,
        step: &[S::f32s; 9],
        [theta, grad, first, second]: Four<S>,
    ) -> [S::f32s; 3] {
        let [scale, beta1, beta2, rest1, rest2, root, eps, rate, keep] = *step;
        let grad = s.mul(grad, scale);
        let first = s.add(s.mul(first, beta1), s.mul(grad, rest1));
        let second = s.add(s.mul(second, beta2), s.mul(s.mul(grad, grad), rest2));
        let update = s.mul(
            s.div(first, s.add(s.div(s.sqrt_f32s(second), root), eps)),
            rate,
        );
        [s.sub(s.mul(theta, keep), update), first, second]
    }
}

impl WithSimd for Update<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let mut step = [s.zero(); 9];
        step.iter_mut()
            .zip(self.step)
            .for_each(|(y, x)| *y = s.splat(x));
        let (theta, theta_tail) = S::as_mut_simd_f32s(self.theta);
        let (first, first_tail) = S::as_mut_simd_f32s(self.first);
        let (second, second_tail) = S::as_mut_simd_f32s(self.second);
        let (grad, grad_tail) = S::as_simd_f32s(self.grad);
        for (((theta, grad), first), second) in theta.iter_mut().zip(grad).zip(first).zip(second) {
            [*theta, *first, *second] = Self::apply(s, &step, [*theta, *grad, *first, *second]);
        }
        // The tail takes the same vector operations, and so the same rounding.
        let tails = [
            s.partial_load_f32s(theta_tail),
            s.partial_load_f32s(grad_tail),
        ];
        let moments = [
            s.partial_load_f32s(first_tail),
            s.partial_load_f32s(second_tail),
        ];
        let [theta, first, second] =
            Self::apply(s, &step, [tails[0], tails[1], moments[0], moments[1]]);
        s.partial_store_f32s(theta_tail, theta);
        s.partial_store_f32s(first_tail, first);
        s.partial_store_f32s(second_tail, second);
    }
}

/// Parameter and moments after one update: part by part, each with its step.
pub(super) fn adamw(
    theta: FlexTensor,
    grad: FlexTensor,
    moments: [FlexTensor; 2],
    steps: &[AdamWStep],
) -> [FlexTensor; 3] {
    let (mut theta, grad) = (contiguous(theta), contiguous(grad));
    let n = grad.storage::<f32>().len();
    let [mut first, mut second] = moments.map(contiguous);
    // At least 1: a parameter may be empty.
    let length = (n / steps.len()).max(1);
    let moments = first
        .storage_mut::<f32>()
        .chunks_mut(length)
        .zip(second.storage_mut::<f32>().chunks_mut(length));
    let values = theta
        .storage_mut::<f32>()
        .chunks_mut(length)
        .zip(grad.storage::<f32>().chunks(length));
    let parts = values.zip(moments).zip(steps);
    let tasks = parts.flat_map(|(((theta, grad), (first, second)), step)| {
        let step = step.scalars();
        let moments = first.chunks_mut(CHUNK).zip(second.chunks_mut(CHUNK));
        let values = theta.chunks_mut(CHUNK).zip(grad.chunks(CHUNK));
        let task = move |((theta, grad), (first, second))| Update {
            step,
            theta,
            grad,
            first,
            second,
        };
        values.zip(moments).map(task)
    });
    for_each(tasks.collect(), n, dispatch);
    [theta, first, second]
}
