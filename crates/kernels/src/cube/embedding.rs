//! Rows of a table picked by token: one launch forward, one backward.

use super::rows::CUBE;
use super::tensors::{PerInput, Primitive, count, elements, empty, pair, run};
use crate::op::FusedOp;
use burn::tensor::Shape;
use burn_cubecl::CubeDevice;
use burn_cubecl::cubecl;
use cubecl::prelude::*;

#[cube(launch)]
fn embedding_kernel(
    table: &Tensor<f32>,
    tokens: &Tensor<i32>,
    rows: &mut Tensor<f32>,
    vocab: u32,
    count: u32,
    #[comptime] width: usize,
) {
    let i = ABSOLUTE_POS;
    if i < rows.len() {
        let token = i / width;
        // The table of the group of `count` tokens.
        let first = token / count as usize * vocab as usize;
        rows[i] = table[(first + tokens[token] as usize) * width + i % width];
    }
}

/// The gradient of the tables, of `vocab` rows each. One cube computes columns (y) of one row (x):
/// it looks through all `count` tokens of its group, a tile at a time, and adds up the rows of its
/// own token in their order.
#[cube(launch)]
fn embedding_grad_kernel(
    tokens: &Tensor<i32>,
    grad: &Tensor<f32>,
    table_grad: &mut Tensor<f32>,
    vocab: u32,
    count: u32,
    #[comptime] width: usize,
) {
    let mut tile = Shared::<[i32]>::new_slice(CUBE);
    let (row, vocab, count) = (CUBE_POS_X as usize, vocab as usize, count as usize);
    let own = row % vocab;
    let start = row / vocab * count;
    let unit = UNIT_POS as usize;
    let column = CUBE_POS_Y as usize * CUBE + unit;
    let mut sum = 0.0f32;
    for step in 0..count.div_ceil(CUBE) {
        let first = step * CUBE;
        // Units may still be reading the last tile.
        sync_cube();
        if first + unit < count {
            tile[unit] = tokens[start + first + unit];
        }
        sync_cube();
        for i in 0..min(CUBE.runtime(), count - first) {
            if tile[i] as usize == own && column < width {
                sum += grad[(start + first + i) * width + column];
            }
        }
    }
    if column < width {
        table_grad[row * width + column] = sum;
    }
}

/// Rows of tables, `[G V, D]`, for tokens: `[B, L, D]`.
#[derive(Clone)]
pub(super) struct Embedding {
    /// G V and D.
    pub(super) table: [usize; 2],
    /// G.
    pub(super) groups: usize,
    /// B and L.
    pub(super) shape: [usize; 2],
    /// `[B, L]`, 32-bit integers.
    pub(super) tokens: Primitive,
}

impl Embedding {
    /// Rows of one table, and tokens of one group.
    fn of_group(&self) -> [u32; 2] {
        let tokens: usize = self.shape.iter().product();
        [self.table[0], tokens].map(|count| (count / self.groups) as u32)
    }

    /// Whether a device can run the kernels.
    pub(super) fn fits(&self, device: &CubeDevice) -> bool {
        // Cubes in one dimension of a launch.
        let most = usize::from(u16::MAX);
        let [rows, width] = self.table;
        rows <= most && width.div_ceil(CUBE) <= most && super::rows::fits(device)
    }
}

impl FusedOp<1> for Embedding {
    type Backend = burn::backend::Cube;
    type Saved = ();

    fn forward(&self, [table]: PerInput<1>, _: bool) -> (Primitive, ()) {
        let ([_, width], [batch, length]) = (self.table, self.shape);
        let [vocab, tokens] = self.of_group();
        let inputs = vec![table.expect("a table"), self.tokens.clone()];
        let shape = [batch, length, width];
        let outputs = run(inputs, vec![Shape::new(shape)], move |inputs| {
            let [table, ids] = pair(inputs);
            let output = empty(&table, shape);
            let (cubes, dim) = elements(&output, batch * length * width);
            embedding_kernel::launch(
                &output.client,
                cubes,
                dim,
                table.into_tensor_arg(),
                ids.into_tensor_arg(),
                output.clone().into_tensor_arg(),
                vocab,
                tokens,
                width,
            );
            vec![output]
        });
        (outputs.into_iter().next().expect("one output"), ())
    }

    fn backward(&self, (): &(), grad: Primitive, _: [bool; 1]) -> PerInput<1> {
        let shape @ [rows, width] = self.table;
        let [vocab, tokens] = self.of_group();
        let inputs = vec![self.tokens.clone(), grad];
        let outputs = run(inputs, vec![Shape::new(shape)], move |inputs| {
            let [ids, grad] = pair(inputs);
            let output = empty(&grad, shape);
            embedding_grad_kernel::launch(
                &output.client,
                count([rows, width.div_ceil(CUBE), 1]),
                CubeDim::new_1d(CUBE as u32),
                ids.into_tensor_arg(),
                grad.into_tensor_arg(),
                output.clone().into_tensor_arg(),
                vocab,
                tokens,
                width,
            );
            vec![output]
        });
        [outputs.into_iter().next()]
    }
}
