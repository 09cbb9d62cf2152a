//! The kernels of norms over rows.

use crate::cube::rows::{CUBE, Rows, row_sum, zeros};
use burn_cubecl::cubecl;
use cubecl::prelude::*;

/// What a kernel is compiled for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Settings {
    pub rows: Rows,
    /// Whether the mean is taken off and a shift added: a LayerNorm.
    pub centred: bool,
}

/// Columns of partial sums that one cube adds up.
pub(super) const SUM_COLUMNS: usize = 8;
/// Units that share a column of partial sums.
const SUM_LANES: usize = CUBE / SUM_COLUMNS;

/// Normalises rows, several in each cube. Rows of part g, `part` of them, take part g of `scale`
/// and `shift`. `stats` receives the mean of each row, 0 in an RMSNorm, and its factor.
#[cube(launch)]
#[allow(clippy::too_many_arguments, reason = "inputs, outputs and sizes")]
pub(super) fn norm_kernel(
    x: &Tensor<f32>,
    scale: &Tensor<f32>,
    shift: &Tensor<f32>,
    y: &mut Tensor<f32>,
    stats: &mut Tensor<f32>,
    eps: f32,
    part: u32,
    #[comptime] s: Settings,
) {
    let (width, lanes) = comptime![(s.rows.width, s.rows.lanes)];
    let mut scratch = Shared::<[f32]>::new_slice(CUBE);
    let row = ABSOLUTE_POS / lanes;
    let lane = UNIT_POS as usize % lanes;
    let inside = row < y.len() / width;
    let start = row * width;
    let mut mean = 0.0f32;
    if comptime![s.centred] {
        let mut sum = 0.0f32;
        for i in 0..comptime![s.rows.columns()] {
            let column = lane + i * lanes;
            if inside && column < width {
                sum += x[start + column];
            }
        }
        mean = row_sum(&mut scratch, sum, s.rows) / width as f32;
    }
    let mut squares = 0.0f32;
    for i in 0..comptime![s.rows.columns()] {
        let column = lane + i * lanes;
        if inside && column < width {
            let x = x[start + column] - mean;
            squares += x * x;
        }
    }
    let variance = row_sum(&mut scratch, squares, s.rows) / width as f32;
    let factor = 1.0 / (variance + eps).sqrt();
    let own = row / part as usize * width;
    for i in 0..comptime![s.rows.columns()] {
        let column = lane + i * lanes;
        if inside && column < width {
            let mut value = (x[start + column] - mean) * factor * scale[own + column];
            if comptime![s.centred] {
                value += shift[own + column];
            }
            y[start + column] = value;
        }
    }
    if inside && lane == 0 {
        stats[row * 2] = mean;
        stats[row * 2 + 1] = factor;
    }
}

/// The gradient of the rows, and partial sums of those of scale and shift. The rows of one part (y)
/// are dealt out to the cubes (x), and in each to its rows of units; each of these has a row in
/// `partial`, `[G, P, 2, W]`.
#[cube(launch)]
#[allow(clippy::too_many_arguments, reason = "inputs, outputs and sizes")]
pub(super) fn norm_grad_kernel(
    x: &Tensor<f32>,
    scale: &Tensor<f32>,
    stats: &Tensor<f32>,
    grad: &Tensor<f32>,
    x_grad: &mut Tensor<f32>,
    partial: &mut Tensor<f32>,
    part: u32,
    #[comptime] s: Settings,
) {
    let (width, lanes) = comptime![(s.rows.width, s.rows.lanes)];
    let (count, columns) = comptime![(s.rows.count(), s.rows.columns())];
    let mut scratch = Shared::<[f32]>::new_slice(CUBE);
    let group = CUBE_POS_Y as usize;
    let lane = UNIT_POS as usize % lanes;
    // This row of units among those that share the part.
    let place = CUBE_POS_X as usize * count + UNIT_POS as usize / lanes;
    let places = CUBE_COUNT_X as usize * count;
    let own = group * width;
    let mut scale_grad = zeros(columns);
    let mut shift_grad = zeros(columns);
    for step in 0..(part as usize).div_ceil(places) {
        let index = step * places + place;
        let inside = index < part as usize;
        let row = group * part as usize + index;
        let start = row * width;
        // Past the last row nothing is read.
        let at = select(inside, row, 0) * 2;
        let (mean, factor) = (stats[at], stats[at + 1]);
        let mut sum = 0.0f32;
        let mut products = 0.0f32;
        #[unroll]
        for i in 0..columns {
            let column = lane + comptime![i * lanes];
            if inside && column < width {
                let normal = (x[start + column] - mean) * factor;
                let dy = grad[start + column];
                let weighted = dy * scale[own + column];
                sum += weighted;
                products += weighted * normal;
                scale_grad[i] += dy * normal;
                shift_grad[i] += dy;
            }
        }
        let mut mean_grad = 0.0f32;
        if comptime![s.centred] {
            mean_grad = row_sum(&mut scratch, sum, s.rows) / width as f32;
        }
        let along = row_sum(&mut scratch, products, s.rows) / width as f32;
        #[unroll]
        for i in 0..columns {
            let column = lane + comptime![i * lanes];
            if inside && column < width {
                let normal = (x[start + column] - mean) * factor;
                let weighted = grad[start + column] * scale[own + column];
                x_grad[start + column] = (weighted - mean_grad - normal * along) * factor;
            }
        }
    }
    let at = (group * places + place) * 2 * width;
    #[unroll]
    for i in 0..columns {
        let column = lane + comptime![i * lanes];
        if column < width {
            partial[at + column] = scale_grad[i];
            partial[at + width + column] = shift_grad[i];
        }
    }
}

/// Adds up partial sums, `[G, P, 2, W]`, into the gradients of scale and shift, `[G W]` each. Of
/// the `2 G W` sums a cube computes [`SUM_COLUMNS`].
#[cube(launch)]
pub(super) fn norm_sum_kernel(
    partial: &Tensor<f32>,
    scale_grad: &mut Tensor<f32>,
    shift_grad: &mut Tensor<f32>,
    #[comptime] s: Settings,
) {
    let width = comptime![s.rows.width];
    let places = partial.shape(1);
    let mut scratch = Shared::<[f32]>::new_slice(CUBE);
    let unit = UNIT_POS as usize;
    let (column, lane) = (unit % SUM_COLUMNS, unit / SUM_COLUMNS);
    let index = CUBE_POS * SUM_COLUMNS + column;
    let group = index / (2 * width);
    let inside = group < partial.shape(0);
    let mut sum = 0.0f32;
    for step in 0..places.div_ceil(SUM_LANES) {
        let place = step * SUM_LANES + lane;
        if inside && place < places {
            sum += partial[(group * places + place) * 2 * width + index % (2 * width)];
        }
    }
    scratch[unit] = sum;
    sync_cube();
    if inside && lane == 0 {
        let mut total = 0.0f32;
        for lane in 0..SUM_LANES {
            total += scratch[lane * SUM_COLUMNS + column];
        }
        let to = group * width + index % width;
        if index % (2 * width) < width {
            scale_grad[to] = total;
        } else if comptime![s.centred] {
            shift_grad[to] = total;
        }
    }
}
