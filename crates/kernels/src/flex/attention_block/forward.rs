//! The forward pass of the attention block.

use super::state::{AttentionBlock, Saved};
use crate::flex::attention::{BlockBias, RotateTile, RowRotation, TILE, attention_forward};
use crate::flex::buffer_pool::Buffer;
use crate::flex::gemm::{Accumulate, Matrix, MatrixMut, Rhs, multiply, padded};
use crate::flex::norm::Norm;
use crate::flex::partial_sums::weight;
use crate::flex::residual;
use crate::flex::tensors::tensor;
use crate::flex::threads::{balanced, for_each, for_each_large, threads};
use burn::backend::TensorMetadata;
use burn_flex::FlexTensor;

impl AttentionBlock {
    /// Projects the normalised rows of some sequences to queries, keys and values, rotates queries
    /// and keys, and scales queries.
    fn project(&self, x: &[f32], norm: Norm<'_>, weight: &Rhs<'_>, projected: &mut [f32]) {
        let [_, heads, length, head_dim] = self.shape;
        let ([inputs, columns], d) = (weight.shape(), norm.scale.len());
        let sequences = x.len() / (length * d).max(1);
        let work = x.len() * columns / 32;
        let tiles = self.qkv_layout(sequences).tiles(projected);
        for_each(tiles, work, |(rows, tile)| {
            let (n, first) = (rows.len(), rows.start % length);
            let mut normed = Buffer::new(n * inputs);
            norm.forward(
                &x[rows.start * d..rows.end * d],
                &mut normed,
                &mut [[0.0; 2]; TILE][..n],
            );
            let normed = Matrix::row_major(&normed, n, inputs, inputs).as_lhs();
            multiply(
                &normed,
                weight,
                MatrixMut::in_bands(tile, n, columns, head_dim),
                Accumulate::Overwrite,
            );
            // Rotated while the tile is still in L1.
            let rotations = self.rotation.as_ref().map(|rotation| {
                [&rotation.queries, &rotation.keys]
                    .map(|tables| RowRotation::new(tables, rotation, 1.0))
            });
            // Queries come first, then keys, then values, which are neither rotated nor scaled.
            for (index, tile) in tile
                .chunks_mut(n * padded(head_dim))
                .enumerate()
                .take(2 * heads)
            {
                let (part, factor) = if index < heads {
                    (0, self.scale as f32)
                } else {
                    (1, 1.0)
                };
                RotateTile {
                    tile,
                    head_dim,
                    first,
                    rotation: rotations.map(|rotations| rotations[part]),
                    factor,
                }
                .run();
            }
        });
    }

    /// The output of the block. The buffers of `saved` are filled, or stay empty.
    pub(super) fn forward_sequences(
        &self,
        saved: &mut Saved,
        bias: Option<&FlexTensor>,
    ) -> FlexTensor {
        let [batch, heads, length, head_dim] = self.shape;
        let ([n, d], inner) = (saved.x.shape().dims(), heads * head_dim);
        let together = sequences_together(batch, length);
        let mut y = residual::start(&saved.x, bias);
        let [mut projected, mut attended, mut log_sum] = [
            (&mut saved.projected, self.qkv_layout(together).len()),
            (&mut saved.attended, self.output_layout(together).len()),
            (&mut saved.log_sum, together * heads * length),
        ]
        .map(|(values, len)| values.chunks_mut(len.max(1)));
        let rows = (together * length * d).max(1);
        let task = |(index, (x, y))| {
            let [projected, attended, log_sum] = [&mut projected, &mut attended, &mut log_sum]
                .map(|values| values.next().unwrap_or_default());
            Sequences {
                first: index * together,
                x,
                y,
                projected,
                attended,
                log_sum,
            }
        };
        let x = saved.x.storage::<f32>();
        let tasks = x.chunks(rows).zip(y.chunks_mut(rows)).enumerate().map(task);
        let weights = [
            weight(&saved.qkv).as_rhs(head_dim),
            weight(&saved.output).as_rhs(d),
        ];
        let norm = saved.norm.view();
        let bias = saved.bias.as_ref();
        for_each_large(
            tasks.collect(),
            n * d * inner / 8,
            |sequences: Sequences<'_>| sequences.run(self, norm, weights.each_ref(), bias),
        );
        tensor(y, [n, d])
    }
}

/// How many of these sequences run through the block together: one, which stays in L2, where that
/// keeps all threads busy; else as many as make four tiles per thread.
fn sequences_together(batch: usize, length: usize) -> usize {
    if balanced(batch) {
        return 1;
    }
    let tiles = length.div_ceil(TILE).max(1);
    (4 * threads()).div_ceil(tiles).min(batch.max(1))
}

/// A task of the forward pass: some sequences. Intermediate values go to memory that is saved for
/// the backward pass, or, if that is empty, to scratch.
struct Sequences<'a> {
    first: usize,
    x: &'a [f32],
    y: &'a mut [f32],
    projected: &'a mut [f32],
    attended: &'a mut [f32],
    log_sum: &'a mut [f32],
}

impl Sequences<'_> {
    /// Adds the output of the block to `y`.
    fn run(
        self,
        op: &AttentionBlock,
        norm: Norm<'_>,
        [qkv, output]: [&Rhs<'_>; 2],
        bias: Option<&BlockBias>,
    ) {
        let [inner, d] = output.shape();
        let sequences = self.x.len() / (op.shape[2] * d).max(1);
        let (qkv_layout, output_layout) = (op.qkv_layout(sequences), op.output_layout(sequences));
        let saved = !self.projected.is_empty();
        let mut scratch = [qkv_layout.len(), output_layout.len()]
            .map(|len| Buffer::new(if saved { 0 } else { len }));
        let [projected, attended] = &mut scratch;
        let (projected, attended) = if saved {
            (self.projected, self.attended)
        } else {
            (&mut projected[..], &mut attended[..])
        };
        op.project(self.x, norm, qkv, projected);
        attention_forward(
            &op.call(self.first..self.first + sequences, projected, bias),
            attended,
            self.log_sum,
        );
        for_each(
            output_layout.split_rows(self.y, d),
            self.x.len() * inner / 32,
            |(rows, y)| {
                let y = MatrixMut::row_major(y, rows.len(), d, d);
                multiply(
                    &output_layout.rows(attended, rows).as_lhs(),
                    output,
                    y,
                    Accumulate::Add,
                );
            },
        );
    }
}
