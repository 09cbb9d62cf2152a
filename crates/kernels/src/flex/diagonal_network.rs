//! A network of one input, for every cell of a matrix whose diagonals are constant up to a unit per
//! row.
//!
//! Stretches of a row between two kinks of the network are computed as the straight line that the
//! network is there.

use super::partial_sums::NetworkSums;
use super::simd::{LANE_GROUP, Lanes, dispatch, sum_over};
use super::tensors::{PerInput, contiguous, tensor};
use super::threads::{fill, for_each};
use crate::op::{FusedOp, required};
use burn_flex::FlexTensor;
use pulp::{Simd, WithSimd};

/// Partial sums of the gradients of parameters. A constant, so that the result does not depend on
/// the number of threads.
const SLABS: usize = 32;

/// The inputs as slices; sizes are those of [`crate::diagonal_network`].
#[derive(Clone, Copy)]
pub(super) struct Inputs<'a> {
    pub(super) diagonals: &'a [f32],
    pub(super) units: &'a [f32],
    pub(super) w1: &'a [f32],
    pub(super) b1: &'a [f32],
    pub(super) w2: &'a [f32],
    pub(super) b2: &'a [f32],
}

impl<'a> Inputs<'a> {
    pub(super) fn new([diagonals, units, w1, b1, w2, b2]: &'a [FlexTensor; 6]) -> Self {
        Self {
            diagonals: diagonals.storage(),
            units: units.storage(),
            w1: w1.storage(),
            b1: b1.storage(),
            w2: w2.storage(),
            b2: b2.storage(),
        }
    }

    fn rows(&self) -> usize {
        self.units.len()
    }

    fn columns(&self) -> usize {
        self.diagonals.len() + 1 - self.rows()
    }

    /// The diagonals that a row crosses, from left to right.
    fn row(&self, row: usize) -> &'a [f32] {
        &self.diagonals[self.rows() - 1 - row..][..self.columns()]
    }

    /// The output of one head.
    #[inline(always)]
    pub(super) fn cell<S: Simd>(&self, s: S, x: S::f32s, head: usize) -> S::f32s {
        let heads = self.b2.len();
        let mut sum = s.splat(self.b2[head]);
        let weights = self.w2[head..].iter().step_by(heads);
        for ((w1, b1), w2) in self.w1.iter().zip(self.b1).zip(weights) {
            let hidden = s.fma(x, s.splat(*w1), s.splat(*b1));
            // Not a maximum, which may ignore NaN.
            let hidden = s.where_less(hidden, s.zero(), s.zero(), hidden);
            sum = s.fma(hidden, s.splat(*w2), sum);
        }
        sum
    }
}

/// Cells that are computed as one straight line, or one by one.
const STRETCH: usize = 64;
/// Numbers of the output per task.
const BLOCK: usize = 4096;

/// The straight lines that a network consists of.
#[derive(Default)]
pub(super) struct Lines {
    /// Inputs at which a hidden unit starts or stops, in order.
    kinks: Vec<f64>,
    /// The hidden unit of every kink, and whether it starts there.
    changes: Vec<(usize, bool)>,
    /// Slope and intercept before the first kink, between kinks, and after the last; head by head.
    /// Empty if a parameter is not finite.
    lines: Vec<[f64; 2]>,
}

impl Lines {
    pub(super) fn new(inputs: &Inputs<'_>) -> Self {
        let heads = inputs.b2.len();
        let parameters = [inputs.w1, inputs.b1, inputs.w2, inputs.b2];
        if !parameters.into_iter().flatten().all(|x| x.is_finite()) {
            return Self::default();
        }
        let layer = inputs.w1.iter().zip(inputs.b1).enumerate();
        let units = layer.map(|(unit, (w1, b1))| (unit, [f64::from(*w1), f64::from(*b1)]));
        // The line of every head so far: at first the one before all kinks.
        let mut now: Vec<[f64; 2]> = inputs.b2.iter().map(|b2| [0.0, f64::from(*b2)]).collect();
        let change = |now: &mut [[f64; 2]], unit: usize, [w1, b1]: [f64; 2]| {
            for (line, w2) in now.iter_mut().zip(&inputs.w2[unit * heads..]) {
                let w2 = f64::from(*w2);
                *line = [line[0] + w1 * w2, line[1] + b1 * w2];
            }
        };
        let mut kinks = Vec::new();
        for (unit, [w1, b1]) in units {
            let kink = -b1 / w1;
            let active = if kink.is_finite() {
                kinks.push((kink, unit, [w1, b1]));
                w1 < 0.0
            } else {
                // A unit without a kink is always active or never.
                b1 > 0.0
            };
            if active {
                change(&mut now, unit, [w1, b1]);
            }
        }
        kinks.sort_unstable_by(|(a, ..), (b, ..)| a.total_cmp(b));
        let mut lines = now.clone();
        for (_, unit, [w1, b1]) in &kinks {
            // A rising unit starts at its kink, a falling one stops.
            let sign = w1.signum();
            change(&mut now, *unit, [sign * w1, sign * b1]);
            lines.extend(&now);
        }
        let changes = kinks.iter().map(|(_, unit, [w1, _])| (*unit, *w1 > 0.0));
        Self {
            changes: changes.collect(),
            kinks: kinks.into_iter().map(|(kink, ..)| kink).collect(),
            lines,
        }
    }

    /// The line of a head on which both inputs lie, if it is one: its index, counted for each head,
    /// slope and intercept.
    pub(super) fn between(
        &self,
        head: usize,
        heads: usize,
        [low, high]: [f64; 2],
    ) -> Option<(usize, [f64; 2])> {
        let index = self.kinks.partition_point(|kink| *kink < low);
        let same = self.kinks.get(index).is_none_or(|kink| high <= *kink);
        let line = self.lines.get(index * heads + head);
        line.filter(|_| same).map(|line| (index, *line))
    }

    /// Lines of a head.
    pub(super) fn count(&self) -> usize {
        self.kinks.len() + 1
    }

    /// Whether each of `units` hidden units is active on each line, line after line.
    pub(super) fn active(&self, inputs: &Inputs<'_>) -> Vec<bool> {
        // Before all kinks those that stop at one are active, and those that never stop.
        let mut now: Vec<bool> = inputs.b1.iter().map(|b1| *b1 > 0.0).collect();
        for (unit, starts) in &self.changes {
            now[*unit] = !starts;
        }
        let mut all = now.clone();
        for (unit, starts) in &self.changes {
            now[*unit] = *starts;
            all.extend(&now);
        }
        all
    }
}

/// Some consecutive numbers of the output, `[H, R, C]`.
struct Stretches<'a> {
    inputs: Inputs<'a>,
    lines: &'a Lines,
    /// Index of the first of them.
    start: usize,
    output: &'a mut [f32],
}

impl WithSimd for Stretches<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let Self { inputs, lines, .. } = self;
        let ([rows, columns], heads) = ([inputs.rows(), inputs.columns()], inputs.b2.len());
        let (mut at, mut output) = (self.start, self.output);
        while !output.is_empty() {
            let (row, column) = (at / columns, at % columns);
            let (head, row) = (row / rows, row % rows);
            let (now, later) = output.split_at_mut(output.len().min(columns - column));
            let diagonals = &inputs.row(row)[column..][..now.len()];
            let unit = inputs.units[row];
            let stretches = diagonals.chunks(STRETCH).zip(now.chunks_mut(STRETCH));
            for (diagonals, output) in stretches {
                // Division by one number keeps an order, or reverses it.
                let [a, b] = range(s, diagonals).map(|x| f64::from(x / unit));
                let ends = [a.min(b), a.max(b)];
                match lines.between(head, heads, ends) {
                    Some((_, [slope, intercept])) => {
                        let line_of = [slope as f32 / unit, intercept as f32];
                        line(s, diagonals, line_of, output);
                    }
                    None => cells(s, inputs, diagonals, unit, head, output),
                }
            }
            at += now.len();
            output = later;
        }
    }
}

/// The least and the largest number.
#[inline(always)]
pub(super) fn range<S: Simd>(s: S, x: &[f32]) -> [f32; 2] {
    let (vectors, tail) = S::as_simd_f32s(x);
    let mut ends = [f32::INFINITY, f32::NEG_INFINITY];
    if let [first, rest @ ..] = vectors {
        let [mut low, mut high] = [*first; 2];
        for x in rest {
            low = s.where_less(*x, low, *x, low);
            high = s.larger(*x, high);
        }
        ends = [s.reduce_min_f32s(low), s.reduce_max_f32s(high)];
    }
    tail.iter()
        .fold(ends, |[low, high], x| [low.min(*x), high.max(*x)])
}

/// `output = slope x + intercept`.
#[inline(always)]
fn line<S: Simd>(s: S, x: &[f32], [slope, intercept]: [f32; 2], output: &mut [f32]) {
    let [slope, intercept] = [s.splat(slope), s.splat(intercept)];
    let ((x, x_tail), (y, y_tail)) = (S::as_simd_f32s(x), S::as_mut_simd_f32s(output));
    for (x, y) in x.iter().zip(y) {
        *y = s.fma(*x, slope, intercept);
    }
    s.partial_store_f32s(y_tail, s.fma(s.partial_load_f32s(x_tail), slope, intercept));
}

/// The network of one head on every number over the unit.
#[inline(always)]
fn cells<S: Simd>(s: S, inputs: Inputs<'_>, x: &[f32], unit: f32, head: usize, output: &mut [f32]) {
    let unit = s.splat(unit);
    let ((x, x_tail), (y, y_tail)) = (S::as_simd_f32s(x), S::as_mut_simd_f32s(output));
    for (x, y) in x.iter().zip(y) {
        *y = inputs.cell(s, s.div(*x, unit), head);
    }
    let last = inputs.cell(s, s.div(s.partial_load_f32s(x_tail), unit), head);
    s.partial_store_f32s(y_tail, last);
}

/// Gradients of the parameters, summed over some rows.
struct Sums {
    diagonals: Vec<f32>,
    network: NetworkSums,
}

impl Sums {
    fn new(inputs: &Inputs<'_>) -> Self {
        Self {
            diagonals: vec![0.0; inputs.diagonals.len()],
            network: NetworkSums::new([inputs.w1, inputs.b1, inputs.w2, inputs.b2]),
        }
    }

    fn add(&mut self, other: &Self) {
        for (sum, x) in self.diagonals.iter_mut().zip(&other.diagonals) {
            *sum += x;
        }
        self.network.add(&other.network);
    }
}

/// A task: the rows that share one partial sum.
struct Backward<'a, 'b> {
    inputs: Inputs<'a>,
    /// Index of the first row.
    first: usize,
    /// Of the output, `[H, R, C]`.
    grad: &'a [f32],
    /// Receives the gradients of the units of these rows.
    units: &'b mut [f32],
    sums: &'b mut Sums,
}

/// Scratch for one row, in whole lane groups.
struct Row {
    x: Vec<f32>,
    /// Gradient of `x`.
    grad_x: Vec<f32>,
    hidden: Vec<f32>,
    /// Gradient of the hidden unit before its activation.
    grad_hidden: Vec<f32>,
    /// Gradients of the outputs, head after head. Past the last column they are 0.
    grad: Vec<f32>,
}

impl WithSimd for Backward<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, s: S) {
        let (inputs, columns) = (self.inputs, self.inputs.columns());
        let (heads, plane) = (inputs.b2.len(), inputs.rows() * columns);
        let wide = columns.next_multiple_of(LANE_GROUP);
        let zeros = || vec![0.0; wide];
        let mut scratch = Row {
            x: zeros(),
            grad_x: zeros(),
            hidden: zeros(),
            grad_hidden: zeros(),
            grad: vec![0.0; heads * wide],
        };
        for (row, unit_grad) in (self.first..).zip(self.units) {
            let unit = inputs.units[row];
            for (x, diagonal) in scratch.x.iter_mut().zip(inputs.row(row)) {
                *x = diagonal / unit;
            }
            for (head, grad) in scratch.grad.chunks_exact_mut(wide).enumerate() {
                grad[..columns]
                    .copy_from_slice(&self.grad[head * plane + row * columns..][..columns]);
                let grad = S::as_simd_f32s(grad).0;
                self.sums.network.b2[head] += f64::from(sum_over!(s, grad.len(), |i| grad[i]));
            }
            scratch.grad_x.fill(0.0);
            for unit in 0..inputs.w1.len() {
                hidden_unit(s, inputs, unit, &mut scratch, self.sums);
            }
            let [x, grad_x] = [&scratch.x, &scratch.grad_x].map(|x| S::as_simd_f32s(x).0);
            // x = diagonal / unit.
            *unit_grad = -sum_over!(s, x.len(), |i| s.mul(x[i], grad_x[i])) / unit;
            let targets = &mut self.sums.diagonals[inputs.rows() - 1 - row..];
            for (target, grad) in targets[..columns].iter_mut().zip(&scratch.grad_x) {
                *target += grad / unit;
            }
        }
    }
}

/// Adds what one hidden unit contributes to the gradients of a row and of the parameters.
#[inline(always)]
fn hidden_unit<S: Simd>(s: S, inputs: Inputs<'_>, unit: usize, row: &mut Row, sums: &mut Sums) {
    let (heads, wide) = (inputs.b2.len(), row.x.len());
    let w2 = &inputs.w2[unit * heads..][..heads];
    let (w1, b1) = (s.splat(inputs.w1[unit]), s.splat(inputs.b1[unit]));
    let x = S::as_simd_f32s(&row.x).0;
    let grad = S::as_simd_f32s(&row.grad).0;
    let [grad_x, hidden, grad_hidden] =
        [&mut row.grad_x, &mut row.hidden, &mut row.grad_hidden].map(|x| S::as_mut_simd_f32s(x).0);
    let n = x.len();
    for i in 0..n {
        let before = s.fma(x[i], w1, b1);
        hidden[i] = s.where_less(before, s.zero(), s.zero(), before);
        let mut back = s.zero();
        for (head, w2) in w2.iter().enumerate() {
            back = s.fma(grad[head * n + i], s.splat(*w2), back);
        }
        // At 0 the slope is 0.
        let back = s.where_less(s.zero(), before, back, s.zero());
        grad_hidden[i] = back;
        grad_x[i] = s.fma(back, w1, grad_x[i]);
    }
    debug_assert_eq!(n * S::F32_LANES, wide, "whole lane groups");
    let (hidden, grad_hidden) = (&*hidden, &*grad_hidden);
    sums.network.b1[unit] += f64::from(sum_over!(s, n, |i| grad_hidden[i]));
    sums.network.w1[unit] += f64::from(sum_over!(s, n, |i| s.mul(grad_hidden[i], x[i])));
    for head in 0..heads {
        let grad = &grad[head * n..][..n];
        sums.network.w2[unit * heads + head] +=
            f64::from(sum_over!(s, n, |i| s.mul(hidden[i], grad[i])));
    }
}

/// [`crate::diagonal_network`].
pub(super) struct DiagonalNetwork;

impl FusedOp<6> for DiagonalNetwork {
    type Backend = burn::backend::Flex;
    type Saved = [FlexTensor; 6];

    fn forward(&self, inputs: PerInput<6>, _: bool) -> (FlexTensor, Self::Saved) {
        let saved = inputs.map(|input| contiguous(required(input)));
        let inputs = Inputs::new(&saved);
        let shape @ [_, heads, rows, columns] =
            [1, inputs.b2.len(), inputs.rows(), inputs.columns()];
        let (n, lines) = (heads * rows * columns, Lines::new(&inputs));
        let y = fill::<BLOCK>(n, 2 * n, |start, output| {
            dispatch(Stretches {
                inputs,
                lines: &lines,
                start,
                output,
            });
        });
        (tensor(y, shape), saved)
    }

    fn backward(&self, saved: &Self::Saved, grad: FlexTensor, _: [bool; 6]) -> PerInput<6> {
        let inputs = Inputs::new(saved);
        let grad = contiguous(grad);
        let (rows, columns) = (inputs.rows(), inputs.columns());
        let each = rows.div_ceil(SLABS).max(1);
        let mut units = vec![0.0; rows];
        let mut sums: Vec<Sums> = (0..rows.div_ceil(each))
            .map(|_| Sums::new(&inputs))
            .collect();
        let slabs = units.chunks_mut(each).zip(&mut sums).enumerate();
        let tasks = slabs.map(|(slab, (units, sums))| Backward {
            inputs,
            first: slab * each,
            grad: grad.storage(),
            units,
            sums,
        });
        let work = rows * columns * inputs.w1.len() * (inputs.b2.len() + 2) / 4;
        for_each(tasks.collect(), work, dispatch);
        // Added in the order of the slabs, not in the order in which threads finish.
        let mut total = Sums::new(&inputs);
        sums.iter().for_each(|sums| total.add(sums));
        let diagonals = total.diagonals.len();
        let [w1, b1, w2, b2] = total.network.into_tensors([inputs.w1.len()]);
        [
            Some(tensor(total.diagonals, [diagonals])),
            Some(tensor(units, [rows])),
            w1,
            b1,
            w2,
            b2,
        ]
    }
}
