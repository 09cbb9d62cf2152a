//! The negative log-likelihood of targets under a softmax over rows: one launch forward, one
//! backward.

use super::rows::{CUBE, Rows, row_max, row_sum};
use super::tensors::{PerInput, Primitive, elements, empty, pair, run, units};
use crate::op::FusedOp;
use burn::tensor::Shape;
use burn_cubecl::cubecl;
use cubecl::prelude::*;

/// A maximum starts here, below any logit. Shading languages have no -inf.
const LOWEST: f32 = -3.0e38;

/// `losses` receives the loss of each row, `stats` its largest logit and the logarithm of the sum
/// of its exponentials relative to that.
#[cube(launch)]
fn nll_kernel(
    logits: &Tensor<f32>,
    targets: &Tensor<i32>,
    losses: &mut Tensor<f32>,
    stats: &mut Tensor<f32>,
    #[comptime] s: Rows,
) {
    let (width, lanes) = comptime![(s.width, s.lanes)];
    let mut scratch = Shared::<[f32]>::new_slice(CUBE);
    let row = ABSOLUTE_POS / lanes;
    let lane = UNIT_POS as usize % lanes;
    let inside = row < losses.len();
    let start = row * width;
    let target = targets[select(inside, row, 0)] as usize;
    let mut most = LOWEST.runtime();
    let mut own = 0.0f32;
    for i in 0..comptime![s.columns()] {
        let column = lane + i * lanes;
        if inside && column < width {
            let x = logits[start + column];
            most = max(most, x);
            if column == target {
                own = x;
            }
        }
    }
    let largest = row_max(&mut scratch, most, s);
    let mut sum = 0.0f32;
    for i in 0..comptime![s.columns()] {
        let column = lane + i * lanes;
        if inside && column < width {
            sum += (logits[start + column] - largest).exp();
        }
    }
    let logarithm = row_sum(&mut scratch, sum, s).ln();
    // All units but one add 0.
    let logit = row_sum(&mut scratch, own, s);
    if inside && lane == 0 {
        losses[row] = logarithm - (logit - largest);
        stats[row * 2] = largest;
        stats[row * 2 + 1] = logarithm;
    }
}

/// The gradient of the logits: the softmax, less 1 at the target, times the gradient of the loss.
#[cube(launch)]
fn nll_grad_kernel(
    logits: &Tensor<f32>,
    targets: &Tensor<i32>,
    stats: &Tensor<f32>,
    grad: &Tensor<f32>,
    logits_grad: &mut Tensor<f32>,
    #[comptime] width: usize,
) {
    let i = ABSOLUTE_POS;
    if i < logits_grad.len() {
        let (row, column) = (i / width, i % width);
        let weight = (logits[i] - stats[row * 2] - stats[row * 2 + 1]).exp();
        let hit = select(column == targets[row] as usize, 1.0f32, 0.0f32);
        logits_grad[i] = (weight - hit) * grad[row];
    }
}

/// The loss of rows of `[N, V]`.
#[derive(Clone)]
pub(super) struct Nll {
    pub(super) rows: usize,
    pub(super) width: usize,
    /// `[N]`, 32-bit integers.
    pub(super) targets: Primitive,
}

/// The logits, and two numbers for each row.
pub(super) struct Saved {
    logits: Primitive,
    stats: Primitive,
}

impl FusedOp<1> for Nll {
    type Backend = burn::backend::Cube;
    type Saved = Saved;

    fn forward(&self, [logits]: PerInput<1>, _: bool) -> (Primitive, Saved) {
        let (n, width) = (self.rows, self.width);
        let logits = logits.expect("logits");
        let inputs = vec![logits.clone(), self.targets.clone()];
        let shapes = vec![Shape::new([n]), Shape::new([n, 2])];
        let outputs = run(inputs, shapes, move |inputs| {
            let [logits, targets] = pair(inputs);
            let rows = Rows::new(width);
            let (losses, stats) = (empty(&logits, [n]), empty(&logits, [n, 2]));
            nll_kernel::launch(
                &logits.client,
                units(&logits, n * rows.lanes, CUBE),
                CubeDim::new_1d(CUBE as u32),
                logits.clone().into_tensor_arg(),
                targets.into_tensor_arg(),
                losses.clone().into_tensor_arg(),
                stats.clone().into_tensor_arg(),
                rows,
            );
            vec![losses, stats]
        });
        let [losses, stats] = outputs.try_into().expect("two outputs");
        (losses, Saved { logits, stats })
    }

    fn backward(&self, saved: &Saved, grad: Primitive, _: [bool; 1]) -> PerInput<1> {
        let (n, width) = (self.rows, self.width);
        let inputs = vec![
            saved.logits.clone(),
            self.targets.clone(),
            saved.stats.clone(),
            grad,
        ];
        let shapes = vec![Shape::new([n, width])];
        let outputs = run(inputs, shapes, move |mut inputs| {
            let [stats, grad] = pair(inputs.split_off(2));
            let [logits, targets] = pair(inputs);
            let (cubes, dim) = elements(&logits, n * width);
            let output = empty(&logits, [n, width]);
            nll_grad_kernel::launch(
                &logits.client.clone(),
                cubes,
                dim,
                logits.into_tensor_arg(),
                targets.into_tensor_arg(),
                stats.into_tensor_arg(),
                grad.into_tensor_arg(),
                output.clone().into_tensor_arg(),
                width,
            );
            vec![output]
        });
        [outputs.into_iter().next()]
    }
}
