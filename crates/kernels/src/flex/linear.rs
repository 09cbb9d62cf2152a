//! Linear layers, with or without a norm before them.

use super::buffer_pool::Buffer;
use super::gemm::{Accumulate, Matrix, MatrixMut, Rhs, multiply};
use super::live_rows::{LiveRows, unsign_zero_rows};
use super::norm::Norm;
use super::partial_sums::{CHUNK, NormPartialSums, NormTensors, PartialSums, slab_rows, weight};
use super::tensors::{PerInput, contiguous, tensor};
use super::threads::for_each;
use super::two_rounds::{self, Chunks, NormRound, SecondRound};
use crate::op::{FusedOp, required};
use burn::backend::TensorMetadata;
use burn_flex::FlexTensor;

/// `norm(x) w` of x, scale, shift and w; without a scale `x w`.
pub(super) struct Linear {
    pub(super) eps: f64,
}

/// What the backward pass needs.
pub(super) struct Saved {
    x: FlexTensor,
    norm: Option<NormTensors>,
    w: FlexTensor,
}

impl FusedOp<4> for Linear {
    type Backend = burn::backend::Flex;
    type Saved = Saved;

    fn forward(&self, inputs: PerInput<4>, _: bool) -> (FlexTensor, Saved) {
        let [x, scale, shift, w] = inputs.map(|x| x.map(contiguous));
        let (x, w) = (required(x), required(w));
        let norm = scale.map(|scale| NormTensors {
            scale,
            shift,
            eps: self.eps,
        });
        let ([n, _], [_, m]) = (x.shape().dims(), w.shape().dims());
        let mut y = vec![0.0; n * m];
        // Prepared once for the chunks of all threads.
        let rhs = weight(&w).as_rhs(m);
        let view = norm.as_ref().map(NormTensors::view);
        forward(x.storage(), view, &rhs, &mut y);
        (tensor(y, [n, m]), Saved { x, norm, w })
    }

    fn backward(
        &self,
        Saved { x, norm, w }: &Saved,
        grad: FlexTensor,
        _: [bool; 4],
    ) -> PerInput<4> {
        let grad = contiguous(grad);
        let shape: [usize; 2] = x.shape().dims();
        let mut grad_x = vec![0.0; shape[0] * shape[1]];
        let transposed = weight(w).as_rhs_transposed(shape[1]);
        let norm = norm.as_ref().map(NormTensors::view);
        let (norm_sums, weight_sums) =
            backward(x.storage(), norm, &transposed, grad.storage(), &mut grad_x);
        unsign_zero_rows(&mut grad_x, shape[1]);
        let [scale, shift] = norm_sums.totals();
        [
            Some(tensor(grad_x, shape)),
            scale,
            shift,
            Some(weight_sums.total()),
        ]
    }
}

/// `y = norm(x) w`, without a norm `x w`. `x` is `[n, k]`, `w` is `[k, m]`.
fn forward(x: &[f32], norm: Option<Norm<'_>>, w: &Rhs<'_>, y: &mut [f32]) {
    let [k, m] = w.shape();
    let chunks = x
        .chunks(CHUNK * k.max(1))
        .zip(y.chunks_mut(CHUNK * m.max(1)));
    for_each(chunks.collect(), x.len() * m / 32, |(x, y)| {
        let rows = x.len() / k;
        let y = MatrixMut::row_major(y, rows, m, m);
        let mut normed = Buffer::new(if norm.is_some() { x.len() } else { 0 });
        let x = match norm {
            None => x,
            Some(norm) => {
                norm.forward(x, &mut normed, &mut [[0.0; 2]; CHUNK][..rows]);
                &normed
            }
        };
        let lhs = Matrix::row_major(x, rows, k, k).as_lhs();
        multiply(&lhs, w, y, Accumulate::Overwrite);
    });
}

/// The gradients of the norm and of `w` from that of `y`; that of `x` goes to `grad_x`.
/// `transposed` is the transposed `w`, `[m, k]`.
fn backward(
    x: &[f32],
    norm: Option<Norm<'_>>,
    transposed: &Rhs<'_>,
    grad: &[f32],
    grad_x: &mut [f32],
) -> (NormPartialSums, PartialSums) {
    let [m, k] = transposed.shape();
    let n = x.len() / k.max(1);
    let rows = slab_rows(n);
    let slabs = n.div_ceil(rows.max(1));
    let mut weight_sums = PartialSums::new(slabs, [k, m]);
    let mut norm_sums = NormPartialSums::new(slabs, norm);
    if two_rounds::pay(slabs) {
        let chunks = Chunks::of(n, rows, CHUNK);
        let sums = (&mut norm_sums, &mut weight_sums);
        backward_in_two_rounds(x, norm, transposed, grad, grad_x, &chunks, sums);
        return (norm_sums, weight_sums);
    }
    let inputs = x.chunks(rows * k).zip(grad.chunks(rows * m));
    let outputs = grad_x
        .chunks_mut(rows * k)
        .zip(weight_sums.slabs())
        .zip(norm_sums.slabs());
    let task = |((x, grad), ((grad_x, weight), norm_sums))| Slab {
        x,
        grad,
        grad_x,
        weight,
        norm_sums,
    };
    for_each(
        inputs.zip(outputs).map(task).collect(),
        x.len() * m / 16,
        |slab: Slab<'_>| slab.backward(norm, transposed),
    );
    (norm_sums, weight_sums)
}

fn backward_in_two_rounds(
    x: &[f32],
    norm: Option<Norm<'_>>,
    transposed: &Rhs<'_>,
    grad: &[f32],
    grad_x: &mut [f32],
    chunks: &Chunks,
    (norm_sums, weight_sums): (&mut NormPartialSums, &mut PartialSums),
) {
    let [m, k] = transposed.shape();
    let n = x.len() / k.max(1);
    let kept = if norm.is_some() { n } else { 0 };
    let (mut normed, mut stats) = (Buffer::new(kept * k), vec![[0.0; 2]; kept]);
    let parts = chunks.split(grad_x, k).into_iter();
    let tasks = match norm {
        None => parts.map(|grad_x| (grad_x, None)).collect::<Vec<_>>(),
        Some(norm) => {
            let normed = chunks.split(&mut normed, k).into_iter();
            let outputs = normed.zip(stats.chunks_mut(CHUNK));
            let with = |(grad_x, (normed, stats))| (grad_x, Some((norm, normed, stats)));
            parts.zip(outputs).map(with).collect()
        }
    };
    let tasks: Vec<_> = tasks.into_iter().enumerate().collect();
    for_each(tasks, n * k * m / 32, |(chunk, (grad_x, norm))| {
        let rows = chunks.rows[chunk].clone();
        if let Some((norm, normed, stats)) = norm {
            norm.forward(&x[rows.start * k..rows.end * k], normed, stats);
        }
        multiply(
            &chunks.row_major(grad, chunk, m).as_lhs(),
            transposed,
            MatrixMut::row_major(grad_x, rows.len(), k, k),
            Accumulate::Overwrite,
        );
    });
    let input = if norm.is_some() { &normed[..] } else { x };
    let input = chunks.transposed(|chunk| chunks.row_major(input, chunk, k));
    let mut second = SecondRound::new(chunks);
    second.weight(weight_sums, &input, |chunk, panel| {
        let grad = chunks.row_major(grad, chunk, m);
        grad.column_range(panel.columns()).as_rhs(panel.count)
    });
    if let Some(norm) = norm {
        let stats = &stats[..];
        let round = NormRound { norm, x, stats };
        second.norm(round, grad_x, norm_sums);
    }
    second.run(n * k * m / 32);
}

/// A task of the backward pass: the rows that share one partial sum.
struct Slab<'a> {
    x: &'a [f32],
    grad: &'a [f32],
    grad_x: &'a mut [f32],
    weight: &'a mut [f32],
    norm_sums: &'a mut [f32],
}

impl Slab<'_> {
    fn backward(self, norm: Option<Norm<'_>>, transposed: &Rhs<'_>) {
        let [m, k] = transposed.shape();
        let mut normed = Buffer::new(CHUNK * k);
        let mut accumulate = Accumulate::Overwrite;
        let (weight, norm_sums) = (self.weight, self.norm_sums);
        let mut chunk = |x: &[f32], grad: &[f32], grad_x: &mut [f32]| {
            let rows = x.len() / k;
            let mut stats = [[0.0; 2]; CHUNK];
            let input = match norm {
                None => x,
                Some(norm) => {
                    let normed = &mut normed[..x.len()];
                    norm.forward(x, normed, &mut stats[..rows]);
                    normed
                }
            };
            let grad = Matrix::row_major(grad, rows, m, m);
            // grad w = norm(x)^T grad, [k, m].
            multiply(
                &Matrix::row_major(input, rows, k, k).as_lhs_transposed(),
                &grad.as_rhs(m),
                MatrixMut::packed(&mut *weight, k, m),
                accumulate,
            );
            // grad norm(x) = grad w^T, [rows, k]; the norm turns it into grad x below.
            multiply(
                &grad.as_lhs(),
                transposed,
                MatrixMut::row_major(&mut *grad_x, rows, k, k),
                Accumulate::Overwrite,
            );
            if let Some(norm) = norm {
                norm.backward(x, &stats[..rows], grad_x, norm_sums);
            }
            // Only the first chunk of the slab replaces what the buffer held.
            accumulate = Accumulate::Add;
        };
        let chunks = self.x.chunks(CHUNK * k).zip(self.grad.chunks(CHUNK * m));
        for ((x, grad), grad_x) in chunks.zip(self.grad_x.chunks_mut(CHUNK * k)) {
            let Some(live) = LiveRows::of(grad, m) else {
                chunk(x, grad, grad_x);
                continue;
            };
            let (all, count) = (x.len() / k, live.count());
            let [mut live_x, mut live_grad, mut live_grad_x] =
                [k, m, k].map(|width| Buffer::new(count * width));
            live.gather(Matrix::row_major(x, all, k, k), &mut live_x);
            live.gather(Matrix::row_major(grad, all, m, m), &mut live_grad);
            chunk(&live_x, &live_grad, &mut live_grad_x);
            // It was filled with zeros.
            live.scatter(&live_grad_x, k, grad_x);
        }
    }
}
