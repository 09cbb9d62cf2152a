//! What an update by AdamW takes.

use burn::tensor::Tensor;

/// The scalars of one AdamW update.
///
/// With these, the update is `theta keep - rate m / (sqrt(v) / root + eps)`.
#[derive(Clone, Copy, Debug)]
pub struct AdamWStep {
    /// Factor of the gradient, applied first.
    pub grad_scale: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Divisor of the second moment's root: its bias correction.
    pub root: f64,
    /// Added to that quotient.
    pub eps: f64,
    /// Learning rate, divided by the first moment's bias correction.
    pub rate: f64,
    /// Factor of the parameter: 1 minus learning rate times weight decay.
    pub keep: f64,
}

impl AdamWStep {
    /// The scalars as the kernels take them: `grad_scale`, `beta1`, `beta2`, `1 - beta1`,
    /// `1 - beta2`, `root`, `eps`, `rate`, `keep`.
    #[cfg(any(feature = "flex", feature = "cube"))]
    pub(crate) fn scalars(&self) -> [f32; 9] {
        let Self {
            grad_scale,
            beta1,
            beta2,
            root,
            eps,
            rate,
            keep,
        } = *self;
        // 1 - beta in f64, rounded once, as in the definition.
        [
            grad_scale,
            beta1,
            beta2,
            1.0 - beta1,
            1.0 - beta2,
            root,
            eps,
            rate,
            keep,
        ]
        .map(|x| x as f32)
    }
}

/// A parameter to update; see [`adamw`](crate::adamw).
#[derive(Clone, Debug)]
pub struct AdamWUpdate {
    /// Its values, `[N]`.
    pub theta: Tensor<1>,
    /// Its gradient, `[N]`.
    pub grad: Tensor<1>,
    /// Its moments, `[N]`.
    pub moments: Option<[Tensor<1>; 2]>,
    /// One for each part.
    pub steps: Vec<AdamWStep>,
}
