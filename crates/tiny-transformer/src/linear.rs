//! Linear layers of blocks: a matrix product, plus a bias where the configuration asks for it.

use crate::TransformerConfig;
use burn::module::Param;
use burn::tensor::Tensor;
use kernels::Matmul;
use posenc::{Distribution, Init};

/// A bias of this width that starts at 0; `None` where layers have none.
pub(crate) fn bias(
    config: &TransformerConfig,
    name: &str,
    width: usize,
    init: &Init<'_>,
) -> Option<Param<Tensor<1>>> {
    let zero = || init.param(name, [width], Distribution::Constant(0.0));
    config.biases.then(zero)
}

/// A layer of a fused operation.
pub(crate) fn affine(w: &Param<Tensor<2>>, bias: Option<&Param<Tensor<1>>>) -> kernels::Linear {
    kernels::Linear {
        w: w.val(),
        bias: bias.map(Param::val),
    }
}

/// `x w + bias`, `[N, M]`, of `x`, `[N, K]`, and `w`, `[K, M]`. With the parameters of several
/// models each takes its part of the rows: see the groups of [`kernels`].
pub(crate) fn linear(
    x: Tensor<2>,
    w: &Param<Tensor<2>>,
    bias: Option<&Param<Tensor<1>>>,
    matmul: Matmul,
) -> Tensor<2> {
    let y = kernels::linear(x, None, w.val(), matmul);
    let Some(bias) = bias else {
        return y;
    };
    let ([rows, width], bias) = (y.dims(), bias.val());
    let groups = bias.dims()[0] / width;
    let y = y.reshape([groups, rows / groups, width]);
    (y + bias.reshape([groups, 1, width])).reshape([rows, width])
}
