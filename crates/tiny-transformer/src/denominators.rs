//! The denominators of linear attention: kept away from 0, and counted where that matters.

use burn::tensor::{Bool, Tensor};
use std::cell::Cell;

/// The least magnitude of a denominator, which rotated features may bring to 0.
const LEAST: f64 = 1e-6;

/// Counts the denominators of linear attention, and those that were negative or almost 0, over all
/// passes that refer to it in [`Pass::denominators`](crate::Pass::denominators).
///
/// There is one denominator for each query, head and layer.
#[derive(Debug, Default)]
pub struct Denominators {
    count: Cell<u64>,
    negative: Cell<u64>,
    clamped: Cell<u64>,
}

impl Denominators {
    /// Denominators in all.
    pub fn count(&self) -> u64 {
        self.count.get()
    }

    /// Those below 0: keys that are most similar to the query got negative weights.
    pub fn negative(&self) -> u64 {
        self.negative.get()
    }

    /// Those of a magnitude below 1e-6, which were replaced by 1e-6 with their sign: the weights do
    /// not sum to 1.
    pub fn clamped(&self) -> u64 {
        self.clamped.get()
    }

    fn add(&self, magnitude: &Tensor<4>, sign: &Tensor<4>) {
        let add = |to: &Cell<u64>, more: u64| to.set(to.get() + more);
        add(
            &self.count,
            magnitude.dims().iter().product::<usize>() as u64,
        );
        add(&self.negative, true_in(sign.clone().lower_elem(0.0)));
        add(&self.clamped, true_in(magnitude.clone().lower_elem(LEAST)));
    }
}

/// Number of true elements.
fn true_in(mask: Tensor<4, Bool>) -> u64 {
    let sum = mask.int().sum().into_data().convert::<i64>();
    let sum = sum.try_to_vec::<i64>();
    sum.expect("data was just converted to i64")
        .into_iter()
        .fold(0, |all, sum| all + sum.unsigned_abs())
}

/// Denominators, `[B, H, L, 1]`, with their magnitude clamped and their sign kept.
pub(crate) fn kept_from_zero(denominator: Tensor<4>, counts: Option<&Denominators>) -> Tensor<4> {
    let sign = denominator.clone().detach().greater_equal_elem(0.0).float() * 2.0 - 1.0;
    let magnitude = denominator * sign.clone();
    if let Some(counts) = counts {
        counts.add(&magnitude, &sign);
    }
    magnitude.clamp_min(LEAST) * sign
}
