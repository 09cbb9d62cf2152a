//! A network over the numbers of all heads in every cell of a matrix. No hidden layer is kept.

use super::partial_sums::NetworkSums;
use super::simd::{LANE_GROUP, Lanes, dispatch, sum_over};
use super::tensors::{PerInput, contiguous, tensor};
use super::threads::for_each;
use super::twice::{Twice, pairs, pairs_mut};
use crate::op::{FusedOp, required};
use burn::backend::TensorMetadata;
use burn_flex::FlexTensor;
use pulp::{Simd, WithSimd};

/// Cells of a task. A constant, so that sums over cells do not depend on the number of threads.
const TASK: usize = 1 << 14;

/// Cells that stay in L1 while every hidden unit goes over them.
const BLOCK: usize = 32 * LANE_GROUP;

/// The parameters of one model; sizes are those of [`crate::CellNetwork`].
#[derive(Clone, Copy)]
struct Parameters<'a> {
    w1: &'a [f32],
    b1: &'a [f32],
    w2: &'a [f32],
    b2: &'a [f32],
    slope: f32,
}

impl Parameters<'_> {
    fn sums(&self) -> NetworkSums {
        NetworkSums::new([self.w1, self.b1, self.w2, self.b2])
    }
}

/// Copies some cells of all channels, which lie `stride` apart, to rows of [`BLOCK`] numbers, and
/// fills these up with zeros.
fn gather(rows: &mut [f32], values: &[f32], stride: usize, start: usize, count: usize) {
    for (channel, row) in rows.chunks_exact_mut(BLOCK).enumerate() {
        row[..count].copy_from_slice(&values[channel * stride + start..][..count]);
        row[count..].fill(0.0);
    }
}

/// Some consecutive cells of one sequence.
struct Cells<'a, 'b> {
    parameters: Parameters<'a>,
    /// The inputs of the sequence, `[C, cells]`.
    x: &'a [f32],
    /// Index of the first cell.
    first: usize,
    /// Receives the results of these cells, a slice for each channel.
    results: Vec<&'b mut [f32]>,
}

impl Cells<'_, '_> {
    /// Cells of a sequence, and the blocks of those of this task: the first and how many.
    fn blocks(&self) -> (usize, impl Iterator<Item = (usize, usize)> + use<>) {
        let Parameters { w1, b1, .. } = self.parameters;
        let count = self.results[0].len();
        let starts = (0..count).step_by(BLOCK);
        let blocks = starts.map(move |start| (start, BLOCK.min(count - start)));
        (self.x.len() / (w1.len() / b1.len()), blocks)
    }

    /// Stores rows of a block.
    fn store(&mut self, rows: &[f32], (start, count): (usize, usize)) {
        for (result, row) in self.results.iter_mut().zip(rows.chunks_exact(BLOCK)) {
            result[start..][..count].copy_from_slice(&row[..count]);
        }
    }
}

/// The outputs of some cells.
struct Forward<'a, 'b>(Cells<'a, 'b>);

impl WithSimd for Forward<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let Self(mut cells) = self;
        let lanes = Twice(s);
        let Parameters {
            w1,
            b1,
            w2,
            b2,
            slope,
        } = cells.parameters;
        let (units, heads) = (b1.len(), b2.len());
        let slope = lanes.splat(slope);
        let (stride, blocks) = cells.blocks();
        let mut inputs = vec![0.0; w1.len() / units * BLOCK];
        let mut outputs = vec![0.0; heads * BLOCK];
        for block in blocks {
            gather(&mut inputs, cells.x, stride, cells.first + block.0, block.1);
            for (row, b2) in outputs.chunks_exact_mut(BLOCK).zip(b2) {
                row.fill(*b2);
            }
            let (x, y) = (pairs::<S>(&inputs), pairs_mut::<S>(&mut outputs));
            let n = y.len() / heads;
            for unit in 0..units {
                let (w1, w2) = (&w1[unit..], &w2[unit * heads..][..heads]);
                for i in 0..n {
                    let mut z = lanes.splat(b1[unit]);
                    for (x, w) in x[i..].iter().step_by(n).zip(w1.iter().step_by(units)) {
                        z = lanes.fma(*x, lanes.splat(*w), z);
                    }
                    let z = lanes.where_less(z, lanes.zero(), lanes.mul(z, slope), z);
                    for (y, w) in y[i..].iter_mut().step_by(n).zip(w2) {
                        *y = lanes.fma(z, lanes.splat(*w), *y);
                    }
                }
            }
            cells.store(&outputs, block);
        }
    }
}

/// A block of cells as vectors, channel after channel.
struct BlockRows<'a, V> {
    x: &'a [V],
    /// Of the outputs.
    grad: &'a [V],
    /// Receives the gradient of `x`.
    input_grad: &'a mut [V],
    /// Scratch for a hidden unit and its gradient before the activation.
    hidden: &'a mut [V],
}

/// Adds what one hidden unit contributes to the gradients of a block and of the parameters.
#[inline(always)]
fn unit_grads<S: Simd>(
    s: S,
    parameters: Parameters<'_>,
    unit: usize,
    rows: BlockRows<'_, S::f32s>,
    sums: &mut NetworkSums,
) {
    let Parameters { w1, b1, w2, .. } = parameters;
    let (units, heads) = (b1.len(), parameters.b2.len());
    let BlockRows {
        x,
        grad,
        input_grad,
        hidden,
    } = rows;
    let slope = s.splat(parameters.slope);
    let n = grad.len() / heads;
    let channels = x.len() / n;
    let (active, back) = hidden.split_at_mut(n);
    for i in 0..n {
        let mut z = s.splat(b1[unit]);
        for channel in 0..channels {
            let w = s.splat(w1[channel * units + unit]);
            z = s.fma(x[channel * n + i], w, z);
        }
        let mut g = s.zero();
        for head in 0..heads {
            g = s.fma(grad[head * n + i], s.splat(w2[unit * heads + head]), g);
        }
        active[i] = s.where_less(z, s.zero(), s.mul(z, slope), z);
        back[i] = s.where_less(z, s.zero(), s.mul(g, slope), g);
        for channel in 0..channels {
            let w = s.splat(w1[channel * units + unit]);
            let sum = &mut input_grad[channel * n + i];
            *sum = s.fma(back[i], w, *sum);
        }
    }
    let (active, back) = (&*active, &*back);
    sums.b1[unit] += f64::from(sum_over!(s, n, |i| back[i]));
    for channel in 0..channels {
        let x = &x[channel * n..][..n];
        sums.w1[channel * units + unit] += f64::from(sum_over!(s, n, |i| s.mul(back[i], x[i])));
    }
    for head in 0..heads {
        let grad = &grad[head * n..][..n];
        sums.w2[unit * heads + head] += f64::from(sum_over!(s, n, |i| s.mul(active[i], grad[i])));
    }
}

/// The gradients of some cells, in the place of their results, and of the parameters.
struct Backward<'a, 'b> {
    cells: Cells<'a, 'b>,
    /// Of the outputs of the sequence, `[H, cells]`.
    grad: &'a [f32],
    sums: &'b mut NetworkSums,
}

impl WithSimd for Backward<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let Self {
            mut cells,
            grad,
            sums,
        } = self;
        let Parameters { w1, b1, b2, .. } = cells.parameters;
        let (units, heads) = (b1.len(), b2.len());
        let channels = w1.len() / units;
        let (stride, blocks) = cells.blocks();
        let rows = |count: usize| vec![0.0; count * BLOCK];
        let (mut inputs, mut grads) = (rows(channels), rows(heads));
        let (mut input_grads, mut hidden) = (rows(channels), rows(2));
        for block in blocks {
            gather(&mut inputs, cells.x, stride, cells.first + block.0, block.1);
            gather(&mut grads, grad, stride, cells.first + block.0, block.1);
            input_grads.fill(0.0);
            let x = S::as_simd_f32s(&inputs).0;
            let grad = S::as_simd_f32s(&grads).0;
            let input_grad = S::as_mut_simd_f32s(&mut input_grads).0;
            let n = grad.len() / heads;
            for (head, sum) in sums.b2.iter_mut().enumerate() {
                let grad = &grad[head * n..][..n];
                *sum += f64::from(sum_over!(s, n, |i| grad[i]));
            }
            for unit in 0..units {
                let rows = BlockRows {
                    x,
                    grad,
                    input_grad,
                    hidden: S::as_mut_simd_f32s(&mut hidden).0,
                };
                unit_grads(s, cells.parameters, unit, rows, sums);
            }
            cells.store(&input_grads, block);
        }
    }
}

/// [`crate::cell_network`] of one model.
pub(super) struct Network {
    pub(super) slope: f32,
}

impl Network {
    fn parameters<'a>(&self, [_, w1, b1, w2, b2]: &'a [FlexTensor; 5]) -> Parameters<'a> {
        Parameters {
            w1: w1.storage(),
            b1: b1.storage(),
            w2: w2.storage(),
            b2: b2.storage(),
            slope: self.slope,
        }
    }

    /// The cells of all sequences, cut into tasks; `results` has `channels` for each sequence.
    fn tasks<'a, 'b>(
        &self,
        saved: &'a [FlexTensor; 5],
        results: &'b mut [f32],
        channels: usize,
    ) -> Vec<(usize, Cells<'a, 'b>)> {
        let [batch, inputs, rows, columns] = saved[0].shape().dims();
        let cells = rows * columns;
        let x = saved[0].storage::<f32>();
        let mut tasks = Vec::new();
        for (sequence, results) in (0..batch).zip(results.chunks_mut((channels * cells).max(1))) {
            let mut channels: Vec<_> = results
                .chunks_mut(cells)
                .map(|channel| channel.chunks_mut(TASK))
                .collect();
            for first in (0..cells).step_by(TASK) {
                let cells = Cells {
                    parameters: self.parameters(saved),
                    x: &x[sequence * inputs * cells..][..inputs * cells],
                    first,
                    results: channels.iter_mut().filter_map(Iterator::next).collect(),
                };
                tasks.push((sequence, cells));
            }
        }
        tasks
    }
}

impl FusedOp<5> for Network {
    type Backend = burn::backend::Flex;
    /// Inputs and parameters.
    type Saved = [FlexTensor; 5];

    fn forward(&self, inputs: PerInput<5>, _: bool) -> (FlexTensor, Self::Saved) {
        let saved = inputs.map(|input| contiguous(required(input)));
        let [batch, _, rows, columns] = saved[0].shape().dims();
        let (heads, units) = (saved[4].shape()[0], saved[2].shape()[0]);
        let mut y = vec![0.0; batch * heads * rows * columns];
        let work = y.len() * units / 2;
        let tasks = self.tasks(&saved, &mut y, heads);
        for_each(tasks, work, |(_, cells)| dispatch(Forward(cells)));
        (tensor(y, [batch, heads, rows, columns]), saved)
    }

    fn backward(&self, saved: &Self::Saved, grad: FlexTensor, _: [bool; 5]) -> PerInput<5> {
        let shape @ [_, channels, rows, columns] = saved[0].shape().dims();
        let parameters = self.parameters(saved);
        let (units, heads) = (parameters.b1.len(), parameters.b2.len());
        let grad = contiguous(grad);
        let grad = grad.storage::<f32>();
        let mut input_grads = vec![0.0; shape.iter().product()];
        let work = input_grads.len() * units;
        let tasks = self.tasks(saved, &mut input_grads, channels);
        let mut sums: Vec<NetworkSums> = tasks.iter().map(|_| parameters.sums()).collect();
        let each = heads * rows * columns;
        let tasks = tasks.into_iter().zip(&mut sums);
        let tasks = tasks.map(|((sequence, cells), sums)| Backward {
            cells,
            grad: &grad[sequence * each..][..each],
            sums,
        });
        for_each(tasks.collect(), work, dispatch);
        // In the order of the tasks, not in the order in which threads finish.
        let mut total = parameters.sums();
        sums.iter().for_each(|sums| total.add(sums));
        let [w1, b1, w2, b2] = total.into_tensors([channels, units]);
        [Some(tensor(input_grads, shape)), w1, b1, w2, b2]
    }
}
