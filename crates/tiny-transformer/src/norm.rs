//! LayerNorm and RMSNorm over the last dimension.

use crate::config::NormKind;
use burn::module::{Module, Param};
use burn::tensor::Tensor;
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
        let shift = (kind == NormKind::LayerNorm)
            .then(|| init.param("shift", [width], Distribution::Constant(0.0)));
        Self {
            scale: init.param("scale", [width], Distribution::Constant(1.0)),
            shift,
        }
    }

    /// The parameters, for operations that begin with a norm.
    pub(crate) fn parameters(&self) -> kernels::Norm {
        kernels::Norm {
            scale: self.scale.val(),
            shift: self.shift.as_ref().map(Param::val),
            eps: EPSILON,
        }
    }

    /// Normalises the vectors of `x`, `[.., width]`.
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        let shape = x.dims();
        let width = shape[D - 1];
        let rows = x.reshape([shape.iter().product::<usize>() / width, width]);
        let rows = match &self.shift {
            Some(shift) => kernels::layer_norm(rows, self.scale.val(), shift.val(), EPSILON),
            None => kernels::rms_norm(rows, self.scale.val(), EPSILON),
        };
        rows.reshape(shape)
    }
}
