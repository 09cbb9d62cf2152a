//! Rotation of pairs of dimensions by tables of cos and sin.

use super::simd::{Lanes, dispatch};
use super::tensors::{Strided, contiguous, strided_output};
use super::threads::{fill, for_each};
use crate::op::{FusedOp, required};
use burn::backend::TensorMetadata;
use burn_flex::FlexTensor;
use pulp::{Simd, WithSimd};

/// Numbers per task.
const BLOCK: usize = 1024;

/// A task: whole rows of the output, in the order `[B, L, H]`.
struct RotateRows<'a> {
    x: &'a Strided<'a>,
    /// Batch, position and head of the first.
    first: [usize; 3],
    /// Tables of all positions.
    cos: &'a [f32],
    sin: &'a [f32],
    pairs: usize,
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
            let angles = position * self.pairs..(position + 1) * self.pairs;
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
    let pairs = cos.shape()[3];
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
            pairs,
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

/// [`crate::rotate`] of x, cos and sin; the tables take no gradient.
pub(super) struct Rotate {
    pub(super) interleaved: bool,
}

impl FusedOp<3> for Rotate {
    type Backend = burn::backend::Flex;
    /// Cos and sin.
    type Saved = [FlexTensor; 2];

    fn forward(&self, inputs: [Option<FlexTensor>; 3], _: bool) -> (FlexTensor, Self::Saved) {
        let [x, cos, sin] = inputs.map(required);
        let tables = [cos, sin].map(contiguous);
        (rotate(&x, &tables, 1.0, self.interleaved), tables)
    }

    fn backward(
        &self,
        tables: &Self::Saved,
        grad: FlexTensor,
        _: [bool; 3],
    ) -> [Option<FlexTensor>; 3] {
        [
            Some(rotate(&grad, tables, -1.0, self.interleaved)),
            None,
            None,
        ]
    }
}
