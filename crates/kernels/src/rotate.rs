//! Fused rotation of pairs of dimensions.

use crate::flex::{Input, Strided, dense, fill, for_each, record, strided_output};
use crate::simd::{Lanes, dispatch};
use burn::backend::TensorMetadata;
use burn_flex::FlexTensor;
use pulp::{Simd, WithSimd};

/// Numbers a task turns.
const BLOCK: usize = 1024;

/// Whole rows of the output, in the order `[B, L, H]`.
struct Turn<'a> {
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

impl WithSimd for Turn<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let [_, heads, length, head_dim] = self.x.shape;
        let [mut batch, mut position, mut head] = self.first;
        for y in self.y.chunks_exact_mut(head_dim) {
            let angles = position * self.pairs..(position + 1) * self.pairs;
            let tables = [&self.cos[angles.clone()], &self.sin[angles]];
            turn_row(
                s,
                self.x.row(batch, head, position),
                y,
                tables,
                self.sign,
                self.interleaved,
            );
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

/// Turns the pairs of one row by the angles of one position; dimensions past the last pair pass
/// through.
#[inline(always)]
pub(crate) fn turn_row<S: Simd>(
    s: S,
    x: &[f32],
    y: &mut [f32],
    [cos, sin]: [&[f32]; 2],
    sign: f32,
    interleaved: bool,
) {
    let pairs = cos.len();
    let (turned, rest) = y.split_at_mut(2 * pairs);
    if !rest.is_empty() {
        rest.copy_from_slice(&x[2 * pairs..]);
    }
    if interleaved {
        let input = x.chunks_exact(2).zip(turned.chunks_exact_mut(2));
        for ((x, y), (cos, sin)) in input.zip(cos.iter().zip(sin)) {
            let sin = sign * sin;
            y[0] = x[0] * cos - x[1] * sin;
            y[1] = x[1] * cos + x[0] * sin;
        }
    } else {
        let (a, b) = x[..2 * pairs].split_at(pairs);
        let (turned_a, turned_b) = turned.split_at_mut(pairs);
        let sign = s.splat(sign);
        let turn = |a, b, cos, sin| {
            let sin = s.mul(sign, sin);
            (
                s.sub(s.mul(a, cos), s.mul(b, sin)),
                s.add(s.mul(b, cos), s.mul(a, sin)),
            )
        };
        let [(a, a_tail), (b, b_tail), (cos, cos_tail), (sin, sin_tail)] =
            [a, b, cos, sin].map(S::as_simd_f32s);
        let [(turned_a, turned_a_tail), (turned_b, turned_b_tail)] =
            [turned_a, turned_b].map(S::as_mut_simd_f32s);
        for i in 0..a.len() {
            (turned_a[i], turned_b[i]) = turn(a[i], b[i], cos[i], sin[i]);
        }
        if !a_tail.is_empty() {
            let [a, b, cos, sin] =
                [a_tail, b_tail, cos_tail, sin_tail].map(|x| s.partial_load_f32s(x));
            let (a, b) = turn(a, b, cos, sin);
            s.partial_store_f32s(turned_a_tail, a);
            s.partial_store_f32s(turned_b_tail, b);
        }
    }
}

fn turn(
    x: &FlexTensor,
    cos: &FlexTensor,
    sin: &FlexTensor,
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
        dispatch(Turn {
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

pub(crate) fn rotate(inputs: [Input; 3], interleaved: bool) -> Input {
    record(
        inputs,
        |[x, cos, sin], _| {
            let (cos, sin) = (dense(cos), dense(sin));
            (turn(&x, &cos, &sin, 1.0, interleaved), (cos, sin))
        },
        move |(cos, sin): &(FlexTensor, FlexTensor), grad, _| {
            [Some(turn(&grad, cos, sin, -1.0, interleaved)), None, None]
        },
    )
}
