//! Packing matrices into panels, as they are or transposed.

use super::layout::{Layout2d, WIDTHS, padded, padded_bands};
use super::matrix::Matrix;
use crate::flex::buffer_pool::Buffer;
use crate::flex::threads::for_each;
use crate::flex::transpose::{SQUARE, transpose};

/// A square of elements that is transposed in registers; starts at a cache line.
#[repr(align(64))]
struct Square([u32; SQUARE * SQUARE]);

impl Square {
    fn lines(&mut self) -> &mut [[f32; SQUARE]] {
        bytemuck::cast_slice_mut::<u32, f32>(&mut self.0)
            .as_chunks_mut()
            .0
    }
}

impl Matrix<'_> {
    /// Copies into panels, which restart with every `band` of columns.
    pub(crate) fn pack(self, panels: &mut [f32], band: usize) {
        let widths = *WIDTHS;
        let [rows, cols] = self.shape();
        let layout = Layout2d::packed(rows, cols, band);
        let mut column = 0;
        while column < cols {
            let (from, to) = (
                self.segment_for(column, widths),
                layout.segment(column, widths),
            );
            // A run that is adjacent in both layouts.
            let count = from.count.min(to.count);
            // The padding of a band is 0: vectors read it, and 0 adds nothing to a sum.
            let lane = column % band % widths.panel;
            let fill = if (column + count) % band == 0 {
                (lane + count).next_multiple_of(widths.vector) - lane
            } else {
                count
            };
            for row in 0..rows {
                let target = &mut panels[to.start + row * to.stride..][..fill];
                target[..count]
                    .copy_from_slice(&self.values[from.start + row * from.stride..][..count]);
                target[count..].fill(0.0);
            }
            column += count;
        }
    }

    /// Copies the transposed matrix into panels.
    pub(crate) fn pack_transposed(self, panels: &mut [f32]) {
        for (panel, values) in panels
            .chunks_mut((self.shape()[1] * WIDTHS.panel).max(1))
            .enumerate()
        {
            self.pack_panel_transposed(panel * WIDTHS.panel, values);
        }
    }

    /// Fills one panel of the transposed matrix with the rows from `first` on.
    ///
    /// Whole squares go through vector registers, the rest element by element.
    fn pack_panel_transposed(self, first: usize, values: &mut [f32]) {
        let widths = *WIDTHS;
        let [rows, cols] = self.shape();
        let wide = values.len() / cols;
        let mut square = Square([0; SQUARE * SQUARE]);
        let mut column = 0;
        while column < cols {
            let segment = self.segment_for(column, widths);
            let row = |lane: usize| {
                &self.values[segment.start + (first + lane) * segment.stride..][..segment.count]
            };
            let values = &mut values[column * wide..];
            let mut lane = 0;
            while lane < wide {
                // A square needs 16 rows that exist and 16 lanes of this panel.
                let lanes = if lane + SQUARE <= wide && first + lane + SQUARE <= rows {
                    SQUARE
                } else {
                    1
                };
                let squares = if lanes == SQUARE {
                    segment.count / SQUARE * SQUARE
                } else {
                    0
                };
                for at in (0..squares).step_by(SQUARE) {
                    for (i, line) in square.lines().iter_mut().enumerate() {
                        line.copy_from_slice(&row(lane + i)[at..][..SQUARE]);
                    }
                    transpose(std::slice::from_mut(&mut square.0));
                    for (i, line) in square.lines().iter().enumerate() {
                        values[(at + i) * wide + lane..][..SQUARE].copy_from_slice(line);
                    }
                }
                for lane in (lane..lane + lanes).filter(|_| squares < segment.count) {
                    // What squares leave over. The numbers of a lane are `wide` apart.
                    let places = values[squares * wide + lane..].iter_mut().step_by(wide);
                    if first + lane < rows {
                        places
                            .zip(&row(lane)[squares..])
                            .for_each(|(to, x)| *to = *x);
                    } else {
                        // Lanes past the last row are padding, which must be 0.
                        places.take(segment.count).for_each(|to| *to = 0.0);
                    }
                }
                lane += lanes;
            }
            column += segment.count;
        }
    }

    /// A packed copy, with panels that restart with every `band` of columns.
    pub(crate) fn to_packed(self, band: usize) -> Buffer {
        let [rows, cols] = self.shape();
        let mut panels = Buffer::new(rows * padded_bands(cols, band));
        self.pack(&mut panels, band);
        panels
    }

    /// A packed copy of the transposed matrix, with panels that restart with every `band` of its
    /// columns.
    pub(crate) fn to_packed_transposed(self, band: usize) -> Buffer {
        let [rows, cols] = self.shape();
        let mut panels = Buffer::new(cols * padded_bands(rows, band));
        // One task per panel. Panels lie one after the other, so each is a slice to itself.
        let bands = panels.chunks_mut((cols * padded(band)).max(1)).enumerate();
        let tasks = bands.flat_map(|(index, values)| {
            let values = values.chunks_mut((cols * WIDTHS.panel).max(1)).enumerate();
            values.map(move |(panel, values)| (index * band, panel * WIDTHS.panel, values))
        });
        for_each(tasks.collect(), rows * cols, |(first, within, values)| {
            self.row_range(first..first + band)
                .pack_panel_transposed(within, values);
        });
        panels
    }
}
