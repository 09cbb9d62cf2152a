//! The matrix unit in `f32` arithmetic, bit for bit: for machines without one, and for its tests.
//!
//! The order of the sums is part of the definition. Per block of summed indices and pair of parts,
//! the two halves of the block are summed by themselves, then added to each other and to the sum.

use super::amx::{Places, SIDE, TILE};
use super::bf16_parts::{BLOCK, UPPER, part_pairs};
use crate::flex::simd::Lanes;
use pulp::{Simd, WithSimd};

/// Rows that are summed side by side: the additions of a single row would wait for each other.
const ROWS: usize = 8;

/// `c += a b` for a block of 32 x 32 sums, as [`Unit::sum`](super::amx::Unit::sum) computes it.
pub(super) struct EmulatedUnit<'a> {
    pub(super) parts: usize,
    pub(super) a: &'a [u32],
    pub(super) b: &'a [u32],
    pub(super) c: &'a mut [f32],
    pub(super) places: Places,
    pub(super) fresh: bool,
}

/// Numbers below the normal range become 0, as in the matrix unit.
#[inline(always)]
fn flush<S: Simd>(s: S, x: S::f32s) -> S::f32s {
    let sign = s.transmute_f32s_u32s(s.and_u32s(s.transmute_u32s_f32s(x), s.splat_u32s(1 << 31)));
    s.select_f32s(
        s.less_than_f32s(s.abs_f32s(x), s.splat(f32::MIN_POSITIVE)),
        sign,
        x,
    )
}

/// Lower and upper halves of the pairs of every tile, as `f32`; subnormal numbers become 0.
fn halves(tiles: &[u32]) -> Vec<[[f32; TILE]; 2]> {
    // Numbers with an exponent of 0 keep only their sign.
    let number = |bits: u32| {
        if bits & 0x7f80_0000 == 0 {
            bits & 1 << 31
        } else {
            bits
        }
    };
    let half =
        |tile: &[u32; TILE], shift: u32| tile.map(|x| f32::from_bits(number((x << shift) & UPPER)));
    tiles
        .as_chunks::<TILE>()
        .0
        .iter()
        .map(|tile| [half(tile, 16), half(tile, 0)])
        .collect()
}

impl WithSimd for EmulatedUnit<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let Self {
            parts,
            a,
            b,
            c,
            places,
            fresh,
        } = self;
        let (a, b) = (halves(a), halves(b));
        for (strip, first) in [0, 1]
            .into_iter()
            .flat_map(|strip| (0..BLOCK).step_by(ROWS).map(move |first| (strip, first)))
        {
            let place = |row: usize| places.starts[strip] + (first + row) * places.strides[strip];
            let mut sums = [[0.0; SIDE]; ROWS];
            for (row, sums) in sums.iter_mut().enumerate().filter(|_| !fresh) {
                sums.copy_from_slice(&c[place(row)..][..SIDE]);
                S::as_mut_simd_f32s(sums)
                    .0
                    .iter_mut()
                    .for_each(|x| *x = flush(s, *x));
            }
            for (a, b) in a.chunks_exact(2 * parts).zip(b.chunks_exact(2 * parts)) {
                for [left, right] in part_pairs(parts) {
                    // Two tiles per part, one per strip: rows on the left, columns on the right.
                    let (a, b) = (&a[2 * left + first / SIDE], &b[2 * right + strip]);
                    let mut by_half = [[[0.0; SIDE]; ROWS]; 2];
                    for half in 0..2 {
                        let (a, b) = (a[half].as_chunks::<SIDE>().0, b[half].as_chunks::<SIDE>().0);
                        for i in 0..SIDE {
                            let b = S::as_simd_f32s(&b[i]).0;
                            for row in 0..ROWS {
                                let x = s.splat(a[first % SIDE + row][i]);
                                let sums = S::as_mut_simd_f32s(&mut by_half[half][row]).0;
                                for at in 0..sums.len() {
                                    sums[at] = flush(s, s.mul_add_f32s(x, b[at], sums[at]));
                                }
                            }
                        }
                    }
                    for row in 0..ROWS {
                        let [lower, upper] =
                            [0, 1].map(|half| S::as_simd_f32s(&by_half[half][row]).0);
                        let sums = S::as_mut_simd_f32s(&mut sums[row]).0;
                        for at in 0..sums.len() {
                            sums[at] =
                                flush(s, s.add(sums[at], flush(s, s.add(lower[at], upper[at]))));
                        }
                    }
                }
            }
            for (row, sums) in sums.iter().enumerate() {
                c[place(row)..][..SIDE].copy_from_slice(sums);
            }
        }
    }
}
