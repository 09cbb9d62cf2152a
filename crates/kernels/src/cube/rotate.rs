//! Rotation of pairs of dimensions: one launch forward, one backward, and one more for the
//! gradients of trained tables.

use super::pairs::{is_first, pair, partner};
use super::tensors::{
    PerInput, Primitive, elements, empty, empty_by_position, in_order, in_rows, run,
};
use crate::op::FusedOp;
use burn::tensor::Shape;
use burn_cubecl::cubecl;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

/// The first dimension of a pair.
#[cube]
fn first_of(pair: usize, #[comptime] interleaved: bool) -> usize {
    if comptime!(interleaved) {
        2 * pair
    } else {
        pair
    }
}

/// One unit for each number of `y`, `[B, L, H, E]` in memory. `sign` is 1, or -1 for the opposite
/// angle. Tables are `[G, 1 or H, L, R]`, for `sequences` of `x` and `shared_heads` each.
#[cube(launch)]
#[expect(clippy::too_many_arguments, reason = "kernels take numbers one by one")]
fn rotate_kernel(
    x: &Tensor<f32>,
    cos: &Tensor<f32>,
    sin: &Tensor<f32>,
    y: &mut Tensor<f32>,
    sign: f32,
    sequences: u32,
    shared_heads: u32,
    #[comptime] pairs: usize,
    #[comptime] interleaved: bool,
) {
    let (heads, length, width) = (y.shape(1), y.shape(2), y.shape(3));
    let unit = ABSOLUTE_POS;
    if unit < y.len() {
        let i = unit % width;
        let head = unit / width % heads;
        let position = unit / width / heads % length;
        let batch = unit / width / heads / length;
        let row = batch * x.stride(0) + head * x.stride(1) + position * x.stride(2);
        let own = x[row + i * x.stride(3)];
        let at = batch * y.stride(0) + head * y.stride(1) + position * y.stride(2) + i;
        if i < comptime![2 * pairs] {
            let other = x[row + partner(i, pairs, interleaved) * x.stride(3)];
            let (group, shared) = (batch / sequences as usize, head / shared_heads as usize);
            let angle = ((group * cos.shape(1) + shared) * length + position) * pairs
                + pair(i, pairs, interleaved);
            // The first of a pair is a cos - b sin, the second b cos + a sin.
            let first = is_first(i, pairs, interleaved);
            let turn = sign * sin[angle] * select(first, -1.0, 1.0);
            y[at] = own * cos[angle] + other * turn;
        } else {
            y[at] = own;
        }
    }
}

/// One unit for each number of a table, which adds up what it rotates, sequence by sequence and
/// head by head.
#[cube(launch)]
fn table_grad_kernel(
    x: &Tensor<f32>,
    grad: &Tensor<f32>,
    cos_grad: &mut Tensor<f32>,
    sin_grad: &mut Tensor<f32>,
    sequences: u32,
    shared_heads: u32,
    #[comptime] pairs: usize,
    #[comptime] interleaved: bool,
) {
    let (heads, length) = (cos_grad.shape(1), cos_grad.shape(2));
    let unit = ABSOLUTE_POS;
    if unit < cos_grad.len() {
        let at = unit % pairs;
        let position = unit / pairs % length;
        let head = unit / pairs / length % heads * shared_heads as usize;
        let batch = unit / pairs / length / heads * sequences as usize;
        let a_at = first_of(at, interleaved);
        let b_at = partner(a_at, pairs, interleaved);
        let mut of_cos = 0.0f32;
        let mut of_sin = 0.0f32;
        for sequence in 0..sequences as usize {
            for shared in 0..shared_heads as usize {
                let (batch, head) = (batch + sequence, head + shared);
                let row = batch * x.stride(0) + head * x.stride(1) + position * x.stride(2);
                let (a, b) = (x[row + a_at * x.stride(3)], x[row + b_at * x.stride(3)]);
                let row =
                    batch * grad.stride(0) + head * grad.stride(1) + position * grad.stride(2);
                let da = grad[row + a_at * grad.stride(3)];
                let db = grad[row + b_at * grad.stride(3)];
                of_cos += da * a + db * b;
                of_sin += db * a - da * b;
            }
        }
        cos_grad[unit] = of_cos;
        sin_grad[unit] = of_sin;
    }
}

/// [`crate::rotate`] of x, cos and sin.
#[derive(Clone, Copy)]
pub(super) struct Rotate {
    /// B, H, L, E.
    pub(super) shape: [usize; 4],
    /// Of cos and of sin.
    pub(super) tables: [usize; 4],
    pub(super) interleaved: bool,
    /// Whether the tables take a gradient. If not, x is not kept.
    pub(super) trained: bool,
}

/// Cos and sin, and x where the tables are trained.
pub(super) struct Saved {
    tables: [Primitive; 2],
    x: Option<Primitive>,
}

impl Rotate {
    /// Sequences and heads that share a table.
    fn sharing(&self) -> [u32; 2] {
        [0, 1].map(|i: usize| (self.shape[i] / self.tables[i]) as u32)
    }

    fn rotate(&self, x: Primitive, tables: &[Primitive; 2], sign: f32) -> Primitive {
        let ([sequences, shared_heads], op) = (self.sharing(), *self);
        let [cos, sin] = tables.clone();
        let outputs = run(
            vec![x, cos, sin],
            vec![Shape::new(op.shape)],
            move |tensors| {
                let [x, cos, sin] = all_in_rows(tensors);
                let y = empty_by_position(&x, op.shape);
                let (cubes, dim) = elements(&y, y.meta.num_elements());
                rotate_kernel::launch(
                    &y.client,
                    cubes,
                    dim,
                    x.into_tensor_arg(),
                    in_order(cos).into_tensor_arg(),
                    in_order(sin).into_tensor_arg(),
                    y.clone().into_tensor_arg(),
                    sign,
                    sequences,
                    shared_heads,
                    op.tables[3],
                    op.interleaved,
                );
                vec![y]
            },
        );
        outputs.into_iter().next().expect("one output")
    }

    fn table_grads(&self, x: Primitive, grad: Primitive) -> [Primitive; 2] {
        let ([sequences, shared_heads], op) = (self.sharing(), *self);
        let shapes = vec![Shape::new(op.tables); 2];
        let outputs = run(vec![x, grad], shapes, move |tensors| {
            let [x, grad] = all_in_rows(tensors);
            let grads = [(); 2].map(|()| empty(&x, op.tables));
            let (cubes, dim) = elements(&x, grads[0].meta.num_elements());
            let [cos_grad, sin_grad] = grads.clone().map(CubeTensor::into_tensor_arg);
            table_grad_kernel::launch(
                &x.client.clone(),
                cubes,
                dim,
                x.into_tensor_arg(),
                grad.into_tensor_arg(),
                cos_grad,
                sin_grad,
                sequences,
                shared_heads,
                op.tables[3],
                op.interleaved,
            );
            grads.into()
        });
        outputs
            .try_into()
            .unwrap_or_else(|_| unreachable!("two outputs"))
    }
}

/// The inputs of a kernel that reads them in any order of dimensions.
fn all_in_rows<const N: usize>(tensors: Vec<CubeTensor>) -> [CubeTensor; N] {
    let inputs: [CubeTensor; N] = tensors.try_into().expect("as many inputs");
    inputs.map(in_rows)
}

impl FusedOp<3> for Rotate {
    type Backend = burn::backend::Cube;
    type Saved = Saved;

    fn forward(&self, inputs: PerInput<3>, _: bool) -> (Primitive, Saved) {
        let [x, cos, sin] = inputs.map(|x| x.expect("an input"));
        let tables = [cos, sin];
        let kept = self.trained.then(|| x.clone());
        let y = self.rotate(x, &tables, 1.0);
        (y, Saved { tables, x: kept })
    }

    fn backward(&self, saved: &Saved, grad: Primitive, [x, cos, sin]: [bool; 3]) -> PerInput<3> {
        let x_grad = x.then(|| self.rotate(grad.clone(), &saved.tables, -1.0));
        let kept = saved.x.clone().filter(|_| cos || sin);
        let [cos_grad, sin_grad] = match kept {
            None => [None, None],
            Some(kept) => self.table_grads(kept, grad).map(Some),
        };
        [x_grad, cos_grad, sin_grad]
    }
}
