//! The forward kernel: softmax over tiles of keys with a running maximum and sum.

use super::call::Call;
use super::settings::{SCRATCH, Settings, UNITS};
use super::tiles::{
    Four, LOWEST, accumulate, own_four, products, put_cells, unit_column, unit_row, weight,
};
use crate::cube::rows::zeros;
use burn_cubecl::cubecl;
use cubecl::prelude::*;

/// What a unit knows of its rows so far.
#[derive(CubeType)]
struct State {
    /// The largest logit of each row.
    largest: Array<f32>,
    /// The sum of the exponentials of each row, over the columns of this unit.
    sums: Array<f32>,
    /// The dimensions of this unit of each row, times the sum of the row.
    output: Array<f32>,
}

/// One cube computes one tile (x) of queries of one head (y) and batch (z).
///
/// `out` is `[B, H, Q, E]`. `stats`, `[B, H, Q, 2]`, receives the largest logit of each row and the
/// inverse of the sum of its exponentials; both are 0 for a row that sees nothing.
#[cube(launch)]
pub(super) fn forward_kernel(
    call: Call,
    out: &mut Tensor<f32>,
    stats: &mut Tensor<f32>,
    #[comptime] s: Settings,
) {
    let (m, n, dims) = comptime![(s.unit_rows(), s.unit_columns(), s.unit_dims())];
    let first = CUBE_POS_X as usize * s.rows;
    let place = (CUBE_POS_Z as usize, CUBE_POS_Y as usize);
    let mut q_tile = Shared::<[Four]>::new_slice(comptime![s.rows * s.stride()]);
    // Keys, then values.
    let mut kv_tile = Shared::<[Four]>::new_slice(comptime![s.columns * s.stride()]);
    let mut cells = Shared::<[f32]>::new_slice(comptime![s.rows * s.cell_stride()]);
    let mut scratch = Shared::<[f32]>::new_slice(comptime![s.rows * SCRATCH]);
    let mut logits = zeros(comptime![m * n]);
    let mut state = State {
        largest: zeros(m),
        sums: zeros(m),
        output: zeros(comptime![m * dims]),
    };
    #[unroll]
    for i in 0..m {
        state.largest[i] = LOWEST;
    }
    call.load_queries(&mut q_tile, place, first, s.rows, s);
    let seen = call.seen(first + s.rows);
    for tile in 0..seen.div_ceil(s.columns) {
        let first_key = tile * s.columns;
        call.load_keys(&mut kv_tile, place, (first_key, seen), s.columns, s);
        sync_cube();
        products(&q_tile, &kv_tile, &mut logits, s);
        add_bias(&call, &mut logits, &mut scratch, place, first, first_key, s);
        sync_cube();
        // All units are done with the keys.
        call.load_values(&mut kv_tile, place, (first_key, seen), s.columns, s);
        rescale(&mut state, &mut logits, &scratch, s);
        put_cells(&logits, &mut cells, s);
        sync_cube();
        accumulate(&cells, &kv_tile, &mut state.output, s);
        sync_cube();
    }
    #[unroll]
    for i in 0..m {
        let row = unit_row() + comptime![i * UNITS];
        scratch[row * SCRATCH + unit_column()] = state.sums[i];
    }
    sync_cube();
    finish(&state, &scratch, out, stats, place, first, s);
}

/// Turns products into logits, and puts the largest of each row of this unit into `scratch`.
#[cube]
fn add_bias(
    call: &Call,
    logits: &mut Array<f32>,
    scratch: &mut Shared<[f32]>,
    place: (usize, usize),
    first: usize,
    first_key: usize,
    #[comptime] s: Settings,
) {
    let (m, n) = comptime![(s.unit_rows(), s.unit_columns())];
    #[unroll]
    for i in 0..m {
        let row = unit_row() + comptime![i * UNITS];
        let mut most = LOWEST.runtime();
        #[unroll]
        for j in 0..n {
            let key = first_key + unit_column() + comptime![j * UNITS];
            let x = call.logit(logits[i * n + j], first + row, key, place, s);
            logits[i * n + j] = x;
            most = max(most, x);
        }
        scratch[row * SCRATCH + unit_column()] = most;
    }
}

/// Turns logits into exponentials relative to the largest logit so far, which may have grown.
#[cube]
fn rescale(
    state: &mut State,
    logits: &mut Array<f32>,
    scratch: &Shared<[f32]>,
    #[comptime] s: Settings,
) {
    let (m, n, dims) = comptime![(s.unit_rows(), s.unit_columns(), s.unit_dims())];
    #[unroll]
    for i in 0..m {
        let row = unit_row() + comptime![i * UNITS];
        let mut most = state.largest[i];
        #[unroll]
        for j in 0..UNITS {
            most = max(most, scratch[row * SCRATCH + j]);
        }
        let shrink = (state.largest[i] - most).exp();
        state.largest[i] = most;
        state.sums[i] *= shrink;
        #[unroll]
        for j in 0..dims {
            state.output[i * dims + j] *= shrink;
        }
        #[unroll]
        for j in 0..n {
            let x = weight(logits[i * n + j], most);
            state.sums[i] += x;
            logits[i * n + j] = x;
        }
    }
}

/// Divides the rows by their sums, whose parts lie in `scratch`, and writes them.
#[cube]
fn finish(
    state: &State,
    scratch: &Shared<[f32]>,
    out: &mut Tensor<f32>,
    stats: &mut Tensor<f32>,
    place: (usize, usize),
    first: usize,
    #[comptime] s: Settings,
) {
    let (m, dims) = comptime![(s.unit_rows(), s.unit_dims())];
    let (heads, queries) = (out.shape(1), out.shape(2));
    let (row_stride, dim_stride) = (out.stride(2), out.stride(3));
    let start = place.0 * out.stride(0) + place.1 * out.stride(1);
    #[unroll]
    for i in 0..m {
        let row = unit_row() + comptime![i * UNITS];
        let query = first + row;
        let mut sum = 0.0f32;
        #[unroll]
        for j in 0..UNITS {
            sum += scratch[row * SCRATCH + j];
        }
        // 1 instead of a sum of 0, so that 0 / 0 does not occur.
        let empty = sum == 0.0;
        let inverse = select(empty, 0.0, 1.0 / select(empty, 1.0, sum));
        if query < queries {
            if unit_column() == 0 {
                let at = ((place.0 * heads + place.1) * queries + query) * 2;
                stats[at] = select(empty, 0.0, state.largest[i]);
                stats[at + 1] = inverse;
            }
            #[unroll]
            for j in 0..dims {
                let dim = 4 * own_four(comptime![j / 4], s) + comptime![j % 4];
                if dim < s.head_dim {
                    out[start + query * row_stride + dim * dim_stride] =
                        state.output[i * dims + j] * inverse;
                }
            }
        }
    }
}
