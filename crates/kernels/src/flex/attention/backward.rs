//! The backward pass of attention: weights are computed again, tile by tile.

use super::bias::BlockBias;
use super::call::AttentionCall;
use super::forward::block;
use super::lanes::WIDTH;
use super::mask::Mask;
use super::network_grads::{NetworkGrads, NetworkSums, collect};
use super::qkv_layout::{PartView, TILE};
use super::row_ops::{RotateTile, RowRotation};
use crate::flex::buffer_pool::Buffer;
use crate::flex::gemm::{Accumulate, Matrix, MatrixMut, multiply_f32, multiply_f32_transposed};
use crate::flex::simd::{Lanes, dispatch, lane_groups, sum_over};
use crate::flex::threads::for_each;
use crate::flex::twice::{Twice, pairs, pairs_mut};
use burn_flex::FlexTensor;
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// Partial sums of the gradient of one slice of a broadcast bias. A constant, so that the result
/// does not depend on the number of threads.
const SETS: usize = 8;

/// The backward pass of the softmax of a tile: logits become weights, and the gradients of the
/// weights become those of the logits.
struct SoftmaxBackward<'a> {
    weights: &'a mut [f32],
    grads: &'a mut [f32],
    mask: Mask<'a>,
    log_sum: &'a [f32],
    /// Per query, the dot product of the output and its gradient.
    delta: &'a [f32],
}

impl WithSimd for SoftmaxBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let lanes = Twice(s);
        let weights = pairs_mut::<S>(self.weights);
        self.mask.apply(lanes, weights);
        let (log_sum, delta) = (pairs::<S>(self.log_sum)[0], pairs::<S>(self.delta)[0]);
        for (weight, grad) in weights.iter_mut().zip(pairs_mut::<S>(self.grads)) {
            // The saved log-sum gives final weights at once: no maximum, no division.
            // +inf, where a query sees nothing, gives 0.
            *weight = lanes.softmax_weight(lanes.sub(*weight, log_sum));
            // Softmax: p (dp - sum p dp). The sum is output . grad, which is delta.
            *grad = lanes.mul(*weight, lanes.sub(*grad, delta));
        }
    }
}

/// The dot product of every row of `a` with the same row of `b`.
struct RowDots<'a> {
    a: Matrix<'a>,
    b: Matrix<'a>,
    output: &'a mut [f32],
}

impl WithSimd for RowDots<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        self.output.fill(0.0);
        let [rows, width] = self.a.shape();
        let mut scratch = Buffer::new(2 * width);
        let (first, second) = scratch.split_at_mut(width);
        for (row, output) in (0..rows).zip(self.output) {
            let (a, a_tail) = lane_groups::<S>(self.a.contiguous_row(row, first));
            let (b, b_tail) = lane_groups::<S>(self.b.contiguous_row(row, second));
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

/// A task: the heads that share one partial sum of the gradient of the bias, in order; without such
/// a sum, one head.
struct Backward<'a, 'b> {
    call: &'a AttentionCall<'a>,
    output: PartView<'a>,
    grad: PartView<'a>,
    log_sum: &'a [f32],
    heads: Vec<HeadGrads<'b>>,
    bias: BiasSums<'b>,
}

/// Receives the gradient of the bias.
enum BiasSums<'b> {
    /// It takes none.
    None,
    /// In the layout of a slice of the bias.
    Values(&'b mut [f32]),
    Network(NetworkGrads<'b>),
}

/// Receives the gradients of one head, by tile.
pub(crate) struct HeadGrads<'b> {
    at: [usize; 2],
    q: Vec<&'b mut [f32]>,
    k: Vec<&'b mut [f32]>,
    v: Vec<&'b mut [f32]>,
}

/// What the backward pass of a block of queries needs for every tile of keys.
struct QueryBlock<'a> {
    index: usize,
    range: Range<usize>,
    query: Matrix<'a>,
    grad: Matrix<'a>,
    /// Queries and gradients transposed, one lane per query.
    columns: [Buffer; 2],
    /// Weights and gradients of the logits of one tile.
    tiles: [Buffer; 2],
    /// Its bias, if that is computed here.
    bias: Buffer,
    log_sum: Vec<f32>,
    delta: Vec<f32>,
}

impl Backward<'_, '_> {
    fn run(mut self) {
        for mut head in std::mem::take(&mut self.heads) {
            self.head(&mut head);
        }
    }

    /// All gradients of one head.
    fn head(&mut self, head: &mut HeadGrads<'_>) {
        let (call, at, width) = (self.call, head.at, *WIDTH);
        let [_, heads, queries, head_dim] = call.q.shape();
        let log_sum = &self.log_sum[(at[0] * heads + at[1]) * queries..][..queries];
        // k and v receive sums over blocks of queries. q needs no zeros: its first tile overwrites.
        for tile in head.k.iter_mut().chain(&mut head.v) {
            tile.fill(0.0);
        }
        let empty = || Matrix::packed(&[], 0, head_dim);
        // One set of scratch for all blocks of the head.
        let mut block = QueryBlock {
            index: 0,
            range: 0..0,
            query: empty(),
            grad: empty(),
            columns: [(); 2].map(|()| Buffer::new(head_dim * width)),
            tiles: [(); 2].map(|()| Buffer::new(TILE * width)),
            bias: call.bias_scratch(),
            log_sum: vec![0.0; width],
            delta: vec![0.0; width],
        };
        for (index, start) in (0..queries).step_by(width).enumerate() {
            let range = start..(start + width).min(queries);
            let [query, grad, output] =
                [&call.q, &self.grad, &self.output].map(|view| view.matrix(at, range.clone()));
            for (matrix, columns) in [query, grad].into_iter().zip(&mut block.columns) {
                matrix.pack_transposed(columns);
            }
            dispatch(RowDots {
                a: grad,
                b: output,
                output: &mut block.delta,
            });
            block.log_sum[..range.len()].copy_from_slice(&log_sum[range.clone()]);
            // Lanes past the last query: the products that follow ignore them.
            block.log_sum[range.len()..].fill(0.0);
            let visible = call.visible(&range);
            (block.index, block.range) = (index, range);
            (block.query, block.grad) = (query, grad);
            for start in (0..visible).step_by(TILE) {
                self.tile(head, &mut block, start..(start + TILE).min(visible));
            }
            if let BiasSums::Network(network) = &mut self.bias {
                network.end_block(call.first_query + block.range.start);
            }
        }
        rotate_back(call, head);
    }

    /// Adds what one block of queries and one tile of keys contribute to the gradients of a head.
    fn tile(&mut self, head: &mut HeadGrads<'_>, from: &mut QueryBlock<'_>, tile: Range<usize>) {
        let (call, at, width) = (self.call, head.at, *WIDTH);
        let [_, _, queries, head_dim] = call.q.shape();
        let (n, own) = (tile.len(), call.first_query + from.range.start);
        let [keys, values] = [&call.k, &call.v].map(|view| view.matrix(at, tile.clone()));
        let [weights, grads] = from.tiles.each_mut().map(|buffer| &mut buffer[..n * width]);
        let [query_columns, grad_columns] = from
            .columns
            .each_ref()
            .map(|columns| Matrix::packed(&columns[..], head_dim, width));
        // Transposed, [keys, queries]: logits = k q^T, gradients of the weights = v grad^T.
        let (logits, products) = (&mut *weights, &mut *grads);
        multiply_f32(
            keys,
            query_columns,
            MatrixMut::packed(logits, n, width),
            Accumulate::Overwrite,
        );
        multiply_f32(
            values,
            grad_columns,
            MatrixMut::packed(products, n, width),
            Accumulate::Overwrite,
        );
        dispatch(SoftmaxBackward {
            weights,
            grads,
            mask: Mask {
                first_key: tile.start,
                own,
                bias: call.bias_rows(at, (from.index, own), tile.clone(), &mut from.bias),
            },
            log_sum: &from.log_sum,
            delta: &from.delta,
        });
        // The bias is a term of the logits, so it shares their gradient.
        self.add_to_bias((from.index, own, from.range.len()), tile.start, grads);
        let [weights, grads] = [&*weights, &*grads].map(|tile| Matrix::packed(tile, n, width));
        // grad v += weights^T grad, grad k += grad_logits^T q. The tiles are transposed already.
        let key_shape = [call.k.shape()[2], head_dim];
        multiply_f32(
            weights,
            from.grad,
            block(&mut head.v, 0, key_shape, &tile),
            Accumulate::Add,
        );
        multiply_f32(
            grads,
            from.query,
            block(&mut head.k, 0, key_shape, &tile),
            Accumulate::Add,
        );
        // grad q = grad_logits k. Every block sees the first tile, which replaces old numbers.
        let accumulate = if tile.start == 0 {
            Accumulate::Overwrite
        } else {
            Accumulate::Add
        };
        multiply_f32_transposed(
            grads,
            keys,
            block(&mut head.q, 0, [queries, head_dim], &from.range),
            accumulate,
        );
    }

    /// Adds the gradients of the logits of one tile to those of the bias. `block` is its index, the
    /// key index of its first query and the number of its queries.
    fn add_to_bias(
        &mut self,
        (block, own, queries): (usize, usize, usize),
        first_key: usize,
        grads: &[f32],
    ) {
        let sums = match &mut self.bias {
            BiasSums::None => return,
            BiasSums::Network(network) => return network.add(own, first_key, grads),
            BiasSums::Values(sums) => sums,
        };
        if let Some(bias) = self.call.bias {
            bias.add_grads(sums, (block, own, queries), first_key, grads);
        }
    }
}

/// Turns the gradients of rotated queries and keys into those of the unrotated ones.
fn rotate_back(call: &AttentionCall<'_>, head: &mut HeadGrads<'_>) {
    let head_dim = call.q.shape()[3];
    // The transpose of a rotation is the rotation by the opposite angle.
    let rotations = call.rotation.map(|rotation| {
        [&rotation.queries, &rotation.keys].map(|tables| RowRotation::new(tables, rotation, -1.0))
    });
    // q was scaled in the forward pass, so its gradient is scaled too.
    for (part, (tiles, factor)) in [(&mut head.q, call.scale), (&mut head.k, 1.0)]
        .into_iter()
        .enumerate()
    {
        for (index, tile) in tiles.iter_mut().enumerate() {
            RotateTile {
                tile,
                head_dim,
                first: index * TILE,
                rotation: rotations.map(|rotations| rotations[part]),
                factor,
            }
            .run();
        }
    }
}

/// One [`HeadGrads`] per batch and head, from the tiles of the gradients of q, k and v.
pub(crate) fn grads_by_head<'b>(
    heads: usize,
    parts: [Vec<Vec<&'b mut [f32]>>; 3],
) -> Vec<HeadGrads<'b>> {
    let [q, k, v] = parts;
    let parts = q.into_iter().zip(k).zip(v).enumerate();
    parts
        .map(|(i, ((q, k), v))| HeadGrads {
            at: [i / heads, i % heads],
            q,
            k,
            v,
        })
        .collect()
}

/// Sets of heads with a partial sum each, of every slice of a bias: what `slices` have together
/// keeps tens of threads busy.
fn sets_of(slices: usize) -> usize {
    if slices == 1 { 4 * SETS } else { SETS }
}

/// The gradients of q, k and v, into `heads`, and, if wanted, those of the tensors of the bias.
///
/// Gradients of a shared bias are summed over a fixed number of sets of heads, so that the result
/// is equal for any number of threads.
pub(crate) fn attention_backward(
    call: &AttentionCall<'_>,
    output: PartView<'_>,
    grad: PartView<'_>,
    log_sum: &[f32],
    head_grads: Vec<HeadGrads<'_>>,
    bias_wanted: bool,
) -> Vec<FlexTensor> {
    let [batch, heads, queries, head_dim] = call.q.shape();
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
    let Some(bias) = call.bias.filter(|_| bias_wanted) else {
        let tasks = head_grads
            .into_iter()
            .map(|head| task(vec![head], BiasSums::None))
            .collect();
        for_each(tasks, work, Backward::run);
        return Vec::new();
    };
    let sets = sets_by_slice(bias, head_grads);
    let slices: Vec<usize> = sets.iter().map(|(slice, _)| *slice).collect();
    // Added in the order of the sets, not in the order in which threads finish.
    if let Some(network) = bias.as_network() {
        let mut sums: Vec<NetworkSums> = slices
            .iter()
            .map(|slice| NetworkSums::new(network, *slice))
            .collect();
        let tasks = sets.into_iter().zip(&mut sums).map(|((_, heads), sums)| {
            let grads = NetworkGrads::new(network, sums);
            task(heads, BiasSums::Network(grads))
        });
        for_each(tasks.collect(), work, Backward::run);
        return collect(network, &sums);
    }
    let mut partial = vec![0.0; sets.len() * bias.slice_len];
    let tasks = sets
        .into_iter()
        .zip(partial.chunks_mut(bias.slice_len.max(1)))
        .map(|((_, heads), sums)| task(heads, BiasSums::Values(sums)));
    for_each(tasks.collect(), work, Backward::run);
    vec![bias.collect(&partial, slices.into_iter(), call.first_query)]
}

/// The heads of each slice of a bias, in order, cut into sets.
fn sets_by_slice<'b>(
    bias: &BlockBias,
    head_grads: Vec<HeadGrads<'b>>,
) -> Vec<(usize, Vec<HeadGrads<'b>>)> {
    let mut members: Vec<Vec<HeadGrads<'_>>> = (0..bias.slices()).map(|_| Vec::new()).collect();
    for head in head_grads {
        members[bias.slice(head.at)].push(head);
    }
    let mut sets = Vec::new();
    for (slice, mut heads) in members.into_iter().enumerate() {
        let size = heads.len().div_ceil(sets_of(bias.slices())).max(1);
        while !heads.is_empty() {
            let rest = heads.split_off(size.min(heads.len()));
            sets.push((slice, heads));
            heads = rest;
        }
    }
    sets
}
