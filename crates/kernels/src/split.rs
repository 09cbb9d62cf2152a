//! Products of `f32` matrices through products of their parts in bfloat16, which matrix units
//! compute.
//!
//! A number is the sum of a part with its upper 8 significant bits, rounded, and one or two with
//! the bits that are left: 16 bits in two parts, all 24 in three. Products of parts are exact in
//! `f32`; those too small to count are left out. What is left is summed in `f32` in an order of its
//! own, which [`Plain`] spells out; the matrix unit gives the same bits.
//!
//! Both matrices lie in *blocks*: 32 summed indices of 32 rows, or columns, as tiles of 16 x 16
//! pairs, part after part. A pair holds the summed indices i and i + 16 of its block. Every block
//! of the result is one call of the matrix unit.

use crate::Matmul;
use crate::amx::{Places, SIDE, TILE, Unit};
use crate::flex::for_each;
use crate::memory::Buffer;
use crate::product::{From, Matrix, MatrixMut};
use crate::simd::{Lanes, dispatch, transpose};
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// Rows, columns and summed indices of a block.
const BLOCK: usize = 2 * SIDE;
/// Blocks along the summed index that are multiplied before the next rows are taken: they stay in
/// the innermost cache.
const DEPTH: usize = 4;

/// Which parts of the left-hand and right-hand numbers are multiplied, in order: those whose
/// product is not below the last bit.
const fn pairs(parts: usize) -> &'static [[usize; 2]] {
    match parts {
        2 => &[[0, 1], [0, 0], [1, 0]],
        _ => &[[0, 2], [0, 1], [1, 1], [1, 0], [2, 0], [0, 0]],
    }
}

/// Into how many parts numbers are split.
pub(crate) fn parts_of(matmul: Matmul) -> Option<usize> {
    match matmul {
        Matmul::F32 => None,
        Matmul::Bf16x6 => Some(3),
        Matmul::Bf16x3 => Some(2),
    }
}

/// The upper half of a number's bits.
const UPPER: u32 = 0xffff_0000;

/// Numbers in parts, each in the upper half of its bits. The sum of three is the number itself.
#[inline(always)]
fn parts<S: Simd, const P: usize>(s: S, x: S::f32s) -> [S::u32s; P] {
    let mut rest = x;
    let mut parts = [s.splat_u32s(0); P];
    for (i, part) in parts.iter_mut().enumerate() {
        let bits = s.transmute_u32s_f32s(rest);
        // The first is rounded, so that what is left has either sign; that is cut off.
        let bits = if i == 0 {
            s.add_u32s(bits, s.splat_u32s(0x8000))
        } else {
            bits
        };
        *part = s.and_u32s(bits, s.splat_u32s(UPPER));
        rest = s.sub(rest, s.transmute_f32s_u32s(*part));
    }
    parts
}

/// Which index of a matrix is summed over, and which side it is for.
#[derive(Clone, Copy)]
struct Role {
    /// Whether the rows are the index that stays.
    by_row: bool,
    /// Whether it is the left-hand matrix: pairs of summed indices side by side.
    left: bool,
}

/// How the blocks of a matrix in parts lie: two strips of 16 after two strips, and of these block
/// after block of summed indices.
#[derive(Clone, Copy)]
struct Shape {
    parts: usize,
    /// How long the summed index is.
    summed: usize,
    /// The other index, and in how many of it strips start anew.
    across: usize,
    group: usize,
}

impl Shape {
    /// Strips that the other index is cut into.
    fn strips(&self) -> usize {
        self.across / self.group.max(1) * self.group.div_ceil(SIDE)
    }

    /// First and last of the other index in a strip.
    fn strip(&self, strip: usize) -> [usize; 2] {
        if strip >= self.strips() {
            return [0; 2];
        }
        let per_group = self.group.div_ceil(SIDE);
        let (group, within) = (strip / per_group, strip % per_group);
        let first = group * self.group + within * SIDE;
        [first, (first + SIDE).min((group + 1) * self.group)]
    }

    /// Twos of strips.
    fn twos(&self) -> usize {
        self.strips().div_ceil(2)
    }

    /// Blocks along the summed index.
    fn blocks(&self) -> usize {
        self.summed.div_ceil(BLOCK)
    }

    /// Pairs in a block.
    fn block(&self) -> usize {
        self.parts * 2 * TILE
    }

    /// Pairs in all blocks of two strips.
    fn size(&self) -> usize {
        self.blocks() * self.block()
    }
}

/// A matrix in parts, or one that will be put into parts strip by strip when it is multiplied: what
/// is used once need not leave the innermost cache.
pub(crate) struct Parts<'a> {
    shape: Shape,
    held: Held<'a>,
}

enum Held<'a> {
    Whole(Buffer),
    Pending(Matrix<'a>, Role),
}

impl<'a> Parts<'a> {
    /// A left-hand matrix.
    pub(crate) fn left(matrix: Matrix<'a>, parts: usize) -> Self {
        Self::pending(
            matrix,
            parts,
            Role {
                by_row: true,
                left: true,
            },
            matrix.shape()[0],
        )
    }

    /// The transposed matrix as a left-hand one.
    pub(crate) fn left_transposed(matrix: Matrix<'a>, parts: usize) -> Self {
        Self::pending(
            matrix,
            parts,
            Role {
                by_row: false,
                left: true,
            },
            matrix.shape()[1],
        )
    }

    /// A right-hand matrix, for products with columns in groups of so many.
    pub(crate) fn right(matrix: Matrix<'a>, parts: usize, group: usize) -> Self {
        Self::pending(
            matrix,
            parts,
            Role {
                by_row: false,
                left: false,
            },
            group,
        )
    }

    /// The transposed matrix as a right-hand one.
    pub(crate) fn right_transposed(matrix: Matrix<'a>, parts: usize, group: usize) -> Self {
        Self::pending(
            matrix,
            parts,
            Role {
                by_row: true,
                left: false,
            },
            group,
        )
    }

    fn pending(matrix: Matrix<'a>, parts: usize, role: Role, group: usize) -> Self {
        let [rows, cols] = matrix.shape();
        let (across, summed) = if role.by_row {
            (rows, cols)
        } else {
            (cols, rows)
        };
        Self {
            shape: Shape {
                parts,
                summed,
                across,
                group,
            },
            held: Held::Pending(matrix, role),
        }
    }

    /// All of it in parts.
    pub(crate) fn whole(&self) -> Parts<'static> {
        let shape = self.shape;
        let mut values = Buffer::new(shape.twos() * shape.size());
        let work = values.len();
        for_each(
            values
                .chunks_exact_mut(shape.size().max(1))
                .enumerate()
                .collect(),
            work,
            |(two, values)| {
                self.two(two, values);
            },
        );
        Parts {
            shape,
            held: Held::Whole(values),
        }
    }

    /// Two strips in parts: where they lie, or, if they are not yet in parts, in `scratch`.
    fn two<'b>(&'b self, two: usize, scratch: &'b mut [f32]) -> &'b [u32] {
        let size = self.shape.size();
        match &self.held {
            Held::Whole(values) => &bytemuck::cast_slice(values)[two * size..][..size],
            Held::Pending(matrix, role) => {
                let values = bytemuck::cast_slice_mut(&mut scratch[..size]);
                if self.shape.parts == 2 {
                    dispatch(Fill::<2> {
                        shape: self.shape,
                        matrix: *matrix,
                        role: *role,
                        two,
                        values,
                    });
                } else {
                    dispatch(Fill::<3> {
                        shape: self.shape,
                        matrix: *matrix,
                        role: *role,
                        two,
                        values,
                    });
                }
                values
            }
        }
    }

    /// Numbers that [`two`](Self::two) needs.
    fn scratch(&self) -> usize {
        match self.held {
            Held::Whole(_) => 0,
            Held::Pending(..) => self.shape.size(),
        }
    }

    /// Rows and columns of a right-hand matrix.
    pub(crate) fn right_shape(&self) -> [usize; 2] {
        [self.shape.summed, self.shape.across]
    }
}

/// Puts two strips of a matrix into parts.
struct Fill<'a, const P: usize> {
    shape: Shape,
    matrix: Matrix<'a>,
    role: Role,
    two: usize,
    values: &'a mut [u32],
}

impl<const P: usize> WithSimd for Fill<'_, P> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let Self {
            shape,
            matrix,
            role,
            two,
            values,
        } = self;
        let mut scratch = [[0.0; TILE]; 2];
        for half in 0..2 {
            let [start, end] = shape.strip(2 * two + half);
            let by_column = Columns::of(matrix, start, end);
            for (block, tiles) in values
                .as_chunks_mut::<TILE>()
                .0
                .chunks_exact_mut(2 * P)
                .enumerate()
            {
                let first = block * BLOCK;
                let mut tiles = tiles.iter_mut().skip(half).step_by(2);
                let mut tiles: [&mut [u32; TILE]; P] =
                    std::array::from_fn(|_| tiles.next().expect("a tile for every part"));
                // 16 lines of either half of the block: rows of some columns. What lies beyond the
                // strip goes into sums that nobody reads.
                let (columns, rows) = if role.by_row {
                    (
                        [first, first + SIDE]
                            .map(|column| Columns::of(matrix, column, shape.summed)),
                        [start; 2],
                    )
                } else {
                    ([by_column; 2], [first, first + SIDE])
                };
                let [first_scratch, second_scratch] = &mut scratch;
                let (mut x, x_stride) = columns[0].lines(matrix, rows[0], first_scratch);
                let (mut y, y_stride) = columns[1].lines(matrix, rows[1], second_scratch);
                for i in 0..SIDE {
                    let [x_line, y_line] =
                        [x, y].map(|lines| lines.first_chunk().expect("columns inside a row"));
                    put::<S, P>(s, x_line, y_line, &mut tiles, i);
                    (x, y) = (
                        x.get(x_stride..).unwrap_or_default(),
                        y.get(y_stride..).unwrap_or_default(),
                    );
                }
            }
        }
        // Lines along the other index have been put where lines along pairs belong, or the other
        // way round.
        if role.by_row != role.left {
            transpose(values.as_chunks_mut().0);
        }
    }
}

/// Puts pairs of the parts of these numbers into row `i` of every part's tile.
#[inline(always)]
fn put<S: Simd, const P: usize>(
    s: S,
    x: &[f32; SIDE],
    y: &[f32; SIDE],
    tiles: &mut [&mut [u32; TILE]; P],
    i: usize,
) {
    let (x, y) = (S::as_simd_f32s(x).0, S::as_simd_f32s(y).0);
    for (at, (x, y)) in x.iter().zip(y).enumerate() {
        let (x, y) = (parts::<S, P>(s, *x), parts::<S, P>(s, *y));
        for part in 0..P {
            let line = &mut tiles[part].as_chunks_mut::<SIDE>().0[i];
            S::as_mut_simd_u32s(line).0[at] =
                s.or_u32s(s.wrapping_dyn_shr_u32s(x[part], s.splat_u32s(16)), y[part]);
        }
    }
}

/// Columns of a matrix, 16 at most, that are read row by row.
#[derive(Clone, Copy)]
struct Columns {
    first: usize,
    end: usize,
    start: usize,
    stride: usize,
    /// Whether there are 16 side by side.
    whole: bool,
}

impl Columns {
    #[inline(always)]
    fn of(matrix: Matrix<'_>, first: usize, end: usize) -> Self {
        let end = end.min(first + SIDE);
        if first >= end {
            return Self {
                first,
                end: first,
                start: 0,
                stride: 0,
                whole: false,
            };
        }
        let (start, stride, count) = matrix.columns(first);
        Self {
            first,
            end,
            start,
            stride,
            whole: end - first == SIDE && count >= SIDE,
        }
    }

    /// These of 16 rows, and how far apart they are: where they lie, or, if some lie apart or do
    /// not exist and count as 0, in `scratch`.
    #[inline(always)]
    fn lines<'b>(
        &self,
        matrix: Matrix<'b>,
        row: usize,
        scratch: &'b mut [f32; TILE],
    ) -> (&'b [f32], usize) {
        if self.whole && row + SIDE <= matrix.shape()[0] {
            return (
                &matrix.values()[self.start + row * self.stride..],
                self.stride,
            );
        }
        self.gather(matrix, row, scratch);
        (scratch, SIDE)
    }

    #[inline(never)]
    fn gather(&self, matrix: Matrix<'_>, row: usize, lines: &mut [f32; TILE]) {
        lines.fill(0.0);
        for (row, line) in (row..matrix.shape()[0]).zip(lines.chunks_exact_mut(SIDE)) {
            let mut column = self.first;
            while column < self.end {
                let (start, stride, count) = matrix.columns(column);
                let count = count.min(self.end - column);
                line[column - self.first..][..count]
                    .copy_from_slice(&matrix.values()[start + row * stride..][..count]);
                column += count;
            }
        }
    }
}

/// `y = a b`, or `y += a b`.
pub(crate) fn product(a: &Parts<'_>, b: &Parts<'_>, y: MatrixMut<'_>, from: From) {
    product_by(Unit::open().as_ref(), a, b, y, from);
}

/// The same by the matrix unit, or in plain arithmetic.
fn product_by(unit: Option<&Unit>, a: &Parts<'_>, b: &Parts<'_>, y: MatrixMut<'_>, from: From) {
    let fit = (a.shape.parts, a.shape.summed) == (b.shape.parts, b.shape.summed);
    assert!(
        fit && y.shape() == [a.shape.across, b.shape.across],
        "matrices fit"
    );
    let whole = (a.scratch() > 0 && b.scratch() > 0).then(|| b.whole());
    let b = whole.as_ref().unwrap_or(b);
    let (rows, columns) = (a.shape.twos(), b.shape.twos());
    let places = (0..columns)
        .map(|two| Target::new(&y, [0, 1].map(|i| b.shape.strip(2 * two + i))))
        .collect();
    let mut sums = Sums {
        unit,
        shape: a.shape,
        y,
        places,
        from,
    };
    let mut scratch = Buffer::new(a.scratch() + b.scratch());
    let depths = |blocks: usize| (0..blocks).step_by(DEPTH);
    // What is not yet in parts is put into parts once.
    if b.scratch() > 0 {
        for column in 0..columns {
            let right = b.two(column, &mut scratch);
            for depth in depths(a.shape.blocks()) {
                (0..rows).for_each(|row| sums.add(row, column, a.two(row, &mut []), right, depth));
            }
        }
    } else if a.scratch() > 0 {
        for row in 0..rows {
            let left = a.two(row, &mut scratch);
            for depth in depths(a.shape.blocks()) {
                (0..columns)
                    .for_each(|column| sums.add(row, column, left, b.two(column, &mut []), depth));
            }
        }
    } else {
        for depth in depths(a.shape.blocks()) {
            for row in 0..rows {
                let left = a.two(row, &mut []);
                (0..columns)
                    .for_each(|column| sums.add(row, column, left, b.two(column, &mut []), depth));
            }
        }
    }
}

/// Where the sums of two strips of columns go.
struct Target {
    /// First and last column of each.
    strips: [[usize; 2]; 2],
    /// Where they lie in row 0, if every row has place for 16 numbers there.
    places: Option<Places>,
}

impl Target {
    fn new(y: &MatrixMut<'_>, strips: [[usize; 2]; 2]) -> Self {
        let mut places = Places {
            starts: [0; 2],
            strides: [0; 2],
        };
        let mut whole = true;
        for (i, [first, end]) in strips.into_iter().enumerate() {
            let (start, stride, count) = if end - first == SIDE {
                y.columns(first)
            } else {
                (0, 0, 0)
            };
            (places.starts[i], places.strides[i]) = (start, stride);
            whole &= count >= SIDE;
        }
        Self {
            strips,
            places: whole.then_some(places),
        }
    }
}

/// The sums of a product on their way.
struct Sums<'a> {
    unit: Option<&'a Unit>,
    /// Of the left-hand matrix.
    shape: Shape,
    y: MatrixMut<'a>,
    places: Vec<Target>,
    from: From,
}

impl Sums<'_> {
    /// Adds what some blocks from `depth` on give to the sums of two strips of rows and two of
    /// columns.
    #[inline]
    fn add(&mut self, row: usize, column: usize, left: &[u32], right: &[u32], depth: usize) {
        let blocks = depth * self.shape.block()
            ..(depth + DEPTH).min(self.shape.blocks()) * self.shape.block();
        let factors = [&left[blocks.clone()], &right[blocks]];
        let (row, parts) = (row * BLOCK, self.shape.parts);
        let rows = row..(row + BLOCK).min(self.shape.across);
        let fresh = depth == 0 && self.from == From::Zero;
        let Target { strips, places } = &self.places[column];
        if let (Some(places), BLOCK) = (places, rows.len()) {
            let starts = [0, 1].map(|i| places.starts[i] + row * places.strides[i]);
            return sum(
                self.unit,
                parts,
                factors,
                self.y.values(),
                Places { starts, ..*places },
                fresh,
            );
        }
        let (strips, mut block) = (*strips, [0.0; BLOCK * BLOCK]);
        if !fresh {
            each(&mut self.y, strips, rows.clone(), &mut block, |y, x| {
                *x = *y
            });
        }
        sum(
            self.unit,
            parts,
            factors,
            &mut block,
            Places {
                starts: [0, SIDE],
                strides: [BLOCK; 2],
            },
            fresh,
        );
        each(&mut self.y, strips, rows, &mut block, |y, x| *y = *x);
    }
}

/// Every element of two strips of a matrix beside its place in a block.
fn each(
    y: &mut MatrixMut<'_>,
    strips: [[usize; 2]; 2],
    rows: Range<usize>,
    block: &mut [f32; BLOCK * BLOCK],
    f: impl Fn(&mut f32, &mut f32),
) {
    for (strip, [first, end]) in strips.into_iter().enumerate() {
        for (row, line) in rows.clone().zip(block.chunks_exact_mut(BLOCK)) {
            for (column, x) in (first..end).zip(&mut line[strip * SIDE..]) {
                f(&mut y.places(row, column)[0], x);
            }
        }
    }
}

fn sum(
    unit: Option<&Unit>,
    parts: usize,
    [a, b]: [&[u32]; 2],
    c: &mut [f32],
    places: Places,
    fresh: bool,
) {
    match (unit, parts) {
        (Some(unit), 2) => unit.sum::<2>(a, b, c, places, fresh),
        (Some(unit), _) => unit.sum::<3>(a, b, c, places, fresh),
        (None, _) => dispatch(Plain {
            parts,
            a,
            b,
            c,
            places,
            fresh,
        }),
    }
}

/// Rows that [`Plain`] sums side by side.
const ROWS: usize = 8;

/// What the matrix unit computes, in plain arithmetic.
struct Plain<'a> {
    parts: usize,
    a: &'a [u32],
    b: &'a [u32],
    c: &'a mut [f32],
    places: Places,
    fresh: bool,
}

/// 0 in place of numbers below the normal range, as in the matrix unit.
#[inline(always)]
fn flush<S: Simd>(s: S, x: S::f32s) -> S::f32s {
    let sign = s.transmute_f32s_u32s(s.and_u32s(s.transmute_u32s_f32s(x), s.splat_u32s(1 << 31)));
    s.select_f32s(
        s.less_than_f32s(s.abs_f32s(x), s.splat(f32::MIN_POSITIVE)),
        sign,
        x,
    )
}

impl WithSimd for Plain<'_> {
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
        // Lower and upper halves of the pairs of every tile, as numbers.
        let halves = |tiles: &[u32]| -> Vec<[[f32; TILE]; 2]> {
            let number = |bits: u32| {
                if bits & 0x7f80_0000 == 0 {
                    bits & 1 << 31
                } else {
                    bits
                }
            };
            let half = |tile: &[u32; TILE], shift: u32| {
                tile.map(|x| f32::from_bits(number((x << shift) & UPPER)))
            };
            tiles
                .as_chunks::<TILE>()
                .0
                .iter()
                .map(|tile| [half(tile, 16), half(tile, 0)])
                .collect()
        };
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
                for [left, right] in pairs(parts) {
                    let (a, b) = (&a[2 * left + first / SIDE], &b[2 * right + strip]);
                    let mut by_half = [[[0.0; SIDE]; ROWS]; 2];
                    for half in 0..2 {
                        let (a, b) = (a[half].as_chunks::<SIDE>().0, b[half].as_chunks::<SIDE>().0);
                        for i in 0..SIDE {
                            let b = S::as_simd_f32s(&b[i]).0;
                            // Several rows, because the sums of one would wait for each other.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::product::tests::noise;

    #[test]
    fn three_parts_are_the_number() {
        for x in noise(100_000, 1).into_iter().chain([
            0.0,
            -0.0,
            1.0,
            f32::MIN_POSITIVE,
            1e30,
            -3.3e38,
            1.0 + f32::EPSILON,
            16_777_215.0,
        ]) {
            let s = pulp::Scalar::new();
            let three = parts::<_, 3>(s, x).map(f32::from_bits);
            assert_eq!(three[0] + (three[1] + three[2]), x);
            let two = parts::<_, 2>(s, x).map(f32::from_bits);
            assert!(
                (two[0] + two[1] - x).abs() <= x.abs() * 2f32.powi(-16),
                "{x} {two:?}"
            );
        }
    }

    /// The definition: sums in the order of the blocks, then of the pairs of parts, and within a
    /// block of both its halves by themselves.
    fn defined(
        parts: usize,
        start: f32,
        a: impl Fn(usize) -> f32,
        b: impl Fn(usize) -> f32,
        n: usize,
    ) -> f32 {
        let s = pulp::Scalar::new();
        let split = |x: f32| match parts {
            2 => super::parts::<_, 2>(s, x).map(f32::from_bits).to_vec(),
            _ => super::parts::<_, 3>(s, x).map(f32::from_bits).to_vec(),
        };
        let mut sum = start;
        for block in (0..n).step_by(BLOCK) {
            for [left, right] in pairs(parts) {
                let half = |first: usize| {
                    (first..(first + SIDE).min(n)).fold(0.0f32, |half, i| {
                        split(a(i))[*left].mul_add(split(b(i))[*right], half)
                    })
                };
                sum += half(block) + half(block + SIDE);
            }
        }
        sum
    }

    #[test]
    fn products_are_those_of_the_definition_however_matrices_lie() {
        let unit = Unit::open();
        for ([n, k, m], group) in [
            ([1, 1, 1], 1),
            ([3, 5, 7], 7),
            ([40, 33, 50], 25),
            ([32, 64, 96], 32),
            ([70, 140, 34], 17),
            ([65, 31, 144], 48),
        ] {
            let (a, b, y) = (noise(n * k, 1), noise(k * m, 2), noise(n * m, 3));
            let turned = |x: &[f32], rows: usize, cols: usize| -> Vec<f32> {
                (0..rows * cols)
                    .map(|at| x[at % rows * cols + at / rows])
                    .collect()
            };
            let (a_turned, b_turned) = (turned(&a, n, k), turned(&b, k, m));
            let (a_panels, b_panels) = (
                Matrix::rows(&a, n, k, k).packed(k),
                Matrix::rows(&b, k, m, m).packed(group),
            );
            for parts in [2, 3] {
                let left = [
                    Parts::left(Matrix::rows(&a, n, k, k), parts),
                    Parts::left(Matrix::panels(&a_panels, n, k), parts),
                    Parts::left_transposed(Matrix::rows(&a_turned, k, n, n), parts),
                ];
                let right = [
                    Parts::right(Matrix::rows(&b, k, m, m), parts, group),
                    Parts::right(Matrix::grouped(&b_panels, k, m, group), parts, group),
                    Parts::right_transposed(Matrix::rows(&b_turned, m, k, k), parts, group),
                ];
                for from in [From::Zero, From::Target] {
                    let start = |at: usize| if from == From::Zero { 0.0 } else { y[at] };
                    let element = |i: usize, j: usize| {
                        defined(
                            parts,
                            start(i * m + j),
                            |l| a[i * k + l],
                            |l| b[l * m + j],
                            k,
                        )
                    };
                    let expected: Vec<f32> = (0..n * m).map(|at| element(at / m, at % m)).collect();
                    for (left, right) in left.iter().zip(&right) {
                        // Put into parts before, or while they are multiplied.
                        let (whole_left, whole_right) = (left.whole(), right.whole());
                        for (left, right) in [
                            (left, right),
                            (&whole_left, right),
                            (left, &whole_right),
                            (&whole_left, &whole_right),
                        ] {
                            for unit in [None, unit.as_ref()] {
                                let mut rows = y.clone();
                                product_by(
                                    unit,
                                    left,
                                    right,
                                    MatrixMut::rows(&mut rows, n, m, m),
                                    from,
                                );
                                assert_eq!(rows, expected, "{n} {k} {m}");
                                let mut panels = Matrix::rows(&y, n, m, m).packed(group);
                                product_by(
                                    unit,
                                    left,
                                    right,
                                    MatrixMut::grouped(&mut panels, n, m, group),
                                    from,
                                );
                                let panels = Matrix::grouped(&panels, n, m, group);
                                for (i, expected) in expected.chunks(m).enumerate() {
                                    let mut row = vec![0.0; m];
                                    panels.row(i, &mut row, |y, x| *y = x);
                                    assert_eq!(row, expected, "{n} {k} {m} in panels");
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn three_parts_are_as_exact_as_f32_and_two_hold_16_bits() {
        let [n, k, m] = [64, 512, 64];
        let (a, b) = (noise(n * k, 5), noise(k * m, 6));
        let exact: Vec<f64> = (0..n * m)
            .map(|at| {
                (0..k)
                    .map(|l| f64::from(a[at / m * k + l]) * f64::from(b[l * m + at % m]))
                    .sum()
            })
            .collect();
        let error = |y: &[f32]| {
            (y.iter()
                .zip(&exact)
                .map(|(y, x)| (f64::from(*y) - x).powi(2))
                .sum::<f64>()
                / exact.len() as f64)
                .sqrt()
        };
        let (rows, cols) = (Matrix::rows(&a, n, k, k), Matrix::rows(&b, k, m, m));
        let mut y = vec![0.0; n * m];
        crate::product::product(
            rows,
            Matrix::panels(&cols.packed(m), k, m),
            MatrixMut::rows(&mut y, n, m, m),
            From::Zero,
        );
        let f32 = error(&y);
        let [two, three] = [2, 3].map(|parts| {
            product(
                &Parts::left(rows, parts),
                &Parts::right(cols, parts, m),
                MatrixMut::rows(&mut y, n, m, m),
                From::Zero,
            );
            error(&y)
        });
        let size = (exact.iter().map(|x| x * x).sum::<f64>() / exact.len() as f64).sqrt();
        assert!(
            three <= f32 && two < 2f64.powi(-16) * size,
            "{f32:e} {three:e} {two:e} of {size}"
        );
    }

    #[test]
    fn the_matrix_unit_computes_what_plain_arithmetic_does() {
        let Some(unit) = Unit::open() else { return };
        // Numbers of all sizes, so that some are flushed to 0.
        for (seed, scale) in [(1, 1.0), (2, 1e-18), (3, 1e-19), (4, 1e18)] {
            let x = noise(4 * BLOCK * BLOCK, seed)
                .iter()
                .zip(noise(4 * BLOCK * BLOCK, seed + 9))
                .map(|(x, y)| x * scale * (8.0 * y).exp2())
                .collect::<Vec<_>>();
            let (a, b) = x.split_at(2 * BLOCK * BLOCK);
            let start = noise(BLOCK * BLOCK, seed + 20)
                .iter()
                .map(|x| x * scale * scale)
                .collect::<Vec<_>>();
            for parts in [2, 3] {
                let a = Parts::left(Matrix::rows(a, BLOCK, 2 * BLOCK, 2 * BLOCK), parts);
                let b = Parts::left(Matrix::rows(b, BLOCK, 2 * BLOCK, 2 * BLOCK), parts);
                let mut scratch = [Buffer::new(a.scratch()), Buffer::new(b.scratch())];
                let [first, second] = &mut scratch;
                let (a, b) = (a.two(0, first), b.two(0, second));
                for fresh in [true, false] {
                    let places = Places {
                        starts: [0, SIDE],
                        strides: [BLOCK; 2],
                    };
                    let (mut fast, mut slow) = (start.clone(), start.clone());
                    sum(Some(&unit), parts, [a, b], &mut fast, places, fresh);
                    sum(None, parts, [a, b], &mut slow, places, fresh);
                    let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                    assert_eq!(bits(&fast), bits(&slow), "{parts} parts, {scale}");
                }
            }
        }
    }
}
