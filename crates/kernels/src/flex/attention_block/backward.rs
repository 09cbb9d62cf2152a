//! The backward pass of the attention block.

use super::state::{AttentionBlock, Saved};
use crate::flex::attention::{PartView, TILE, attention_backward, grads_by_head};
use crate::flex::buffer_pool::Buffer;
use crate::flex::gemm::{Accumulate, Matrix, MatrixMut, Rhs, multiply};
use crate::flex::live_rows::unsign_zero_rows;
use crate::flex::partial_sums::{NormPartialSums, PartialSums, slab_rows, store, weight};
use crate::flex::tensors::PerInput;
use crate::flex::threads::{for_each, threads};
use crate::flex::two_rounds;
use burn::backend::TensorMetadata;
use burn_flex::FlexTensor;
use std::ops::Range;

/// The partial sums of the gradients of the parameters.
pub(super) struct AllSums {
    pub(super) qkv: PartialSums,
    pub(super) output: PartialSums,
    pub(super) norm: NormPartialSums,
}

impl AllSums {
    fn new(slabs: usize, saved: &Saved, head_dim: usize) -> Self {
        Self {
            qkv: PartialSums::in_bands(slabs, saved.qkv.shape().dims(), head_dim),
            output: PartialSums::new(slabs, saved.output.shape().dims()),
            norm: NormPartialSums::new(slabs, Some(saved.norm.view())),
        }
    }

    /// Those of every slab of rows.
    fn slabs(&mut self) -> impl Iterator<Item = Sums<'_>> {
        let weights = self.qkv.slabs().zip(self.output.slabs());
        let slabs = weights.zip(self.norm.slabs());
        slabs.map(|((qkv, output), norm)| Sums {
            qkv,
            output,
            norm,
            accumulate: Accumulate::Overwrite,
        })
    }
}

/// The transposed weights.
struct Transposed<'a> {
    qkv: Rhs<'a>,
    output: Rhs<'a>,
}

/// Those of one slab of rows.
struct Sums<'a> {
    qkv: &'a mut [f32],
    output: &'a mut [f32],
    norm: &'a mut [f32],
    /// Whether these are the first rows.
    accumulate: Accumulate,
}

impl Saved {
    /// The gradients of scale, shift, qkv, output and, if wanted, the bias; `grad`, that of the
    /// output, becomes that of `x`.
    pub(super) fn backward(
        &self,
        op: &AttentionBlock,
        grad: &mut [f32],
        bias_wanted: bool,
    ) -> (PerInput<4>, Vec<FlexTensor>) {
        let [batch, _, length, head_dim] = op.shape;
        let [inner, d] = self.output.shape().dims();
        let transposed = Transposed {
            // A bias gives its input no gradient.
            qkv: weight(&self.qkv).row_range(0..d).as_rhs_transposed(d),
            output: weight(&self.output).as_rhs_transposed(head_dim),
        };
        let n = grad.len() / d.max(1);
        let rows = slab_rows(n);
        let slabs = n.div_ceil(rows.max(1));
        let mut sums = AllSums::new(slabs, self, head_dim);
        // Gradients of attention and of the projections: for one sequence at a time, so that they
        // stay in L2, if slabs hold whole sequences and give every thread work; else for all at
        // once. The gradient of a bias needs the heads of all sequences.
        let by_sequence = rows.is_multiple_of(length) && slabs >= threads() && !bias_wanted;
        let scratch = |sequences: usize| {
            [op.output_layout(sequences), op.qkv_layout(sequences)]
                .map(|layout| Buffer::new(layout.len()))
        };
        let work = n * d * inner / 4;
        let mut bias_grads = Vec::new();
        if by_sequence {
            let tasks = grad.chunks_mut(rows * d).zip(sums.slabs()).enumerate();
            for_each(tasks.collect(), work, |(slab, (grad, mut sums))| {
                let first = slab * rows / length;
                self.backward_sequences(op, first, grad, &transposed, scratch(1), &mut sums);
            });
        } else {
            let mut scratch = scratch(batch);
            bias_grads =
                self.backward_attention(op, 0..batch, grad, &transposed, &mut scratch, bias_wanted);
            let [_, projected_grad] = &scratch;
            if two_rounds::pay(slabs) {
                let transposed = &transposed.qkv;
                self.projections_in_two_rounds(
                    op,
                    rows,
                    grad,
                    projected_grad,
                    transposed,
                    &mut sums,
                );
            } else {
                let tasks = grad.chunks_mut((rows * d).max(1)).zip(sums.slabs());
                let task = |(slab, (grad, mut sums)): (usize, (&mut [f32], Sums<'_>))| {
                    let sequences = 0..batch;
                    let first = slab * rows;
                    self.backward_projections(
                        op,
                        first,
                        grad,
                        projected_grad,
                        sequences,
                        &transposed,
                        &mut sums,
                    );
                };
                for_each(tasks.enumerate().collect(), work, task);
            }
        }
        unsign_zero_rows(grad, d);
        let [scale, shift] = sums.norm.totals();
        let [qkv, output] = [sums.qkv, sums.output].map(|sums| Some(sums.total()));
        ([scale, shift, qkv, output], bias_grads)
    }

    /// The whole backward pass of a slab of sequences, one after the other.
    fn backward_sequences(
        &self,
        op: &AttentionBlock,
        first: usize,
        grad: &mut [f32],
        transposed: &Transposed<'_>,
        mut scratch: [Buffer; 2],
        sums: &mut Sums<'_>,
    ) {
        let (length, d) = (op.shape[2], self.output.shape()[1]);
        for (index, grad) in grad.chunks_mut(length * d).enumerate() {
            let sequence = first + index;
            let sequences = sequence..sequence + 1;
            self.backward_attention(op, sequences.clone(), grad, transposed, &mut scratch, false);
            self.backward_projections(
                op,
                sequence * length,
                grad,
                &scratch[1],
                sequences,
                transposed,
                sums,
            );
        }
    }

    /// From the gradient of the output of some sequences those of the output of attention and of
    /// the projections, into the two buffers, and, if wanted, that of the bias.
    fn backward_attention(
        &self,
        op: &AttentionBlock,
        sequences: Range<usize>,
        grad: &[f32],
        transposed: &Transposed<'_>,
        [attended_grad, projected_grad]: &mut [Buffer; 2],
        bias_wanted: bool,
    ) -> Vec<FlexTensor> {
        let [_, heads, length, head_dim] = op.shape;
        let [inner, d] = self.output.shape().dims();
        let (qkv_layout, output_layout) = (
            op.qkv_layout(sequences.len()),
            op.output_layout(sequences.len()),
        );
        for_each(
            output_layout.tiles(attended_grad),
            grad.len() * inner / 32,
            |(rows, tile)| {
                let (grad, all) = (&grad[rows.start * d..rows.end * d], rows.len());
                let count = live_rows(grad, None, d);
                if count < all {
                    tile.fill(0.0);
                }
                let target = MatrixMut::in_bands(tile, all, inner, head_dim);
                multiply(
                    &Matrix::row_major(&grad[..count * d], count, d, d).as_lhs(),
                    &transposed.output,
                    target.row_range(0..count),
                    Accumulate::Overwrite,
                );
            },
        );
        // The part of the saved values that belongs to these sequences.
        let of = |each: usize| sequences.start * each..sequences.end * each;
        let projected = &self.projected[of(op.qkv_layout(1).len())];
        let (attended, log_sum) = (
            &self.attended[of(op.output_layout(1).len())],
            &self.log_sum[of(heads * length)],
        );
        let parts = qkv_layout
            .tiles_by_head(projected_grad)
            .try_into()
            .expect("queries, keys and values");
        let [output, output_grad] = [attended, attended_grad].map(|values| PartView {
            values,
            layout: output_layout,
            part: 0,
        });
        let call = op.call(sequences.clone(), projected, self.bias.as_ref());
        attention_backward(
            &call,
            output,
            output_grad,
            log_sum,
            grads_by_head(heads, parts),
            bias_wanted,
        )
    }

    /// Adds the contributions of the rows from `first` on to the gradients of the parameters.
    ///
    /// `projected_grad` is the gradient of the projections of `sequences`. `grad`, that of the
    /// output of these rows, becomes that of `x`.
    #[expect(
        clippy::too_many_arguments,
        reason = "one call per slab of rows, or sequence"
    )]
    fn backward_projections(
        &self,
        op: &AttentionBlock,
        first: usize,
        grad: &mut [f32],
        projected_grad: &[f32],
        sequences: Range<usize>,
        transposed: &Transposed<'_>,
        sums: &mut Sums<'_>,
    ) {
        let (norm, x) = (self.norm.view(), self.x.storage::<f32>());
        let [batch, _, length, head_dim] = op.shape;
        let [inner, d] = self.output.shape().dims();
        let inputs = self.inputs();
        let [mut normed, mut grad_normed] = [inputs, d].map(|width| Buffer::new(TILE * width));
        for part in op
            .output_layout(batch)
            .cut_at_tiles(first..first + grad.len() / d)
        {
            // `projected_grad` starts at the first of `sequences`; rows are counted through all.
            let before = sequences.start * length;
            let of_sequences = op.qkv_layout(sequences.len());
            let projected = |part: &Range<usize>| {
                of_sequences.rows(projected_grad, part.start - before..part.end - before)
            };
            let grad = &mut grad[(part.start - first) * d..(part.end - first) * d];
            // Padding at the end of a sequence has gradients of zero and adds nothing.
            let count = live_rows(grad, Some(projected(&part)), d);
            let (grad, part) = (&mut grad[..count * d], part.start..part.start + count);
            // grad output = attended^T grad, [inner, d].
            let right = Matrix::row_major(grad, count, d, d).as_rhs(d);
            let attended = op
                .output_layout(batch)
                .rows(&self.attended, part.clone())
                .as_lhs_transposed();
            multiply(
                &attended,
                &right,
                MatrixMut::packed(sums.output, inner, d),
                sums.accumulate,
            );
            let (x, normed, grad_normed) = (
                &x[part.start * d..part.end * d],
                &mut normed[..count * inputs],
                &mut grad_normed[..count * d],
            );
            let mut stats = [[0.0; 2]; TILE];
            // norm(x) is not saved but computed again.
            norm.forward(x, normed, &mut stats[..count]);
            let projected = projected(&part);
            // grad qkv = norm(x)^T grad projected, [inputs, 3 inner].
            let normed = Matrix::row_major(normed, count, inputs, inputs).as_lhs_transposed();
            multiply(
                &normed,
                &projected.as_rhs(head_dim),
                MatrixMut::in_bands(sums.qkv, inputs, 3 * inner, head_dim),
                sums.accumulate,
            );
            // grad norm(x) = grad projected qkv^T, [rows, d].
            multiply(
                &projected.as_lhs(),
                &transposed.qkv,
                MatrixMut::row_major(grad_normed, count, d, d),
                Accumulate::Overwrite,
            );
            norm.backward(x, &stats[..count], grad_normed, sums.norm);
            // The residual sum: `grad` also reaches x directly.
            store(grad, grad_normed, Accumulate::Add);
            // Only the first tile of the slab replaces what the buffers held.
            sums.accumulate = Accumulate::Add;
        }
    }
}

/// Rows up to the last one whose gradient of the output, or of the projections, is not zero; at
/// least one, as the sums of a tile begin with a product.
fn live_rows(grad: &[f32], projected: Option<Matrix<'_>>, d: usize) -> usize {
    let is_live = |row: &usize| {
        let values = &grad[row * d..][..d];
        let is_live = values.iter().any(|value| *value != 0.0);
        is_live || projected.is_some_and(|projected| projected.has_nonzero(*row))
    };
    let last = (0..grad.len() / d).rev().find(is_live);
    last.map_or(1, |row| row + 1)
}
