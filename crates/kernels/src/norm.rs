//! Fused LayerNorm and RMSNorm.

use crate::flex::{Input, dense, for_each, record, tensor};
use crate::simd::{Lanes, dispatch, sum_over};
use burn::backend::TensorMetadata;
use burn_flex::FlexTensor;
use pulp::{Simd, WithSimd};

/// Rows one task handles, which is also how many rows one partial sum of the gradients of scale and
/// shift covers.
const ROWS: usize = 64;

/// Rows of `x` to rows of `y`. Per row, `stats` receives the mean (0 without a shift: that is an
/// RMSNorm) and the factor.
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
        let (scale, scale_tail) = S::as_simd_f32s(self.scale);
        for ((x, y), stats) in self
            .x
            .chunks_exact(width)
            .zip(self.y.chunks_exact_mut(width))
            .zip(self.stats)
        {
            let (x, x_tail) = S::as_simd_f32s(x);
            let (y, y_tail) = S::as_mut_simd_f32s(y);
            let mean = match self.shift {
                None => 0.0,
                Some(_) => {
                    (sum_over!(s, x.len(), |i| x[i]) + x_tail.iter().sum::<f32>()) / width as f32
                }
            };
            let m = s.splat(mean);
            let squares = sum_over!(s, x.len(), |i| s.mul(s.sub(x[i], m), s.sub(x[i], m)))
                + x_tail.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>();
            let factor = 1.0 / (squares / width as f32 + self.eps).sqrt();
            *stats = [mean, factor];
            let f = s.splat(factor);
            if let Some(shift) = self.shift {
                let (shift, shift_tail) = S::as_simd_f32s(shift);
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

/// Turns rows of the gradient into the gradient of `x`, and sums what scale and shift receive from
/// these rows.
struct Backward<'a> {
    x: &'a [f32],
    scale: &'a [f32],
    stats: &'a [[f32; 2]],
    grad: &'a mut [f32],
    /// Gradient of scale; then that of shift, where there is one.
    sums: &'a mut [f32],
}

impl WithSimd for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let width = self.scale.len();
        let (scale, scale_tail) = S::as_simd_f32s(self.scale);
        let (scale_sum, shift_sum) = self.sums.split_at_mut(width);
        let (scale_sum, scale_sum_tail) = S::as_mut_simd_f32s(scale_sum);
        let centred = !shift_sum.is_empty();
        let (shift_sum, shift_sum_tail) = S::as_mut_simd_f32s(shift_sum);
        for ((x, grad), [mean, factor]) in self
            .x
            .chunks_exact(width)
            .zip(self.grad.chunks_exact_mut(width))
            .zip(self.stats)
        {
            let (x, x_tail) = S::as_simd_f32s(x);
            let (grad, grad_tail) = S::as_mut_simd_f32s(grad);
            let (m, f) = (s.splat(*mean), s.splat(*factor));
            let (mut along, mut total) = ([s.zero(); 2], [s.zero(); 2]);
            for (i, (((x, grad), scale), scale_sum)) in x
                .iter()
                .zip(&*grad)
                .zip(scale)
                .zip(&mut *scale_sum)
                .enumerate()
            {
                let (n, g) = (s.mul(s.sub(*x, m), f), s.mul(*grad, *scale));
                *scale_sum = s.fma(*grad, n, *scale_sum);
                along[i % 2] = s.fma(g, n, along[i % 2]);
                total[i % 2] = s.add(g, total[i % 2]);
            }
            let mut along = s.reduce_sum_f32s(s.add(along[0], along[1]));
            let mut total = s.reduce_sum_f32s(s.add(total[0], total[1]));
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
            let total = if centred { total / width as f32 } else { 0.0 };
            if centred {
                for (sum, grad) in shift_sum.iter_mut().zip(&*grad) {
                    *sum = s.add(*sum, *grad);
                }
                for (sum, grad) in shift_sum_tail.iter_mut().zip(&*grad_tail) {
                    *sum += grad;
                }
            }
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

/// The parameters of a norm: a LayerNorm where there is a shift, else an RMSNorm.
#[derive(Clone, Copy)]
pub(crate) struct Norm<'a> {
    pub(crate) scale: &'a [f32],
    pub(crate) shift: Option<&'a [f32]>,
    pub(crate) eps: f32,
}

impl Norm<'_> {
    /// Normalises the rows of `x` into `y`.
    pub(crate) fn rows(self, x: &[f32], y: &mut [f32], stats: &mut [[f32; 2]]) {
        dispatch(Forward {
            x,
            scale: self.scale,
            shift: self.shift,
            eps: self.eps,
            y,
            stats,
        });
    }

    /// Turns the gradient of those rows into that of `x`; `sums` grows by what scale and then shift
    /// receive.
    pub(crate) fn pull(self, x: &[f32], stats: &[[f32; 2]], grad: &mut [f32], sums: &mut [f32]) {
        dispatch(Backward {
            x,
            scale: self.scale,
            stats,
            grad,
            sums,
        });
    }
}

/// What the gradient needs: x, scale, and mean and factor of every row.
struct Kept {
    x: FlexTensor,
    scale: FlexTensor,
    stats: Vec<[f32; 2]>,
}

fn forward(
    x: FlexTensor,
    scale: FlexTensor,
    shift: Option<FlexTensor>,
    eps: f64,
) -> (FlexTensor, Kept) {
    let [n, width] = x.shape().dims();
    let (x, scale, shift) = (dense(x), dense(scale), shift.map(dense));
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
    (tensor(y, [n, width]), Kept { x, scale, stats })
}

/// Gradients of x, scale and, if there is one, shift.
fn backward(kept: &Kept, grad: FlexTensor, shift: bool) -> [FlexTensor; 3] {
    let [n, width] = grad.shape().dims();
    let mut grad = dense(grad);
    let chunk = ROWS * width.max(1);
    let both = if shift { 2 * width } else { width };
    let mut sums = vec![0.0; n.div_ceil(ROWS).max(1) * both];
    let inputs = kept
        .x
        .storage::<f32>()
        .chunks(chunk)
        .zip(kept.stats.chunks(ROWS));
    let outputs = grad
        .storage_mut::<f32>()
        .chunks_mut(chunk)
        .zip(sums.chunks_mut(both.max(1)));
    let task = |((x, stats), (grad, sums))| Backward {
        x,
        scale: kept.scale.storage(),
        stats,
        grad,
        sums,
    };
    for_each(
        inputs.zip(outputs).map(task).collect(),
        n * width * 2,
        dispatch,
    );
    let (sum, rest) = sums.split_at_mut(both);
    for block in rest.chunks(both.max(1)) {
        for (sum, x) in sum.iter_mut().zip(block) {
            *sum += x;
        }
    }
    sums.truncate(both);
    let shift = sums.split_off(width);
    let shift_width = shift.len();
    [grad, tensor(sums, [width]), tensor(shift, [shift_width])]
}

pub(crate) fn layer_norm(inputs: [Input; 3], eps: f64) -> Input {
    record(
        inputs,
        |[x, scale, shift], _| forward(x, scale, Some(shift), eps),
        |kept: &Kept, grad, _| backward(kept, grad, true).map(Some),
    )
}

pub(crate) fn rms_norm(inputs: [Input; 2], eps: f64) -> Input {
    record(
        inputs,
        |[x, scale], _| forward(x, scale, None, eps),
        |kept: &Kept, grad, _| {
            let [x, scale, _] = backward(kept, grad, false);
            [Some(x), Some(scale)]
        },
    )
}
