//! LayerNorm and RMSNorm over the last dimension.

use crate::config::NormKind;
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::module::layer_norm;
use posenc::{Distribution, Init};

/// Added to the variance or mean square, as in PyTorch's `LayerNorm`.
const EPSILON: f64 = 1e-5;

/// A normalisation with a scale, and a shift where it is a LayerNorm.
#[derive(Module, Debug)]
pub struct Norm {
    scale: Param<Tensor<1>>,
    shift: Option<Param<Tensor<1>>>,
}

impl Norm {
    /// Scale 1 and shift 0.
    pub(crate) fn new(kind: NormKind, width: usize, init: &Init<'_>) -> Self {
        let shift = (kind == NormKind::LayerNorm).then(|| init.param("shift", [width], Distribution::Constant(0.0)));
        Self { scale: init.param("scale", [width], Distribution::Constant(1.0)), shift }
    }

    /// Normalises the rows of `x`.
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        match &self.shift {
            Some(shift) => layer_norm(x, self.scale.val(), Some(shift.val()), EPSILON),
            None => {
                let mean_square = x.clone().square().mean_dim(D - 1);
                x / (mean_square + EPSILON).sqrt() * self.scale.val().unsqueeze()
            }
        }
    }
}
