//! Fused causal attention.
//!
//! Queries are taken in blocks as wide as two vectors, keys in tiles that start at fixed multiples,
//! and the logits of a block and a tile are kept transposed: one row of lanes, one query each, per
//! key. So the softmax needs no sums across lanes, what is hidden is hardly computed, and
//! everything else is a product of small matrices; and the result for a query does not depend on
//! the block, or the thread, it is computed in.

use crate::flex::{Input, Strided, dense, for_each, record, strided_output, tensor};
use crate::heads::{Heads, InPlace, Rotation, Scale, TILE, Turn, View};
use crate::memory::Buffer;
use crate::product::{From, Matrix, MatrixMut, product, product_transposed};
use crate::simd::{Lanes, dispatch, sum_over};
use burn_flex::FlexTensor;
use pulp::{Simd, WithSimd};
use std::ops::Range;
use std::sync::LazyLock;

/// Vectors of a query block.
const WIDE: usize = 2;
/// Query blocks that read a tile of keys one after the other.
const BLOCKS: usize = 16;
/// Partial sums of the gradient of one slice of a broadcast bias. A constant, so that the result is
/// one for any thread count.
const GROUPS: usize = 8;

/// How many queries a block has on this machine.
struct BlockWidth;

impl WithSimd for BlockWidth {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> usize {
        WIDE * S::F32_LANES
    }
}

static WIDTH: LazyLock<usize> = LazyLock::new(|| dispatch(BlockWidth));

/// What all tasks of one call share.
pub(crate) struct Call<'a> {
    /// Turned, and times the factor of the products.
    pub(crate) q: View<'a>,
    /// Turned.
    pub(crate) k: View<'a>,
    pub(crate) v: View<'a>,
    pub(crate) bias: Option<&'a Bias>,
    /// Where the first sequence is among those the bias was made for.
    pub(crate) first_sequence: usize,
    /// By what q and k were turned: their gradients are turned back.
    pub(crate) rotation: Option<&'a Rotation>,
    /// The factor, which the gradient of q receives too.
    pub(crate) scale: f32,
    pub(crate) first_query: usize,
}

impl Call<'_> {
    /// The bias of a block of queries of one head.
    fn bias_rows(
        &self,
        [sequence, head]: [usize; 2],
        block: usize,
        own: usize,
    ) -> Option<BiasRows<'_>> {
        self.bias
            .map(|bias| bias.rows([self.first_sequence + sequence, head], block, own))
    }

    /// How many keys the queries of a block see, the last of them included.
    fn visible(&self, queries: &Range<usize>) -> usize {
        (self.first_query + queries.end).min(self.k.shape()[2])
    }
}

/// A bias as the blocks need it.
pub(crate) struct Bias {
    values: Vec<f32>,
    batches: usize,
    heads: usize,
    slice_len: usize,
    kind: BiasKind,
}

enum BiasKind {
    /// By query block: for every key a block sees, one row of its lanes. Where each block of a
    /// slice starts; queries and keys.
    Cells {
        starts: Vec<usize>,
        shape: [usize; 2],
    },
    /// By distance from query to key, from minus a block's width on.
    Distances { count: usize },
}

/// The bias of one block of queries.
#[derive(Clone, Copy)]
enum BiasRows<'a> {
    /// One row of lanes after the other, by key.
    Cells(&'a [f32]),
    /// A window onto the distances, which moves back by one from key to key; where it stands for
    /// key 0.
    Distances(&'a [f32], usize),
}

impl<'a> BiasRows<'a> {
    #[inline(always)]
    fn row(self, key: usize, width: usize) -> &'a [f32] {
        match self {
            Self::Cells(values) => &values[key * width..][..width],
            Self::Distances(values, start) => &values[start - key..][..width],
        }
    }
}

impl Bias {
    /// Of `[1 or B, 1 or H, Q, K]`.
    pub(crate) fn cells(bias: &FlexTensor, first_query: usize) -> Self {
        let bias = Strided::new(bias);
        let [batches, heads, queries, keys] = bias.shape;
        let width = *WIDTH;
        let mut starts = vec![0];
        for start in (0..queries).step_by(width) {
            let visible = (first_query + (start + width).min(queries)).min(keys);
            starts.push(starts[starts.len() - 1] + visible * width);
        }
        let slice_len = starts[starts.len() - 1];
        let mut values = vec![0.0; batches * heads * slice_len];
        let n = values.len();
        for_each(
            values.chunks_mut(slice_len.max(1)).enumerate().collect(),
            n,
            |(index, values)| {
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
            },
        );
        Self {
            values,
            batches,
            heads,
            slice_len,
            kind: BiasKind::Cells {
                starts,
                shape: [queries, keys],
            },
        }
    }

    /// Of `[1 or H, n]`, one column per distance from 0 on.
    pub(crate) fn distances(bias: &FlexTensor) -> Self {
        let [heads, count] = burn::backend::TensorMetadata::shape(bias).dims();
        let width = *WIDTH;
        let slice_len = count + 2 * width;
        let mut values = vec![0.0; heads * slice_len];
        for (slice, row) in values
            .chunks_exact_mut(slice_len)
            .zip(bias.storage::<f32>().chunks(count.max(1)))
        {
            slice[width..][..count].copy_from_slice(row);
        }
        Self {
            values,
            batches: 1,
            heads,
            slice_len,
            kind: BiasKind::Distances { count },
        }
    }

    /// Which slice a batch and head use.
    fn slice(&self, [batch, head]: [usize; 2]) -> usize {
        (if self.batches == 1 { 0 } else { batch }) * self.heads
            + if self.heads == 1 { 0 } else { head }
    }

    /// Of one slice the part that belongs to a block whose first query has the index `own` among
    /// the keys.
    fn range(&self, block: usize, own: usize) -> (Range<usize>, bool) {
        match &self.kind {
            BiasKind::Cells { starts, .. } => (starts[block]..starts[block + 1], false),
            BiasKind::Distances { .. } => (0..own + 2 * *WIDTH, true),
        }
    }

    fn rows(&self, at: [usize; 2], block: usize, own: usize) -> BiasRows<'_> {
        let (range, by_distance) = self.range(block, own);
        let values = &self.values[self.slice(at) * self.slice_len..][range];
        if by_distance {
            BiasRows::Distances(values, own + *WIDTH)
        } else {
            BiasRows::Cells(values)
        }
    }

    /// From the sums over groups of heads, each belonging to a slice, the gradient of the tensor
    /// this was made of.
    fn collect(
        &self,
        sums: &[f32],
        slices: impl Iterator<Item = usize>,
        first_query: usize,
    ) -> FlexTensor {
        let width = *WIDTH;
        let sums = slices.zip(sums.chunks(self.slice_len.max(1)));
        match &self.kind {
            BiasKind::Distances { count } => {
                let mut output = vec![0.0; self.heads * count];
                for (slice, sum) in sums {
                    output[slice * count..][..*count]
                        .iter_mut()
                        .zip(&sum[width..])
                        .for_each(|(y, x)| *y += x);
                }
                tensor(output, [self.heads, *count])
            }
            BiasKind::Cells {
                starts,
                shape: [queries, keys],
            } => {
                let mut output = vec![0.0; self.batches * self.heads * queries * keys];
                for (slice, sum) in sums {
                    let output = &mut output[slice * queries * keys..][..queries * keys];
                    for (row, output) in output.chunks_mut(*keys).enumerate() {
                        let lanes = sum[starts[row / width]..].chunks_exact(width);
                        let visible = (first_query + row + 1).min(*keys);
                        output[..visible]
                            .iter_mut()
                            .zip(lanes)
                            .for_each(|(y, lanes)| *y += lanes[row % width]);
                    }
                }
                tensor(output, [self.batches, self.heads, *queries, *keys])
            }
        }
    }
}

/// An expression for each vector of a block. Not a closure: that may be compiled without the
/// instruction set of what is around.
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

/// The lanes of one query block.
type Block<S> = [<S as Simd>::f32s; WIDE];

/// Rows of lanes as vectors.
#[inline(always)]
fn blocks<S: Simd>(values: &[f32]) -> &[Block<S>] {
    S::as_simd_f32s(values).0.as_chunks::<WIDE>().0
}

/// Rows of lanes as vectors.
#[inline(always)]
fn blocks_mut<S: Simd>(values: &mut [f32]) -> &mut [Block<S>] {
    S::as_mut_simd_f32s(values).0.as_chunks_mut::<WIDE>().0
}

/// Which logits of a tile a block of queries sees, and what is added to them.
#[derive(Clone, Copy)]
struct Seen<'a> {
    first_key: usize,
    /// Key index of the block's first query.
    own: usize,
    bias: Option<BiasRows<'a>>,
}

impl Seen<'_> {
    /// Adds the bias and hides later keys.
    #[inline(always)]
    fn apply<S: Simd>(self, s: S, tile: &mut [Block<S>]) {
        if let Some(bias) = self.bias {
            for (i, x) in tile.iter_mut().enumerate() {
                let bias = blocks::<S>(bias.row(self.first_key + i, WIDE * S::F32_LANES))[0];
                *x = each!(|i| s.add(x[i], bias[i]));
            }
        }
        let mut index = [[s.zero(); WIDE]];
        bytemuck::cast_slice_mut::<_, f32>(&mut index)
            .iter_mut()
            .enumerate()
            .for_each(|(i, x)| *x = i as f32);
        let [index] = index;
        let hidden = s.splat(f32::NEG_INFINITY);
        for (i, x) in tile
            .iter_mut()
            .enumerate()
            .skip((self.own + 1).saturating_sub(self.first_key))
        {
            let ahead = s.splat((self.first_key + i - self.own) as f32);
            *x = each!(|i| s.select_f32s(s.less_than_f32s(index[i], ahead), hidden, x[i]));
        }
    }
}

/// Turns the logits of a tile into exponentials, and carries largest logits and sums of
/// exponentials on from the tile before.
struct Softmax<'a> {
    tile: &'a mut [f32],
    seen: Seen<'a>,
    largest: &'a mut [f32],
    total: &'a mut [f32],
    /// What to multiply the output so far by.
    keep: &'a mut [f32],
}

impl WithSimd for Softmax<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let tile = blocks_mut::<S>(self.tile);
        self.seen.apply(s, tile);
        let (carried, total) = (
            &mut blocks_mut::<S>(self.largest)[0],
            &mut blocks_mut::<S>(self.total)[0],
        );
        let before = *carried;
        let mut largest = before;
        for x in &*tile {
            largest = each!(|i| s.larger(x[i], largest[i]));
        }
        *carried = largest;
        let infinite = s.splat(f32::NEG_INFINITY);
        let shift: Block<S> =
            each!(|i| s.select_f32s(s.equal_f32s(largest[i], infinite), s.zero(), largest[i]));
        let keep: Block<S> = each!(|i| s.exp(s.sub(before[i], shift[i])));
        let mut sum = [s.zero(); WIDE];
        for x in tile {
            *x = each!(|i| s.exp(s.sub(x[i], shift[i])));
            sum = each!(|i| s.add(sum[i], x[i]));
        }
        *total = each!(|i| s.fma(total[i], keep[i], sum[i]));
        blocks_mut::<S>(self.keep)[0] = keep;
    }
}

/// Some consecutive tiles of queries of one head.
struct Forward<'a, 'b> {
    call: &'a Call<'a>,
    at: [usize; 2],
    queries: Range<usize>,
    output: Vec<&'b mut [f32]>,
    /// Logarithm of the sum of exponentials, +inf where nothing is visible; empty where no
    /// gradient will be asked for.
    log_sum: &'b mut [f32],
}

/// The rows of a block of queries in the tiles of one head, of which the first starts at `first`.
fn block<'b>(
    tiles: &'b mut [&mut [f32]],
    first: usize,
    [length, head_dim]: [usize; 2],
    range: &Range<usize>,
) -> MatrixMut<'b> {
    let tile = (range.start - first) / TILE;
    let start = first + tile * TILE;
    MatrixMut::panels(tiles[tile], TILE.min(length - start), head_dim)
        .part(range.start - start..range.end - start)
}

impl Forward<'_, '_> {
    fn run(mut self) {
        let (call, width) = (self.call, *WIDTH);
        let [_, _, length, head_dim] = call.q.shape();
        let (sizes, first) = ([length, head_dim], self.queries.start);
        let blocks: Vec<Range<usize>> = self
            .queries
            .clone()
            .step_by(width)
            .map(|start| start..(start + width).min(self.queries.end))
            .collect();
        let n = blocks.len();
        let mut columns = Buffer::new(n * head_dim * width);
        for (columns, range) in columns.chunks_exact_mut(head_dim * width).zip(&blocks) {
            call.q
                .matrix(self.at, range.clone())
                .pack_transposed(columns);
        }
        let mut tile = Buffer::new(TILE * width);
        let (mut largest, mut total, mut keep) = (
            vec![f32::NEG_INFINITY; n * width],
            vec![0.0; n * width],
            vec![0.0; width],
        );
        for start in (0..call.visible(&self.queries)).step_by(TILE) {
            for (i, range) in blocks.iter().enumerate() {
                let visible = call.visible(range).min(start + TILE);
                if visible <= start {
                    continue;
                }
                let seen = visible - start;
                let columns = Matrix::panels(
                    &columns[i * head_dim * width..][..head_dim * width],
                    head_dim,
                    width,
                );
                let tile = &mut tile[..seen * width];
                product(
                    call.k.matrix(self.at, start..visible),
                    columns,
                    MatrixMut::panels(tile, seen, width),
                    From::Zero,
                );
                let own = call.first_query + range.start;
                let bias = call.bias_rows(self.at, range.start / width, own);
                let (largest, total) = (
                    &mut largest[i * width..][..width],
                    &mut total[i * width..][..width],
                );
                dispatch(Softmax {
                    tile,
                    seen: Seen {
                        first_key: start,
                        own,
                        bias,
                    },
                    largest,
                    total,
                    keep: &mut keep,
                });
                if start > 0 {
                    dispatch(Scale {
                        rows: block(&mut self.output, first, sizes, range),
                        head_dim,
                        factors: &keep,
                    });
                }
                let from = if start == 0 { From::Zero } else { From::Target };
                let sums = block(&mut self.output, first, sizes, range);
                product_transposed(
                    Matrix::panels(tile, seen, width),
                    call.v.matrix(self.at, start..visible),
                    sums,
                    from,
                );
            }
        }
        let factors: Vec<f32> = total
            .iter()
            .map(|total| if *total == 0.0 { 0.0 } else { 1.0 / total })
            .collect();
        for (range, factors) in blocks.iter().zip(factors.chunks(width)) {
            dispatch(Scale {
                rows: block(&mut self.output, first, sizes, range),
                head_dim,
                factors,
            });
        }
        for ((log_sum, largest), total) in self.log_sum.iter_mut().zip(largest).zip(total) {
            *log_sum = if total == 0.0 {
                f32::INFINITY
            } else {
                largest + total.ln()
            };
        }
    }
}

/// Attention, into `output`, which lies as `q` alone would; `log_sum`, `[B, H, Q]`, is empty where
/// no gradient will be asked for.
pub(crate) fn attend(call: &Call<'_>, output: &mut [f32], log_sum: &mut [f32]) {
    let shape = call.q.shape();
    let [batch, heads, queries, head_dim] = shape;
    let tiles = (BLOCKS * *WIDTH).div_ceil(TILE);
    let tracked = !log_sum.is_empty();
    let mut log_sums = log_sum.chunks_mut(queries.max(1));
    let mut tasks = Vec::with_capacity(batch * heads * queries.div_ceil(tiles * TILE));
    for (index, output) in call
        .q
        .heads
        .alone()
        .by_head(output)
        .remove(0)
        .into_iter()
        .enumerate()
    {
        let mut log_sum = log_sums.next().unwrap_or_default();
        let mut output = output.into_iter();
        for start in (0..queries).step_by(tiles * TILE) {
            // Not split off the rest: each part would keep the room of all that came after it.
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
    // Long ones first, so that no thread is left alone with one at the end.
    tasks.sort_by_key(|task| std::cmp::Reverse(task.queries.end));
    let work =
        batch * heads * queries * call.visible(&(0..queries)).div_ceil(8) * head_dim.div_ceil(8);
    for_each(tasks, work, Forward::run);
}

/// From logits and the products of output gradient and values to weights and the gradient of the
/// logits.
struct Slopes<'a> {
    weights: &'a mut [f32],
    slopes: &'a mut [f32],
    seen: Seen<'a>,
    log_sum: &'a [f32],
    along: &'a [f32],
}

impl WithSimd for Slopes<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let weights = blocks_mut::<S>(self.weights);
        self.seen.apply(s, weights);
        let (log_sum, along) = (blocks::<S>(self.log_sum)[0], blocks::<S>(self.along)[0]);
        for (weight, slope) in weights.iter_mut().zip(blocks_mut::<S>(self.slopes)) {
            *weight = each!(|i| s.exp(s.sub(weight[i], log_sum[i])));
            *slope = each!(|i| s.mul(weight[i], s.sub(slope[i], along[i])));
        }
    }
}

/// Products of rows of two matrices with each other.
struct Along<'a> {
    a: Matrix<'a>,
    b: Matrix<'a>,
    output: &'a mut [f32],
}

impl WithSimd for Along<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        self.output.fill(0.0);
        let [rows, width] = self.a.shape();
        let mut scratch = [Vec::new(), Vec::new()];
        for (row, output) in (0..rows).zip(self.output) {
            let [first, second] = &mut scratch;
            let (a, a_tail) = S::as_simd_f32s(self.a.whole_row(row, first));
            let (b, b_tail) = S::as_simd_f32s(self.b.whole_row(row, second));
            debug_assert_eq!(
                a.len() * S::F32_LANES + a_tail.len(),
                width,
                "rows of one width"
            );
            *output = sum_over!(s, a.len(), |i| s.mul(a[i], b[i]))
                + a_tail.iter().zip(b_tail).map(|(a, b)| a * b).sum::<f32>();
        }
    }
}

/// The heads that share one partial sum of the gradient of the bias, in order; without such a sum,
/// one head.
struct Backward<'a, 'b> {
    call: &'a Call<'a>,
    output: View<'a>,
    grad: View<'a>,
    log_sum: &'a [f32],
    heads: Vec<HeadGrad<'b>>,
    /// Laid out as a slice of the bias; empty where it takes no gradient.
    bias: &'b mut [f32],
}

/// Where the gradients of one head go, tile by tile.
pub(crate) struct HeadGrad<'b> {
    at: [usize; 2],
    q: Vec<&'b mut [f32]>,
    k: Vec<&'b mut [f32]>,
    v: Vec<&'b mut [f32]>,
}

impl Backward<'_, '_> {
    fn run(mut self) {
        for mut head in std::mem::take(&mut self.heads) {
            self.head(&mut head);
        }
    }

    /// All gradients of one head.
    fn head(&mut self, head: &mut HeadGrad<'_>) {
        let (call, at, width) = (self.call, head.at, *WIDTH);
        let [_, heads, queries, head_dim] = call.q.shape();
        let key_shape = [call.k.shape()[2], head_dim];
        let log_sum = &self.log_sum[(at[0] * heads + at[1]) * queries..][..queries];
        for tile in head.k.iter_mut().chain(&mut head.v) {
            tile.fill(0.0);
        }
        let [mut query_columns, mut grad_columns] = [(); 2].map(|()| Buffer::new(head_dim * width));
        let [mut weights, mut slopes] = [(); 2].map(|()| Buffer::new(TILE * width));
        let (mut along, mut shift) = (vec![0.0; width], vec![0.0; width]);
        for (index, start) in (0..queries).step_by(width).enumerate() {
            let range = start..(start + width).min(queries);
            let [query, grad, output] =
                [&call.q, &self.grad, &self.output].map(|view| view.matrix(at, range.clone()));
            query.pack_transposed(&mut query_columns);
            grad.pack_transposed(&mut grad_columns);
            dispatch(Along {
                a: grad,
                b: output,
                output: &mut along,
            });
            shift[..range.len()].copy_from_slice(&log_sum[range.clone()]);
            shift[range.len()..].fill(0.0);
            let own = call.first_query + range.start;
            let bias = call.bias_rows(at, index, own);
            for start in (0..call.visible(&range)).step_by(TILE) {
                let n = TILE.min(call.visible(&range) - start);
                let tile = start..start + n;
                let (keys, values) = (
                    call.k.matrix(at, tile.clone()),
                    call.v.matrix(at, tile.clone()),
                );
                let (weights, slopes) = (&mut weights[..n * width], &mut slopes[..n * width]);
                let columns = |values| Matrix::panels(values, head_dim, width);
                product(
                    keys,
                    columns(&query_columns),
                    MatrixMut::panels(weights, n, width),
                    From::Zero,
                );
                product(
                    values,
                    columns(&grad_columns),
                    MatrixMut::panels(slopes, n, width),
                    From::Zero,
                );
                let seen = Seen {
                    first_key: start,
                    own,
                    bias,
                };
                dispatch(Slopes {
                    weights,
                    slopes,
                    seen,
                    log_sum: &shift,
                    along: &along,
                });
                if let (Some(bias), false) = (call.bias, self.bias.is_empty()) {
                    let (range, by_distance) = bias.range(index, own);
                    let sums = &mut self.bias[range];
                    for (key, slopes) in slopes.chunks_exact(width).enumerate() {
                        let first = if by_distance {
                            own + width - start - key
                        } else {
                            (start + key) * width
                        };
                        sums[first..][..width]
                            .iter_mut()
                            .zip(slopes)
                            .for_each(|(sum, slope)| *sum += slope);
                    }
                }
                let (weights, slopes) = (
                    Matrix::panels(weights, n, width),
                    Matrix::panels(slopes, n, width),
                );
                product(
                    weights,
                    grad,
                    block(&mut head.v, 0, key_shape, &tile),
                    From::Target,
                );
                product(
                    slopes,
                    query,
                    block(&mut head.k, 0, key_shape, &tile),
                    From::Target,
                );
                let from = if start == 0 { From::Zero } else { From::Target };
                product_transposed(
                    slopes,
                    keys,
                    block(&mut head.q, 0, [queries, head_dim], &range),
                    from,
                );
            }
        }
        let back = |tables: for<'r> fn(&'r Rotation) -> &'r [FlexTensor; 2]| {
            call.rotation
                .map(|rotation| Turn::new(tables(rotation), rotation, -1.0))
        };
        for (index, tile) in head.q.iter_mut().enumerate() {
            InPlace {
                tile,
                head_dim,
                first: index * TILE,
                turn: back(|rotation| &rotation.queries),
                factor: call.scale,
            }
            .run();
        }
        for (index, tile) in head.k.iter_mut().enumerate() {
            InPlace {
                tile,
                head_dim,
                first: index * TILE,
                turn: back(|rotation| &rotation.keys),
                factor: 1.0,
            }
            .run();
        }
    }
}

/// Where the gradients of every head go, from the tiles of q, k and v by batch and head.
pub(crate) fn sinks<'b>(heads: usize, parts: [Vec<Vec<&'b mut [f32]>>; 3]) -> Vec<HeadGrad<'b>> {
    let [q, k, v] = parts;
    let parts = q.into_iter().zip(k).zip(v).enumerate();
    parts
        .map(|(i, ((q, k), v))| HeadGrad {
            at: [i / heads, i % heads],
            q,
            k,
            v,
        })
        .collect()
}

/// Gradients of q, k and v, into `sinks`, and, if asked for, of the bias.
pub(crate) fn pull(
    call: &Call<'_>,
    output: View<'_>,
    grad: View<'_>,
    log_sum: &[f32],
    sinks: Vec<HeadGrad<'_>>,
    bias_wanted: bool,
) -> Option<FlexTensor> {
    let [batch, heads, queries, head_dim] = call.q.shape();
    let bias = call.bias.filter(|_| bias_wanted);
    let slice_len = bias.map_or(0, |bias| bias.slice_len);
    let work =
        batch * heads * queries * call.visible(&(0..queries)).div_ceil(4) * head_dim.div_ceil(8);
    let task = |heads, bias| Backward {
        call,
        output,
        grad,
        log_sum,
        heads,
        bias,
    };
    let Some(bias) = bias else {
        let tasks = sinks
            .into_iter()
            .map(|head| task(vec![head], <&mut [f32]>::default()))
            .collect();
        for_each(tasks, work, Backward::run);
        return None;
    };
    // Which heads are summed together, and in which order.
    let mut members: Vec<Vec<HeadGrad<'_>>> =
        (0..bias.batches * bias.heads).map(|_| Vec::new()).collect();
    for head in sinks {
        members[bias.slice(head.at)].push(head);
    }
    let mut groups = Vec::new();
    for (slice, mut heads) in members.into_iter().enumerate() {
        let size = heads.len().div_ceil(GROUPS).max(1);
        while !heads.is_empty() {
            let rest = heads.split_off(size.min(heads.len()));
            groups.push((slice, heads));
            heads = rest;
        }
    }
    let slices: Vec<usize> = groups.iter().map(|(slice, _)| *slice).collect();
    let mut partial = vec![0.0; groups.len() * slice_len];
    let tasks = groups
        .into_iter()
        .zip(partial.chunks_mut(slice_len.max(1)))
        .map(|((_, heads), bias)| task(heads, bias));
    for_each(tasks.collect(), work, Backward::run);
    Some(bias.collect(&partial, slices.into_iter(), call.first_query))
}

/// What the gradient needs.
struct Kept {
    shapes: [Heads; 3],
    /// Queries times the factor, keys and values.
    inputs: [Buffer; 3],
    bias: Option<Bias>,
    output: Buffer,
    log_sum: Vec<f32>,
    scale: f32,
    first_query: usize,
}

impl Kept {
    fn call(&self) -> Call<'_> {
        let view = |i: usize| View {
            values: &self.inputs[i],
            heads: self.shapes[i],
            part: 0,
        };
        let bias = self.bias.as_ref();
        Call {
            q: view(0),
            k: view(1),
            v: view(2),
            bias,
            first_sequence: 0,
            rotation: None,
            scale: self.scale,
            first_query: self.first_query,
        }
    }
}

fn forward(
    inputs: [FlexTensor; 3],
    bias: Option<Bias>,
    scale: f64,
    first_query: usize,
    tracked: bool,
) -> (FlexTensor, Kept) {
    let inputs = inputs.each_ref().map(Strided::new);
    let shapes = inputs.each_ref().map(|x| Heads {
        shape: x.shape,
        parts: 1,
    });
    let shape = shapes[0].shape;
    let scale = scale as f32;
    let factors = [scale, 1.0, 1.0];
    let inputs = std::array::from_fn(|i| shapes[i].load(&inputs[i], factors[i]));
    let mut output = Buffer::new(shapes[0].len());
    let mut log_sum = vec![
        0.0;
        if tracked {
            shape[..3].iter().product()
        } else {
            0
        }
    ];
    let kept = Kept {
        shapes,
        inputs,
        bias,
        output: Buffer::new(0),
        log_sum: Vec::new(),
        scale,
        first_query,
    };
    attend(&kept.call(), &mut output, &mut log_sum);
    let result = strided_output(shapes[0].unload(&output), shape);
    (
        result,
        Kept {
            output,
            log_sum,
            ..kept
        },
    )
}

/// Gradients of q, k, v and, if asked for, of the bias.
fn backward(kept: &Kept, grad: &FlexTensor, bias_wanted: bool) -> [Option<FlexTensor>; 4] {
    let shapes = kept.shapes;
    let heads = shapes[0];
    let grad = heads.load(&Strided::new(grad), 1.0);
    let mut grads = shapes.map(|heads| Buffer::new(heads.len()));
    let parts = {
        let [q, k, v] = grads.each_mut();
        [
            shapes[0].by_head(q).remove(0),
            shapes[1].by_head(k).remove(0),
            shapes[2].by_head(v).remove(0),
        ]
    };
    let [output, grad] = [&kept.output, &grad].map(|values| View {
        values,
        heads,
        part: 0,
    });
    let bias = pull(
        &kept.call(),
        output,
        grad,
        &kept.log_sum,
        sinks(heads.shape[1], parts),
        bias_wanted,
    );
    let give = |i: usize| Some(strided_output(shapes[i].unload(&grads[i]), shapes[i].shape));
    [give(0), give(1), give(2), bias]
}

pub(crate) fn attention(inputs: [Input; 3], scale: f64, first_query: usize) -> Input {
    record(
        inputs,
        |inputs, tracked| forward(inputs, None, scale, first_query, tracked),
        |kept: &Kept, grad, _| {
            let [q, k, v, _] = backward(kept, &grad, false);
            [q, k, v]
        },
    )
}

/// With a bias by cells, or by distance.
pub(crate) fn attention_biased(
    inputs: [Input; 4],
    scale: f64,
    first_query: usize,
    by_distance: bool,
) -> Input {
    record(
        inputs,
        |[q, k, v, bias], tracked| {
            let bias = if by_distance {
                Bias::distances(&dense(bias))
            } else {
                Bias::cells(&bias, first_query)
            };
            forward([q, k, v], Some(bias), scale, first_query, tracked)
        },
        |kept: &Kept, grad, wanted| backward(kept, &grad, wanted[3]),
    )
}
