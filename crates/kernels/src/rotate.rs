//! Fused rotation of pairs of dimensions.

use crate::flex::{Input, Strided, dense, for_each, record, strided_output};
use crate::simd::dispatch;
use burn::backend::TensorMetadata;
use burn_flex::FlexTensor;
use pulp::{Simd, WithSimd};

/// One position of one sequence, all heads: `x` is read through `view`, `y` is `[H, E]`.
struct Turn<'a> {
    x: &'a Strided<'a>,
    at: [usize; 2],
    cos: &'a [f32],
    sin: &'a [f32],
    /// 1 forward, -1 for the opposite angle.
    sign: f32,
    interleaved: bool,
    y: &'a mut [f32],
}

impl WithSimd for Turn<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let [batch, position] = self.at;
        for (head, y) in self.y.chunks_exact_mut(self.x.shape[3]).enumerate() {
            turn_row(self.x.row(batch, head, position), y, [self.cos, self.sin], self.sign, self.interleaved);
        }
    }
}

/// Turns the pairs of one row by the angles of one position; dimensions past the last pair pass through.
#[inline(always)]
pub(crate) fn turn_row(x: &[f32], y: &mut [f32], [cos, sin]: [&[f32]; 2], sign: f32, interleaved: bool) {
    let pairs = cos.len();
    let (turned, rest) = y.split_at_mut(2 * pairs);
    rest.copy_from_slice(&x[2 * pairs..]);
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
        let input = a.iter().zip(b).zip(cos.iter().zip(sin));
        for (((a, b), (cos, sin)), (turned_a, turned_b)) in input.zip(turned_a.iter_mut().zip(turned_b)) {
            let sin = sign * sin;
            *turned_a = a * cos - b * sin;
            *turned_b = b * cos + a * sin;
        }
    }
}

fn turn(x: &FlexTensor, cos: &FlexTensor, sin: &FlexTensor, sign: f32, interleaved: bool) -> FlexTensor {
    let x = Strided::new(x);
    let [_, heads, length, head_dim] = x.shape;
    let pairs = cos.shape()[3];
    let n = x.shape.iter().product();
    let mut y = vec![0.0; n];
    let (cos, sin) = (cos.storage::<f32>(), sin.storage::<f32>());
    let position = |(index, y)| {
        let at = [index / length, index % length];
        let angles = at[1] * pairs..(at[1] + 1) * pairs;
        dispatch(Turn { x: &x, at, cos: &cos[angles.clone()], sin: &sin[angles], sign, interleaved, y });
    };
    for_each(y.chunks_mut((heads * head_dim).max(1)).enumerate().collect(), n, position);
    strided_output(y, x.shape)
}

pub(crate) fn rotate(inputs: [Input; 3], interleaved: bool) -> Input {
    record(
        inputs,
        |[x, cos, sin], _| {
            let (cos, sin) = (dense(cos), dense(sin));
            (turn(&x, &cos, &sin, 1.0, interleaved), (cos, sin))
        },
        move |(cos, sin): &(FlexTensor, FlexTensor), grad, _| [Some(turn(&grad, cos, sin, -1.0, interleaved)), None, None],
    )
}
