//! The attention block: norm, projection, attention, projection and the residual sum.
//!
//! One sequence runs through the whole block before the next one, if that keeps all threads busy, so
//! that its values stay in L2. Queries and keys are rotated as soon as they are projected. They and
//! their gradients are stored tile by tile and head by head, in memory that is reused from layer to
//! layer and from step to step.

mod backward;

use super::attention::{
    AttentionCall, BlockBias, PartView, QkvLayout, RotateTile, RotationTables, RowRotation, TILE,
    attention_forward,
};
use super::buffer_pool::Buffer;
use super::gemm::{Accumulate, Matrix, MatrixMut, Rhs, multiply, padded};
use super::norm::Norm;
use super::op::{FusedOp, required};
use super::partial_sums::{NormTensors, weight};
use super::tensors::{contiguous, tensor};
use super::threads::{copy_of, for_each, for_each_large};
use crate::Matmul;
use burn::backend::TensorMetadata;
use burn_flex::FlexTensor;
use std::ops::Range;

/// `x + attention(norm(x) qkv) output` of x, scale, shift, qkv, output and bias, of which shift and
/// bias are optional.
pub(super) struct AttentionBlock {
    /// `[B, H, L, E]`.
    pub(super) shape: [usize; 4],
    pub(super) eps: f64,
    /// Whether a bias has one value per distance.
    pub(super) bias_by_distance: bool,
    pub(super) rotation: Option<RotationTables>,
    pub(super) scale: f64,
    pub(super) matmul: Matmul,
}

/// What the backward pass needs.
pub(super) struct Saved {
    x: FlexTensor,
    norm: NormTensors,
    qkv: FlexTensor,
    output: FlexTensor,
    bias: Option<BlockBias>,
    /// Queries, keys and values.
    projected: Buffer,
    /// The output of attention.
    attended: Buffer,
    log_sum: Buffer,
}

impl FusedOp<6> for AttentionBlock {
    type Saved = Saved;

    fn forward(&self, inputs: [Option<FlexTensor>; 6], tracked: bool) -> (FlexTensor, Saved) {
        let [x, scale, shift, qkv, output, bias] = inputs.map(|x| x.map(contiguous));
        let [_, heads, length, _] = self.shape;
        let sequences = if tracked { self.shape[0] } else { 0 };
        let mut saved = Saved {
            x: required(x),
            norm: NormTensors {
                scale: required(scale),
                shift,
                eps: self.eps,
            },
            qkv: required(qkv),
            output: required(output),
            bias: bias.map(|bias| match self.bias_by_distance {
                true => BlockBias::by_distance(&bias),
                false => BlockBias::dense(&bias, 0),
            }),
            projected: Buffer::new(sequences * self.qkv_layout(1).len()),
            attended: Buffer::new(sequences * self.output_layout(1).len()),
            log_sum: Buffer::new(sequences * heads * length),
        };
        let y = self.forward_sequences(&mut saved);
        (y, saved)
    }

    fn backward(
        &self,
        saved: &Saved,
        grad: FlexTensor,
        wanted: [bool; 6],
    ) -> [Option<FlexTensor>; 6] {
        let mut grad = contiguous(grad);
        let bias_wanted = saved.bias.is_some() && wanted[5];
        let [scale, shift, qkv, output, bias] =
            saved.backward(self, grad.storage_mut(), bias_wanted);
        [Some(grad), scale, shift, qkv, output, bias]
    }
}

impl AttentionBlock {
    /// The layout of the queries, keys and values of some sequences.
    fn qkv_layout(&self, sequences: usize) -> QkvLayout {
        let [_, heads, length, head_dim] = self.shape;
        QkvLayout {
            shape: [sequences, heads, length, head_dim],
            parts: 3,
        }
    }

    /// The layout of the output of attention for some sequences.
    fn output_layout(&self, sequences: usize) -> QkvLayout {
        self.qkv_layout(sequences).single_part()
    }

    /// The attention of some of the sequences.
    fn call<'a>(
        &'a self,
        sequences: Range<usize>,
        projected: &'a [f32],
        bias: Option<&'a BlockBias>,
    ) -> AttentionCall<'a> {
        let layout = self.qkv_layout(sequences.len());
        let [q, k, v] = [0, 1, 2].map(|part| PartView {
            values: projected,
            layout,
            part,
        });
        let (first_sequence, rotation, scale) =
            (sequences.start, self.rotation.as_ref(), self.scale as f32);
        AttentionCall {
            q,
            k,
            v,
            bias,
            first_sequence,
            rotation,
            scale,
            first_query: 0,
        }
    }

    /// Projects the normalised rows of one sequence to queries, keys and values, rotates queries and
    /// keys, and scales queries.
    fn project(&self, x: &[f32], norm: Norm<'_>, weight: &Rhs<'_>, projected: &mut [f32]) {
        let [_, heads, _, head_dim] = self.shape;
        let [d, columns] = weight.shape();
        let work = x.len() * columns / 32;
        for_each(self.qkv_layout(1).tiles(projected), work, |(rows, tile)| {
            let (n, first) = (rows.len(), rows.start);
            let mut normed = Buffer::new(n * d);
            norm.forward(
                &x[rows.start * d..rows.end * d],
                &mut normed,
                &mut [[0.0; 2]; TILE][..n],
            );
            let normed = Matrix::row_major(&normed, n, d, d).as_lhs(self.matmul);
            multiply(
                &normed,
                weight,
                MatrixMut::grouped(tile, n, columns, head_dim),
                Accumulate::Overwrite,
            );
            // Rotated while the tile is still in L1.
            let rotations = self.rotation.as_ref().map(|rotation| {
                [&rotation.queries, &rotation.keys]
                    .map(|tables| RowRotation::new(tables, rotation, 1.0))
            });
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
    fn forward_sequences(&self, saved: &mut Saved) -> FlexTensor {
        let [_, heads, length, head_dim] = self.shape;
        let ([n, d], inner) = (saved.x.shape().dims(), heads * head_dim);
        let mut y = copy_of(saved.x.storage());
        let [mut projected, mut attended, mut log_sum] = [
            (&mut saved.projected, self.qkv_layout(1).len()),
            (&mut saved.attended, self.output_layout(1).len()),
            (&mut saved.log_sum, heads * length),
        ]
        .map(|(values, len)| values.chunks_mut(len.max(1)));
        let rows = (length * d).max(1);
        let task = |(index, (x, y))| {
            let [projected, attended, log_sum] = [&mut projected, &mut attended, &mut log_sum]
                .map(|values| values.next().unwrap_or_default());
            Sequence {
                index,
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
            weight(&saved.qkv).as_rhs(head_dim, self.matmul).prepared(),
            weight(&saved.output).as_rhs(d, self.matmul).prepared(),
        ];
        let (norm, bias) = (saved.norm.view(), saved.bias.as_ref());
        for_each_large(
            tasks.collect(),
            n * d * inner / 8,
            |sequence: Sequence<'_>| sequence.run(self, norm, weights.each_ref(), bias),
        );
        tensor(y, [n, d])
    }
}

/// A task of the forward pass: one sequence. Intermediate values go to memory that is saved for the
/// backward pass, or, if that is empty, to scratch.
struct Sequence<'a> {
    index: usize,
    x: &'a [f32],
    y: &'a mut [f32],
    projected: &'a mut [f32],
    attended: &'a mut [f32],
    log_sum: &'a mut [f32],
}

impl Sequence<'_> {
    /// Adds the output of the block to `y`.
    fn run(
        self,
        op: &AttentionBlock,
        norm: Norm<'_>,
        [qkv, output]: [&Rhs<'_>; 2],
        bias: Option<&BlockBias>,
    ) {
        let [inner, d] = output.shape();
        let (qkv_layout, output_layout) = (op.qkv_layout(1), op.output_layout(1));
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
            &op.call(self.index..self.index + 1, projected, bias),
            attended,
            self.log_sum,
        );
        for_each(
            output_layout.split_rows(self.y, d),
            self.x.len() * inner / 32,
            |(rows, y)| {
                let y = MatrixMut::row_major(y, rows.len(), d, d);
                multiply(
                    &output_layout.rows(attended, rows).as_lhs(op.matmul),
                    output,
                    y,
                    Accumulate::Add,
                );
            },
        );
    }
}
