//! The backward kernels: gradients of queries, and of keys and values. Weights are computed again.

use super::call::{Call, KEY_TABLE, QUERY_TABLE, Rows};
use super::settings::{BiasKind, SCRATCH, Settings, UNITS};
use super::tiles::{
    Four, accumulate, products, put_cells, put_rows, store, unit_column, unit_row, weight,
};
use crate::cube::rows::zeros;
use burn_cubecl::cubecl;
use cubecl::prelude::*;

/// The sum of the output times its gradient over each row, `[B, H, Q]`. One unit per row.
#[cube(launch)]
pub(super) fn delta_kernel(out: &Tensor<f32>, grad: &Tensor<f32>, deltas: &mut Tensor<f32>) {
    let (heads, queries) = (deltas.shape(1), deltas.shape(2));
    let i = ABSOLUTE_POS;
    if i < deltas.len() {
        let query = i % queries;
        let head = i / queries % heads;
        let batch = i / queries / heads;
        let out_at = batch * out.stride(0) + head * out.stride(1) + query * out.stride(2);
        let grad_at = batch * grad.stride(0) + head * grad.stride(1) + query * grad.stride(2);
        let mut sum = 0.0f32;
        for dim in 0..out.shape(3) {
            sum += out[out_at + dim * out.stride(3)] * grad[grad_at + dim * grad.stride(3)];
        }
        deltas[i] = sum;
    }
}

/// Four tiles in shared memory: of the sequence whose rows a cube owns, and of the other one.
#[derive(CubeType)]
pub(super) struct Tiles {
    /// Queries, or keys.
    pub(super) own: Shared<[Four]>,
    /// Gradients of outputs, or values.
    pub(super) own_values: Shared<[Four]>,
    /// Keys, or queries.
    pub(super) other: Shared<[Four]>,
    /// Values, or gradients of outputs.
    pub(super) other_values: Shared<[Four]>,
}

#[cube]
impl Tiles {
    pub(super) fn new(#[comptime] s: Settings) -> Self {
        Tiles {
            own: Shared::<[Four]>::new_slice(comptime![s.rows * s.stride()]),
            own_values: Shared::<[Four]>::new_slice(comptime![s.rows * s.stride()]),
            other: Shared::<[Four]>::new_slice(comptime![s.columns * s.stride()]),
            other_values: Shared::<[Four]>::new_slice(comptime![s.columns * s.stride()]),
        }
    }
}

/// The weights of the cells that this unit owns, and the gradients of their logits, from the
/// loaded tiles. Rows of tiles are queries and columns are keys, or the reverse if `transposed`.
#[cube]
#[allow(
    clippy::too_many_arguments,
    reason = "kernels are compiled for the last two"
)]
pub(super) fn cell_grads(
    call: &Call,
    rows: &Rows,
    tiles: &mut Tiles,
    weights: &mut Array<f32>,
    grads: &mut Array<f32>,
    place: (usize, usize),
    first: (usize, usize),
    #[comptime] transposed: bool,
    #[comptime] s: Settings,
) {
    let (m, n) = comptime![(s.unit_rows(), s.unit_columns())];
    products(&tiles.own, &tiles.other, weights, s);
    products(&tiles.own_values, &tiles.other_values, grads, s);
    // The numbers of the queries of this unit.
    let count = comptime![if transposed { n } else { m }];
    let (mut largest, mut inverse, mut delta) = (zeros(count), zeros(count), zeros(count));
    let (heads, queries) = (call.q.shape(1), call.queries());
    let start = (place.0 * heads + place.1) * queries;
    #[unroll]
    for i in 0..count {
        let query = comptime![i * UNITS]
            + if comptime![transposed] {
                first.1 + unit_column()
            } else {
                first.0 + unit_row()
            };
        if query < queries {
            largest[i] = rows.stats[(start + query) * 2];
            inverse[i] = rows.stats[(start + query) * 2 + 1];
            delta[i] = rows.deltas[start + query];
        }
    }
    #[unroll]
    for i in 0..m {
        #[unroll]
        for j in 0..n {
            let row = first.0 + unit_row() + comptime![i * UNITS];
            let column = first.1 + unit_column() + comptime![j * UNITS];
            let (query, key) = if comptime![transposed] {
                (column, row)
            } else {
                (row, column)
            };
            let of = comptime![if transposed { j } else { i }];
            let logit = call.logit(weights[i * n + j], query, key, place, s);
            let p = weight(logit, largest[of]) * inverse[of];
            weights[i * n + j] = p;
            grads[i * n + j] = p * (grads[i * n + j] - delta[of]);
        }
    }
}

/// The gradient of one tile (x) of queries of one head (y) and batch (z): one cube each.
#[cube(launch)]
pub(super) fn query_kernel(
    call: Call,
    rows: Rows,
    q_grad: &mut Tensor<f32>,
    #[comptime] s: Settings,
) {
    let (m, n, dims) = comptime![(s.unit_rows(), s.unit_columns(), s.unit_dims())];
    let first = CUBE_POS_X as usize * s.rows;
    let place = (CUBE_POS_Z as usize, CUBE_POS_Y as usize);
    let mut tiles = Tiles::new(s);
    let mut cells = Shared::<[f32]>::new_slice(comptime![s.rows * s.cell_stride()]);
    let mut weights = zeros(comptime![m * n]);
    let mut grads = zeros(comptime![m * n]);
    let mut sums = zeros(comptime![m * dims]);
    call.load_queries(&mut tiles.own, place, first, s.rows, s);
    rows.load(&mut tiles.own_values, place, first, s.rows, s);
    let seen = call.seen(first + s.rows);
    for tile in 0..seen.div_ceil(s.columns) {
        let first_key = tile * s.columns;
        let keys = (first_key, seen);
        call.load_keys(&mut tiles.other, place, keys, s.columns, s);
        call.load_values(&mut tiles.other_values, place, keys, s.columns, s);
        sync_cube();
        let corner = (first, first_key);
        cell_grads(
            &call,
            &rows,
            &mut tiles,
            &mut weights,
            &mut grads,
            place,
            corner,
            false,
            s,
        );
        put_cells(&grads, &mut cells, s);
        sync_cube();
        accumulate(&cells, &tiles.other, &mut sums, s);
        sync_cube();
    }
    // The tile of queries is not read any more.
    put_rows(&sums, &mut tiles.own, call.scale, s);
    sync_cube();
    let (from, tables, at) = (&tiles.own, &call.tables, call.q_at);
    store(from, q_grad, tables, at, place, first, QUERY_TABLE, s);
}

/// The gradients of one tile (x) of keys and of values of one head (y) and batch (z): one cube
/// each.
#[cube(launch)]
pub(super) fn key_kernel(
    call: Call,
    rows: Rows,
    k_grad: &mut Tensor<f32>,
    v_grad: &mut Tensor<f32>,
    #[comptime] s: Settings,
) {
    let mut cells = Shared::<[f32]>::new_slice(comptime![s.rows * s.cell_stride()]);
    let mut sums = zeros(comptime![s.unit_rows()]);
    key_grads(&call, &rows, k_grad, v_grad, &mut cells, &mut sums, s);
}

/// [`key_kernel`], with the gradients of the running sums of a decay, `[B, H, K]`: minus the sums
/// of the gradients of the logits of each key.
#[cube(launch)]
pub(super) fn key_decay_kernel(
    call: Call,
    rows: Rows,
    k_grad: &mut Tensor<f32>,
    v_grad: &mut Tensor<f32>,
    decay_grad: &mut Tensor<f32>,
    #[comptime] s: Settings,
) {
    let m = comptime![s.unit_rows()];
    let mut cells = Shared::<[f32]>::new_slice(comptime![s.rows * s.cell_stride()]);
    let mut sums = zeros(m);
    key_grads(&call, &rows, k_grad, v_grad, &mut cells, &mut sums, s);
    sync_cube();
    #[unroll]
    for i in 0..m {
        let row = unit_row() + comptime![i * UNITS];
        cells[row * SCRATCH + unit_column()] = sums[i];
    }
    sync_cube();
    // There are at least as many units as rows.
    let row = UNIT_POS as usize;
    let key = CUBE_POS_X as usize * s.rows + row;
    if row < s.rows && key < call.keys() {
        let mut sum = 0.0f32;
        for column in 0..UNITS {
            sum += cells[row * SCRATCH + column];
        }
        let (batch, head) = (CUBE_POS_Z as usize, CUBE_POS_Y as usize);
        let at = (batch * decay_grad.shape(1) + head) * decay_grad.shape(2) + key;
        decay_grad[at] = -sum;
    }
}

/// Adds the cells of each row that this unit owns.
#[cube]
fn add_rows(sums: &mut Array<f32>, cells: &Array<f32>, #[comptime] s: Settings) {
    let (m, n) = comptime![(s.unit_rows(), s.unit_columns())];
    #[unroll]
    for i in 0..m {
        #[unroll]
        for j in 0..n {
            sums[i] += cells[i * n + j];
        }
    }
}

/// The gradients of a tile of keys and of values. With a decay, `sums` receive those of the logits
/// over the queries of this unit, for each of its keys. `cells` is a tile of scratch memory.
#[cube]
fn key_grads(
    call: &Call,
    rows: &Rows,
    k_grad: &mut Tensor<f32>,
    v_grad: &mut Tensor<f32>,
    cells: &mut Shared<[f32]>,
    sums: &mut Array<f32>,
    #[comptime] s: Settings,
) {
    let (m, n, dims) = comptime![(s.unit_rows(), s.unit_columns(), s.unit_dims())];
    let first = CUBE_POS_X as usize * s.rows;
    let place = (CUBE_POS_Z as usize, CUBE_POS_Y as usize);
    let mut tiles = Tiles::new(s);
    let mut weights = zeros(comptime![m * n]);
    let mut grads = zeros(comptime![m * n]);
    let mut k_sums = zeros(comptime![m * dims]);
    let mut v_sums = zeros(comptime![m * dims]);
    let queries = call.queries();
    let seen = call.seen(queries);
    call.load_keys(&mut tiles.own, place, (first, seen), s.rows, s);
    call.load_values(&mut tiles.own_values, place, (first, seen), s.rows, s);
    // The first query that sees a key of this tile.
    let first_query = call.first_query as usize;
    let first_row = select(first > first_query, first, first_query) - first_query;
    for tile in first_row / s.columns..queries.div_ceil(s.columns) {
        let first_row = tile * s.columns;
        call.load_queries(&mut tiles.other, place, first_row, s.columns, s);
        rows.load(&mut tiles.other_values, place, first_row, s.columns, s);
        sync_cube();
        let corner = (first, first_row);
        cell_grads(
            call,
            rows,
            &mut tiles,
            &mut weights,
            &mut grads,
            place,
            corner,
            true,
            s,
        );
        if comptime![s.bias == BiasKind::Decays] {
            add_rows(sums, &grads, s);
        }
        put_cells(&weights, cells, s);
        sync_cube();
        accumulate(&*cells, &tiles.other_values, &mut v_sums, s);
        sync_cube();
        put_cells(&grads, cells, s);
        sync_cube();
        accumulate(&*cells, &tiles.other, &mut k_sums, s);
        sync_cube();
    }
    // Without a query the tiles may still be loading.
    sync_cube();
    put_rows(&k_sums, &mut tiles.own, call.scale, s);
    put_rows(&v_sums, &mut tiles.own_values, 1.0, s);
    sync_cube();
    let (from, tables) = (&tiles.own, &call.tables);
    store(from, k_grad, tables, call.k_at, place, first, KEY_TABLE, s);
    let from = &tiles.own_values;
    store(from, v_grad, tables, call.v_at, place, first, None, s);
}
