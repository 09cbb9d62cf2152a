//! Launches of the kernels of attention: views, outputs, numbers of cubes.

use super::backward::{delta_kernel, key_decay_kernel, key_kernel, query_kernel};
use super::bias::{bias_kernel, diagonal_kernel, distance_kernel};
use super::call::{CallLaunch, RowsLaunch};
use super::forward::forward_kernel;
use super::settings::{BiasShape, CUBE, Settings};
use crate::cube::tensors::{empty_by_position, in_rows};
use burn::tensor::Shape;
use burn_cubecl::cubecl::calculate_cube_count_elemwise;
use burn_cubecl::cubecl::client::Client;
use burn_cubecl::cubecl::prelude::{CubeCount, CubeDim};
use burn_cubecl::cubecl::zspace::metadata::Metadata;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;

/// About how many cubes the gradient of a bias by distance is spread over. Each has a tile of
/// partial sums in memory.
const PARTIAL_CUBES: usize = 512;

/// The tensors and numbers that every kernel takes.
pub(super) struct Inputs {
    /// Queries, keys and values, `[B, H, L, E]`.
    parts: [CubeTensor; 3],
    /// Where the parts start, in elements.
    at: [usize; 3],
    /// Whether the parts are columns of one matrix.
    projected: bool,
    /// With a stride of 0 where heads share it. Without a bias any tensor, which is not read.
    bias: CubeTensor,
    /// `[4 G, 1, L, R]`. Without a rotation any tensor, which is not read.
    tables: CubeTensor,
    scale: f32,
    first_query: u32,
}

impl Inputs {
    /// Three tensors.
    pub(super) fn new(parts: [CubeTensor; 3]) -> Self {
        let parts = parts.map(in_rows);
        Self {
            at: [0; 3],
            projected: false,
            bias: parts[0].clone(),
            tables: parts[0].clone(),
            parts,
            scale: 1.0,
            first_query: 0,
        }
    }

    /// The columns of a matrix, `[B L, 3 H E]`.
    pub(super) fn projected(x: CubeTensor, shape: [usize; 4]) -> Self {
        let x = into_contiguous(in_rows(x));
        let (parts, at) = columns(&x, shape);
        Self {
            at,
            projected: true,
            ..Self::new(parts)
        }
    }

    pub(super) fn with(
        self,
        bias: Option<CubeTensor>,
        tables: Option<CubeTensor>,
        scale: f32,
        first_query: usize,
    ) -> Self {
        Self {
            bias: bias.map_or(self.bias, broadcast),
            tables: tables.map_or(self.tables, |tables| into_contiguous(in_rows(tables))),
            scale,
            first_query: first_query as u32,
            ..self
        }
    }

    /// B, H, Q, E.
    fn shape(&self) -> [usize; 4] {
        self.parts[0].meta.shape().dims()
    }

    fn keys(&self) -> usize {
        self.parts[1].meta.shape()[2]
    }

    fn client(&self) -> &Client {
        &self.parts[0].client
    }

    /// The argument of the kernels.
    fn call(&self) -> CallLaunch {
        let [q, k, v] = self.parts.clone().map(CubeTensor::into_tensor_arg);
        let [q_at, k_at, v_at] = self.at.map(|at| at as u32);
        CallLaunch::new(
            q,
            k,
            v,
            self.bias.clone().into_tensor_arg(),
            self.tables.clone().into_tensor_arg(),
            self.scale,
            self.first_query,
            q_at,
            k_at,
            v_at,
        )
    }

    /// A contiguous output.
    fn empty<const D: usize>(&self, shape: [usize; D]) -> CubeTensor {
        let like = &self.parts[0];
        let (client, device) = (like.client.clone(), like.device.clone());
        empty_device_contiguous_dtype(client, device, Shape::new(shape), like.dtype)
    }

    /// An output `[B, H, L, E]` that is laid out as `[B, L, H, E]`.
    fn empty_by_position(&self, shape: [usize; 4]) -> CubeTensor {
        empty_by_position(&self.parts[0], shape)
    }

    /// One cube for each tile of `rows` of `length`, head and batch.
    fn cubes(&self, length: usize, rows: usize) -> CubeCount {
        let [batch, heads, ..] = self.shape();
        count([length.div_ceil(rows), heads, batch])
    }
}

/// What the backward pass knows of the rows of the output.
pub(super) struct Grads {
    grad: CubeTensor,
    stats: CubeTensor,
    deltas: CubeTensor,
}

impl Grads {
    pub(super) fn new(
        inputs: &Inputs,
        output: CubeTensor,
        stats: CubeTensor,
        grad: CubeTensor,
    ) -> Self {
        let [output, stats, grad] = [output, stats, grad].map(in_rows);
        let [batch, heads, queries, _] = inputs.shape();
        let deltas = inputs.empty([batch, heads, queries]);
        delta_kernel::launch(
            inputs.client(),
            units(inputs.client(), batch * heads * queries),
            cube(),
            output.into_tensor_arg(),
            grad.clone().into_tensor_arg(),
            deltas.clone().into_tensor_arg(),
        );
        Self {
            grad,
            stats: into_contiguous(stats),
            deltas,
        }
    }

    /// The argument of the kernels.
    fn rows(&self) -> RowsLaunch {
        let [grad, stats, deltas] = [&self.grad, &self.stats, &self.deltas];
        let [grad, stats, deltas] = [grad, stats, deltas].map(|x| x.clone().into_tensor_arg());
        RowsLaunch::new(grad, stats, deltas)
    }
}

/// Queries, keys and values as columns of a contiguous matrix, `[B L, 3 H E]`: each `[B, H, L, E]`,
/// and where it starts.
fn columns(x: &CubeTensor, shape: [usize; 4]) -> ([CubeTensor; 3], [usize; 3]) {
    let [_, heads, length, head_dim] = shape;
    let inner = heads * head_dim;
    let strides = [3 * inner * length, head_dim, 3 * inner, 1];
    let parts = [(); 3].map(|()| with_layout(x.clone(), shape, strides));
    (parts, [0, inner, 2 * inner])
}

/// A bias with a stride of 0 where heads share it; one by distance, `[G, 1 or H, n]`, and running
/// sums with a dimension of 1 for queries.
fn broadcast(x: CubeTensor) -> CubeTensor {
    let x = in_rows(x);
    let (shape, strides) = (x.meta.shape().clone(), x.meta.strides().clone());
    let of_heads = if shape[1] == 1 { 0 } else { strides[1] };
    if shape.num_dims() == 3 {
        let layout = [strides[0], of_heads, 0, strides[2]];
        return with_layout(x, [shape[0], shape[1], 1, shape[2]], layout);
    }
    let layout = [strides[0], of_heads, strides[2], strides[3]];
    with_layout(x, shape.dims(), layout)
}

fn with_layout(mut x: CubeTensor, shape: [usize; 4], strides: [usize; 4]) -> CubeTensor {
    *x.meta = Metadata::new(shape, strides);
    x
}

fn count([x, y, z]: [usize; 3]) -> CubeCount {
    CubeCount::Static(x as u32, y as u32, z as u32)
}

/// Cubes for one unit each for `n` numbers.
fn units(client: &Client, n: usize) -> CubeCount {
    calculate_cube_count_elemwise(client, n, cube())
}

fn cube() -> CubeDim {
    CubeDim::new_1d(CUBE as u32)
}

/// The output, laid out as `[B, Q, H, E]`, and the numbers of its rows that the backward pass
/// needs, `[B, H, Q, 2]`.
pub(super) fn forward(inputs: &Inputs, s: Settings) -> [CubeTensor; 2] {
    let [batch, heads, queries, _] = inputs.shape();
    let output = inputs.empty_by_position(inputs.shape());
    let stats = inputs.empty([batch, heads, queries, 2]);
    forward_kernel::launch(
        inputs.client(),
        inputs.cubes(queries, s.rows),
        cube(),
        inputs.call(),
        output.clone().into_tensor_arg(),
        stats.clone().into_tensor_arg(),
        s,
    );
    [output, stats]
}

/// The gradients of queries, keys and values; of projected ones in one matrix. The last one is that
/// of the running sums of a decay, if wanted, `[B, H, K]`.
pub(super) fn backward(
    inputs: &Inputs,
    grads: &Grads,
    decays: Option<[usize; 3]>,
    s: Settings,
) -> Vec<CubeTensor> {
    let shape @ [batch, heads, length, head_dim] = inputs.shape();
    let (mut outputs, [q, k, v]) = if inputs.projected {
        let grad = inputs.empty([batch * length, 3 * heads * head_dim]);
        // They start where the projections start.
        let (parts, _) = columns(&grad, shape);
        (vec![grad], parts)
    } else {
        let keys = [batch, heads, inputs.keys(), head_dim];
        let parts = [shape, keys, keys].map(|shape| inputs.empty_by_position(shape));
        (parts.to_vec(), parts)
    };
    query_kernel::launch(
        inputs.client(),
        inputs.cubes(length, s.rows),
        cube(),
        inputs.call(),
        grads.rows(),
        q.into_tensor_arg(),
        s,
    );
    let [k, v] = [k, v].map(CubeTensor::into_tensor_arg);
    let (client, cubes) = (inputs.client(), inputs.cubes(inputs.keys(), s.rows));
    let (call, rows) = (inputs.call(), grads.rows());
    match decays.map(|shape| inputs.empty(shape)) {
        None => key_kernel::launch(client, cubes, cube(), call, rows, k, v, s),
        Some(sums) => {
            let sums_arg = sums.clone().into_tensor_arg();
            key_decay_kernel::launch(client, cubes, cube(), call, rows, k, v, sums_arg, s);
            outputs.push(sums);
        }
    }
    outputs
}

/// The gradient of the bias: summed over the batch and heads that share it.
pub(super) fn bias_grad(
    inputs: &Inputs,
    grads: &Grads,
    shape: BiasShape,
    s: Settings,
) -> CubeTensor {
    match shape {
        BiasShape::Dense(shape) => dense_bias_grad(inputs, grads, shape, s),
        BiasShape::ByDistance(shape) => distance_bias_grad(inputs, grads, shape, s),
        BiasShape::Decays(_) => unreachable!("the pass over keys gives it"),
    }
}

fn dense_bias_grad(
    inputs: &Inputs,
    grads: &Grads,
    shape @ [bias_batch, bias_heads, queries, keys]: [usize; 4],
    s: Settings,
) -> CubeTensor {
    let [batch, heads, ..] = inputs.shape();
    let output = inputs.empty(shape);
    let tiles = [queries.div_ceil(s.rows), keys.div_ceil(s.columns)];
    bias_kernel::launch(
        inputs.client(),
        count([tiles[0], tiles[1], bias_batch * bias_heads]),
        cube(),
        inputs.call(),
        grads.rows(),
        output.clone().into_tensor_arg(),
        (batch / bias_batch) as u32,
        (heads / bias_heads) as u32,
        s,
    );
    output
}

/// Partial sums for every diagonal of tiles, then their sums for every distance.
fn distance_bias_grad(
    inputs: &Inputs,
    grads: &Grads,
    shape @ [groups, bias_heads, distances]: [usize; 3],
    s: Settings,
) -> CubeTensor {
    let [batch, heads, queries, _] = inputs.shape();
    let sequences = batch / groups;
    let diagonals = s.rows / s.columns - 1 + queries.div_ceil(s.columns);
    // The chunks of one group.
    let chunks = (PARTIAL_CUBES / (diagonals * bias_heads * groups)).clamp(1, sequences);
    let chunk = sequences.div_ceil(chunks);
    let chunks = sequences.div_ceil(chunk);
    let partial = inputs.empty([groups * chunks, bias_heads, diagonals, s.rows * s.columns]);
    let output = inputs.empty(shape);
    diagonal_kernel::launch(
        inputs.client(),
        count([diagonals, bias_heads, groups * chunks]),
        cube(),
        inputs.call(),
        grads.rows(),
        partial.clone().into_tensor_arg(),
        sequences as u32,
        chunk as u32,
        (heads / bias_heads) as u32,
        s,
    );
    distance_kernel::launch(
        inputs.client(),
        units(inputs.client(), groups * bias_heads * distances),
        cube(),
        partial.into_tensor_arg(),
        output.clone().into_tensor_arg(),
        s,
    );
    output
}
