//! A backward pass in two rounds, where there are more threads than slabs of rows: first the
//! gradients of the input, chunk by chunk, then those of the parameters, by slabs and columns.
//!
//! Every sum has the terms and the order it has in one round, so the results have the same bits.

use super::gemm::{Accumulate, Lhs, Matrix, MatrixMut, Panel, Rhs, multiply, padded};
use super::norm::Norm;
use super::partial_sums::{NormPartialSums, PartialSums, store};
use super::threads::{for_each, threads};
use std::ops::Range;

/// Whether one round, with a task per slab of rows, would leave threads without work.
pub(super) fn pay(slabs: usize) -> bool {
    threads() > slabs
}

/// The rows of every slab, cut into the chunks that one product sums over.
pub(super) struct Chunks {
    /// Rows of every chunk.
    pub(super) rows: Vec<Range<usize>>,
    /// Chunks of every slab.
    slabs: Vec<Range<usize>>,
}

impl Chunks {
    /// Slabs of `slab` of `n` rows; `cut` cuts the rows of one.
    pub(super) fn new<I: Iterator<Item = Range<usize>>>(
        n: usize,
        slab: usize,
        cut: impl Fn(Range<usize>) -> I,
    ) -> Self {
        let (mut rows, mut slabs) = (Vec::new(), Vec::new());
        for start in (0..n).step_by(slab.max(1)) {
            let first = rows.len();
            rows.extend(cut(start..(start + slab).min(n)));
            slabs.push(first..rows.len());
        }
        Self { rows, slabs }
    }

    /// Chunks of `each` rows.
    pub(super) fn of(n: usize, slab: usize, each: usize) -> Self {
        Self::new(n, slab, |rows: Range<usize>| {
            let starts = rows.clone().step_by(each);
            starts.map(move |start| start..(start + each).min(rows.end))
        })
    }

    /// The rows of every chunk out of a matrix of `width` columns.
    pub(super) fn split<'a>(&self, mut values: &'a mut [f32], width: usize) -> Vec<&'a mut [f32]> {
        let cut = self.rows.iter().map(|rows| {
            let (part, rest) = std::mem::take(&mut values).split_at_mut(rows.len() * width);
            values = rest;
            part
        });
        cut.collect()
    }

    /// A chunk of a row-major matrix of `cols` columns.
    pub(super) fn row_major<'a>(&self, values: &'a [f32], chunk: usize, cols: usize) -> Matrix<'a> {
        let rows = &self.rows[chunk];
        let values = &values[rows.start * cols..rows.end * cols];
        Matrix::row_major(values, rows.len(), cols, cols)
    }

    /// A chunk of a matrix of `cols` columns whose chunks are packed.
    pub(super) fn packed<'a>(&self, values: &'a [f32], chunk: usize, cols: usize) -> &'a [f32] {
        let rows = &self.rows[chunk];
        &values[rows.start * padded(cols)..rows.end * padded(cols)]
    }

    /// The matrices of all chunks, transposed, as left operands.
    pub(super) fn transposed<'a>(&self, matrix: impl Fn(usize) -> Matrix<'a>) -> Vec<Lhs<'a>> {
        let chunks = 0..self.rows.len();
        chunks
            .map(|chunk| matrix(chunk).as_lhs_transposed())
            .collect()
    }
}

/// A norm with its input and what its gradient needs: mean and factor of every row.
pub(super) struct NormRound<'a> {
    pub(super) norm: Norm<'a>,
    pub(super) x: &'a [f32],
    pub(super) stats: &'a [[f32; 2]],
}

/// The tasks of the second round.
pub(super) struct SecondRound<'a> {
    chunks: &'a Chunks,
    tasks: Vec<Box<dyn FnOnce() + Send + 'a>>,
}

impl<'a> SecondRound<'a> {
    pub(super) fn new(chunks: &'a Chunks) -> Self {
        Self {
            chunks,
            tasks: Vec::new(),
        }
    }

    /// The gradient of a weight: the sums over the chunks of a slab of `left^T right`. `left` has
    /// the transposed matrices of all chunks; `right` gives the columns of a chunk.
    pub(super) fn weight(
        &mut self,
        sums: &'a mut PartialSums,
        left: &'a [Lhs<'_>],
        right: impl Fn(usize, &Panel) -> Rhs<'a> + Copy + Send + 'a,
    ) {
        let (chunks, rows) = (self.chunks, sums.rows());
        for (slab, panel, sum) in sums.panels() {
            self.tasks.push(Box::new(move || {
                let mut accumulate = Accumulate::Overwrite;
                for chunk in chunks.slabs[slab].clone() {
                    let sum = MatrixMut::packed(&mut *sum, rows, panel.count);
                    multiply(&left[chunk], &right(chunk, &panel), sum, accumulate);
                    accumulate = Accumulate::Add;
                }
            }));
        }
    }

    /// The gradients of a norm's parameters, and of its input in place of that of its output.
    pub(super) fn norm(
        &mut self,
        round: NormRound<'a>,
        mut grad: &'a mut [f32],
        sums: &'a mut NormPartialSums,
    ) {
        let NormRound { norm, x, stats } = round;
        let width = norm.scale.len();
        for (chunks, sums) in self.chunks.slabs.iter().zip(sums.slabs()) {
            let all = &self.chunks.rows[chunks.clone()];
            let rows = all[0].start..all[all.len() - 1].end;
            let range = rows.start * width..rows.end * width;
            let (mine, others) = grad.split_at_mut(range.len());
            grad = others;
            self.tasks.push(Box::new(move || {
                norm.backward(&x[range], &stats[rows], mine, sums);
            }));
        }
    }

    /// Runs all tasks, of about `work` nanoseconds.
    pub(super) fn run(self, work: usize) {
        for_each(self.tasks, work, |task| task());
    }
}

/// `grad += other`, in parallel: the residual sum.
pub(super) fn add(grad: &mut [f32], other: &[f32]) {
    const BLOCK: usize = 1 << 13;
    let tasks = grad.chunks_mut(BLOCK).zip(other.chunks(BLOCK));
    for_each(tasks.collect(), other.len(), |(grad, other)| {
        store(grad, other, Accumulate::Add);
    });
}
