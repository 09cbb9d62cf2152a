//! The memory layout of queries, keys and values: tiles of positions, and within a tile one packed
//! matrix per head.
//!
//! The rows of one head are adjacent, as the products of attention read them. A projection writes,
//! and its gradient reads, a whole tile as one matrix with one band of columns per head.

use crate::flex::buffer_pool::Buffer;
use crate::flex::gemm::{Matrix, MatrixMut, padded, padded_bands};
use crate::flex::tensors::Strided;
use crate::flex::threads::{for_each, parallel};
use std::ops::Range;

/// Positions of a tile.
pub(crate) const TILE: usize = 128;

/// The layout of `parts` tensors `[B, H, L, E]` side by side: 3 for queries, keys and values.
#[derive(Clone, Copy)]
pub(crate) struct QkvLayout {
    /// `[B, H, L, E]`.
    pub(crate) shape: [usize; 4],
    pub(crate) parts: usize,
}

/// Rows, counted through all batches, and their memory.
type RowsMut<'a> = (Range<usize>, &'a mut [f32]);

impl QkvLayout {
    /// The layout of one part by itself.
    pub(crate) fn single_part(self) -> Self {
        Self { parts: 1, ..self }
    }

    /// Columns of a row: all parts of all heads.
    pub(crate) fn columns(&self) -> usize {
        self.parts * self.shape[1] * self.shape[3]
    }

    /// Numbers per position, padding included.
    fn width(&self) -> usize {
        padded_bands(self.columns(), self.shape[3])
    }

    /// Numbers in total.
    pub(crate) fn len(&self) -> usize {
        self.shape[0] * self.shape[2] * self.width()
    }

    /// The rows of the tile that contains `row`, counted through all batches. Tiles do not cross
    /// sequences.
    fn tile_of(&self, row: usize) -> Range<usize> {
        let length = self.shape[2];
        let (start, within) = (row - row % length, row % length / TILE * TILE);
        start + within..start + (within + TILE).min(length)
    }

    /// Cuts rows, counted through all batches, at the ends of tiles.
    pub(crate) fn cut_at_tiles(self, rows: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let mut start = rows.start;
        std::iter::from_fn(move || {
            let part = start..self.tile_of(start).end.min(rows.end);
            start = part.end;
            Some(part)
        })
        .take_while(|part| !part.is_empty())
    }

    /// Some rows of one tile, all parts of all heads side by side.
    pub(crate) fn rows(self, values: &[f32], rows: Range<usize>) -> Matrix<'_> {
        let tile = self.tile_of(rows.start);
        let values = &values[tile.start * self.width()..tile.end * self.width()];
        Matrix::in_bands(values, tile.len(), self.columns(), self.shape[3])
            .row_range(rows.start - tile.start..rows.end - tile.start)
    }

    /// All tiles.
    pub(crate) fn tiles(self, values: &mut [f32]) -> Vec<RowsMut<'_>> {
        self.split_rows(values, self.width())
    }

    /// Rows of `width` numbers, cut at the ends of tiles.
    pub(crate) fn split_rows(self, mut values: &mut [f32], width: usize) -> Vec<RowsMut<'_>> {
        let cut = self.cut_at_tiles(0..self.shape[0] * self.shape[2]);
        let split = |rows: Range<usize>| {
            let (part, rest) = std::mem::take(&mut values).split_at_mut(rows.len() * width);
            values = rest;
            (rows, part)
        };
        cut.map(split).collect()
    }

    /// The tiles of every part, then of every batch and head.
    pub(crate) fn tiles_by_head(self, values: &mut [f32]) -> Vec<Vec<Vec<&mut [f32]>>> {
        let [batch, heads, ..] = self.shape;
        let mut split: Vec<Vec<Vec<&mut [f32]>>> = (0..self.parts)
            .map(|_| (0..batch * heads).map(|_| Vec::new()).collect())
            .collect();
        for (rows, tile) in self.tiles(values) {
            // A tile holds all heads of part 0, then those of part 1, and so on.
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

    /// Copies a tensor into this layout, times a factor.
    pub(crate) fn load(self, x: &Strided<'_>, factor: f32) -> Buffer {
        let [_, _, length, head_dim] = self.shape;
        let mut values = Buffer::new(self.len());
        let work = values.len();
        for_each(self.tiles(&mut values), work, |(rows, tile)| {
            let batch = rows.start / length;
            for (head, tile) in tile.chunks_mut(rows.len() * padded(head_dim)).enumerate() {
                let mut tile = MatrixMut::packed(tile, rows.len(), head_dim);
                for i in 0..rows.len() {
                    let row = x.row(batch, head, (rows.start + i) % length);
                    // A row may cross panels: each segment is contiguous, the row is not.
                    let mut column = 0;
                    while column < head_dim {
                        let segment = tile.segment_mut(i, column);
                        segment
                            .iter_mut()
                            .zip(&row[column..])
                            .for_each(|(y, x)| *y = x * factor);
                        column += segment.len();
                    }
                }
            }
        });
        values
    }

    /// The values laid out as `[B, L, H, E]`.
    pub(crate) fn unload(self, values: &[f32]) -> Vec<f32> {
        let columns = self.columns();
        let mut rows = vec![0.0; self.shape[0] * self.shape[2] * columns];
        let work = rows.len();
        // Rows per task: everything is one task where no other thread helps.
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
                        .zip_row(0, row, |y, x| *y = x);
                }
            },
        );
        rows
    }
}

/// One part of a layout, to be read.
#[derive(Clone, Copy)]
pub(crate) struct PartView<'a> {
    pub(crate) values: &'a [f32],
    pub(crate) layout: QkvLayout,
    pub(crate) part: usize,
}

impl<'a> PartView<'a> {
    /// `[B, H, L, E]`.
    pub(crate) fn shape(&self) -> [usize; 4] {
        self.layout.shape
    }

    /// Some positions of one head, all in one tile.
    #[inline(always)]
    pub(crate) fn matrix(&self, [batch, head]: [usize; 2], positions: Range<usize>) -> Matrix<'a> {
        let [_, heads, length, head_dim] = self.layout.shape;
        let first = positions.start / TILE * TILE;
        // The last tile of a sequence is shorter, and so is the distance between its heads.
        let (rows, width) = (TILE.min(length - first), padded(head_dim));
        let start = (batch * length + first) * self.layout.width()
            + (self.part * heads + head) * rows * width;
        let tile = Matrix::packed(&self.values[start..][..rows * width], rows, head_dim);
        tile.row_range(positions.start - first..positions.end - first)
    }
}
