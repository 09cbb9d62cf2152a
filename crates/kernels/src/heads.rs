//! Where queries, keys and values lie: position by position in tiles, and within a tile head by
//! head, as the products of attention want them.
//!
//! Rows of one head follow each other, so that nothing is fetched from memory line by line; and a
//! projection writes, and its gradient reads, a whole tile as one matrix whose columns come in
//! groups.

use crate::flex::{Strided, for_each, parallel};
use crate::memory::Buffer;
use crate::product::{Matrix, MatrixMut, padded, padded_groups};
use crate::simd::{Lanes, dispatch};
use burn_flex::FlexTensor;
use pulp::{Simd, WithSimd};
use std::ops::Range;

/// Positions of a tile.
pub(crate) const TILE: usize = 128;

/// How the matrices `[L, E]` of every batch and head lie, `parts` of them beside each other.
#[derive(Clone, Copy)]
pub(crate) struct Heads {
    /// `[B, H, L, E]`.
    pub(crate) shape: [usize; 4],
    pub(crate) parts: usize,
}

/// Rows, counted through all batches, and where they are to be written.
type RowsMut<'a> = (Range<usize>, &'a mut [f32]);

impl Heads {
    /// One part alone.
    pub(crate) fn alone(self) -> Self {
        Self { parts: 1, ..self }
    }

    /// All parts of all heads: columns of the rows they were projected into.
    pub(crate) fn columns(&self) -> usize {
        self.parts * self.shape[1] * self.shape[3]
    }

    /// Numbers that a position takes.
    fn width(&self) -> usize {
        padded_groups(self.columns(), self.shape[3])
    }

    /// Numbers in all.
    pub(crate) fn len(&self) -> usize {
        self.shape[0] * self.shape[2] * self.width()
    }

    /// The rows of the tile that `row` belongs to, counted through all batches.
    fn tile_of(&self, row: usize) -> Range<usize> {
        let length = self.shape[2];
        let (start, within) = (row - row % length, row % length / TILE * TILE);
        start + within..start + (within + TILE).min(length)
    }

    /// Cuts rows, counted through all batches, where tiles end.
    pub(crate) fn cut(self, rows: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let mut start = rows.start;
        std::iter::from_fn(move || {
            let part = start..self.tile_of(start).end.min(rows.end);
            start = part.end;
            Some(part)
        })
        .take_while(|part| !part.is_empty())
    }

    /// Rows of one tile, all parts of all heads beside each other.
    pub(crate) fn rows(self, values: &[f32], rows: Range<usize>) -> Matrix<'_> {
        let tile = self.tile_of(rows.start);
        let values = &values[tile.start * self.width()..tile.end * self.width()];
        Matrix::grouped(values, tile.len(), self.columns(), self.shape[3])
            .part(rows.start - tile.start..rows.end - tile.start)
    }

    /// All tiles, to be written.
    pub(crate) fn tiles(self, values: &mut [f32]) -> Vec<RowsMut<'_>> {
        self.split(values, self.width())
    }

    /// Rows that are so many numbers wide, cut where tiles end.
    pub(crate) fn split(self, mut values: &mut [f32], width: usize) -> Vec<RowsMut<'_>> {
        let cut = self.cut(0..self.shape[0] * self.shape[2]);
        let split = |rows: Range<usize>| {
            let (part, rest) = std::mem::take(&mut values).split_at_mut(rows.len() * width);
            values = rest;
            (rows, part)
        };
        cut.map(split).collect()
    }

    /// The tiles of every batch and head, to be written: by part, then by batch and head.
    pub(crate) fn by_head(self, values: &mut [f32]) -> Vec<Vec<Vec<&mut [f32]>>> {
        let [batch, heads, ..] = self.shape;
        let mut split: Vec<Vec<Vec<&mut [f32]>>> = (0..self.parts)
            .map(|_| (0..batch * heads).map(|_| Vec::new()).collect())
            .collect();
        for (rows, tile) in self.tiles(values) {
            let first = rows.start / self.shape[2] * heads;
            for (i, head) in tile
                .chunks_mut(rows.len() * padded(self.shape[3]))
                .enumerate()
            {
                split[i / heads][first + i % heads].push(head);
            }
        }
        split
    }

    /// Copies rows of a tensor, times a factor.
    pub(crate) fn load(self, x: &Strided<'_>, factor: f32) -> Buffer {
        let [_, _, length, head_dim] = self.shape;
        let mut values = Buffer::new(self.len());
        let work = values.len();
        for_each(self.tiles(&mut values), work, |(rows, tile)| {
            let batch = rows.start / length;
            for (head, tile) in tile.chunks_mut(rows.len() * padded(head_dim)).enumerate() {
                let mut tile = MatrixMut::panels(tile, rows.len(), head_dim);
                for i in 0..rows.len() {
                    let row = x.row(batch, head, (rows.start + i) % length);
                    let mut column = 0;
                    while column < head_dim {
                        let places = tile.places(i, column);
                        places
                            .iter_mut()
                            .zip(&row[column..])
                            .for_each(|(y, x)| *y = x * factor);
                        column += places.len();
                    }
                }
            }
        });
        values
    }

    /// The values in the order `[B, L, H, E]`.
    pub(crate) fn unload(self, values: &[f32]) -> Vec<f32> {
        let columns = self.columns();
        let mut rows = vec![0.0; self.shape[0] * self.shape[2] * columns];
        let work = rows.len();
        let tasks = if parallel(work) {
            TILE
        } else {
            rows.len().max(1)
        };
        for_each(
            rows.chunks_mut(tasks * columns.max(1))
                .enumerate()
                .collect(),
            work,
            |(chunk, rows)| {
                for (i, row) in rows.chunks_mut(columns).enumerate() {
                    let index = chunk * tasks + i;
                    self.rows(values, index..index + 1)
                        .row(0, row, |y, x| *y = x);
                }
            },
        );
        rows
    }
}

/// One part of the heads, to be read.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) values: &'a [f32],
    pub(crate) heads: Heads,
    pub(crate) part: usize,
}

impl<'a> View<'a> {
    /// `[B, H, L, E]`.
    pub(crate) fn shape(&self) -> [usize; 4] {
        self.heads.shape
    }

    /// Positions of one head, all of one tile.
    #[inline(always)]
    pub(crate) fn matrix(&self, [batch, head]: [usize; 2], positions: Range<usize>) -> Matrix<'a> {
        let [_, heads, length, head_dim] = self.heads.shape;
        let first = positions.start / TILE * TILE;
        let (rows, width) = (TILE.min(length - first), padded(head_dim));
        let start = (batch * length + first) * self.heads.width()
            + (self.part * heads + head) * rows * width;
        let tile = Matrix::panels(&self.values[start..][..rows * width], rows, head_dim);
        tile.part(positions.start - first..positions.end - first)
    }
}

/// Cos and sin by which queries and keys turn, one row of pairs for every query and key.
pub(crate) struct Rotation {
    pub(crate) queries: [FlexTensor; 2],
    pub(crate) keys: [FlexTensor; 2],
    pub(crate) pairs: usize,
    pub(crate) interleaved: bool,
}

/// A rotation of rows, forwards or backwards.
#[derive(Clone, Copy)]
pub(crate) struct Turn<'a> {
    cos: &'a [f32],
    sin: &'a [f32],
    pairs: usize,
    sign: f32,
    interleaved: bool,
}

impl<'a> Turn<'a> {
    /// By the angles of these tables, times `sign`.
    pub(crate) fn new([cos, sin]: &'a [FlexTensor; 2], rotation: &Rotation, sign: f32) -> Self {
        Self {
            cos: cos.storage(),
            sin: sin.storage(),
            pairs: rotation.pairs,
            sign,
            interleaved: rotation.interleaved,
        }
    }

    /// Turns one row where it lies, and multiplies it by a factor.
    #[inline(always)]
    fn row<S: Simd>(&self, s: S, position: usize, row: &mut [f32], factor: f32) {
        let angles = position * self.pairs..(position + 1) * self.pairs;
        let (cos, sin) = (&self.cos[angles.clone()], &self.sin[angles]);
        let (pairs, rest) = row.split_at_mut(2 * self.pairs);
        times(s, rest, factor);
        if self.interleaved {
            for (x, (cos, sin)) in pairs
                .as_chunks_mut::<2>()
                .0
                .iter_mut()
                .zip(cos.iter().zip(sin))
            {
                let sin = self.sign * sin;
                *x = [
                    (x[0] * cos - x[1] * sin) * factor,
                    (x[1] * cos + x[0] * sin) * factor,
                ];
            }
            return;
        }
        let by = [s.splat(self.sign), s.splat(factor)];
        let (a, b) = pairs.split_at_mut(self.pairs);
        let [(cos, cos_tail), (sin, sin_tail)] = [cos, sin].map(S::as_simd_f32s);
        let [(a, a_tail), (b, b_tail)] = [a, b].map(S::as_mut_simd_f32s);
        for (((a, b), cos), sin) in a.iter_mut().zip(b).zip(cos).zip(sin) {
            [*a, *b] = turned(s, [*a, *b], [*cos, *sin], by);
        }
        if !a_tail.is_empty() {
            let tails = [s.partial_load_f32s(a_tail), s.partial_load_f32s(b_tail)];
            let [x, y] = turned(
                s,
                tails,
                [s.partial_load_f32s(cos_tail), s.partial_load_f32s(sin_tail)],
                by,
            );
            s.partial_store_f32s(a_tail, x);
            s.partial_store_f32s(b_tail, y);
        }
    }
}

/// Pairs turned by an angle times the sign, and multiplied by the factor. Not a closure: that may
/// be compiled without the instruction set of what is around.
#[inline(always)]
fn turned<S: Simd>(
    s: S,
    [a, b]: [S::f32s; 2],
    [cos, sin]: [S::f32s; 2],
    [sign, factor]: [S::f32s; 2],
) -> [S::f32s; 2] {
    let sin = s.mul(sign, sin);
    [
        s.mul(s.sub(s.mul(a, cos), s.mul(b, sin)), factor),
        s.mul(s.add(s.mul(b, cos), s.mul(a, sin)), factor),
    ]
}

/// Turns the rows of one head in a tile where they lie, and multiplies them by a factor.
pub(crate) struct InPlace<'a> {
    pub(crate) tile: &'a mut [f32],
    pub(crate) head_dim: usize,
    /// Position of the first row.
    pub(crate) first: usize,
    pub(crate) turn: Option<Turn<'a>>,
    pub(crate) factor: f32,
}

impl InPlace<'_> {
    pub(crate) fn run(self) {
        if self.turn.is_some() || self.factor != 1.0 {
            dispatch(self);
        }
    }
}

impl WithSimd for InPlace<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let Some(turn) = self.turn else {
            return times(s, self.tile, self.factor);
        };
        let wide = padded(self.head_dim);
        let rows = self.tile.len() / wide;
        let mut tile = MatrixMut::panels(self.tile, rows, self.head_dim);
        let mut scratch = Vec::new();
        for i in 0..rows {
            // A row that lies in one piece is turned there; of others, the pairs may be in
            // different panels.
            let places = tile.places(i, 0);
            if places.len() == self.head_dim {
                turn.row(s, self.first + i, places, self.factor);
                continue;
            }
            scratch.clear();
            while scratch.len() < self.head_dim {
                scratch.extend_from_slice(tile.places(i, scratch.len()));
            }
            turn.row(s, self.first + i, &mut scratch, self.factor);
            let mut column = 0;
            while column < self.head_dim {
                let places = tile.places(i, column);
                places.copy_from_slice(&scratch[column..][..places.len()]);
                column += places.len();
            }
        }
    }
}

/// `row *= factor`.
#[inline(always)]
pub(crate) fn times<S: Simd>(s: S, row: &mut [f32], factor: f32) {
    let (vectors, tail) = S::as_mut_simd_f32s(row);
    vectors
        .iter_mut()
        .for_each(|x| *x = s.mul(*x, s.splat(factor)));
    tail.iter_mut().for_each(|x| *x *= factor);
}

/// Multiplies every row by a factor of its own.
pub(crate) struct Scale<'a> {
    pub(crate) rows: MatrixMut<'a>,
    pub(crate) head_dim: usize,
    pub(crate) factors: &'a [f32],
}

impl WithSimd for Scale<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, s: S) {
        for i in 0..self.rows.height() {
            let mut column = 0;
            while column < self.head_dim {
                let places = self.rows.places(i, column);
                times(s, places, self.factors[i]);
                column += places.len();
            }
        }
    }
}
