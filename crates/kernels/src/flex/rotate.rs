//! Rotation of pairs of dimensions by tables of cos and sin, and the gradients of the tables.

use super::simd::{Lanes, dispatch};
use super::tensors::{PerInput, Strided, contiguous, strided_output, tensor};
use super::threads::{fill, for_each};
use crate::op::{FusedOp, required};
use burn::backend::TensorMetadata;
use burn_flex::FlexTensor;
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// Numbers per task.
const BLOCK: usize = 1024;

/// Which table rows belong to which rows of `x`, `[B, H, L, E]`: tables are `[G, 1 or H, L, R]`.
#[derive(Clone, Copy)]
struct TableShape {
    groups: usize,
    heads: usize,
    length: usize,
    pairs: usize,
    /// Sequences of `x` that share a table.
    sequences: usize,
    /// Heads of `x` that share a table.
    shared_heads: usize,
}

impl TableShape {
    fn new(x: [usize; 4], table: &FlexTensor) -> Self {
        let [groups, heads, length, pairs] = table.shape().dims();
        Self {
            groups,
            heads,
            length,
            pairs,
            sequences: x[0] / groups,
            shared_heads: x[1] / heads,
        }
    }

    /// The angles of one row of `x`.
    fn angles(&self, batch: usize, head: usize, position: usize) -> Range<usize> {
        let (group, head) = (batch / self.sequences, head / self.shared_heads);
        let row = (group * self.heads + head) * self.length + position;
        row * self.pairs..(row + 1) * self.pairs
    }
}

/// A task: whole rows of the output, in the order `[B, L, H]`.
struct RotateRows<'a> {
    x: &'a Strided<'a>,
    /// Batch, position and head of the first.
    first: [usize; 3],
    cos: &'a [f32],
    sin: &'a [f32],
    tables: TableShape,
    /// 1 forward, -1 for the opposite angle.
    sign: f32,
    interleaved: bool,
    y: &'a mut [f32],
}

impl WithSimd for RotateRows<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let [_, heads, length, head_dim] = self.x.shape;
        let [mut batch, mut position, mut head] = self.first;
        for y in self.y.chunks_exact_mut(head_dim) {
            let angles = self.tables.angles(batch, head, position);
            let tables = [&self.cos[angles.clone()], &self.sin[angles]];
            rotate_row(
                s,
                self.x.row(batch, head, position),
                y,
                tables,
                self.sign,
                self.interleaved,
            );
            // Output rows are in the order [B, L, H]: heads run fastest.
            head += 1;
            if head == heads {
                (head, position) = (0, position + 1);
            }
            if position == length {
                (position, batch) = (0, batch + 1);
            }
        }
    }
}

/// Rotates the pairs of one row by the angles of one position; dimensions past the last pair are
/// copied.
#[inline(always)]
fn rotate_row<S: Simd>(
    s: S,
    x: &[f32],
    y: &mut [f32],
    [cos, sin]: [&[f32]; 2],
    sign: f32,
    interleaved: bool,
) {
    let pairs = cos.len();
    let (rotated, rest) = y.split_at_mut(2 * pairs);
    if !rest.is_empty() {
        rest.copy_from_slice(&x[2 * pairs..]);
    }
    if interleaved {
        let input = x.chunks_exact(2).zip(rotated.chunks_exact_mut(2));
        for ((x, y), (cos, sin)) in input.zip(cos.iter().zip(sin)) {
            let sin = sign * sin;
            y[0] = x[0] * cos - x[1] * sin;
            y[1] = x[1] * cos + x[0] * sin;
        }
    } else {
        let (a, b) = x[..2 * pairs].split_at(pairs);
        let (rotated_a, rotated_b) = rotated.split_at_mut(pairs);
        let sign = s.splat(sign);
        let rotate = |a, b, cos, sin| {
            let sin = s.mul(sign, sin);
            (
                s.sub(s.mul(a, cos), s.mul(b, sin)),
                s.add(s.mul(b, cos), s.mul(a, sin)),
            )
        };
        let [(a, a_tail), (b, b_tail), (cos, cos_tail), (sin, sin_tail)] =
            [a, b, cos, sin].map(S::as_simd_f32s);
        let [(rotated_a, rotated_a_tail), (rotated_b, rotated_b_tail)] =
            [rotated_a, rotated_b].map(S::as_mut_simd_f32s);
        for i in 0..a.len() {
            (rotated_a[i], rotated_b[i]) = rotate(a[i], b[i], cos[i], sin[i]);
        }
        if !a_tail.is_empty() {
            let [a, b, cos, sin] =
                [a_tail, b_tail, cos_tail, sin_tail].map(|x| s.partial_load_f32s(x));
            let (a, b) = rotate(a, b, cos, sin);
            s.partial_store_f32s(rotated_a_tail, a);
            s.partial_store_f32s(rotated_b_tail, b);
        }
    }
}

fn rotate(
    x: &FlexTensor,
    [cos, sin]: &[FlexTensor; 2],
    sign: f32,
    interleaved: bool,
) -> FlexTensor {
    let x = Strided::new(x);
    let [_, heads, length, head_dim] = x.shape;
    let tables = TableShape::new(x.shape, cos);
    let n = x.shape.iter().product();
    let (cos, sin) = (cos.storage(), sin.storage());
    let rows = |start: usize, y: &mut [f32]| {
        let row = start / head_dim;
        let first = [row / heads / length, row / heads % length, row % heads];
        dispatch(RotateRows {
            x: &x,
            first,
            cos,
            sin,
            tables,
            sign,
            interleaved,
            y,
        });
    };
    // Blocks of whole rows can be written straight into new memory.
    let y = if BLOCK.is_multiple_of(head_dim) {
        fill::<BLOCK>(n, n, rows)
    } else {
        let mut y = vec![0.0; n];
        let size = (BLOCK / head_dim.max(1)).max(1) * head_dim.max(1);
        for_each(y.chunks_mut(size).enumerate().collect(), n, |(task, y)| {
            rows(task * size, y)
        });
        y
    };
    strided_output(y, x.shape)
}

/// A task: the gradients of some rows of the tables, each summed over the rows of `x` that it
/// rotates, sequence by sequence and head by head.
struct TableGrads<'a> {
    x: &'a Strided<'a>,
    grad: &'a Strided<'a>,
    tables: TableShape,
    interleaved: bool,
    first_row: usize,
    cos_grad: &'a mut [f32],
    sin_grad: &'a mut [f32],
}

impl WithSimd for TableGrads<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let t = self.tables;
        let rows = self.cos_grad.chunks_exact_mut(t.pairs);
        let rows = rows.zip(self.sin_grad.chunks_exact_mut(t.pairs));
        for (at, (cos_grad, sin_grad)) in rows.enumerate() {
            let row = self.first_row + at;
            let (position, head, group) = (
                row % t.length,
                row / t.length % t.heads,
                row / t.length / t.heads,
            );
            for batch in group * t.sequences..(group + 1) * t.sequences {
                for head in head * t.shared_heads..(head + 1) * t.shared_heads {
                    let x = self.x.row(batch, head, position);
                    let grad = self.grad.row(batch, head, position);
                    add_table_grads(x, grad, cos_grad, sin_grad, self.interleaved);
                }
            }
        }
    }
}

/// Adds what one row gives: y = (a cos - b sin, b cos + a sin).
#[inline(always)]
fn add_table_grads(x: &[f32], grad: &[f32], cos: &mut [f32], sin: &mut [f32], interleaved: bool) {
    let pairs = cos.len();
    let mut add = |i: usize, [a, b]: [f32; 2], [da, db]: [f32; 2]| {
        cos[i] += da * a + db * b;
        sin[i] += db * a - da * b;
    };
    if interleaved {
        for i in 0..pairs {
            add(i, [x[2 * i], x[2 * i + 1]], [grad[2 * i], grad[2 * i + 1]]);
        }
    } else {
        let (a, b) = x[..2 * pairs].split_at(pairs);
        let (da, db) = grad[..2 * pairs].split_at(pairs);
        for i in 0..pairs {
            add(i, [a[i], b[i]], [da[i], db[i]]);
        }
    }
}

/// The gradients of cos and sin.
fn table_grads(
    x: &FlexTensor,
    grad: &FlexTensor,
    cos: &FlexTensor,
    interleaved: bool,
) -> [FlexTensor; 2] {
    let [x, grad] = [x, grad].map(Strided::new);
    let tables = TableShape::new(x.shape, cos);
    let rows = tables.groups * tables.heads * tables.length;
    let mut grads = [(); 2].map(|()| vec![0.0; rows * tables.pairs]);
    // Rows of one task.
    let each = (BLOCK / (tables.sequences * tables.shared_heads * tables.pairs).max(1)).max(1);
    let size = (each * tables.pairs).max(1);
    let [cos_grad, sin_grad] = &mut grads;
    let tasks = cos_grad.chunks_mut(size).zip(sin_grad.chunks_mut(size));
    let work = x.shape.iter().product();
    for_each(
        tasks.enumerate().collect(),
        work,
        |(task, (cos_grad, sin_grad))| {
            dispatch(TableGrads {
                x: &x,
                grad: &grad,
                tables,
                interleaved,
                first_row: task * each,
                cos_grad,
                sin_grad,
            });
        },
    );
    let shape = [tables.groups, tables.heads, tables.length, tables.pairs];
    grads.map(|grad| tensor(grad, shape))
}

/// [`crate::rotate`] of x, cos and sin.
pub(super) struct Rotate {
    pub(super) interleaved: bool,
    /// Whether the tables take a gradient. If not, x is not kept.
    pub(super) trained: bool,
}

/// Cos and sin, and x where the tables are trained.
pub(super) struct Saved {
    tables: [FlexTensor; 2],
    x: Option<FlexTensor>,
}

impl FusedOp<3> for Rotate {
    type Backend = burn::backend::Flex;
    type Saved = Saved;

    fn forward(&self, inputs: PerInput<3>, _: bool) -> (FlexTensor, Saved) {
        let [x, cos, sin] = inputs.map(required);
        let tables = [cos, sin].map(contiguous);
        let y = rotate(&x, &tables, 1.0, self.interleaved);
        let x = self.trained.then_some(x);
        (y, Saved { tables, x })
    }

    fn backward(&self, saved: &Saved, grad: FlexTensor, [x, cos, sin]: [bool; 3]) -> PerInput<3> {
        let Saved { tables, x: kept } = saved;
        let x_grad = x.then(|| rotate(&grad, tables, -1.0, self.interleaved));
        let kept = kept.as_ref().filter(|_| cos || sin);
        let [cos_grad, sin_grad] = match kept {
            None => [None, None],
            Some(kept) => table_grads(kept, &grad, &tables[0], self.interleaved).map(Some),
        };
        [x_grad, cos_grad, sin_grad]
    }
}
