//! Rotation of pairs of dimensions by tables of cos and sin computed on the host.

use crate::ConfigError;
use crate::facts::ModelShape;
use crate::hooks::{FusedQk, Rotation};
use crate::rotary::{Frequencies, RotaryLayout};
use crate::tensors::upload;
use burn::tensor::{Device, Tensor};

/// cos and sin of every position's angles, `[1, 1 or H, positions, r/2]`, times a factor.
#[derive(Clone)]
pub(crate) struct RotaryTables {
    cos: Tensor<4>,
    sin: Tensor<4>,
}

impl RotaryTables {
    /// Rotates pair i by `position * inv_freq[i]`.
    pub(crate) fn new(positions: &[f64], frequencies: &Frequencies, device: &Device) -> Self {
        let angles = positions
            .iter()
            .flat_map(|p| frequencies.inv_freq.iter().map(move |theta| p * theta));
        let shape = [1, 1, positions.len(), frequencies.inv_freq.len()];
        Self::of_angles(angles, frequencies.attention_factor, shape, device)
    }

    /// Any angles, row by row, in radians.
    pub(crate) fn of_angles(
        angles: impl Iterator<Item = f64>,
        factor: f64,
        shape: [usize; 4],
        device: &Device,
    ) -> Self {
        // f64: near position 10^5 neighbouring f32 angles are almost 0.01 radians apart.
        let (sin, cos): (Vec<f64>, Vec<f64>) = angles
            .map(libm::sincos)
            .map(|(s, c)| (s * factor, c * factor))
            .unzip();
        Self {
            cos: upload(cos, shape, device),
            sin: upload(sin, shape, device),
        }
    }

    /// Tables computed elsewhere, `[1, 1 or H, positions, r/2]`.
    pub(crate) fn of_tables(cos: Tensor<4>, sin: Tensor<4>) -> Self {
        Self { cos, sin }
    }

    /// The same tables with a gradient for trained angles: `angles` are their changes, 0 in value.
    ///
    /// Trained angles still come from the host in f64. Cos and sin keep their exact values and get
    /// the first derivative, `cos(a + da) = cos a - da sin a`.
    pub(crate) fn with_gradient(self, angles: Tensor<4>) -> Self {
        Self {
            cos: self.cos.clone() - self.sin.clone() * angles.clone(),
            sin: self.sin + self.cos * angles,
        }
    }

    /// The same angles with cos and sin multiplied by `factor`, of a shape that broadcasts.
    pub(crate) fn scaled(self, factor: Tensor<4>) -> Self {
        Self {
            cos: self.cos * factor.clone(),
            sin: self.sin * factor,
        }
    }

    /// Rotates `x`, `[B, H, positions, E]`; dimensions past the rotated ones pass through.
    pub(crate) fn apply(&self, x: Tensor<4>, layout: RotaryLayout) -> Tensor<4> {
        let [batch, heads, length, head_dim] = x.dims();
        let pairs = self.cos.dims()[3];
        // Partial rotation: dimensions from 2 pairs on stay as they are.
        let rest = (2 * pairs < head_dim).then(|| x.clone().slice_dim(3, 2 * pairs..head_dim));
        let rotated = match layout {
            RotaryLayout::Half => {
                let (a, b) = self.rotate(
                    x.clone().slice_dim(3, 0..pairs),
                    x.slice_dim(3, pairs..2 * pairs),
                );
                Tensor::cat(vec![a, b], 3)
            }
            RotaryLayout::Interleaved => {
                // [B, H, positions, pairs, 2]: the last axis holds the two members of a pair.
                let x = x
                    .slice_dim(3, 0..2 * pairs)
                    .reshape([batch, heads, length, pairs, 2]);
                let [a, b] = [0, 1].map(|side| {
                    x.clone()
                        .slice_dim(4, side..side + 1)
                        .reshape([batch, heads, length, pairs])
                });
                let (a, b) = self.rotate(a, b);
                Tensor::stack::<5>(vec![a, b], 4).reshape([batch, heads, length, 2 * pairs])
            }
        };
        match rest {
            Some(rest) => Tensor::cat(vec![rotated, rest], 3),
            None => rotated,
        }
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

    fn rotate(&self, a: Tensor<4>, b: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        let rotated_a = a.clone() * self.cos.clone() - b.clone() * self.sin.clone();
        let rotated_b = b * self.cos.clone() + a * self.sin.clone();
        (rotated_a, rotated_b)
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
        let hint = "set rotary_dim to an even number, or change d_model or n_heads so that \
                    head_dim is even";
        let problem = format!("needs pairs of dimensions, and head_dim = {dim} is odd");
        return Err(ConfigError::new("rotary_dim", dim, problem, even, hint));
    }
    Ok(dim)
}
