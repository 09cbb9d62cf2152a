//! The gradients of a network that is the bias of attention, from those of the logits, by tiles.
//!
//! On a stretch where the network is one line, its gradients follow from two sums over the cells:
//! of `g x` and of `g`, for the gradient `g` of a logit and the input `x` of its cell. Elsewhere
//! the same two sums run over the active cells of each hidden unit.

use super::lanes::{WIDE, WIDTH};
use super::network_bias::{NetworkBias, STRETCH, spare};
use crate::flex::simd::{Lanes, dispatch};
use crate::flex::tensors::tensor;
use crate::flex::twice::pairs;
use burn_flex::FlexTensor;
use pulp::{Simd, WithSimd};

/// Sums of `g x` and of `g`.
type Pair = [f64; 2];

/// Sums over the cells of some sequences, for one output of the network.
pub(super) struct NetworkSums {
    head: usize,
    /// By line and query modulo [`STRETCH`], so that an order of sums is one for all widths.
    lines: Vec<[Pair; STRETCH]>,
    /// By hidden unit, over the cells that lie on no common line.
    units: Vec<[Pair; STRETCH]>,
    /// Of `g`, over the same cells.
    cells: [f64; STRETCH],
    /// In the order of [`NetworkBias::diagonals`].
    diagonals: Vec<f32>,
    /// Of `x` times its gradient, by query.
    queries: Vec<f64>,
}

/// The same for one block of queries, by lane.
struct BlockSums {
    lines: Vec<Option<Vec<Pair>>>,
    units: Vec<Vec<Pair>>,
    cells: Vec<f64>,
    queries: Vec<f64>,
}

/// What a task adds to.
pub(super) struct NetworkGrads<'a> {
    bias: &'a NetworkBias,
    sums: &'a mut NetworkSums,
    block: BlockSums,
}

impl NetworkSums {
    pub(super) fn new(bias: &NetworkBias, head: usize) -> Self {
        let inputs = bias.inputs();
        Self {
            head: bias.output(head),
            lines: vec![[[0.0; 2]; STRETCH]; bias.lines.count()],
            units: vec![[[0.0; 2]; STRETCH]; inputs.w1.len()],
            cells: [0.0; STRETCH],
            diagonals: vec![0.0; bias.diagonals.len()],
            queries: vec![0.0; inputs.units.len()],
        }
    }
}

impl BlockSums {
    fn new(bias: &NetworkBias) -> Self {
        let width = *WIDTH;
        Self {
            lines: vec![None; bias.lines.count()],
            units: Vec::new(),
            cells: vec![0.0; width],
            queries: vec![0.0; width],
        }
    }
}

impl<'a> NetworkGrads<'a> {
    pub(super) fn new(bias: &'a NetworkBias, sums: &'a mut NetworkSums) -> Self {
        let block = BlockSums::new(bias);
        Self { bias, sums, block }
    }

    /// Adds the gradients of the logits of one tile: rows of lanes for keys from `first_key` on;
    /// the first lane is query `own`.
    pub(super) fn add(&mut self, own: usize, first_key: usize, grads: &[f32]) {
        dispatch(Tile {
            bias: self.bias,
            head: self.sums.head,
            own,
            first_key,
            grads,
            block: &mut self.block,
            diagonals: &mut self.sums.diagonals,
        });
    }

    /// Ends the block of queries whose first is `own`.
    pub(super) fn end_block(&mut self, own: usize) {
        let block = std::mem::replace(&mut self.block, BlockSums::new(self.bias));
        let add = |sums: &mut [Pair; STRETCH], lanes: &[Pair]| {
            for (lane, [gx, g]) in lanes.iter().enumerate() {
                let sum = &mut sums[(own + lane) % STRETCH];
                *sum = [sum[0] + gx, sum[1] + g];
            }
        };
        for (sums, lanes) in self.sums.lines.iter_mut().zip(&block.lines) {
            if let Some(lanes) = lanes {
                add(sums, lanes);
            }
        }
        for (sums, lanes) in self.sums.units.iter_mut().zip(&block.units) {
            add(sums, lanes);
        }
        for (lane, g) in block.cells.iter().enumerate() {
            self.sums.cells[(own + lane) % STRETCH] += g;
        }
        // Lanes past the last query have no sum.
        for (sum, x) in self.sums.queries[own..].iter_mut().zip(&block.queries) {
            *sum += x;
        }
    }
}

/// One tile of gradients of logits.
struct Tile<'a> {
    bias: &'a NetworkBias,
    head: usize,
    own: usize,
    first_key: usize,
    grads: &'a [f32],
    block: &'a mut BlockSums,
    diagonals: &'a mut [f32],
}

/// Where a vector of lanes is: the first query, its lane, and the first key of the stretch.
#[derive(Clone, Copy)]
struct At {
    query: usize,
    lane: usize,
    key: usize,
}

impl WithSimd for Tile<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, s: S) {
        let grads = self.grads;
        for (stretch, rows) in grads.chunks(STRETCH * *WIDTH).enumerate() {
            let key = self.first_key + stretch * STRETCH;
            let mut current = (usize::MAX, None);
            for vector in 0..WIDE {
                let lane = vector * S::F32_LANES;
                let query = self.own + lane;
                let first = query / STRETCH * STRETCH;
                if current.0 != first {
                    current = (first, self.bias.line(s, self.head, first, key));
                }
                let at = At { query, lane, key };
                match current.1 {
                    Some((index, [slope, _])) => self.line(s, rows, at, index, slope),
                    None => self.cells(s, rows, at),
                }
            }
        }
    }
}

impl Tile<'_> {
    /// A stretch that is the line `index`.
    #[inline(always)]
    fn line<S: Simd>(&mut self, s: S, rows: &[f32], at: At, index: usize, slope: f32) {
        let units = S::as_simd_f32s(&self.bias.units[at.query..]).0[0];
        let factor = s.div(s.splat(slope), units);
        let [mut gd, mut g] = [s.zero(); 2];
        let first = self.bias.origin() + at.query - at.key;
        for (i, row) in pairs::<S>(rows).iter().enumerate() {
            let grad = row[at.lane / S::F32_LANES];
            let diagonal = S::as_simd_f32s(&self.bias.diagonals[first - i..]).0[0];
            g = s.add(g, grad);
            gd = s.fma(grad, diagonal, gd);
            let sum = &mut S::as_mut_simd_f32s(&mut self.diagonals[first - i..]).0[0];
            *sum = s.fma(grad, factor, *sum);
        }
        let gx = s.div(gd, units);
        let lanes = self.block.lines[index].get_or_insert_with(|| vec![[0.0; 2]; *WIDTH]);
        add_pairs(
            &mut lanes[at.lane..],
            lanes_of::<S>(&[gx]),
            lanes_of::<S>(&[g]),
        );
        let total = [s.mul(gx, s.splat(slope))];
        add(&mut self.block.queries[at.lane..], lanes_of::<S>(&total));
    }

    /// A stretch with a kink in it.
    #[inline(always)]
    fn cells<S: Simd>(&mut self, s: S, rows: &[f32], at: At) {
        let inputs = self.bias.inputs();
        let heads = self.bias.heads;
        let divisors = S::as_simd_f32s(&self.bias.units[at.query..]).0[0];
        let first = self.bias.origin() + at.query - at.key;
        let rows = pairs::<S>(rows);
        let [mut x, mut grads, mut slopes] = [[s.zero(); STRETCH]; 3];
        let mut total = s.zero();
        for (i, row) in rows.iter().enumerate() {
            let diagonal = S::as_simd_f32s(&self.bias.diagonals[first - i..]).0[0];
            x[i] = s.div(diagonal, divisors);
            grads[i] = row[at.lane / S::F32_LANES];
            total = s.add(total, grads[i]);
        }
        add(&mut self.block.cells[at.lane..], lanes_of::<S>(&[total]));
        let units = &mut self.block.units;
        units.resize_with(inputs.w1.len(), || vec![[0.0; 2]; *WIDTH]);
        let weights = inputs.w2[self.head..].iter().step_by(heads);
        let layer = inputs.w1.iter().zip(inputs.b1).zip(weights);
        for (((w1, b1), w2), lanes) in layer.zip(units) {
            let [weight, bias, slope] = [*w1, *b1, w1 * w2].map(|x| s.splat(x));
            let [mut gx, mut g] = [s.zero(); 2];
            for i in 0..rows.len() {
                // At a kink the slope is 0.
                let before = s.fma(x[i], weight, bias);
                let active = |value| s.where_less(s.zero(), before, value, s.zero());
                let grad = active(grads[i]);
                g = s.add(g, grad);
                gx = s.fma(grad, x[i], gx);
                slopes[i] = s.add(slopes[i], active(slope));
            }
            add_pairs(
                &mut lanes[at.lane..],
                lanes_of::<S>(&[gx]),
                lanes_of::<S>(&[g]),
            );
        }
        let mut total = s.zero();
        for i in 0..rows.len() {
            let grad_x = s.mul(grads[i], slopes[i]);
            total = s.fma(grad_x, x[i], total);
            let sum = &mut S::as_mut_simd_f32s(&mut self.diagonals[first - i..]).0[0];
            *sum = s.add(*sum, s.div(grad_x, divisors));
        }
        add(&mut self.block.queries[at.lane..], lanes_of::<S>(&[total]));
    }
}

/// The numbers of a vector.
#[inline(always)]
fn lanes_of<S: Simd>(x: &[S::f32s; 1]) -> &[f32] {
    bytemuck::cast_slice(x)
}

#[inline(always)]
fn add(sums: &mut [f64], x: &[f32]) {
    for (sum, x) in sums.iter_mut().zip(x) {
        *sum += f64::from(*x);
    }
}

#[inline(always)]
fn add_pairs(sums: &mut [Pair], gx: &[f32], g: &[f32]) {
    for (sum, (gx, g)) in sums.iter_mut().zip(gx.iter().zip(g)) {
        *sum = [sum[0] + f64::from(*gx), sum[1] + f64::from(*g)];
    }
}

/// The gradients of diagonals, units, weights and biases of the hidden layer, and those of the
/// outputs, from sums over sets of heads, added in their order.
pub(super) fn collect(bias: &NetworkBias, all: &[NetworkSums]) -> Vec<FlexTensor> {
    let inputs = bias.inputs();
    let (hidden, heads, n) = (inputs.w1.len(), bias.heads, inputs.diagonals.len());
    let active = bias.lines.active(&inputs);
    let [mut w1, mut b1] = [(); 2].map(|()| vec![0.0; hidden]);
    let (mut w2, mut b2) = (vec![0.0; hidden * heads], vec![0.0; heads]);
    let (mut diagonals, mut units) = (vec![0.0; n], vec![0.0; inputs.units.len()]);
    for sums in all {
        let head = sums.head;
        let total = |lanes: &[Pair; STRETCH]| {
            let sum = |[a, b]: Pair, [gx, g]: &Pair| [a + gx, b + g];
            lanes.iter().fold([0.0; 2], sum)
        };
        let lines: Vec<Pair> = sums.lines.iter().map(total).collect();
        b2[head] += lines.iter().map(|[_, g]| g).sum::<f64>() + sums.cells.iter().sum::<f64>();
        for (unit, lanes) in sums.units.iter().enumerate() {
            let [mut gx, mut g] = total(lanes);
            for (line, [line_gx, line_g]) in lines.iter().enumerate() {
                if active[line * hidden + unit] {
                    gx += line_gx;
                    g += line_g;
                }
            }
            let [weight, offset, output] = [
                inputs.w1[unit],
                inputs.b1[unit],
                inputs.w2[unit * heads + head],
            ]
            .map(f64::from);
            w2[unit * heads + head] += weight * gx + offset * g;
            w1[unit] += output * gx;
            b1[unit] += output * g;
        }
        let found = sums.diagonals[spare()..].iter();
        for (sum, x) in diagonals.iter_mut().rev().zip(found) {
            *sum += f64::from(*x);
        }
        for ((sum, x), unit) in units.iter_mut().zip(&sums.queries).zip(inputs.units) {
            // x = diagonal / unit.
            *sum -= x / f64::from(*unit);
        }
    }
    let narrow = |x: Vec<f64>| x.into_iter().map(|x| x as f32).collect::<Vec<f32>>();
    let rows = units.len();
    vec![
        tensor(narrow(diagonals), [n]),
        tensor(narrow(units), [rows]),
        tensor(narrow(w1), [hidden]),
        tensor(narrow(b1), [hidden]),
        tensor(narrow(w2), [hidden, heads]),
        tensor(narrow(b2), [heads]),
    ]
}
