//! Which dimensions of a head form a pair that a rotation turns: `(2i, 2i + 1)` if interleaved,
//! else `(i, i + pairs)`.

use burn_cubecl::cubecl;
use cubecl::prelude::*;

/// The dimension that is rotated with `dim`.
#[cube]
pub(super) fn partner(
    dim: usize,
    #[comptime] pairs: usize,
    #[comptime] interleaved: bool,
) -> usize {
    let step = comptime![if interleaved { 1 } else { pairs }];
    select(is_first(dim, pairs, interleaved), dim + step, dim - step)
}

/// Whether `dim` is the first of its pair.
#[cube]
pub(super) fn is_first(
    dim: usize,
    #[comptime] pairs: usize,
    #[comptime] interleaved: bool,
) -> bool {
    if comptime![interleaved] {
        dim & 1 == 0
    } else {
        dim < pairs
    }
}

/// The pair that `dim` belongs to.
#[cube]
pub(super) fn pair(dim: usize, #[comptime] pairs: usize, #[comptime] interleaved: bool) -> usize {
    if comptime![interleaved] {
        dim / 2
    } else {
        dim % pairs
    }
}
