//! The forward pass of attention, with an online softmax.
//!
//! Queries are taken in blocks as wide as two vectors, keys in tiles that start at fixed multiples.
//! The logits of a block and a tile are kept transposed: per key, one row with one lane per query.
//! So the softmax needs no sums across lanes, hidden keys are hardly computed, and everything else
//! is a product of small matrices. The result for a query does not depend on its block or thread.

use super::call::AttentionCall;
use super::lanes::WIDTH;
use super::mask::Mask;
use super::qkv_layout::TILE;
use super::row_ops::ScaleRows;
use crate::flex::buffer_pool::Buffer;
use crate::flex::gemm::{Accumulate, Matrix, MatrixMut, multiply_f32, multiply_f32_transposed};
use crate::flex::simd::{Lanes, dispatch};
use crate::flex::threads::for_each;
use crate::flex::twice::{Twice, pairs_mut};
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// Query blocks of a task: they read a tile of keys one after the other.
const BLOCKS: usize = 16;

/// One step of an online softmax: logits of a tile become exponentials, and the largest logits and
/// sums of exponentials so far are updated.
struct OnlineSoftmax<'a> {
    tile: &'a mut [f32],
    mask: Mask<'a>,
    largest: &'a mut [f32],
    total: &'a mut [f32],
    /// Receives the factor for the output so far.
    rescale: &'a mut [f32],
}

impl WithSimd for OnlineSoftmax<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let lanes = Twice(s);
        let tile = pairs_mut::<S>(self.tile);
        self.mask.apply(lanes, tile);
        let (carried, total) = (
            &mut pairs_mut::<S>(self.largest)[0],
            &mut pairs_mut::<S>(self.total)[0],
        );
        let before = *carried;
        let mut largest = before;
        for x in &*tile {
            largest = lanes.larger(*x, largest);
        }
        *carried = largest;
        // A row that has seen nothing yet must not compute -inf - -inf.
        let shift = lanes.where_less(
            lanes.splat(f32::NEG_INFINITY),
            largest,
            largest,
            lanes.zero(),
        );
        // At the first tile `before` is -inf and the factor exactly 0.
        let rescale = lanes.exp(lanes.sub(before, shift));
        let mut sum = lanes.zero();
        for x in tile {
            *x = lanes.exp(lanes.sub(*x, shift));
            sum = lanes.add(sum, *x);
        }
        *total = lanes.fma(*total, rescale, sum);
        pairs_mut::<S>(self.rescale)[0] = rescale;
    }
}

/// A task: some consecutive tiles of queries of one head.
struct Forward<'a, 'b> {
    call: &'a AttentionCall<'a>,
    at: [usize; 2],
    queries: Range<usize>,
    output: Vec<&'b mut [f32]>,
    /// Receives the logarithm of the sum of exponentials, +inf where nothing is visible; empty
    /// outside training.
    log_sum: &'b mut [f32],
}

/// The rows of a block of queries in the tiles of one head, the first of which starts at `first`.
pub(super) fn block<'b>(
    tiles: &'b mut [&mut [f32]],
    first: usize,
    [length, head_dim]: [usize; 2],
    range: &Range<usize>,
) -> MatrixMut<'b> {
    let tile = (range.start - first) / TILE;
    let start = first + tile * TILE;
    MatrixMut::packed(tiles[tile], TILE.min(length - start), head_dim)
        .row_range(range.start - start..range.end - start)
}

impl Forward<'_, '_> {
    fn run(mut self) {
        let (call, width) = (self.call, *WIDTH);
        let head_dim = call.q.shape()[3];
        let blocks: Vec<Range<usize>> = self
            .queries
            .clone()
            .step_by(width)
            .map(|start| start..(start + width).min(self.queries.end))
            .collect();
        let n = blocks.len();
        // Per block [head_dim, width]: queries transposed, one lane each.
        let mut columns = Buffer::new(n * head_dim * width);
        for (columns, range) in columns.chunks_exact_mut(head_dim * width).zip(&blocks) {
            call.q
                .matrix(self.at, range.clone())
                .pack_transposed(columns);
        }
        let mut state = SoftmaxState {
            tile: Buffer::new(TILE * width),
            bias: call.bias_scratch(),
            largest: vec![f32::NEG_INFINITY; n * width],
            total: vec![0.0; n * width],
            rescale: vec![0.0; width],
        };
        // All blocks read one tile of keys before the next tile: it stays in L1.
        for start in (0..call.visible(&self.queries)).step_by(TILE) {
            for (i, range) in blocks.iter().enumerate() {
                let columns = &columns[i * head_dim * width..][..head_dim * width];
                self.tile(start, i, range, columns, &mut state);
            }
        }
        self.finish(&blocks, state);
    }

    /// One tile of keys, from `start` on, for one block of queries.
    fn tile(
        &mut self,
        start: usize,
        index: usize,
        range: &Range<usize>,
        columns: &[f32],
        state: &mut SoftmaxState,
    ) {
        let (call, width) = (self.call, *WIDTH);
        let [_, _, length, head_dim] = call.q.shape();
        // Blocks of a task end at different keys: early ones skip the last tiles.
        let visible = call.visible(range).min(start + TILE);
        if visible <= start {
            return;
        }
        let seen = visible - start;
        let tile = &mut state.tile[..seen * width];
        // Transposed logits, [keys, width] = k q^T.
        multiply_f32(
            call.k.matrix(self.at, start..visible),
            Matrix::packed(columns, head_dim, width),
            MatrixMut::packed(tile, seen, width),
            Accumulate::Overwrite,
        );
        let own = call.first_query + range.start;
        let block_at = (range.start / width, own);
        let bias = call.bias_rows(self.at, block_at, start..visible, &mut state.bias);
        dispatch(OnlineSoftmax {
            tile,
            mask: Mask {
                first_key: start,
                own,
                bias,
            },
            largest: &mut state.largest[index * width..][..width],
            total: &mut state.total[index * width..][..width],
            rescale: &mut state.rescale,
        });
        let (first, sizes) = (self.queries.start, [length, head_dim]);
        // At the first tile the output still holds old numbers, which are overwritten below.
        if start > 0 {
            dispatch(ScaleRows {
                rows: block(&mut self.output, first, sizes, range),
                head_dim,
                factors: &state.rescale,
            });
        }
        let accumulate = if start == 0 {
            Accumulate::Overwrite
        } else {
            Accumulate::Add
        };
        // output += exponentials^T v. The division by their sum waits for `finish`.
        multiply_f32_transposed(
            Matrix::packed(tile, seen, width),
            call.v.matrix(self.at, start..visible),
            block(&mut self.output, first, sizes, range),
            accumulate,
        );
    }

    /// Divides by the sums of exponentials, and writes their logarithms.
    fn finish(mut self, blocks: &[Range<usize>], state: SoftmaxState) {
        let [_, _, length, head_dim] = self.call.q.shape();
        // A query that sees nothing has a sum of 0. Its output is 0, not NaN.
        let inverse = |total: &f32| if *total == 0.0 { 0.0 } else { 1.0 / total };
        let factors: Vec<f32> = state.total.iter().map(inverse).collect();
        for (range, factors) in blocks.iter().zip(factors.chunks(*WIDTH)) {
            dispatch(ScaleRows {
                rows: block(
                    &mut self.output,
                    self.queries.start,
                    [length, head_dim],
                    range,
                ),
                head_dim,
                factors,
            });
        }
        let sums = state.largest.into_iter().zip(state.total);
        for (log_sum, (largest, total)) in self.log_sum.iter_mut().zip(sums) {
            // With +inf the backward pass computes weights of exp(-inf) = 0.
            *log_sum = if total == 0.0 {
                f32::INFINITY
            } else {
                largest + total.ln()
            };
        }
    }
}

/// What the online softmax carries from tile to tile, one lane per query of all blocks.
struct SoftmaxState {
    /// Logits of the current tile.
    tile: Buffer,
    /// Its bias, if that is computed here.
    bias: Buffer,
    largest: Vec<f32>,
    total: Vec<f32>,
    /// Factor for the output so far of the current block.
    rescale: Vec<f32>,
}

/// Attention, into `output`, in the layout of one part of `q`. `log_sum`, `[B, H, Q]`, is empty
/// outside training.
pub(crate) fn attention_forward(call: &AttentionCall<'_>, output: &mut [f32], log_sum: &mut [f32]) {
    let shape = call.q.shape();
    let [batch, heads, queries, head_dim] = shape;
    let tiles = (BLOCKS * *WIDTH).div_ceil(TILE);
    let tracked = !log_sum.is_empty();
    let mut log_sums = log_sum.chunks_mut(queries.max(1));
    let mut tasks = Vec::with_capacity(batch * heads * queries.div_ceil(tiles * TILE));
    for (index, output) in call
        .q
        .layout
        .single_part()
        .tiles_by_head(output)
        .remove(0)
        .into_iter()
        .enumerate()
    {
        let mut log_sum = log_sums.next().unwrap_or_default();
        let mut output = output.into_iter();
        for start in (0..queries).step_by(tiles * TILE) {
            // `split_off` would leave every part with the capacity of all that follows.
            let output: Vec<_> = output.by_ref().take(tiles).collect();
            let queries = start..(start + tiles * TILE).min(queries);
            let (mine, others) =
                std::mem::take(&mut log_sum).split_at_mut(if tracked { queries.len() } else { 0 });
            tasks.push(Forward {
                call,
                at: [index / heads, index % heads],
                queries,
                output,
                log_sum: mine,
            });
            log_sum = others;
        }
    }
    // Long tasks first, so that no thread starts one at the end.
    tasks.sort_by_key(|task| std::cmp::Reverse(task.queries.end));
    let work =
        batch * heads * queries * call.visible(&(0..queries)).div_ceil(8) * head_dim.div_ceil(8);
    for_each(tasks, work, Forward::run);
}
