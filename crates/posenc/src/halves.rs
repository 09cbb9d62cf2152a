//! Causal logits by halves, for encodings in which the tokens between a key and its query act on
//! their product.
//!
//! Queries and keys are cut into chunks, and an encoding computes the logits inside each. Two
//! neighbouring blocks of s tokens then make one of 2 s. The queries of the later block meet the
//! keys of the earlier one at the border between them: the encoding carries both there, and one
//! batched product gives the logits of all pairs of blocks. The number of steps grows with the
//! logarithm of the length.

use crate::tensors::cells;
use burn::tensor::{Bool, Device, Tensor};

/// How a block of queries is cut: `2^levels` chunks of `chunk` tokens, the last ones padded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Halves {
    pub chunk: usize,
    pub levels: usize,
}

impl Halves {
    /// Chunks of `least` to `2 least - 1` tokens, or one of `length` if there are fewer.
    pub fn new(length: usize, least: usize) -> Self {
        let chunk = |levels: usize| length.div_ceil(1 << levels);
        let fits = |levels: &usize| chunk(*levels) >= least && chunk(levels - 1) > 1;
        let levels = (1..).take_while(fits).last().unwrap_or(0);
        Self {
            chunk: chunk(levels),
            levels,
        }
    }

    /// Tokens with padding.
    pub fn length(self) -> usize {
        self.chunk << self.levels
    }
}

/// `x`, `[B, H, T, E]`, with `front` zeros before it and others after it, up to `blocks` blocks of
/// [`Halves::length`] tokens, in chunks: `[B H, N, chunk, E]`.
pub(crate) fn chunked(x: Tensor<4>, halves: Halves, front: usize, blocks: usize) -> Tensor<4> {
    let ([batch, heads, length, width], total) = (x.dims(), blocks * halves.length());
    let zeros = |count: usize| {
        let shape = [batch, heads, count, width];
        (count > 0).then(|| Tensor::<4>::zeros(shape, (&x.device(), x.dtype())))
    };
    let [before, after] = [front, total - front - length].map(zeros);
    let padded = if total > length {
        Tensor::cat([before, Some(x), after].into_iter().flatten().collect(), 2)
    } else {
        x
    };
    padded.reshape([batch * heads, total / halves.chunk, halves.chunk, width])
}

/// Neighbours of `x`, `[S, 2 n, s, E]`, one after the other: `[S, n, 2 s, E]`.
pub(crate) fn in_pairs(x: Tensor<4>) -> Tensor<4> {
    let [sequences, blocks, rows, width] = x.dims();
    x.reshape([sequences, blocks / 2, 2 * rows, width])
}

/// The first or second half of the rows of each pair, `[S, n, 2 s, E]`: `[S, n, s, E]`.
pub(crate) fn half(x: &Tensor<4>, second: bool) -> Tensor<4> {
    let rows = x.dims()[2] / 2;
    let start = if second { rows } else { 0 };
    x.clone().slice_dim(2, start..start + rows)
}

/// `[1, 1, 2 rows, 1]`, true for the first half of the rows, or for the second.
pub(crate) fn half_mask(rows: usize, second: bool, device: &Device) -> Tensor<4, Bool> {
    cells([2 * rows, 1], device, |row, _| (row >= rows) == second)
}

/// Logits of blocks of 2 s tokens, `[S, n, 2 s, 2 s]`.
///
/// `own`, `[S, 2 n, s, s]`, are the logits of their halves. `across`, `[S, n, 2 s, s]`, are those
/// of all queries of a block with the first half of its keys; its first half of rows is not read.
/// Cells whose key comes after the query hold any finite number.
pub(crate) fn joined(own: Tensor<4>, across: Tensor<4>) -> Tensor<4> {
    let own = in_pairs(own);
    let first = half_mask(own.dims()[3], false, &own.device()).expand(own.dims());
    Tensor::cat(vec![across.mask_where(first, own.clone()), own], 3)
}

#[cfg(test)]
mod tests {
    use super::Halves;

    #[test]
    fn chunks_have_a_length_between_the_least_and_its_double() {
        for least in [1, 4, 16] {
            for length in 1..=300 {
                let halves = Halves::new(length, least);
                assert!(halves.length() >= length, "{length}, {least}: {halves:?}");
                let (chunk, shortest) = (halves.chunk, least.min(length));
                assert!((shortest..2 * least).contains(&chunk), "{length}, {least}");
                // Padding is shorter than one token for each chunk.
                assert!(halves.length() - length < 1 << halves.levels);
            }
        }
    }
}
