//! The bias of attention, rearranged so that a block of queries reads it as vectors.

use super::lanes::WIDTH;
use super::network_bias::NetworkBias;
use crate::flex::buffer_pool::Buffer;
use crate::flex::gemm::Matrix;
use crate::flex::tensors::{Strided, tensor};
use crate::flex::threads::for_each;
use burn_flex::FlexTensor;
use std::ops::Range;

/// A bias, laid out for query blocks.
pub(crate) struct BlockBias {
    values: Buffer,
    batches: usize,
    heads: usize,
    pub(super) slice_len: usize,
    kind: BiasKind,
}

enum BiasKind {
    /// One value per query and key. By query block: for every key the block sees, one row of lanes.
    Dense {
        /// Start of each block in a slice, and the end.
        starts: Vec<usize>,
        /// Queries and keys.
        shape: [usize; 2],
    },
    /// One value per distance from query to key, starting at minus a block's width.
    ByDistance { count: usize },
    /// Running sums of a decay, one per token, with one width of zeros behind, for spare lanes.
    Decays { count: usize },
    /// Computed when a tile needs it; the values are empty.
    Network(Box<NetworkBias>),
}

/// The bias of one block of queries.
#[derive(Clone, Copy)]
pub(crate) enum BiasRows<'a> {
    /// One row of lanes per key, from a first key on.
    Dense(&'a [f32], usize),
    /// The values by distance, and the start of the window for key 0. The window moves back by one
    /// from key to key.
    ByDistance(&'a [f32], usize),
    /// Running sums of all tokens, and the index of the block's first query. Each lane gets the sum
    /// of its query minus that of the key.
    Decays(&'a [f32], usize),
}

impl<'a> BiasRows<'a> {
    /// Numbers for the lanes of a block against one key, and one that is taken off all of them.
    #[inline(always)]
    pub(super) fn row(self, key: usize, width: usize) -> (&'a [f32], f32) {
        match self {
            Self::Dense(values, first) => (&values[(key - first) * width..][..width], 0.0),
            Self::ByDistance(values, start) => (&values[start - key..][..width], 0.0),
            Self::Decays(sums, own) => (&sums[own..][..width], sums[key]),
        }
    }

    /// Whether [`row`](Self::row) takes something off.
    #[inline(always)]
    pub(super) fn is_decay(self) -> bool {
        matches!(self, Self::Decays(..))
    }
}

impl BlockBias {
    /// From `[1 or B, 1 or H, Q, K]`.
    pub(crate) fn dense(bias: &FlexTensor, first_query: usize) -> Self {
        let bias = Strided::new(bias);
        let [batches, heads, queries, keys] = bias.shape;
        let width = *WIDTH;
        let mut starts = vec![0];
        for start in (0..queries).step_by(width) {
            // Keys that no query of the block sees are left out.
            let visible = (first_query + (start + width).min(queries)).min(keys);
            starts.push(starts[starts.len() - 1] + visible * width);
        }
        let slice_len = starts[starts.len() - 1];
        let mut values = Buffer::new(batches * heads * slice_len);
        let n = values.len();
        for_each(
            values.chunks_mut(slice_len.max(1)).enumerate().collect(),
            n,
            |(index, values)| {
                for (block, bounds) in starts.windows(2).enumerate() {
                    let values = &mut values[bounds[0]..bounds[1]];
                    let rows = block * width..((block + 1) * width).min(queries);
                    // A row becomes a lane.
                    let at = [index / heads, index % heads];
                    let (all, first, stride) = bias.rows(at[0], at[1]);
                    let visible = values.len() / width;
                    if visible <= stride {
                        let all = &all[first + rows.start * stride..];
                        Matrix::row_major(all, rows.len(), visible, stride).pack_transposed(values);
                        continue;
                    }
                    // Rows that share their numbers.
                    values.fill(0.0);
                    for (lane, row) in rows.enumerate() {
                        let row = bias.row(at[0], at[1], row);
                        // `zip` stops at the last visible key.
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
            kind: BiasKind::Dense {
                starts,
                shape: [queries, keys],
            },
        }
    }

    /// From `[1 or H, n]`, one column per distance from 0.
    pub(crate) fn by_distance(bias: &FlexTensor) -> Self {
        let [heads, count] = burn::backend::TensorMetadata::shape(bias).dims();
        let width = *WIDTH;
        // One width of zeros in front, for keys after a query, and one behind, for spare lanes.
        let slice_len = count + 2 * width;
        let mut values = Buffer::new(heads * slice_len);
        values.fill(0.0);
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
            kind: BiasKind::ByDistance { count },
        }
    }

    /// From running sums, `[B, H, L]`.
    pub(crate) fn decays(sums: &FlexTensor) -> Self {
        let [batches, heads, count] = burn::backend::TensorMetadata::shape(sums).dims();
        let slice_len = count + *WIDTH;
        let mut values = Buffer::new(batches * heads * slice_len);
        values.fill(0.0);
        let slices = values.chunks_exact_mut(slice_len);
        for (slice, sums) in slices.zip(sums.storage::<f32>().chunks(count.max(1))) {
            slice[..count].copy_from_slice(sums);
        }
        Self {
            values,
            batches,
            heads,
            slice_len,
            kind: BiasKind::Decays { count },
        }
    }

    /// From a network over all queries and keys.
    pub(crate) fn network(network: NetworkBias) -> Self {
        Self {
            values: Buffer::new(0),
            batches: 1,
            heads: network.heads,
            slice_len: 0,
            kind: BiasKind::Network(Box::new(network)),
        }
    }

    /// The network that it is, if it is one.
    pub(super) fn as_network(&self) -> Option<&NetworkBias> {
        match &self.kind {
            BiasKind::Network(network) => Some(network),
            BiasKind::Dense { .. } | BiasKind::ByDistance { .. } | BiasKind::Decays { .. } => None,
        }
    }

    /// The slice that a batch and head use.
    pub(super) fn slice(&self, [batch, head]: [usize; 2]) -> usize {
        // A broadcast dimension has one slice for all.
        (if self.batches == 1 { 0 } else { batch }) * self.heads
            + if self.heads == 1 { 0 } else { head }
    }

    /// The part of a slice for a block whose first query has key index `own`.
    fn range(&self, block: usize, own: usize) -> Range<usize> {
        match &self.kind {
            BiasKind::Dense { starts, .. } => starts[block]..starts[block + 1],
            BiasKind::ByDistance { .. } => 0..own + 2 * *WIDTH,
            BiasKind::Decays { .. } => 0..self.slice_len,
            BiasKind::Network(_) => unreachable!("read tile by tile"),
        }
    }

    pub(super) fn rows(&self, at: [usize; 2], block: usize, own: usize) -> BiasRows<'_> {
        let values = &self.values[self.slice(at) * self.slice_len..][self.range(block, own)];
        match &self.kind {
            BiasKind::ByDistance { .. } => BiasRows::ByDistance(values, own + *WIDTH),
            BiasKind::Decays { .. } => BiasRows::Decays(values, own),
            BiasKind::Dense { .. } | BiasKind::Network(_) => BiasRows::Dense(values, 0),
        }
    }

    /// Adds the gradients of the logits of a block of `queries` and the keys from `first_key` on,
    /// one row of lanes for each key, to `sums`, which are laid out as a slice.
    pub(super) fn add_grads(
        &self,
        sums: &mut [f32],
        (block, own, queries): (usize, usize, usize),
        first_key: usize,
        grads: &[f32],
    ) {
        let (width, range) = (*WIDTH, self.range(block, own));
        let sums = &mut sums[range];
        for (key, grads) in grads.chunks_exact(width).enumerate() {
            let first = match &self.kind {
                BiasKind::Decays { .. } => {
                    // One by one, so that the sum is the same for any width.
                    let sum = &mut sums[first_key + key];
                    grads[..queries].iter().for_each(|grad| *sum -= grad);
                    continue;
                }
                // Lane i of key j has distance own + i - j. Slices start at minus one width.
                BiasKind::ByDistance { .. } => own + width - first_key - key,
                BiasKind::Dense { .. } | BiasKind::Network(_) => (first_key + key) * width,
            };
            let sums = sums[first..][..width].iter_mut();
            sums.zip(grads).for_each(|(sum, grad)| *sum += grad);
        }
    }

    /// The number of slices.
    pub(super) fn slices(&self) -> usize {
        self.batches * self.heads
    }

    /// The gradient of the original tensor, from sums over sets of heads and the slice of each.
    pub(super) fn collect(
        &self,
        sums: &[f32],
        slices: impl Iterator<Item = usize>,
        first_query: usize,
    ) -> FlexTensor {
        let width = *WIDTH;
        let sums = slices.zip(sums.chunks(self.slice_len.max(1)));
        match &self.kind {
            BiasKind::Network(_) => unreachable!("summed by `network_grads`"),
            BiasKind::Decays { count } => {
                // Every head of every sequence has its own.
                let mut output = vec![0.0; self.batches * self.heads * count];
                for (slice, sum) in sums {
                    output[slice * count..][..*count].copy_from_slice(&sum[..*count]);
                }
                tensor(output, [self.batches, self.heads, *count])
            }
            BiasKind::ByDistance { count } => {
                // Both paddings are cut off.
                let mut output = vec![0.0; self.heads * count];
                for (slice, sum) in sums {
                    output[slice * count..][..*count]
                        .iter_mut()
                        .zip(&sum[width..])
                        .for_each(|(y, x)| *y += x);
                }
                tensor(output, [self.heads, *count])
            }
            BiasKind::Dense {
                starts,
                shape: [queries, keys],
            } => {
                let mut output = vec![0.0; self.batches * self.heads * queries * keys];
                for (slice, sum) in sums {
                    let output = &mut output[slice * queries * keys..][..queries * keys];
                    for (row, output) in output.chunks_mut(*keys).enumerate() {
                        let lanes = sum[starts[row / width]..].chunks_exact(width);
                        // The gradient of a hidden key stays 0.
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
