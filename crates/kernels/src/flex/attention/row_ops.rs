//! Rotating and scaling rows of queries, keys and outputs in place.

use crate::Rotation;
use crate::flex::gemm::{MatrixMut, padded, panel_width};
use crate::flex::simd::{Lanes, dispatch};
use crate::flex::tensors::constant;
use burn::tensor::Tensor;
use burn_flex::FlexTensor;
use pulp::{Simd, WithSimd};

/// Cos and sin tables for queries and keys, one row of pairs per position.
pub(crate) struct RotationTables {
    pub(crate) queries: [FlexTensor; 2],
    pub(crate) keys: [FlexTensor; 2],
    pub(crate) pairs: usize,
    pub(crate) interleaved: bool,
}

impl RotationTables {
    /// `None` if a table takes a gradient or is no `f32` tensor on Flex.
    pub(crate) fn new(rotation: &Rotation) -> Option<Self> {
        let constants = |[cos, sin]: &[Tensor<4>; 2]| Some([constant(cos)?, constant(sin)?]);
        Some(Self {
            queries: constants(&rotation.queries)?,
            keys: constants(&rotation.keys)?,
            pairs: rotation.keys[0].dims()[3],
            interleaved: rotation.interleaved,
        })
    }
}

/// Rotates rows by the angles of their positions, or by the opposite angles.
#[derive(Clone, Copy)]
pub(crate) struct RowRotation<'a> {
    cos: &'a [f32],
    sin: &'a [f32],
    pairs: usize,
    sign: f32,
    interleaved: bool,
}

impl<'a> RowRotation<'a> {
    /// By the angles of these tables times `sign`, 1 or -1.
    pub(crate) fn new(
        [cos, sin]: &'a [FlexTensor; 2],
        rotation: &RotationTables,
        sign: f32,
    ) -> Self {
        Self {
            cos: cos.storage(),
            sin: sin.storage(),
            pairs: rotation.pairs,
            sign,
            interleaved: rotation.interleaved,
        }
    }

    /// Rotates one row in place and multiplies it by a factor.
    #[inline(always)]
    fn row<S: Simd>(&self, s: S, position: usize, row: &mut [f32], factor: f32) {
        let angles = position * self.pairs..(position + 1) * self.pairs;
        let (cos, sin) = (&self.cos[angles.clone()], &self.sin[angles]);
        let (pairs, rest) = row.split_at_mut(2 * self.pairs);
        // Dimensions past the last pair are not rotated, but they are scaled.
        scale_slice(s, rest, factor);
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
        // Dimension i is paired with i + pairs: both halves are read as whole vectors.
        let (a, b) = pairs.split_at_mut(self.pairs);
        self.halves(s, position, 0, [a, b], factor);
    }

    /// Rotates the pairs of `a[i]` and `b[i]`, pair `first` of a row and those that follow.
    #[inline(always)]
    fn halves<S: Simd>(
        &self,
        s: S,
        position: usize,
        first: usize,
        [a, b]: [&mut [f32]; 2],
        factor: f32,
    ) {
        let angles = position * self.pairs + first..position * self.pairs + first + a.len();
        let (cos, sin) = (&self.cos[angles.clone()], &self.sin[angles]);
        let by = [s.splat(self.sign), s.splat(factor)];
        let [(cos, cos_tail), (sin, sin_tail)] = [cos, sin].map(S::as_simd_f32s);
        let [(a, a_tail), (b, b_tail)] = [a, b].map(S::as_mut_simd_f32s);
        for (((a, b), cos), sin) in a.iter_mut().zip(b).zip(cos).zip(sin) {
            [*a, *b] = rotate_pairs(s, [*a, *b], [*cos, *sin], by);
        }
        if !a_tail.is_empty() {
            let tails = [s.partial_load_f32s(a_tail), s.partial_load_f32s(b_tail)];
            let [x, y] = rotate_pairs(
                s,
                tails,
                [s.partial_load_f32s(cos_tail), s.partial_load_f32s(sin_tail)],
                by,
            );
            s.partial_store_f32s(a_tail, x);
            s.partial_store_f32s(b_tail, y);
        }
    }

    /// Rotates the rows of a packed matrix whose halves of pairs fill whole panels.
    #[inline(always)]
    fn panels<S: Simd>(&self, s: S, tile: &mut [f32], rows: usize, position: usize, factor: f32) {
        let width = panel_width();
        let (a, rest) = tile.split_at_mut(self.pairs * rows);
        let (b, rest) = rest.split_at_mut(self.pairs * rows);
        let panels = a
            .chunks_exact_mut(width * rows)
            .zip(b.chunks_exact_mut(width * rows));
        for (panel, (a, b)) in panels.enumerate() {
            let rows = a.chunks_exact_mut(width).zip(b.chunks_exact_mut(width));
            for (row, (a, b)) in rows.enumerate() {
                self.halves(s, position + row, panel * width, [a, b], factor);
            }
        }
        scale_slice(s, rest, factor);
    }
}

/// Rotates pairs by their angle times the sign and multiplies them by the factor.
///
/// Not a closure, which may be compiled without the instruction set of its caller.
#[inline(always)]
fn rotate_pairs<S: Simd>(
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

/// Rotates the rows of one head in a tile in place and multiplies them by a factor.
pub(crate) struct RotateTile<'a> {
    pub(crate) tile: &'a mut [f32],
    pub(crate) head_dim: usize,
    /// Position of the first row.
    pub(crate) first: usize,
    pub(crate) rotation: Option<RowRotation<'a>>,
    pub(crate) factor: f32,
}

impl RotateTile<'_> {
    pub(crate) fn run(self) {
        if self.rotation.is_some() || self.factor != 1.0 {
            dispatch(self);
        }
    }
}

impl WithSimd for RotateTile<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let Some(rotation) = self.rotation else {
            // Every number gets the same factor: rows and panels do not matter.
            return scale_slice(s, self.tile, self.factor);
        };
        let wide = padded(self.head_dim);
        let rows = self.tile.len() / wide;
        let whole_panels = rotation.pairs.is_multiple_of(panel_width());
        if whole_panels && !rotation.interleaved && rotation.pairs > 0 {
            return rotation.panels(s, self.tile, rows, self.first, self.factor);
        }
        let mut tile = MatrixMut::packed(self.tile, rows, self.head_dim);
        let mut scratch = Vec::new();
        for i in 0..rows {
            // A row in one segment is rotated there. The pairs of others may lie in different
            // panels, so they are gathered first.
            let segment = tile.segment_mut(i, 0);
            if segment.len() == self.head_dim {
                rotation.row(s, self.first + i, segment, self.factor);
                continue;
            }
            scratch.clear();
            while scratch.len() < self.head_dim {
                scratch.extend_from_slice(tile.segment_mut(i, scratch.len()));
            }
            rotation.row(s, self.first + i, &mut scratch, self.factor);
            let mut column = 0;
            while column < self.head_dim {
                let segment = tile.segment_mut(i, column);
                segment.copy_from_slice(&scratch[column..][..segment.len()]);
                column += segment.len();
            }
        }
    }
}

/// `values *= factor`.
#[inline(always)]
fn scale_slice<S: Simd>(s: S, row: &mut [f32], factor: f32) {
    let (vectors, tail) = S::as_mut_simd_f32s(row);
    vectors
        .iter_mut()
        .for_each(|x| *x = s.mul(*x, s.splat(factor)));
    tail.iter_mut().for_each(|x| *x *= factor);
}

/// Multiplies each row by its own factor.
pub(crate) struct ScaleRows<'a> {
    pub(crate) rows: MatrixMut<'a>,
    pub(crate) head_dim: usize,
    pub(crate) factors: &'a [f32],
}

impl WithSimd for ScaleRows<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, s: S) {
        for i in 0..self.rows.shape()[0] {
            let mut column = 0;
            while column < self.head_dim {
                let segment = self.rows.segment_mut(i, column);
                scale_slice(s, segment, self.factors[i]);
                column += segment.len();
            }
        }
    }
}
