//! Fused causal attention.
//!
//! Queries are taken in blocks as wide as two vectors, one query to a lane, and logits are kept transposed: one row of lanes
//! per key. Then keys and values are read where they lie, one broadcast element at a time; the softmax needs no sums across
//! lanes; and keys are taken in tiles that start at fixed multiples, so that the result for a query does not depend on the
//! block, or the thread, it is computed in.

use crate::flex::{Input, Strided, for_each, record, strided_output, tensor};
use crate::simd::{Lanes, dispatch};
use burn_flex::FlexTensor;
use bytemuck::cast_slice;
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// Keys of a tile.
const TILE: usize = 128;
/// Vectors of a query block.
const WIDE: usize = 2;
/// Partial sums of the gradient of one slice of a broadcast bias. A constant, so that the result is one for any thread count.
const GROUPS: usize = 8;

/// The lanes of one query block.
type Block<S> = [<S as Simd>::f32s; WIDE];

/// An expression for each vector of a block. Not a closure: that may be compiled without the instruction set of what is around.
macro_rules! each {
    (|$i:ident| $value:expr) => {
        [
            {
                let $i = 0;
                $value
            },
            {
                let $i = 1;
                $value
            },
        ]
    };
}

/// How many queries a block has on this machine.
struct BlockWidth;

impl WithSimd for BlockWidth {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> usize {
        WIDE * S::F32_LANES
    }
}

/// What all tasks of one call share.
struct Call<'a> {
    q: Strided<'a>,
    k: Strided<'a>,
    v: Strided<'a>,
    bias: Option<&'a Transposed>,
    scale: f32,
    first_query: usize,
}

impl Call<'_> {
    /// How many keys the queries of a block see, the last of them included.
    fn visible(&self, queries: &Range<usize>) -> usize {
        (self.first_query + queries.end).min(self.k.shape[2])
    }
}

/// A bias by query block: for every key a block sees, one row of its lanes.
struct Transposed {
    values: Vec<f32>,
    shape: [usize; 4],
    /// Where each block of a slice starts.
    starts: Vec<usize>,
}

impl Transposed {
    fn blank(shape: [usize; 4], first_query: usize, width: usize, slices: usize) -> Self {
        let mut starts = vec![0];
        for start in (0..shape[2]).step_by(width) {
            let visible = (first_query + (start + width).min(shape[2])).min(shape[3]);
            starts.push(starts[starts.len() - 1] + visible * width);
        }
        Self { values: vec![0.0; slices * starts[starts.len() - 1]], shape, starts }
    }

    fn new(bias: &FlexTensor, first_query: usize, width: usize) -> Self {
        let bias = Strided::new(bias);
        let [batch, heads, queries, _] = bias.shape;
        let mut blank = Self::blank(bias.shape, first_query, width, batch * heads);
        let (starts, slice) = (&blank.starts, blank.slice_len());
        let n = blank.values.len();
        let fill = |(index, values): (usize, &mut [f32])| {
            for (block, bounds) in starts.windows(2).enumerate() {
                let values = &mut values[bounds[0]..bounds[1]];
                let rows = block * width..((block + 1) * width).min(queries);
                for (lane, row) in rows.enumerate() {
                    let row = bias.row(index / heads, index % heads, row);
                    for (x, lanes) in row.iter().zip(values.chunks_exact_mut(width)) {
                        lanes[lane] = *x;
                    }
                }
            }
        };
        for_each(blank.values.chunks_mut(slice.max(1)).enumerate().collect(), n, fill);
        blank
    }

    fn slice_len(&self) -> usize {
        self.starts[self.starts.len() - 1]
    }

    /// Which slice a batch and head use.
    fn slice(&self, batch: usize, head: usize) -> usize {
        let [batches, heads, ..] = self.shape;
        (if batches == 1 { 0 } else { batch }) * heads + if heads == 1 { 0 } else { head }
    }

    fn block(&self, batch: usize, head: usize, block: usize) -> &[f32] {
        let start = self.slice(batch, head) * self.slice_len();
        &self.values[start + self.starts[block]..start + self.starts[block + 1]]
    }
}

/// Rows `rows` of a matrix, transposed: for each column one row of lanes, times a factor. Lanes past the last row are 0.
#[inline(always)]
fn transpose<S: Simd>(s: S, x: &Strided<'_>, [batch, head]: [usize; 2], rows: Range<usize>, factor: f32) -> Vec<Block<S>> {
    let mut columns = vec![[s.zero(); WIDE]; x.shape[3]];
    let width = WIDE * S::F32_LANES;
    let flat: &mut [f32] = bytemuck::cast_slice_mut(&mut columns);
    for (lane, row) in rows.enumerate() {
        let row = x.row(batch, head, row);
        for (x, lanes) in row.iter().zip(flat.chunks_exact_mut(width)) {
            lanes[lane] = x * factor;
        }
    }
    columns
}

/// One value per lane, 0 past the end.
#[inline(always)]
fn lanes<S: Simd>(s: S, values: &[f32]) -> Block<S> {
    let mut block = [[s.zero(); WIDE]];
    let flat: &mut [f32] = bytemuck::cast_slice_mut(&mut block);
    flat[..values.len()].copy_from_slice(values);
    block[0]
}

/// Products of `N` rows of a matrix, from `row` on, with a transposed block.
#[inline(always)]
fn products<S: Simd, const N: usize>(s: S, columns: &[Block<S>], matrix: (&[f32], usize, usize), row: usize) -> [Block<S>; N] {
    let (values, start, stride) = matrix;
    let mut rows: [&[f32]; N] = [&[]; N];
    for (i, slice) in rows.iter_mut().enumerate() {
        *slice = &values[start + (row + i) * stride..][..columns.len()];
    }
    let mut sums = [[s.zero(); WIDE]; N];
    for (e, column) in columns.iter().enumerate() {
        for (sum, row) in sums.iter_mut().zip(rows) {
            let x = s.splat(row[e]);
            for (sum, column) in sum.iter_mut().zip(column) {
                *sum = s.fma(x, *column, *sum);
            }
        }
    }
    sums
}

/// Hides from each lane what comes after it. `ahead` is how far the key lies past the first lane's own position.
#[inline(always)]
fn hide<S: Simd>(s: S, x: Block<S>, ahead: usize, index: &Block<S>) -> Block<S> {
    let ahead = s.splat(ahead as f32);
    each!(|i| s.select_f32s(s.less_than_f32s(index[i], ahead), s.splat(f32::NEG_INFINITY), x[i]))
}

/// Logits of the keys `keys` for a block of queries, into `tile`.
#[inline(always)]
fn logits<S: Simd>(s: S, columns: &[Block<S>], matrix: (&[f32], usize, usize), keys: Range<usize>, tile: &mut [Block<S>]) {
    let mut chunks = tile[..keys.len()].chunks_exact_mut(4);
    let mut key = keys.start;
    for chunk in &mut chunks {
        chunk.copy_from_slice(&products::<S, 4>(s, columns, matrix, key));
        key += 4;
    }
    for chunk in chunks.into_remainder() {
        [*chunk] = products::<S, 1>(s, columns, matrix, key);
        key += 1;
    }
}

/// Adds the bias and hides later keys.
#[inline(always)]
fn mask<S: Simd>(s: S, tile: &mut [Block<S>], first_key: usize, own: usize, index: &Block<S>, bias: Option<&[f32]>) {
    if let Some(bias) = bias {
        let (bias, _) = S::as_simd_f32s(&bias[first_key * WIDE * S::F32_LANES..]);
        for (x, bias) in tile.iter_mut().zip(bias.chunks_exact(WIDE)) {
            *x = each!(|i| s.add(x[i], bias[i]));
        }
    }
    for (i, x) in tile.iter_mut().enumerate().skip((own + 1).saturating_sub(first_key)) {
        *x = hide(s, *x, first_key + i - own, index);
    }
}

/// `sums[e] = sums[e] * keep + sum over the tile of weights * matrix[key][e]`.
#[inline(always)]
fn gather<S: Simd>(s: S, sums: &mut [Block<S>], keep: Block<S>, weights: &[Block<S>], matrix: (&[f32], usize, usize), first_key: usize) {
    let (values, start, stride) = matrix;
    let at = |key: usize, e: usize| start + (first_key + key) * stride + e;
    let whole = sums.len() / 4 * 4;
    for e in (0..whole).step_by(4) {
        let mut local = [sums[e], sums[e + 1], sums[e + 2], sums[e + 3]];
        for sum in &mut local {
            *sum = each!(|i| s.mul(sum[i], keep[i]));
        }
        for (key, weight) in weights.iter().enumerate() {
            let row = &values[at(key, e)..][..4];
            for (sum, x) in local.iter_mut().zip(row) {
                let x = s.splat(*x);
                for (sum, weight) in sum.iter_mut().zip(weight) {
                    *sum = s.fma(x, *weight, *sum);
                }
            }
        }
        sums[e..e + 4].copy_from_slice(&local);
    }
    for (e, sum) in sums.iter_mut().enumerate().skip(whole) {
        let mut local: Block<S> = each!(|i| s.mul(sum[i], keep[i]));
        for (key, weight) in weights.iter().enumerate() {
            let x = s.splat(values[at(key, e)]);
            local = each!(|i| s.fma(x, weight[i], local[i]));
        }
        *sum = local;
    }
}

/// Numbers of the lanes.
#[inline(always)]
fn lane_index<S: Simd>(s: S) -> Block<S> {
    let mut index = [[s.zero(); WIDE]];
    for (i, x) in bytemuck::cast_slice_mut::<_, f32>(&mut index).iter_mut().enumerate() {
        *x = i as f32;
    }
    index[0]
}

/// Writes a transposed block times a factor per lane into rows.
#[inline(always)]
fn untranspose<S: Simd>(s: S, columns: &mut [Block<S>], factor: Block<S>, rows: &mut [&mut [f32]]) {
    for column in &mut *columns {
        *column = each!(|i| s.mul(column[i], factor[i]));
    }
    let width = WIDE * S::F32_LANES;
    let flat: &[f32] = cast_slice(columns);
    for (lane, row) in rows.iter_mut().enumerate() {
        for (x, lanes) in row.iter_mut().zip(flat.chunks_exact(width)) {
            *x = lanes[lane];
        }
    }
}

/// One query block of one head.
struct Forward<'a, 'b> {
    call: &'a Call<'a>,
    at: [usize; 2],
    block: usize,
    queries: Range<usize>,
    output: Vec<&'b mut [f32]>,
    /// Logarithm of the sum of exponentials, +inf where nothing is visible; empty where no gradient will be asked for.
    log_sum: &'b mut [f32],
}

impl WithSimd for Forward<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, s: S) {
        let call = self.call;
        let [batch, head] = self.at;
        let columns = transpose(s, &call.q, self.at, self.queries.clone(), call.scale);
        let (k, v) = (call.k.rows(batch, head), call.v.rows(batch, head));
        let bias = call.bias.map(|bias| bias.block(batch, head, self.block));
        let own = call.first_query + self.queries.start;
        let visible = call.visible(&self.queries);
        let index = lane_index(s);
        let infinite = s.splat(f32::NEG_INFINITY);
        let mut tile = [[s.zero(); WIDE]; TILE];
        let mut sums = vec![[s.zero(); WIDE]; columns.len()];
        let (mut largest, mut total) = ([infinite; WIDE], [s.zero(); WIDE]);
        for start in (0..visible).step_by(TILE) {
            let tile = &mut tile[..TILE.min(visible - start)];
            logits(s, &columns, k, start..start + tile.len(), tile);
            mask(s, tile, start, own, &index, bias);
            let before = largest;
            for x in &*tile {
                largest = each!(|i| s.larger(x[i], largest[i]));
            }
            let shift: Block<S> = each!(|i| s.select_f32s(s.equal_f32s(largest[i], infinite), s.zero(), largest[i]));
            let keep: Block<S> = each!(|i| s.exp(s.sub(before[i], shift[i])));
            let mut sum = [s.zero(); WIDE];
            for x in &mut *tile {
                *x = each!(|i| s.exp(s.sub(x[i], shift[i])));
                sum = each!(|i| s.add(sum[i], x[i]));
            }
            total = each!(|i| s.fma(total[i], keep[i], sum[i]));
            gather(s, &mut sums, keep, tile, v, start);
        }
        let empty: [_; WIDE] = each!(|i| s.equal_f32s(total[i], s.zero()));
        let factor = each!(|i| s.select_f32s(empty[i], s.zero(), s.div(s.splat(1.0), total[i])));
        untranspose(s, &mut sums, factor, &mut self.output);
        if !self.log_sum.is_empty() {
            let (largest, total) = ([largest], [total]);
            let (largest, total): (&[f32], &[f32]) = (cast_slice(&largest), cast_slice(&total));
            for ((log_sum, largest), total) in self.log_sum.iter_mut().zip(largest).zip(total) {
                *log_sum = if *total == 0.0 { f32::INFINITY } else { largest + total.ln() };
            }
        }
    }
}

/// Hands out the rows of a buffer laid out as `[B, L, H, E]` by batch and head.
fn by_head(values: &mut [f32], [batch, heads, length, head_dim]: [usize; 4]) -> Vec<Vec<&mut [f32]>> {
    let mut rows: Vec<Vec<&mut [f32]>> = (0..batch * heads).map(|_| Vec::with_capacity(length)).collect();
    for (i, row) in values.chunks_mut(head_dim.max(1)).enumerate() {
        rows[i / (length * heads) * heads + i % heads].push(row);
    }
    rows
}

/// What the gradient needs.
struct Kept {
    inputs: [FlexTensor; 3],
    bias: Option<Transposed>,
    output: FlexTensor,
    log_sum: Vec<f32>,
    scale: f32,
    first_query: usize,
}

fn forward(inputs: [FlexTensor; 3], bias: Option<&FlexTensor>, scale: f64, first_query: usize, tracked: bool) -> (FlexTensor, Kept) {
    let width = dispatch(BlockWidth);
    let bias = bias.map(|bias| Transposed::new(bias, first_query, width));
    let [q, k, v] = inputs.each_ref().map(Strided::new);
    let shape = q.shape;
    let [batch, heads, queries, head_dim] = shape;
    let call = Call { q, k, v, bias: bias.as_ref(), scale: scale as f32, first_query };
    let mut output = vec![0.0; batch * heads * queries * head_dim];
    let mut log_sum = vec![0.0; if tracked { batch * heads * queries } else { 0 }];
    let mut log_sums = log_sum.chunks_mut(queries.max(1));
    let mut tasks = Vec::with_capacity(batch * heads * queries.div_ceil(width));
    for (index, mut rows) in by_head(&mut output, shape).into_iter().enumerate() {
        let mut log_sum = log_sums.next().unwrap_or_default();
        let mut start = 0;
        while !rows.is_empty() {
            let rest = rows.split_off(width.min(rows.len()));
            let (mine, others) = std::mem::take(&mut log_sum).split_at_mut(if tracked { rows.len() } else { 0 });
            let queries = start..start + rows.len();
            let at = [index / heads, index % heads];
            tasks.push(Forward { call: &call, at, block: start / width, queries, output: rows, log_sum: mine });
            start += width;
            (rows, log_sum) = (rest, others);
        }
    }
    // Long blocks first, so that no thread is left alone with one at the end.
    tasks.reverse();
    let work = batch * heads * queries * call.visible(&(0..queries)).div_ceil(8) * head_dim.div_ceil(8);
    for_each(tasks, work, dispatch);
    let output = strided_output(output, shape);
    drop(call);
    (output.clone(), Kept { inputs, bias, output, log_sum, scale: scale as f32, first_query })
}

/// The heads that share one partial sum of the gradient of the bias, in order; without such a sum, one head.
struct Backward<'a, 'b> {
    call: &'a Call<'a>,
    output: &'a Strided<'a>,
    grad: &'a Strided<'a>,
    log_sum: &'a [f32],
    width: usize,
    heads: Vec<HeadGrad<'b>>,
    /// Laid out as the bias; empty where it takes no gradient.
    bias: &'b mut [f32],
}

/// Where the gradients of one head go, by rows.
struct HeadGrad<'b> {
    at: [usize; 2],
    q: Vec<&'b mut [f32]>,
    k: Vec<&'b mut [f32]>,
    v: Vec<&'b mut [f32]>,
}

/// Adds to `N` rows of `sums`, from `row` on, the products of `weights` (one row of lanes per key) with the rows of a block.
#[inline(always)]
fn scatter<S: Simd, const N: usize, const V: usize>(
    s: S,
    sums: &mut [S::f32s],
    weights: &[f32],
    rows: &[S::f32s],
    at: usize,
    vectors: usize,
) {
    let lanes = WIDE * S::F32_LANES;
    let mut slices: [&[f32]; N] = [&[]; N];
    let mut local = [[s.zero(); V]; N];
    for (i, (slice, local)) in slices.iter_mut().zip(&mut local).enumerate() {
        *slice = &weights[i * lanes..][..lanes];
        local.copy_from_slice(&sums[i * vectors + at..][..V]);
    }
    for (lane, row) in rows.chunks_exact(vectors).enumerate() {
        let row = &row[at..][..V];
        for (local, weights) in local.iter_mut().zip(slices) {
            let weight = s.splat(weights[lane]);
            for (local, x) in local.iter_mut().zip(row) {
                *local = s.fma(weight, *x, *local);
            }
        }
    }
    for (i, local) in local.iter().enumerate() {
        sums[i * vectors + at..][..V].copy_from_slice(local);
    }
}

/// `sums[key] += sum over lanes of weights[key][lane] * rows[lane]`; rows are `vectors` vectors long.
#[inline(always)]
fn scatter_all<S: Simd>(s: S, sums: &mut [S::f32s], weights: &[Block<S>], rows: &[S::f32s], vectors: usize) {
    let lanes = WIDE * S::F32_LANES;
    let weights: &[f32] = cast_slice(weights);
    for (sums, weights) in sums.chunks_mut(4 * vectors).zip(weights.chunks(4 * lanes)) {
        let mut at = 0;
        while at < vectors {
            let two = vectors - at >= 2;
            if weights.len() == 4 * lanes {
                if two {
                    scatter::<S, 4, 2>(s, sums, weights, rows, at, vectors)
                } else {
                    scatter::<S, 4, 1>(s, sums, weights, rows, at, vectors)
                }
            } else {
                for (sums, weights) in sums.chunks_mut(vectors).zip(weights.chunks(lanes)) {
                    scatter::<S, 1, 1>(s, sums, weights, rows, at, vectors);
                    if two {
                        scatter::<S, 1, 1>(s, sums, weights, rows, at + 1, vectors);
                    }
                }
            }
            at += 2;
        }
    }
}

/// Rows of a matrix padded to whole vectors, times a factor; a whole block of them.
#[inline(always)]
fn pack<S: Simd>(s: S, x: &Strided<'_>, [batch, head]: [usize; 2], rows: Range<usize>, factor: f32, packed: &mut [S::f32s]) {
    let vectors = packed.len() / (WIDE * S::F32_LANES);
    packed.fill(s.zero());
    for (packed, row) in packed.chunks_exact_mut(vectors).zip(rows) {
        let (whole, tail) = S::as_simd_f32s(x.row(batch, head, row));
        for (packed, x) in packed.iter_mut().zip(whole) {
            *packed = s.mul(*x, s.splat(factor));
        }
        if !tail.is_empty() {
            packed[vectors - 1] = s.mul(s.partial_load_f32s(tail), s.splat(factor));
        }
    }
}

impl Backward<'_, '_> {
    /// All gradients of one head.
    #[inline(always)]
    fn head<S: Simd>(
        s: S,
        call: &Call<'_>,
        parts: (&Strided<'_>, &Strided<'_>, &[f32], usize),
        head: &mut HeadGrad<'_>,
        bias_grad: &mut [f32],
    ) {
        let (output, grad, log_sum, width) = parts;
        let at = head.at;
        let [_, heads, queries, head_dim] = call.q.shape;
        let log_sum = &log_sum[(at[0] * heads + at[1]) * queries..][..queries];
        let (k, v) = (call.k.rows(at[0], at[1]), call.v.rows(at[0], at[1]));
        let vectors = head_dim.div_ceil(S::F32_LANES);
        let index = lane_index(s);
        let seen = call.visible(&(0..queries));
        let mut key_sums = vec![s.zero(); seen * vectors];
        let mut value_sums = vec![s.zero(); seen * vectors];
        let (mut q_rows, mut grad_rows) = (vec![s.zero(); width * vectors], vec![s.zero(); width * vectors]);
        let mut weights = [[s.zero(); WIDE]; TILE];
        let mut slopes = [[s.zero(); WIDE]; TILE];
        let one = [s.splat(1.0); WIDE];
        let mut offset = 0;
        for (block, rows) in head.q.chunks_mut(width).enumerate() {
            let range = block * width..block * width + rows.len();
            let q_columns = transpose(s, &call.q, at, range.clone(), call.scale);
            let grad_columns = transpose(s, grad, at, range.clone(), 1.0);
            pack(s, &call.q, at, range.clone(), call.scale, &mut q_rows);
            pack(s, grad, at, range.clone(), 1.0, &mut grad_rows);
            let mut along = [0.0; 64];
            for (along, row) in along.iter_mut().zip(range.clone()) {
                let pairs = grad.row(at[0], at[1], row).iter().zip(output.row(at[0], at[1], row));
                *along = pairs.map(|(a, b)| a * b).sum();
            }
            let along = lanes(s, &along[..rows.len()]);
            let log_sum = lanes(s, &log_sum[range.clone()]);
            let bias = call.bias.map(|bias| bias.block(at[0], at[1], block));
            let own = call.first_query + range.start;
            let visible = call.visible(&range);
            let mut q_sums = vec![[s.zero(); WIDE]; head_dim];
            for start in (0..visible).step_by(TILE) {
                let n = TILE.min(visible - start);
                let (weights, slopes) = (&mut weights[..n], &mut slopes[..n]);
                logits(s, &q_columns, k, start..start + n, weights);
                mask(s, weights, start, own, &index, bias);
                logits(s, &grad_columns, v, start..start + n, slopes);
                for (weight, slope) in weights.iter_mut().zip(&mut *slopes) {
                    *weight = each!(|i| s.exp(s.sub(weight[i], log_sum[i])));
                    *slope = each!(|i| s.mul(weight[i], s.sub(slope[i], along[i])));
                }
                if !bias_grad.is_empty() {
                    let (sums, _) = S::as_mut_simd_f32s(&mut bias_grad[offset + start * width..offset + (start + n) * width]);
                    for (sum, slope) in sums.chunks_exact_mut(WIDE).zip(&*slopes) {
                        for (sum, slope) in sum.iter_mut().zip(slope) {
                            *sum = s.add(*sum, *slope);
                        }
                    }
                }
                let keys = start * vectors..(start + n) * vectors;
                scatter_all(s, &mut value_sums[keys.clone()], weights, &grad_rows, vectors);
                scatter_all(s, &mut key_sums[keys], slopes, &q_rows, vectors);
                gather(s, &mut q_sums, one, slopes, k, start);
            }
            untranspose(s, &mut q_sums, [s.splat(call.scale); WIDE], rows);
            offset += visible * width;
        }
        for (sums, rows) in [(&key_sums, &mut head.k), (&value_sums, &mut head.v)] {
            let flat: &[f32] = cast_slice(sums);
            for (row, sum) in rows.iter_mut().zip(flat.chunks_exact(vectors * S::F32_LANES)) {
                row.copy_from_slice(&sum[..head_dim]);
            }
        }
    }
}

impl WithSimd for Backward<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, s: S) {
        for head in &mut self.heads {
            Self::head(s, self.call, (self.output, self.grad, self.log_sum, self.width), head, self.bias);
        }
    }
}

/// Gradients of q, k, v and, if asked for, of the bias.
fn backward(kept: &Kept, grad: &FlexTensor, bias_wanted: bool) -> ([FlexTensor; 3], Option<FlexTensor>) {
    let width = dispatch(BlockWidth);
    let bias = kept.bias.as_ref();
    let [q, k, v] = kept.inputs.each_ref().map(Strided::new);
    let shapes = [q.shape, k.shape, v.shape];
    let [batch, heads, queries, head_dim] = q.shape;
    let call = Call { q, k, v, bias, scale: kept.scale, first_query: kept.first_query };
    let mut grads = shapes.map(|shape| vec![0.0; shape.iter().product()]);
    let (output, grad) = (Strided::new(&kept.output), Strided::new(grad));
    let mut sinks: Vec<Option<HeadGrad<'_>>> = {
        let [q, k, v] = grads.each_mut();
        let parts = by_head(q, shapes[0]).into_iter().zip(by_head(k, shapes[1])).zip(by_head(v, shapes[2]));
        parts.enumerate().map(|(i, ((q, k), v))| Some(HeadGrad { at: [i / heads, i % heads], q, k, v })).collect()
    };
    // Which heads are summed together, and in which order.
    let slices = match bias {
        Some(bias) if bias_wanted => {
            let mut members = vec![Vec::new(); bias.shape[0] * bias.shape[1]];
            for i in 0..batch * heads {
                members[bias.slice(i / heads, i % heads)].push(i);
            }
            members
        }
        _ => Vec::new(),
    };
    let groups: Vec<(usize, &[usize])> = slices
        .iter()
        .enumerate()
        .flat_map(|(slice, members)| members.chunks(members.len().div_ceil(GROUPS).max(1)).map(move |group| (slice, group)))
        .collect();
    let slice_len = bias.map_or(0, Transposed::slice_len);
    let mut partial = vec![0.0; groups.len() * slice_len];
    let task = |heads, bias| Backward { call: &call, output: &output, grad: &grad, log_sum: &kept.log_sum, width, heads, bias };
    let tasks: Vec<_> = if groups.is_empty() {
        sinks.into_iter().flatten().map(|head| task(vec![head], <&mut [f32]>::default())).collect()
    } else {
        let mut take = |group: &[usize]| group.iter().filter_map(|i| sinks[*i].take()).collect();
        let heads: Vec<_> = groups.iter().map(|(_, group)| take(group)).collect();
        heads.into_iter().zip(partial.chunks_mut(slice_len.max(1))).map(|(heads, bias)| task(heads, bias)).collect()
    };
    let work = batch * heads * queries * call.visible(&(0..queries)).div_ceil(4) * head_dim.div_ceil(8);
    for_each(tasks, work, dispatch);
    let bias_grad = bias.filter(|_| bias_wanted).map(|bias| {
        let [_, _, rows, columns] = bias.shape;
        let mut sums = vec![0.0; bias.shape.iter().product()];
        for ((slice, _), partial) in groups.iter().zip(partial.chunks(slice_len.max(1))) {
            let sums = &mut sums[slice * rows * columns..][..rows * columns];
            for (row, sums) in sums.chunks_mut(columns).enumerate() {
                let block = &partial[bias.starts[row / width]..];
                let visible = (kept.first_query + row + 1).min(columns);
                for (sum, lanes) in sums[..visible].iter_mut().zip(block.chunks_exact(width)) {
                    *sum += lanes[row % width];
                }
            }
        }
        tensor(sums, bias.shape)
    });
    let [q, k, v] = grads;
    ([strided_output(q, shapes[0]), strided_output(k, shapes[1]), strided_output(v, shapes[2])], bias_grad)
}

pub(crate) fn attention(inputs: [Input; 3], scale: f64, first_query: usize) -> Input {
    record(
        inputs,
        |inputs, tracked| forward(inputs, None, scale, first_query, tracked),
        |kept: &Kept, grad, _| backward(kept, &grad, false).0.map(Some),
    )
}

pub(crate) fn attention_biased(inputs: [Input; 4], scale: f64, first_query: usize) -> Input {
    record(
        inputs,
        |[q, k, v, bias], tracked| forward([q, k, v], Some(&bias), scale, first_query, tracked),
        |kept: &Kept, grad, wanted| {
            let ([q, k, v], bias) = backward(kept, &grad, wanted[3]);
            [Some(q), Some(k), Some(v), bias]
        },
    )
}
