//! A bias that is a network of the diagonal, computed tile by tile: no number per query and key is
//! ever stored. For evaluation only, as it takes no gradient.

use super::lanes::{WIDTH, blocks, blocks_mut};
use crate::DiagonalNetwork;
use crate::flex::diagonal_network::{Inputs, Lines, range};
use crate::flex::simd::{Lanes, Twice, dispatch};
use crate::flex::tensors::constant;
use burn_flex::FlexTensor;
use pulp::{Simd, WithSimd};

/// Keys that are computed as one straight line per query, or one by one.
const STRETCH: usize = 16;

/// The network, laid out for blocks of queries.
pub(crate) struct NetworkBias {
    inputs: [FlexTensor; 6],
    lines: Lines,
    /// From the upper right corner to the lower left one: adjacent for the queries of one key.
    diagonals: Vec<f32>,
    /// With spare lanes of 1.
    units: Vec<f32>,
    heads: usize,
}

impl NetworkBias {
    /// `None` if an input takes a gradient or is no `f32` tensor on Flex.
    pub(crate) fn new(network: &DiagonalNetwork) -> Option<Self> {
        let DiagonalNetwork {
            diagonals,
            units,
            hidden: [w1, b1],
            weights,
            biases,
        } = network;
        let inputs = [
            constant(diagonals)?,
            constant(units)?,
            constant(w1)?,
            constant(b1)?,
            constant(weights)?,
            constant(biases)?,
        ];
        let view = Inputs::new(&inputs);
        let mut diagonals = view.diagonals.to_vec();
        diagonals.reverse();
        diagonals.resize(diagonals.len() + *WIDTH, 0.0);
        let mut units = view.units.to_vec();
        units.resize(units.len() + *WIDTH, 1.0);
        let (lines, heads) = (Lines::new(&view), view.b2.len());
        Some(Self {
            lines,
            diagonals,
            units,
            heads,
            inputs,
        })
    }

    /// The bias of a block of queries, the first of which is `own`, and the keys from `first_key`
    /// on: one row of lanes per key.
    pub(super) fn tile(&self, head: usize, own: usize, first_key: usize, rows: &mut [f32]) {
        dispatch(TileOfLines {
            bias: self,
            head: if self.heads == 1 { 0 } else { head },
            own,
            first_key,
            rows,
        });
    }
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
        let (lanes, width) = (Twice(s), *WIDTH);
        let inputs = Inputs::new(&self.bias.inputs);
        let unit_lanes = &self.bias.units[self.own..][..width];
        let units = blocks::<S>(unit_lanes)[0];
        let [least, most] = range(s, unit_lanes);
        // Between units of both signs a quotient has no bounds.
        let one_sign = least > 0.0 || most < 0.0;
        // The diagonal of the first query and key 0.
        let origin = inputs.units.len() - 1 + self.own;
        for (stretch, rows) in self.rows.chunks_mut(STRETCH * width).enumerate() {
            let first = self.first_key + stretch * STRETCH;
            let keys = rows.len() / width;
            let from = origin + 1 - first - keys;
            let [low, high] = range(s, &self.bias.diagonals[from..][..keys - 1 + width]);
            let ends = [low / least, low / most, high / least, high / most].map(f64::from);
            let ends = [
                ends.into_iter().fold(f64::INFINITY, f64::min),
                ends.into_iter().fold(f64::NEG_INFINITY, f64::max),
            ];
            let line = self.bias.lines.between(self.head, self.bias.heads, ends);
            let line = line.filter(|_| one_sign).map(|[slope, intercept]| {
                let slope = lanes.div(lanes.splat(slope as f32), units);
                [slope, lanes.splat(intercept as f32)]
            });
            for (key, row) in blocks_mut::<S>(rows).iter_mut().enumerate() {
                let diagonals = &self.bias.diagonals[origin - first - key..][..width];
                let x = blocks::<S>(diagonals)[0];
                *row = match line {
                    Some([slope, intercept]) => lanes.fma(x, slope, intercept),
                    None => {
                        let [y] = inputs.heads::<_, 1>(lanes, lanes.div(x, units), self.head);
                        y
                    }
                };
            }
        }
    }
}
