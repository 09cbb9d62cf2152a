//! The backward pass of the projections with more threads than slabs of rows.

use super::backward::AllSums;
use super::state::{AttentionBlock, Saved};
use crate::flex::attention::{PartView, TILE};
use crate::flex::buffer_pool::Buffer;
use crate::flex::gemm::{Accumulate, MatrixMut, Rhs, multiply};
use crate::flex::threads::for_each;
use crate::flex::two_rounds::{Chunks, NormRound, SecondRound, add};
use burn::backend::TensorMetadata;

/// What the first round leaves to the second.
struct Kept {
    normed: Buffer,
    /// Mean and factor of every row.
    stats: Vec<[f32; 2]>,
    grad_normed: Buffer,
}

impl Saved {
    /// `grad`, that of the output, becomes that of `x`; those of the parameters go to the sums of
    /// slabs of `slab` rows. `projected_grad` is the gradient of the projections of all
    /// sequences, `transposed` the transposed `qkv`.
    pub(super) fn projections_in_two_rounds(
        &self,
        op: &AttentionBlock,
        slab: usize,
        grad: &mut [f32],
        projected_grad: &[f32],
        transposed: &Rhs<'_>,
        sums: &mut AllSums,
    ) {
        let [batch, heads, length, head_dim] = op.shape;
        let [inner, d] = self.output.shape().dims();
        let (norm, x) = (self.norm.view(), self.x.storage::<f32>());
        let (qkv_layout, output_layout) = (op.qkv_layout(batch), op.output_layout(batch));
        let n = grad.len() / d.max(1);
        // Chunks end where tiles do.
        let chunks = Chunks::new(n, slab, |rows| output_layout.cut_at_tiles(rows));
        let mut kept = Kept {
            normed: Buffer::new(n * self.inputs()),
            stats: vec![[0.0; 2]; n],
            grad_normed: Buffer::new(n * d),
        };
        self.first_round(op, projected_grad, transposed, &chunks, &mut kept);
        let Kept {
            normed,
            stats,
            mut grad_normed,
        } = kept;
        let normed = chunks.transposed(|chunk| chunks.row_major(&normed, chunk, self.inputs()));
        let attended = chunks
            .transposed(|chunk| output_layout.rows(&self.attended, chunks.rows[chunk].clone()));
        let mut second = SecondRound::new(&chunks);
        // grad output = attended^T grad, [inner, d].
        second.weight(&mut sums.output, &attended, |chunk, panel| {
            let grad = chunks.row_major(grad, chunk, d);
            grad.column_range(panel.columns()).as_rhs(panel.count)
        });
        // grad qkv = norm(x)^T grad projected, [inputs, 3 inner], head by head.
        second.weight(&mut sums.qkv, &normed, |chunk, panel| {
            let rows = &chunks.rows[chunk];
            let (sequence, first) = (rows.start / length, rows.start % length);
            let (part, head) = (
                panel.columns().start / inner,
                panel.columns().start % inner / head_dim,
            );
            debug_assert!(head < heads && rows.len() <= TILE, "one head of one tile");
            let view = PartView {
                values: projected_grad,
                layout: qkv_layout,
                part,
            };
            view.matrix([sequence, head], first..first + rows.len())
                .as_rhs(head_dim)
        });
        let stats = &stats[..];
        second.norm(
            NormRound { norm, x, stats },
            &mut grad_normed,
            &mut sums.norm,
        );
        second.run(n * d * inner / 4);
        // The residual sum: `grad` also reaches x directly.
        add(grad, &grad_normed);
    }

    /// The gradient of `norm(x)`.
    fn first_round(
        &self,
        op: &AttentionBlock,
        projected_grad: &[f32],
        transposed: &Rhs<'_>,
        chunks: &Chunks,
        kept: &mut Kept,
    ) {
        let (norm, x) = (self.norm.view(), self.x.storage::<f32>());
        let (layout, d) = (op.qkv_layout(op.shape[0]), norm.scale.len());
        let work = x.len() * self.output.shape()[0] / 8;
        let outputs = chunks.split(&mut kept.normed, self.inputs()).into_iter();
        let outputs = outputs.zip(chunks.split(&mut kept.grad_normed, d));
        let mut rest = &mut kept.stats[..];
        let tasks = outputs.enumerate().map(|(chunk, outputs)| {
            let rows = chunks.rows[chunk].clone();
            let (stats, others) = std::mem::take(&mut rest).split_at_mut(rows.len());
            rest = others;
            (rows, outputs, stats)
        });
        for_each(
            tasks.collect(),
            work,
            |(rows, (normed, grad_normed), stats)| {
                norm.forward(&x[rows.start * d..rows.end * d], normed, stats);
                // grad norm(x) = grad projected qkv^T, [rows, d].
                let grad_normed = MatrixMut::row_major(grad_normed, rows.len(), d, d);
                let projected = layout.rows(projected_grad, rows).as_lhs();
                multiply(&projected, transposed, grad_normed, Accumulate::Overwrite);
            },
        );
    }
}
