//! LayerNorm and RMSNorm, over whole tensors and for rows inside other operations.

use super::simd::{
    LANE_GROUP, LaneGroupSums, Lanes, dispatch, lane_groups, lane_groups_mut, sum_over,
};
use super::tensors::{PerInput, contiguous, tensor};
use super::threads::for_each;
use crate::op::{FusedOp, required};
use burn::backend::TensorMetadata;
use burn_flex::FlexTensor;
use pulp::{Simd, WithSimd};

/// Rows per task, and per partial sum of the gradients of scale and shift.
const ROWS: usize = 64;

/// Normalises rows of `x` into rows of `y`, which may have one more column: it becomes 1, which a
/// bias is multiplied with. Per row, `stats` receives the mean, 0 in an RMSNorm, and the factor.
struct Forward<'a> {
    x: &'a [f32],
    scale: &'a [f32],
    shift: Option<&'a [f32]>,
    eps: f32,
    y: &'a mut [f32],
    stats: &'a mut [[f32; 2]],
}

impl WithSimd for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let width = self.scale.len();
        let columns = self.y.len() / self.stats.len().max(1);
        let (scale, scale_tail) = lane_groups::<S>(self.scale);
        for ((x, y), stats) in self
            .x
            .chunks_exact(width)
            .zip(self.y.chunks_exact_mut(columns.max(1)))
            .zip(self.stats)
        {
            let (y, one) = y.split_at_mut(width);
            one.fill(1.0);
            let (x, x_tail) = lane_groups::<S>(x);
            let (y, y_tail) = lane_groups_mut::<S>(y);
            // An RMSNorm is the case of mean 0 and no shift.
            let mean = match self.shift {
                None => 0.0,
                Some(_) => {
                    (sum_over!(s, x.len(), |i| x[i]) + x_tail.iter().sum::<f32>()) / width as f32
                }
            };
            let m = s.splat(mean);
            // A second pass: mean(x^2) - mean(x)^2 would cancel where the mean is large.
            let squares = sum_over!(s, x.len(), |i| s.mul(s.sub(x[i], m), s.sub(x[i], m)))
                + x_tail.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>();
            let factor = 1.0 / (squares / width as f32 + self.eps).sqrt();
            *stats = [mean, factor];
            let f = s.splat(factor);
            if let Some(shift) = self.shift {
                let (shift, shift_tail) = lane_groups::<S>(shift);
                for (((x, y), scale), shift) in x.iter().zip(y).zip(scale).zip(shift) {
                    *y = s.fma(s.mul(s.sub(*x, m), f), *scale, *shift);
                }
                for (((x, y), scale), shift) in
                    x_tail.iter().zip(y_tail).zip(scale_tail).zip(shift_tail)
                {
                    *y = (x - mean) * factor * scale + shift;
                }
            } else {
                for ((x, y), scale) in x.iter().zip(y).zip(scale) {
                    *y = s.mul(s.mul(*x, f), *scale);
                }
                for ((x, y), scale) in x_tail.iter().zip(y_tail).zip(scale_tail) {
                    *y = x * factor * scale;
                }
            }
        }
    }
}

/// Turns rows of the gradient of `y` into those of `x`, and adds the contributions of these rows to
/// the gradients of scale and shift.
struct Backward<'a> {
    x: &'a [f32],
    scale: &'a [f32],
    stats: &'a [[f32; 2]],
    grad: &'a mut [f32],
    /// Gradients of scale and, in a LayerNorm, shift.
    sums: &'a mut [f32],
}

impl WithSimd for Backward<'_> {
    type Output = ();

    #[inline(always)]
    #[expect(clippy::too_many_lines, reason = "one pass per row, and its tail")]
    fn with_simd<S: Simd>(self, s: S) {
        let width = self.scale.len();
        let (scale, scale_tail) = lane_groups::<S>(self.scale);
        let (scale_sum, shift_sum) = self.sums.split_at_mut(width);
        let (scale_sum, scale_sum_tail) = lane_groups_mut::<S>(scale_sum);
        let centred = !shift_sum.is_empty();
        let (shift_sum, shift_sum_tail) = lane_groups_mut::<S>(shift_sum);
        for ((x, grad), [mean, factor]) in self
            .x
            .chunks_exact(width)
            .zip(self.grad.chunks_exact_mut(width))
            .zip(self.stats)
        {
            let (x, x_tail) = lane_groups::<S>(x);
            let (grad, grad_tail) = lane_groups_mut::<S>(grad);
            let (m, f) = (s.splat(*mean), s.splat(*factor));
            // Lane groups of even and of odd index are summed apart, so that an addition need not
            // wait for the one before.
            let per_lane_group = s.vectors_per_lane_group();
            let mut along = [[s.zero(); LANE_GROUP]; 2];
            let mut total = [[s.zero(); LANE_GROUP]; 2];
            for (i, (((x, grad), scale), scale_sum)) in x
                .iter()
                .zip(&*grad)
                .zip(scale)
                .zip(&mut *scale_sum)
                .enumerate()
            {
                // n is the normalised x, g its gradient.
                let (n, g) = (s.mul(s.sub(*x, m), f), s.mul(*grad, *scale));
                *scale_sum = s.fma(*grad, n, *scale_sum);
                let (odd, j) = (i / per_lane_group % 2, i % per_lane_group);
                along[odd][j] = s.fma(g, n, along[odd][j]);
                total[odd][j] = s.add(g, total[odd][j]);
            }
            let [mut along, mut total] = [along, total].map(|[even, odd]| {
                let mut sums = even;
                for j in 0..per_lane_group {
                    sums[j] = s.add(even[j], odd[j]);
                }
                s.sum_lane_group(&sums[..per_lane_group])
            });
            for (((x, grad), scale), scale_sum) in x_tail
                .iter()
                .zip(&*grad_tail)
                .zip(scale_tail)
                .zip(&mut *scale_sum_tail)
            {
                let (n, g) = ((x - mean) * factor, grad * scale);
                *scale_sum += grad * n;
                along += g * n;
                total += g;
            }
            let along = along / width as f32;
            // An RMSNorm subtracts no mean, so no gradient flows through one.
            let total = if centred { total / width as f32 } else { 0.0 };
            // The gradient of shift is the sum of those of y, read before they are overwritten.
            if centred {
                for (sum, grad) in shift_sum.iter_mut().zip(&*grad) {
                    *sum = s.add(*sum, *grad);
                }
                for (sum, grad) in shift_sum_tail.iter_mut().zip(&*grad_tail) {
                    *sum += grad;
                }
            }
            // grad x = factor (g - mean(g) - n mean(g n)).
            let (a, t) = (s.splat(-along), s.splat(total));
            for ((x, grad), scale) in x.iter().zip(grad).zip(scale) {
                let g = s.sub(s.mul(*grad, *scale), t);
                *grad = s.mul(f, s.fma(s.mul(s.sub(*x, m), f), a, g));
            }
            for ((x, grad), scale) in x_tail.iter().zip(grad_tail).zip(scale_tail) {
                let n = (x - mean) * factor;
                *grad = factor * (*grad * scale - total - n * along);
            }
        }
    }
}

/// The parameters of a norm: a LayerNorm with a shift, an RMSNorm without one.
#[derive(Clone, Copy)]
pub(super) struct Norm<'a> {
    pub(super) scale: &'a [f32],
    pub(super) shift: Option<&'a [f32]>,
    pub(super) eps: f32,
}

impl Norm<'_> {
    /// Normalises the rows of `x` into `y`, whose rows may have a further column of ones.
    pub(super) fn forward(self, x: &[f32], y: &mut [f32], stats: &mut [[f32; 2]]) {
        dispatch(Forward {
            x,
            scale: self.scale,
            shift: self.shift,
            eps: self.eps,
            y,
            stats,
        });
    }

    /// Turns the gradient of those rows into that of `x`; adds to `sums`, the gradients of scale
    /// and shift.
    pub(super) fn backward(
        self,
        x: &[f32],
        stats: &[[f32; 2]],
        grad: &mut [f32],
        sums: &mut [f32],
    ) {
        dispatch(Backward {
            x,
            scale: self.scale,
            stats,
            grad,
            sums,
        });
    }
}

/// What the backward pass needs.
pub(super) struct Saved {
    x: FlexTensor,
    scale: FlexTensor,
    /// Mean and factor of every row.
    stats: Vec<[f32; 2]>,
    /// Whether there is a shift: a LayerNorm.
    shift: bool,
}

/// A LayerNorm of x, scale and shift, or an RMSNorm of x and scale.
pub(super) struct RowNorm {
    pub(super) eps: f64,
}

impl FusedOp<3> for RowNorm {
    type Backend = burn::backend::Flex;
    type Saved = Saved;

    fn forward(&self, inputs: PerInput<3>, _: bool) -> (FlexTensor, Saved) {
        let [x, scale, shift] = inputs;
        forward(required(x), required(scale), shift, self.eps)
    }

    fn backward(&self, saved: &Saved, grad: FlexTensor, _: [bool; 3]) -> PerInput<3> {
        backward(saved, grad)
    }
}

fn forward(
    x: FlexTensor,
    scale: FlexTensor,
    shift: Option<FlexTensor>,
    eps: f64,
) -> (FlexTensor, Saved) {
    let [n, width] = x.shape().dims();
    let has_shift = shift.is_some();
    let (x, scale, shift) = (contiguous(x), contiguous(scale), shift.map(contiguous));
    let (mut y, mut stats) = (vec![0.0; n * width], vec![[0.0; 2]; n]);
    let chunk = ROWS * width.max(1);
    let outputs = y.chunks_mut(chunk).zip(stats.chunks_mut(ROWS));
    let shift = shift.as_ref().map(|shift| shift.storage::<f32>());
    let task = |(x, (y, stats))| Forward {
        x,
        scale: scale.storage(),
        shift,
        eps: eps as f32,
        y,
        stats,
    };
    for_each(
        x.storage::<f32>()
            .chunks(chunk)
            .zip(outputs)
            .map(task)
            .collect(),
        n * width,
        dispatch,
    );
    let saved = Saved {
        x,
        scale,
        stats,
        shift: has_shift,
    };
    (tensor(y, [n, width]), saved)
}

/// The gradients of x, scale and, for a LayerNorm, shift.
fn backward(saved: &Saved, grad: FlexTensor) -> PerInput<3> {
    let [n, width] = grad.shape().dims();
    let mut grad = contiguous(grad);
    let chunk = ROWS * width.max(1);
    let both = if saved.shift { 2 * width } else { width };
    let mut sums = vec![0.0; n.div_ceil(ROWS).max(1) * both];
    let inputs = saved
        .x
        .storage::<f32>()
        .chunks(chunk)
        .zip(saved.stats.chunks(ROWS));
    let outputs = grad
        .storage_mut::<f32>()
        .chunks_mut(chunk)
        .zip(sums.chunks_mut(both.max(1)));
    let task = |((x, stats), (grad, sums))| Backward {
        x,
        scale: saved.scale.storage(),
        stats,
        grad,
        sums,
    };
    for_each(
        inputs.zip(outputs).map(task).collect(),
        n * width * 2,
        dispatch,
    );
    // Partial sums are added in the order of the rows, for any number of threads.
    let (sum, rest) = sums.split_at_mut(both);
    for block in rest.chunks(both.max(1)) {
        for (sum, x) in sum.iter_mut().zip(block) {
            *sum += x;
        }
    }
    sums.truncate(both);
    let shift = sums.split_off(width);
    [
        Some(grad),
        Some(tensor(sums, [width])),
        saved.shift.then(|| tensor(shift, [width])),
    ]
}
