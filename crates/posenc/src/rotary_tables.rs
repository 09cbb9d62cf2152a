//! Rotation of pairs of dimensions by tables of cos and sin.

use crate::ConfigError;
use crate::facts::ModelShape;
use crate::hooks::{Context, FusedQk};
use crate::ops::{Ops, Rotation};
use crate::rotary::{Frequencies, RotaryLayout};
use crate::tensors::upload;
use burn::tensor::Tensor;

/// The angles `position * inv_freq[i]`, in radians, position by position.
pub(crate) fn angles(positions: &[f64], inv_freq: &[f64]) -> impl Iterator<Item = f64> {
    let of = |p| inv_freq.iter().map(move |theta| p * theta);
    positions.iter().flat_map(of)
}

/// cos and sin of every position's angles, `[1 or B, 1 or H, positions, r/2]`, times a factor.
#[derive(Clone)]
pub(crate) struct RotaryTables {
    cos: Tensor<4>,
    sin: Tensor<4>,
    ops: &'static dyn Ops,
}

impl RotaryTables {
    /// Rotates pair i by `position * inv_freq[i]`.
    pub(crate) fn new(positions: &[f64], frequencies: &Frequencies, context: &Context) -> Self {
        let shape = [1, 1, positions.len(), frequencies.inv_freq.len()];
        let angles = angles(positions, &frequencies.inv_freq);
        Self::of_angles(angles, frequencies.attention_factor, shape, context)
    }

    /// Any angles, row by row, in radians.
    pub(crate) fn of_angles(
        angles: impl Iterator<Item = f64>,
        factor: f64,
        shape: [usize; 4],
        context: &Context,
    ) -> Self {
        // f64: near position 10^5 neighbouring f32 angles are almost 0.01 radians apart.
        let (sin, cos): (Vec<f64>, Vec<f64>) = angles
            .map(libm::sincos)
            .map(|(s, c)| (s * factor, c * factor))
            .unzip();
        let [cos, sin] = [cos, sin].map(|table| upload(table, shape, &context.device));
        Self::of_tables(cos, sin, context.ops)
    }

    /// Tables computed elsewhere, `[1 or B, 1 or H, positions, r/2]`.
    pub(crate) fn of_tables(cos: Tensor<4>, sin: Tensor<4>, ops: &'static dyn Ops) -> Self {
        Self { cos, sin, ops }
    }

    /// The same tables with a gradient for trained angles: `angles` are their changes, 0 in value.
    ///
    /// Trained angles still come from the host in f64. Cos and sin keep their exact values and get
    /// the first derivative, `cos(a + da) = cos a - da sin a`.
    pub(crate) fn with_gradient(self, angles: Tensor<4>) -> Self {
        Self {
            cos: self.cos.clone() - self.sin.clone() * angles.clone(),
            sin: self.sin + self.cos * angles,
            ..self
        }
    }

    /// The same angles with cos and sin multiplied by `factor`, of a shape that broadcasts.
    pub(crate) fn scaled(self, factor: Tensor<4>) -> Self {
        Self {
            cos: self.cos * factor.clone(),
            sin: self.sin * factor,
            ..self
        }
    }

    /// Rotates `x`, `[B, H, positions, E]`; dimensions past the rotated ones pass through.
    pub(crate) fn apply(&self, x: Tensor<4>, layout: RotaryLayout) -> Tensor<4> {
        let tables = [self.cos.clone(), self.sin.clone()];
        self.ops
            .rotate(x, tables, layout == RotaryLayout::Interleaved)
    }

    /// Cos and sin, if they are the same for all heads.
    fn shared_by_heads(&self) -> Option<[Tensor<4>; 2]> {
        (self.cos.dims()[1] == 1).then(|| [self.cos.clone(), self.sin.clone()])
    }

    /// This rotation of queries and keys in the form that attention can fuse; `None` if heads
    /// differ.
    pub(crate) fn fused_qk(queries: &Self, keys: &Self, layout: RotaryLayout) -> Option<FusedQk> {
        let (queries, keys) = (queries.shared_by_heads()?, keys.shared_by_heads()?);
        let rotation = Rotation::new(queries, keys, layout == RotaryLayout::Interleaved);
        Some(FusedQk::new(Some(rotation), 1.0))
    }
}

/// The number of rotated dimensions of a head; refuses numbers that do not form pairs.
pub(crate) fn check_rotary_dim(
    rotary_dim: Option<usize>,
    shape: &ModelShape,
) -> Result<usize, ConfigError> {
    let dim = rotary_dim.unwrap_or(shape.head_dim);
    let even = format!("an even number from 2 to head_dim = {}", shape.head_dim);
    if rotary_dim.is_some() && (dim % 2 == 1 || dim == 0 || dim > shape.head_dim) {
        let (problem, hint) = (
            "must form pairs of dimensions inside one head",
            "leave it out to rotate the whole head",
        );
        return Err(ConfigError::new("rotary_dim", dim, problem, even, hint));
    }
    if dim % 2 == 1 {
        let hint = "set rotary_dim to an even number, or make head_dim even: it is d_model / \
                    n_heads where it is not given";
        let problem = format!("needs pairs of dimensions, and head_dim = {dim} is odd");
        return Err(ConfigError::new("rotary_dim", dim, problem, even, hint));
    }
    Ok(dim)
}
