//! A bias that is a network of the diagonal, computed tile by tile: no number per query and key is
//! ever stored.

use super::lanes::{WIDE, WIDTH};
use crate::flex::diagonal_network::{Inputs, Lines, range};
use crate::flex::simd::{Lanes, dispatch};
use crate::flex::tensors::contiguous;
use crate::flex::twice::pairs_mut;
use burn_flex::FlexTensor;
use pulp::{Simd, WithSimd};

/// Keys, and queries, that are computed as one straight line per query, or cell by cell. A
/// constant, so that the result does not depend on the width of vectors.
pub(super) const STRETCH: usize = 16;

/// The network, laid out for blocks of queries.
pub(crate) struct NetworkBias {
    inputs: [FlexTensor; 6],
    pub(super) lines: Lines,
    /// From the upper right corner to the lower left one: adjacent for the queries of one key. With
    /// [`spare`] zeros on both sides.
    pub(super) diagonals: Vec<f32>,
    /// Followed by as many ones.
    pub(super) units: Vec<f32>,
    pub(super) heads: usize,
}

impl NetworkBias {
    /// From diagonals, units, weights and biases of the hidden layer, and those of the outputs.
    pub(crate) fn new(inputs: [FlexTensor; 6]) -> Self {
        let inputs = inputs.map(contiguous);
        let view = Inputs::new(&inputs);
        let mut diagonals = vec![0.0; spare()];
        diagonals.extend(view.diagonals.iter().rev());
        diagonals.resize(diagonals.len() + spare(), 0.0);
        let mut units = view.units.to_vec();
        units.resize(units.len() + spare(), 1.0);
        let (lines, heads) = (Lines::new(&view), view.b2.len());
        Self {
            lines,
            diagonals,
            units,
            heads,
            inputs,
        }
    }

    /// The inputs as slices.
    pub(super) fn inputs(&self) -> Inputs<'_> {
        Inputs::new(&self.inputs)
    }

    /// Where the diagonal of query 0 and key 0 is.
    pub(super) fn origin(&self) -> usize {
        spare() + self.inputs().units.len() - 1
    }

    /// Of this head, or of all.
    pub(super) fn output(&self, head: usize) -> usize {
        if self.heads == 1 { 0 } else { head }
    }

    /// The bias of a block of queries, the first of which is `own`, and the keys from `first_key`
    /// on: one row of lanes per key.
    pub(super) fn tile(&self, head: usize, own: usize, first_key: usize, rows: &mut [f32]) {
        dispatch(TileOfLines {
            bias: self,
            head: self.output(head),
            own,
            first_key,
            rows,
        });
    }
}

/// How far blocks and stretches may reach past the last query and key.
pub(super) fn spare() -> usize {
    (*WIDTH).max(STRETCH)
}

struct TileOfLines<'a> {
    bias: &'a NetworkBias,
    head: usize,
    own: usize,
    first_key: usize,
    rows: &'a mut [f32],
}

impl WithSimd for TileOfLines<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let (bias, width) = (self.bias, *WIDTH);
        let (inputs, origin) = (bias.inputs(), bias.origin());
        for (stretch, rows) in self.rows.chunks_mut(STRETCH * width).enumerate() {
            let key = self.first_key + stretch * STRETCH;
            let mut current = (usize::MAX, None);
            for vector in 0..WIDE {
                let query = self.own + vector * S::F32_LANES;
                let first = query / STRETCH * STRETCH;
                if current.0 != first {
                    current = (first, bias.line(s, self.head, first, key));
                }
                let units = S::as_simd_f32s(&bias.units[query..]).0[0];
                let line = current.1.map(|(_, [slope, intercept])| {
                    [s.div(s.splat(slope), units), s.splat(intercept)]
                });
                for (i, row) in pairs_mut::<S>(rows).iter_mut().enumerate() {
                    let x = S::as_simd_f32s(&bias.diagonals[origin + query - key - i..]).0[0];
                    row[vector] = match line {
                        Some([slope, intercept]) => s.fma(x, slope, intercept),
                        None => inputs.cell(s, s.div(x, units), self.head),
                    };
                }
            }
        }
    }
}

impl NetworkBias {
    /// Index, slope and intercept for the stretch of queries from `first` on and of keys from `key`
    /// on, if it is one line.
    #[inline(always)]
    pub(super) fn line<S: Simd>(
        &self,
        s: S,
        head: usize,
        first: usize,
        key: usize,
    ) -> Option<(usize, [f32; 2])> {
        let [least, most] = range(s, &self.units[first..][..STRETCH]);
        // Between units of both signs a quotient has no bounds.
        if !(least > 0.0 || most < 0.0) {
            return None;
        }
        let diagonal = self.origin() + first - key;
        let diagonals = &self.diagonals[diagonal + 1 - STRETCH..][..2 * STRETCH - 1];
        let [low, high] = range(s, diagonals);
        let ends = [low / least, low / most, high / least, high / most].map(f64::from);
        let low = ends.into_iter().fold(f64::INFINITY, f64::min);
        let high = ends.into_iter().fold(f64::NEG_INFINITY, f64::max);
        let line = self.lines.between(head, self.heads, [low, high]);
        line.map(|(index, line)| (index, line.map(|x| x as f32)))
    }
}
