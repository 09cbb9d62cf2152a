//! Fused causal attention.
//!
//! Queries are taken in blocks as wide as two vectors, keys in tiles that start at fixed multiples, and the logits of a block and a
//! tile are kept transposed: one row of lanes, one query each, per key. So the softmax needs no sums across lanes, what is hidden
//! is hardly computed, and everything else is a product of small matrices; and the result for a query does not depend on the
//! block, or the thread, it is computed in.

use crate::flex::{Input, Strided, dense, for_each, record, strided_output, tensor};
use crate::memory::Buffer;
use crate::product::{From, Matrix, MatrixMut, padded, product, product_transposed};
use crate::rotate::turn_row;
use crate::simd::{Lanes, dispatch, sum_over};
use burn_flex::FlexTensor;
use pulp::{Simd, WithSimd};
use std::ops::Range;
use std::sync::LazyLock;

/// Keys of a tile.
const TILE: usize = 128;
/// Vectors of a query block.
const WIDE: usize = 2;
/// Query blocks that share one copy of a tile of keys.
const BLOCKS: usize = 16;
/// Partial sums of the gradient of one slice of a broadcast bias. A constant, so that the result is one for any thread count.
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

/// Cos and sin by which queries and keys turn, one row of pairs for every query and key.
pub(crate) struct Rotation {
    pub(crate) queries: [FlexTensor; 2],
    pub(crate) keys: [FlexTensor; 2],
    pub(crate) pairs: usize,
    pub(crate) interleaved: bool,
}

/// What all tasks of one call share.
pub(crate) struct Call<'a> {
    pub(crate) q: Strided<'a>,
    pub(crate) k: Strided<'a>,
    pub(crate) v: Strided<'a>,
    pub(crate) bias: Option<&'a Bias>,
    pub(crate) rotation: Option<&'a Rotation>,
    pub(crate) scale: f32,
    pub(crate) first_query: usize,
}

impl Call<'_> {
    /// How many keys the queries of a block see, the last of them included.
    fn visible(&self, queries: &Range<usize>) -> usize {
        (self.first_query + queries.end).min(self.k.shape[2])
    }

    /// Queries of a block, turned and scaled, in rows.
    fn queries(&self, at: [usize; 2], range: Range<usize>, rows: &mut [f32]) {
        let turn = self.rotation.map(|rotation| Turn::new(&rotation.queries, rotation, 1.0));
        dispatch(Load { x: &self.q, at, range, turn, factor: self.scale, rows });
    }

    /// Keys of a tile, turned, in rows.
    fn keys(&self, at: [usize; 2], range: Range<usize>, rows: &mut [f32]) {
        let turn = self.rotation.map(|rotation| Turn::new(&rotation.keys, rotation, 1.0));
        dispatch(Load { x: &self.k, at, range, turn, factor: 1.0, rows });
    }
}

/// Some rows of one head as a matrix, read where they lie.
fn matrix<'a>(x: &'a Strided<'_>, [batch, head]: [usize; 2], rows: Range<usize>) -> Matrix<'a> {
    let (values, start, stride) = x.rows(batch, head);
    Matrix::rows(&values[start + rows.start * stride..], rows.len(), x.shape[3], stride)
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
    /// By query block: for every key a block sees, one row of its lanes. Where each block of a slice starts; queries and keys.
    Cells { starts: Vec<usize>, shape: [usize; 2] },
    /// By distance from query to key, from minus a block's width on.
    Distances { count: usize },
}

/// The bias of one block of queries.
#[derive(Clone, Copy)]
enum BiasRows<'a> {
    /// One row of lanes after the other, by key.
    Cells(&'a [f32]),
    /// A window onto the distances, which moves back by one from key to key; where it stands for key 0.
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
        for_each(values.chunks_mut(slice_len.max(1)).enumerate().collect(), n, |(index, values)| {
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
        });
        Self { values, batches, heads, slice_len, kind: BiasKind::Cells { starts, shape: [queries, keys] } }
    }

    /// Of `[1 or H, n]`, one column per distance from 0 on.
    pub(crate) fn distances(bias: &FlexTensor) -> Self {
        let [heads, count] = burn::backend::TensorMetadata::shape(bias).dims();
        let width = *WIDTH;
        let slice_len = count + 2 * width;
        let mut values = vec![0.0; heads * slice_len];
        for (slice, row) in values.chunks_exact_mut(slice_len).zip(bias.storage::<f32>().chunks(count.max(1))) {
            slice[width..][..count].copy_from_slice(row);
        }
        Self { values, batches: 1, heads, slice_len, kind: BiasKind::Distances { count } }
    }

    /// Which slice a batch and head use.
    fn slice(&self, [batch, head]: [usize; 2]) -> usize {
        (if self.batches == 1 { 0 } else { batch }) * self.heads + if self.heads == 1 { 0 } else { head }
    }

    /// Of one slice the part that belongs to a block whose first query has the index `own` among the keys.
    fn range(&self, block: usize, own: usize) -> (Range<usize>, bool) {
        match &self.kind {
            BiasKind::Cells { starts, .. } => (starts[block]..starts[block + 1], false),
            BiasKind::Distances { .. } => (0..own + 2 * *WIDTH, true),
        }
    }

    fn rows(&self, at: [usize; 2], block: usize, own: usize) -> BiasRows<'_> {
        let (range, by_distance) = self.range(block, own);
        let values = &self.values[self.slice(at) * self.slice_len..][range];
        if by_distance { BiasRows::Distances(values, own + *WIDTH) } else { BiasRows::Cells(values) }
    }

    /// From the sums over groups of heads, each belonging to a slice, the gradient of the tensor this was made of.
    fn collect(&self, sums: &[f32], slices: impl Iterator<Item = usize>, first_query: usize) -> FlexTensor {
        let width = *WIDTH;
        let sums = slices.zip(sums.chunks(self.slice_len.max(1)));
        match &self.kind {
            BiasKind::Distances { count } => {
                let mut output = vec![0.0; self.heads * count];
                for (slice, sum) in sums {
                    output[slice * count..][..*count].iter_mut().zip(&sum[width..]).for_each(|(y, x)| *y += x);
                }
                tensor(output, [self.heads, *count])
            }
            BiasKind::Cells { starts, shape: [queries, keys] } => {
                let mut output = vec![0.0; self.batches * self.heads * queries * keys];
                for (slice, sum) in sums {
                    let output = &mut output[slice * queries * keys..][..queries * keys];
                    for (row, output) in output.chunks_mut(*keys).enumerate() {
                        let lanes = sum[starts[row / width]..].chunks_exact(width);
                        let visible = (first_query + row + 1).min(*keys);
                        output[..visible].iter_mut().zip(lanes).for_each(|(y, lanes)| *y += lanes[row % width]);
                    }
                }
                tensor(output, [self.batches, self.heads, *queries, *keys])
            }
        }
    }
}

/// A rotation of rows, forwards or backwards.
#[derive(Clone, Copy)]
struct Turn<'a> {
    cos: &'a [f32],
    sin: &'a [f32],
    pairs: usize,
    sign: f32,
    interleaved: bool,
}

impl<'a> Turn<'a> {
    fn new([cos, sin]: &'a [FlexTensor; 2], rotation: &Rotation, sign: f32) -> Self {
        Self { cos: cos.storage(), sin: sin.storage(), pairs: rotation.pairs, sign, interleaved: rotation.interleaved }
    }

    #[inline(always)]
    fn row<S: Simd>(&self, s: S, position: usize, x: &[f32], y: &mut [f32]) {
        let angles = position * self.pairs..(position + 1) * self.pairs;
        turn_row(s, x, y, [&self.cos[angles.clone()], &self.sin[angles]], self.sign, self.interleaved);
    }
}

/// Copies rows of one head one after the other, turned and times a factor; rows past the range are 0.
struct Load<'a> {
    x: &'a Strided<'a>,
    at: [usize; 2],
    range: Range<usize>,
    turn: Option<Turn<'a>>,
    factor: f32,
    rows: &'a mut [f32],
}

impl WithSimd for Load<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let [batch, head] = self.at;
        let (rows, rest) = self.rows.split_at_mut(self.range.len() * self.x.shape[3]);
        for (position, row) in self.range.zip(rows.chunks_exact_mut(self.x.shape[3])) {
            let x = self.x.row(batch, head, position);
            match &self.turn {
                Some(turn) => turn.row(s, position, x, row),
                None => row.copy_from_slice(x),
            }
            if self.factor != 1.0 {
                times(s, row, self.factor);
            }
        }
        rest.fill(0.0);
    }
}

/// `row *= factor`.
#[inline(always)]
fn times<S: Simd>(s: S, row: &mut [f32], factor: f32) {
    let (vectors, tail) = S::as_mut_simd_f32s(row);
    vectors.iter_mut().for_each(|x| *x = s.mul(*x, s.splat(factor)));
    tail.iter_mut().for_each(|x| *x *= factor);
}

/// Writes rows, turned and each times a factor, to where they belong.
struct Store<'a, 'b> {
    rows: &'a [f32],
    first: usize,
    turn: Option<Turn<'a>>,
    /// One for each row, or one for all.
    factors: &'a [f32],
    targets: &'a mut [&'b mut [f32]],
}

impl WithSimd for Store<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let Some(width) = self.targets.first().map(|row| row.len()) else { return };
        for (i, (row, target)) in self.rows.chunks_exact(width).zip(self.targets).enumerate() {
            match &self.turn {
                Some(turn) => turn.row(s, self.first + i, row, target),
                None => target.copy_from_slice(row),
            }
            times(s, target, self.factors[i.min(self.factors.len() - 1)]);
        }
    }
}

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
        bytemuck::cast_slice_mut::<_, f32>(&mut index).iter_mut().enumerate().for_each(|(i, x)| *x = i as f32);
        let [index] = index;
        let hidden = s.splat(f32::NEG_INFINITY);
        for (i, x) in tile.iter_mut().enumerate().skip((self.own + 1).saturating_sub(self.first_key)) {
            let ahead = s.splat((self.first_key + i - self.own) as f32);
            *x = each!(|i| s.select_f32s(s.less_than_f32s(index[i], ahead), hidden, x[i]));
        }
    }
}

/// Turns the logits of a tile into exponentials, and carries largest logits and sums of exponentials on from the tile before.
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
        let (carried, total) = (&mut blocks_mut::<S>(self.largest)[0], &mut blocks_mut::<S>(self.total)[0]);
        let before = *carried;
        let mut largest = before;
        for x in &*tile {
            largest = each!(|i| s.larger(x[i], largest[i]));
        }
        *carried = largest;
        let infinite = s.splat(f32::NEG_INFINITY);
        let shift: Block<S> = each!(|i| s.select_f32s(s.equal_f32s(largest[i], infinite), s.zero(), largest[i]));
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

/// Up to [`BLOCKS`] consecutive query blocks of one head.
struct Forward<'a, 'b> {
    call: &'a Call<'a>,
    at: [usize; 2],
    queries: Range<usize>,
    output: Vec<&'b mut [f32]>,
    /// Logarithm of the sum of exponentials, +inf where nothing is visible; empty where no gradient will be asked for.
    log_sum: &'b mut [f32],
}

impl Forward<'_, '_> {
    fn run(mut self) {
        let (call, width) = (self.call, *WIDTH);
        let head_dim = call.q.shape[3];
        let blocks: Vec<Range<usize>> =
            self.queries.clone().step_by(width).map(|start| start..(start + width).min(self.queries.end)).collect();
        let n = blocks.len();
        let mut rows = Buffer::new(width.max(TILE) * head_dim);
        let mut columns = Buffer::new(n * head_dim * width);
        for (columns, range) in columns.chunks_exact_mut(head_dim * width).zip(&blocks) {
            let rows = &mut rows[..width * head_dim];
            call.queries(self.at, range.clone(), rows);
            Matrix::rows(rows, width, head_dim, head_dim).pack_transposed(columns);
        }
        let mut sums = Buffer::new(n * width * head_dim);
        let (mut values, mut tile) = (Buffer::new(TILE * padded(head_dim)), Buffer::new(TILE * width));
        let (mut largest, mut total, mut keep) = (vec![f32::NEG_INFINITY; n * width], vec![0.0; n * width], vec![0.0; width]);
        for start in (0..call.visible(&self.queries)).step_by(TILE) {
            let keys = start..(start + TILE).min(call.visible(&self.queries));
            let values = &mut values[..keys.len() * padded(head_dim)];
            matrix(&call.v, self.at, keys.clone()).pack(values);
            let values = Matrix::panels(values, keys.len(), head_dim);
            if call.rotation.is_some() {
                call.keys(self.at, keys.clone(), &mut rows[..keys.len() * head_dim]);
            }
            for (i, range) in blocks.iter().enumerate() {
                let visible = call.visible(range).min(keys.end);
                if visible <= start {
                    continue;
                }
                let seen = visible - start;
                let keys = match call.rotation {
                    Some(_) => Matrix::rows(&rows[..seen * head_dim], seen, head_dim, head_dim),
                    None => matrix(&call.k, self.at, start..visible),
                };
                let columns = Matrix::panels(&columns[i * head_dim * width..][..head_dim * width], head_dim, width);
                let tile = &mut tile[..seen * width];
                product(keys, columns, MatrixMut::panels(tile, seen, width), From::Zero);
                let own = call.first_query + range.start;
                let bias = call.bias.map(|bias| bias.rows(self.at, range.start / width, own));
                let (largest, total) = (&mut largest[i * width..][..width], &mut total[i * width..][..width]);
                dispatch(Softmax { tile, seen: Seen { first_key: start, own, bias }, largest, total, keep: &mut keep });
                let sums = &mut sums[i * width * head_dim..][..width * head_dim];
                if start > 0 {
                    sums.chunks_exact_mut(head_dim).zip(&keep).for_each(|(row, keep)| row.iter_mut().for_each(|x| *x *= keep));
                }
                let from = if start == 0 { From::Zero } else { From::Target };
                let sums = MatrixMut::rows(sums, width, head_dim, head_dim);
                product_transposed(Matrix::panels(tile, seen, width), values.first_rows(seen), sums, from);
            }
        }
        let factors: Vec<f32> = total.iter().map(|total| if *total == 0.0 { 0.0 } else { 1.0 / total }).collect();
        for (i, targets) in self.output.chunks_mut(width).enumerate() {
            let (rows, factors) = (&sums[i * width * head_dim..], &factors[i * width..]);
            dispatch(Store { rows, first: 0, turn: None, factors, targets });
        }
        for ((log_sum, largest), total) in self.log_sum.iter_mut().zip(largest).zip(total) {
            *log_sum = if total == 0.0 { f32::INFINITY } else { largest + total.ln() };
        }
    }
}

/// Hands out the rows of a buffer in which the rows of `parts` matrices `[B, L, H, E]` lie side by side: by part, batch and head.
pub(crate) fn by_head(values: &mut [f32], [batch, heads, length, head_dim]: [usize; 4], parts: usize) -> Vec<Vec<Vec<&mut [f32]>>> {
    let rows = || (0..batch * heads).map(|_| Vec::with_capacity(length)).collect();
    let mut split: Vec<Vec<Vec<&mut [f32]>>> = (0..parts).map(|_| rows()).collect();
    for (i, row) in values.chunks_mut(head_dim.max(1)).enumerate() {
        split[i / heads % parts][i / (length * heads * parts) * heads + i % heads].push(row);
    }
    split
}

/// Attention, into `output`, laid out as `[B, Q, H, E]`; `log_sum`, `[B, H, Q]`, is empty where no gradient will be asked for.
pub(crate) fn attend(call: &Call<'_>, output: &mut [f32], log_sum: &mut [f32]) {
    let shape = call.q.shape;
    let [batch, heads, queries, head_dim] = shape;
    let most = BLOCKS * *WIDTH;
    let tracked = !log_sum.is_empty();
    let mut log_sums = log_sum.chunks_mut(queries.max(1));
    let mut tasks = Vec::with_capacity(batch * heads * queries.div_ceil(most));
    for (index, mut rows) in by_head(output, shape, 1).remove(0).into_iter().enumerate() {
        let mut log_sum = log_sums.next().unwrap_or_default();
        let mut start = 0;
        while !rows.is_empty() {
            let rest = rows.split_off(most.min(rows.len()));
            let (mine, others) = std::mem::take(&mut log_sum).split_at_mut(if tracked { rows.len() } else { 0 });
            let queries = start..start + rows.len();
            tasks.push(Forward { call, at: [index / heads, index % heads], queries, output: rows, log_sum: mine });
            start += most;
            (rows, log_sum) = (rest, others);
        }
    }
    // Long ones first, so that no thread is left alone with one at the end.
    tasks.sort_by_key(|task| std::cmp::Reverse(task.queries.end));
    let work = batch * heads * queries * call.visible(&(0..queries)).div_ceil(8) * head_dim.div_ceil(8);
    for_each(tasks, work, Forward::run);
}

/// From logits and the products of output gradient and values to weights and the gradient of the logits.
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
    a: &'a Strided<'a>,
    b: &'a Strided<'a>,
    at: [usize; 2],
    range: Range<usize>,
    output: &'a mut [f32],
}

impl WithSimd for Along<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let [batch, head] = self.at;
        self.output.fill(0.0);
        for (row, output) in self.range.zip(self.output) {
            let (a, a_tail) = S::as_simd_f32s(self.a.row(batch, head, row));
            let (b, b_tail) = S::as_simd_f32s(self.b.row(batch, head, row));
            *output = sum_over!(s, a.len(), |i| s.mul(a[i], b[i])) + a_tail.iter().zip(b_tail).map(|(a, b)| a * b).sum::<f32>();
        }
    }
}

/// The heads that share one partial sum of the gradient of the bias, in order; without such a sum, one head.
struct Backward<'a, 'b> {
    call: &'a Call<'a>,
    output: &'a Strided<'a>,
    grad: &'a Strided<'a>,
    log_sum: &'a [f32],
    heads: Vec<HeadGrad<'b>>,
    /// Laid out as a slice of the bias; empty where it takes no gradient.
    bias: &'b mut [f32],
}

/// Where the gradients of one head go, by rows.
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
        let [_, heads, queries, head_dim] = call.q.shape;
        let wide = padded(head_dim);
        let log_sum = &self.log_sum[(at[0] * heads + at[1]) * queries..][..queries];
        let seen = call.visible(&(0..queries));
        // Keys of every tile in panels, tile by tile.
        let mut keys = Buffer::new(seen * wide);
        let mut rows = Buffer::new(TILE.max(width) * head_dim);
        for (tile, keys) in keys.chunks_mut(TILE * wide).enumerate() {
            let n = keys.len() / wide;
            call.keys(at, tile * TILE..tile * TILE + n, &mut rows[..n * head_dim]);
            Matrix::rows(&rows, n, head_dim, head_dim).pack(keys);
        }
        let (mut key_sums, mut value_sums) = (Buffer::new(seen * head_dim), Buffer::new(seen * head_dim));
        key_sums.fill(0.0);
        value_sums.fill(0.0);
        let [mut query_columns, mut grad_columns] = [(); 2].map(|()| Buffer::new(head_dim * width));
        let [mut query_panels, mut grad_panels] = [(); 2].map(|()| Buffer::new(width * wide));
        let [mut weights, mut slopes] = [(); 2].map(|()| Buffer::new(TILE * width));
        let mut query_sums = Buffer::new(width * head_dim);
        let (mut along, mut shift) = (vec![0.0; width], vec![0.0; width]);
        let back = |tables: for<'r> fn(&'r Rotation) -> &'r [FlexTensor; 2]| {
            call.rotation.map(|rotation| Turn::new(tables(rotation), rotation, -1.0))
        };
        for (block, targets) in head.q.chunks_mut(width).enumerate() {
            let range = block * width..block * width + targets.len();
            let rows = &mut rows[..width * head_dim];
            call.queries(at, range.clone(), rows);
            Matrix::rows(rows, width, head_dim, head_dim).pack_transposed(&mut query_columns);
            Matrix::rows(rows, width, head_dim, head_dim).pack(&mut query_panels);
            dispatch(Load { x: self.grad, at, range: range.clone(), turn: None, factor: 1.0, rows });
            Matrix::rows(rows, width, head_dim, head_dim).pack_transposed(&mut grad_columns);
            Matrix::rows(rows, width, head_dim, head_dim).pack(&mut grad_panels);
            dispatch(Along { a: self.grad, b: self.output, at, range: range.clone(), output: &mut along });
            shift[..range.len()].copy_from_slice(&log_sum[range.clone()]);
            shift[range.len()..].fill(0.0);
            let own = call.first_query + range.start;
            let bias = call.bias.map(|bias| bias.rows(at, block, own));
            for start in (0..call.visible(&range)).step_by(TILE) {
                let n = TILE.min(call.visible(&range) - start);
                let tile = (seen - start).min(TILE);
                let keys = Matrix::panels(&keys[start * wide..][..tile * wide], tile, head_dim).first_rows(n);
                let (weights, slopes) = (&mut weights[..n * width], &mut slopes[..n * width]);
                let columns = |values| Matrix::panels(values, head_dim, width);
                product(keys, columns(&query_columns), MatrixMut::panels(weights, n, width), From::Zero);
                let values = matrix(&call.v, at, start..start + n);
                product(values, columns(&grad_columns), MatrixMut::panels(slopes, n, width), From::Zero);
                let seen = Seen { first_key: start, own, bias };
                dispatch(Slopes { weights, slopes, seen, log_sum: &shift, along: &along });
                if let (Some(bias), false) = (call.bias, self.bias.is_empty()) {
                    let (range, by_distance) = bias.range(block, own);
                    let sums = &mut self.bias[range];
                    for (key, slopes) in slopes.chunks_exact(width).enumerate() {
                        let first = if by_distance { own + width - start - key } else { (start + key) * width };
                        sums[first..][..width].iter_mut().zip(slopes).for_each(|(sum, slope)| *sum += slope);
                    }
                }
                let rows = start * head_dim..(start + n) * head_dim;
                let target = MatrixMut::rows(&mut value_sums[rows.clone()], n, head_dim, head_dim);
                product(Matrix::panels(weights, n, width), Matrix::panels(&grad_panels, width, head_dim), target, From::Target);
                let target = MatrixMut::rows(&mut key_sums[rows], n, head_dim, head_dim);
                product(Matrix::panels(slopes, n, width), Matrix::panels(&query_panels, width, head_dim), target, From::Target);
                let target = MatrixMut::rows(&mut query_sums, width, head_dim, head_dim);
                let from = if start == 0 { From::Zero } else { From::Target };
                product_transposed(Matrix::panels(slopes, n, width), keys, target, from);
            }
            let turn = back(|rotation| &rotation.queries);
            dispatch(Store { rows: &query_sums, first: range.start, turn, factors: &[call.scale], targets });
        }
        let turn = back(|rotation| &rotation.keys);
        dispatch(Store { rows: &key_sums, first: 0, turn, factors: &[1.0], targets: &mut head.k[..seen] });
        dispatch(Store { rows: &value_sums, first: 0, turn: None, factors: &[1.0], targets: &mut head.v[..seen] });
    }
}

/// Where the gradients of every head go, from the rows of q, k and v by batch and head.
pub(crate) fn sinks<'b>(heads: usize, parts: [Vec<Vec<&'b mut [f32]>>; 3]) -> Vec<HeadGrad<'b>> {
    let [q, k, v] = parts;
    let parts = q.into_iter().zip(k).zip(v).enumerate();
    parts.map(|(i, ((q, k), v))| HeadGrad { at: [i / heads, i % heads], q, k, v }).collect()
}

/// Gradients of q, k and v, into `sinks`, and, if asked for, of the bias. Keys past the last query's are left as they are.
pub(crate) fn pull(
    call: &Call<'_>,
    output: &Strided<'_>,
    grad: &Strided<'_>,
    log_sum: &[f32],
    sinks: Vec<HeadGrad<'_>>,
    bias_wanted: bool,
) -> Option<FlexTensor> {
    let [batch, heads, queries, head_dim] = call.q.shape;
    let bias = call.bias.filter(|_| bias_wanted);
    let slice_len = bias.map_or(0, |bias| bias.slice_len);
    let work = batch * heads * queries * call.visible(&(0..queries)).div_ceil(4) * head_dim.div_ceil(8);
    let task = |heads, bias| Backward { call, output, grad, log_sum, heads, bias };
    let Some(bias) = bias else {
        let tasks = sinks.into_iter().map(|head| task(vec![head], <&mut [f32]>::default())).collect();
        for_each(tasks, work, Backward::run);
        return None;
    };
    // Which heads are summed together, and in which order.
    let mut members: Vec<Vec<HeadGrad<'_>>> = (0..bias.batches * bias.heads).map(|_| Vec::new()).collect();
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
    let tasks = groups.into_iter().zip(partial.chunks_mut(slice_len.max(1))).map(|((_, heads), bias)| task(heads, bias));
    for_each(tasks.collect(), work, Backward::run);
    Some(bias.collect(&partial, slices.into_iter(), call.first_query))
}

/// What the gradient needs.
struct Kept {
    inputs: [FlexTensor; 3],
    bias: Option<Bias>,
    output: FlexTensor,
    log_sum: Vec<f32>,
    scale: f32,
    first_query: usize,
}

fn forward(inputs: [FlexTensor; 3], bias: Option<Bias>, scale: f64, first_query: usize, tracked: bool) -> (FlexTensor, Kept) {
    let [q, k, v] = inputs.each_ref().map(Strided::new);
    let shape = q.shape;
    let [batch, heads, queries, head_dim] = shape;
    let mut output = vec![0.0; batch * heads * queries * head_dim];
    let mut log_sum = vec![0.0; if tracked { batch * heads * queries } else { 0 }];
    let call = Call { q, k, v, bias: bias.as_ref(), rotation: None, scale: scale as f32, first_query };
    attend(&call, &mut output, &mut log_sum);
    drop(call);
    let output = strided_output(output, shape);
    (output.clone(), Kept { inputs, bias, output, log_sum, scale: scale as f32, first_query })
}

/// Gradients of q, k, v and, if asked for, of the bias.
fn backward(kept: &Kept, grad: &FlexTensor, bias_wanted: bool) -> [Option<FlexTensor>; 4] {
    let [q, k, v] = kept.inputs.each_ref().map(Strided::new);
    let shapes = [q.shape, k.shape, v.shape];
    let call = Call { q, k, v, bias: kept.bias.as_ref(), rotation: None, scale: kept.scale, first_query: kept.first_query };
    let mut grads = shapes.map(|shape| vec![0.0; shape.iter().product()]);
    let (output, grad) = (Strided::new(&kept.output), Strided::new(grad));
    let [q, k, v] = grads.each_mut();
    let rows = |values, shape| by_head(values, shape, 1).remove(0);
    let parts = [rows(q, shapes[0]), rows(k, shapes[1]), rows(v, shapes[2])];
    let bias = pull(&call, &output, &grad, &kept.log_sum, sinks(shapes[0][1], parts), bias_wanted);
    let [q, k, v] = grads;
    let give = |values, shape| Some(strided_output(values, shape));
    [give(q, shapes[0]), give(k, shapes[1]), give(v, shapes[2]), bias]
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
pub(crate) fn attention_biased(inputs: [Input; 4], scale: f64, first_query: usize, by_distance: bool) -> Input {
    record(
        inputs,
        |[q, k, v, bias], tracked| {
            let bias = if by_distance { Bias::distances(&dense(bias)) } else { Bias::cells(&bias, first_query) };
            forward([q, k, v], Some(bias), scale, first_query, tracked)
        },
        |kept: &Kept, grad, wanted| backward(kept, &grad, wanted[3]),
    )
}
