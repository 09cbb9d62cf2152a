//! The gradient of the bias: each cube owns a tile of it, or a diagonal of tiles, and walks through
//! the batch and heads that share it.

use super::backward::{Tiles, cell_grads};
use super::call::{Call, Rows};
use super::settings::{Settings, UNITS};
use super::tiles::{unit_column, unit_row};
use crate::cube::rows::zeros;
use burn_cubecl::cubecl;
use cubecl::prelude::*;

/// Adds the gradients of the logits of one tile, of one batch and head (`place`), to the cells that
/// this unit owns. `first` are the first query and the first key.
#[cube]
fn add_tile(
    sums: &mut Array<f32>,
    tiles: &mut Tiles,
    call: &Call,
    rows: &Rows,
    place: (usize, usize),
    first: (usize, usize),
    #[comptime] s: Settings,
) {
    let cells = comptime![s.unit_rows() * s.unit_columns()];
    let seen = call.seen(call.queries());
    call.load_queries(&mut tiles.own, place, first.0, s.rows, s);
    rows.load(&mut tiles.own_values, place, first.0, s.rows, s);
    let keys = (first.1, seen);
    call.load_keys(&mut tiles.other, place, keys, s.columns, s);
    call.load_values(&mut tiles.other_values, place, keys, s.columns, s);
    sync_cube();
    let mut weights = zeros(cells);
    let mut grads = zeros(cells);
    cell_grads(
        call,
        rows,
        tiles,
        &mut weights,
        &mut grads,
        place,
        first,
        false,
        s,
    );
    #[unroll]
    for i in 0..cells {
        sums[i] += grads[i];
    }
    sync_cube();
}

/// The gradient of one tile (x and y) of one head and batch (z) of a dense bias, `[G, 1 or H, Q,
/// K]`, which `shared_heads` heads and `shared_batch` batches share.
#[cube(launch)]
pub(super) fn bias_kernel(
    call: Call,
    rows: Rows,
    bias_grad: &mut Tensor<f32>,
    shared_batch: u32,
    shared_heads: u32,
    #[comptime] s: Settings,
) {
    let (m, n) = comptime![(s.unit_rows(), s.unit_columns())];
    let (queries, keys) = (call.queries(), call.keys());
    let first = CUBE_POS_X as usize * s.rows;
    let first_key = CUBE_POS_Y as usize * s.columns;
    let bias_batch = CUBE_POS_Z as usize / bias_grad.shape(1);
    let bias_head = CUBE_POS_Z as usize % bias_grad.shape(1);
    let start = bias_batch * bias_grad.stride(0) + bias_head * bias_grad.stride(1);
    let heads = shared_heads as usize;
    let batches = shared_batch as usize;
    let mut tiles = Tiles::new(s);
    let mut sums = zeros(comptime![m * n]);
    if first_key < call.seen(first + s.rows) {
        for i in 0..batches * heads {
            let batch = bias_batch * batches + i / heads;
            let head = bias_head * heads + i % heads;
            let corner = (first, first_key);
            add_tile(
                &mut sums,
                &mut tiles,
                &call,
                &rows,
                (batch, head),
                corner,
                s,
            );
        }
    }
    #[unroll]
    for i in 0..m {
        let query = first + unit_row() + comptime![i * UNITS];
        #[unroll]
        for j in 0..n {
            let key = first_key + unit_column() + comptime![j * UNITS];
            if query < queries && key < keys {
                bias_grad[start + query * keys + key] = sums[i * n + j];
            }
        }
    }
}

/// The gradients of the logits, summed over a diagonal (x) of tiles, over the heads that share one
/// head (y) of the bias, and over `chunk` (z) of the `sequences` of a group, or the rest of them.
/// Queries and keys are those of one sequence.
///
/// Diagonal i holds the tiles whose first query comes `(i + 1) columns - rows` after their first
/// key, so each cell has the same distance in all tiles of a diagonal. `partial` is `[G chunks,
/// 1 or H, diagonals, rows columns]`.
#[cube(launch)]
pub(super) fn diagonal_kernel(
    call: Call,
    rows: Rows,
    partial: &mut Tensor<f32>,
    sequences: u32,
    chunk: u32,
    shared_heads: u32,
    #[comptime] s: Settings,
) {
    let (m, n) = comptime![(s.unit_rows(), s.unit_columns())];
    let heads = shared_heads as usize;
    let queries = call.queries();
    let (sequences, chunk) = (sequences as usize, chunk as usize);
    let chunks = sequences.div_ceil(chunk);
    let group = CUBE_POS_Z as usize / chunks;
    let start = CUBE_POS_Z as usize % chunks * chunk;
    let end = select(start + chunk < sequences, start + chunk, sequences);
    let (batch, end) = (group * sequences + start, group * sequences + end);
    let diagonal = CUBE_POS_X as usize * s.columns;
    let mut tiles = Tiles::new(s);
    let mut sums = zeros(comptime![m * n]);
    for tile in 0..queries.div_ceil(s.rows) {
        let first = tile * s.rows;
        // The first key, plus the place of the diagonal so that it is not negative.
        let key = first + comptime![s.rows - s.columns];
        if key >= diagonal && key - diagonal < queries {
            for i in 0..(end - batch) * heads {
                let place = (batch + i / heads, CUBE_POS_Y as usize * heads + i % heads);
                let corner = (first, key - diagonal);
                add_tile(&mut sums, &mut tiles, &call, &rows, place, corner, s);
            }
        }
    }
    let start = CUBE_POS_Z as usize * partial.stride(0)
        + CUBE_POS_Y as usize * partial.stride(1)
        + CUBE_POS_X as usize * partial.stride(2);
    #[unroll]
    for i in 0..m {
        #[unroll]
        for j in 0..n {
            let row = unit_row() + comptime![i * UNITS];
            let column = unit_column() + comptime![j * UNITS];
            partial[start + row * s.columns + column] = sums[i * n + j];
        }
    }
}

/// The sums of what [`diagonal_kernel`] gives over the cells of each distance: `[G, 1 or H, n]`.
/// One unit per distance.
#[cube(launch)]
pub(super) fn distance_kernel(
    partial: &Tensor<f32>,
    bias_grad: &mut Tensor<f32>,
    #[comptime] s: Settings,
) {
    let (heads, distances) = (bias_grad.shape(1), bias_grad.shape(2));
    let (chunks, diagonals) = (partial.shape(0) / bias_grad.shape(0), partial.shape(2));
    let i = ABSOLUTE_POS;
    if i < bias_grad.len() {
        let group = i / (heads * distances);
        let head = i / distances % heads;
        let distance = i % distances;
        let mut sum = 0.0f32;
        for row in 0..s.rows {
            // A row of a tile has one cell of this distance, on one of the diagonals.
            let shifted = distance + s.rows - row;
            let diagonal = (shifted - 1) / s.columns;
            let column = (diagonal + 1) * s.columns - shifted;
            if diagonal < diagonals {
                let at = head * partial.stride(1)
                    + diagonal * partial.stride(2)
                    + row * s.columns
                    + column;
                for chunk in group * chunks..(group + 1) * chunks {
                    sum += partial[chunk * partial.stride(0) + at];
                }
            }
        }
        bias_grad[i] = sum;
    }
}
