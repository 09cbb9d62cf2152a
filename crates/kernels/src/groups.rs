//! Models side by side: parts of inputs and parameters that belong to one model.

use crate::cube;
use crate::{AttentionWeights, Bias, CellNetwork, Linear, Matmul, MlpWeights, Norm, Rotation};
use burn::tensor::Tensor;

impl AttentionWeights {
    /// H E.
    pub(crate) fn inner(&self) -> usize {
        self.qkv.w.dims()[1] / 3
    }
}

/// Whether a tensor with this first dimension is one for all sequences of a batch, or one for each
/// of as many equal parts.
pub(crate) fn is_per_group(count: usize, batch: usize) -> bool {
    count > 0 && batch.is_multiple_of(count)
}

/// `[G N, W]` as `[G, N, W]`.
pub(crate) fn grouped(x: Tensor<2>, groups: usize) -> Tensor<3> {
    let [rows, width] = x.dims();
    x.reshape([groups, rows / groups, width])
}

/// `x w`, `[N, M]`, of `x`, `[N, K]`, and `w`, `[K, M]`; with groups of each group.
pub(crate) fn product(x: Tensor<2>, w: Tensor<2>, matmul: Matmul) -> Tensor<2> {
    let ([n, k], [rows, m]) = (x.dims(), w.dims());
    if rows == k {
        return multiplied(x, w, matmul);
    }
    let w: Tensor<3> = grouped(w, rows / k);
    multiplied(grouped(x, rows / k), w, matmul).reshape([n, m])
}

/// `x w + bias` of a layer; with groups of each group.
pub(crate) fn affine(x: Tensor<2>, layer: Linear, matmul: Matmul) -> Tensor<2> {
    let y = product(x, layer.w, matmul);
    let Some(bias) = layer.bias else {
        return y;
    };
    let ([n, m], [count]) = (y.dims(), bias.dims());
    let groups = count / m;
    (grouped(y, groups) + bias.reshape([groups, 1, m])).reshape([n, m])
}

/// `a b`. Only CubeCL rounds factors as `matmul` says; elsewhere they are what the backend takes.
pub(crate) fn multiplied<const D: usize>(a: Tensor<D>, b: Tensor<D>, matmul: Matmul) -> Tensor<D> {
    cube::matmul(&a, &b, matmul).unwrap_or_else(|| a.matmul(b))
}

/// A bias `[G, H, Q, K]` as `[1 or B, H, Q, K]`, which can be added to the logits of a batch.
pub(crate) fn spread(bias: Tensor<4>, batch: usize) -> Tensor<4> {
    let [groups, heads, queries, keys] = bias.dims();
    if groups == 1 || groups == batch {
        return bias;
    }
    let each = batch / groups;
    let bias: Tensor<5> = bias.unsqueeze_dim(1);
    bias.expand([groups, each, heads, queries, keys])
        .reshape([batch, heads, queries, keys])
}

/// What can be cut into the parts of groups.
pub(crate) trait Parts {
    /// Part `g` of `groups`.
    fn part(&self, g: usize, groups: usize) -> Self;
}

impl<const D: usize> Parts for Tensor<D> {
    fn part(&self, g: usize, groups: usize) -> Self {
        let size = self.dims()[0] / groups;
        self.clone().slice_dim(0, g * size..(g + 1) * size)
    }
}

impl<T: Parts> Parts for Option<T> {
    fn part(&self, g: usize, groups: usize) -> Self {
        self.as_ref().map(|x| x.part(g, groups))
    }
}

impl Parts for Norm {
    fn part(&self, g: usize, groups: usize) -> Self {
        Self {
            scale: self.scale.part(g, groups),
            shift: self.shift.part(g, groups),
            eps: self.eps,
        }
    }
}

impl Parts for Linear {
    fn part(&self, g: usize, groups: usize) -> Self {
        Self {
            w: self.w.part(g, groups),
            bias: self.bias.part(g, groups),
        }
    }
}

impl Parts for MlpWeights {
    fn part(&self, g: usize, groups: usize) -> Self {
        Self {
            up: self.up.part(g, groups),
            gate: self.gate.part(g, groups),
            down: self.down.part(g, groups),
            matmul: self.matmul,
        }
    }
}

impl Parts for AttentionWeights {
    fn part(&self, g: usize, groups: usize) -> Self {
        Self {
            qkv: self.qkv.part(g, groups),
            output: self.output.part(g, groups),
            heads: self.heads,
            matmul: self.matmul,
        }
    }
}

impl Parts for CellNetwork {
    fn part(&self, g: usize, groups: usize) -> Self {
        Self {
            w1: self.w1.part(g, groups),
            b1: self.b1.part(g, groups),
            slope: self.slope,
            w2: self.w2.part(g, groups),
            b2: self.b2.part(g, groups),
        }
    }
}

/// Part `g` of a table or bias, or the whole where all groups share it.
fn part_or_shared<const D: usize>(x: &Tensor<D>, g: usize, groups: usize) -> Tensor<D> {
    if x.dims()[0] == 1 {
        x.clone()
    } else {
        x.part(g, groups)
    }
}

impl Parts for Rotation {
    fn part(&self, g: usize, groups: usize) -> Self {
        let part = |x: &Tensor<4>| part_or_shared(x, g, groups);
        Self {
            queries: self.queries.each_ref().map(part),
            keys: self.keys.each_ref().map(part),
            interleaved: self.interleaved,
        }
    }
}

impl Parts for Bias {
    fn part(&self, g: usize, groups: usize) -> Self {
        match self {
            Self::Dense(bias) => Self::Dense(part_or_shared(bias, g, groups)),
            Self::ByDistance(bias) => Self::ByDistance(part_or_shared(bias, g, groups)),
            Self::Decays(sums) => Self::Decays(sums.part(g, groups)),
            Self::Network(network) => Self::Network(network.clone()),
        }
    }
}

/// The results of all groups, one after the other.
pub(crate) fn each<const D: usize>(groups: usize, f: impl FnMut(usize) -> Tensor<D>) -> Tensor<D> {
    Tensor::cat((0..groups).map(f).collect(), 0)
}
