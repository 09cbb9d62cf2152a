//! Turning pairs of dimensions by tables of cos and sin made on the host: what every rotary
//! encoding shares.

use crate::catalogue::ModelShape;
use crate::encodings::upload;
use crate::error::ConfigError;
use crate::frequencies::Frequencies;
use crate::hooks::{Plain, Rotation};
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};

/// Which two dimensions of a head form pair i. Equal up to a permutation of the head; never to be
/// mixed in one model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RotaryLayout {
    /// `(2i, 2i + 1)`: the paper, GPT-J.
    Interleaved,
    /// `(i, i + r/2)`: NeoX, Llama, Qwen.
    #[default]
    Half,
}

/// cos and sin of every position's angles, `[1, 1 or H, positions, r/2]`, times a factor.
#[derive(Clone)]
pub(crate) struct Turn {
    cos: Tensor<4>,
    sin: Tensor<4>,
}

impl Turn {
    /// Pair i turns by `position * inv_freq[i]`.
    pub fn new(positions: &[f64], frequencies: &Frequencies, device: &Device) -> Self {
        let angles = positions
            .iter()
            .flat_map(|p| frequencies.inv_freq.iter().map(move |theta| p * theta));
        let shape = [1, 1, positions.len(), frequencies.inv_freq.len()];
        Self::of_angles(angles, frequencies.attention_factor, shape, device)
    }

    /// Any angles, row by row, in radians.
    pub fn of_angles(
        angles: impl Iterator<Item = f64>,
        factor: f64,
        shape: [usize; 4],
        device: &Device,
    ) -> Self {
        let (sin, cos): (Vec<f64>, Vec<f64>) = angles
            .map(libm::sincos)
            .map(|(s, c)| (s * factor, c * factor))
            .unzip();
        Self {
            cos: upload(cos, shape, device),
            sin: upload(sin, shape, device),
        }
    }

    /// The same tables with the gradient of angles that have moved by `moved`, which is 0 in value.
    ///
    /// Angles that are trained still come from the host in f64: cos and sin keep their exact values
    /// and carry the first derivative, `cos(a + da) = cos a - da sin a`.
    pub fn following(self, moved: Tensor<4>) -> Self {
        Self {
            cos: self.cos.clone() - self.sin.clone() * moved.clone(),
            sin: self.sin + self.cos * moved,
        }
    }

    /// The same angles with cos and sin multiplied by `factor`, of a shape that broadcasts.
    pub fn scaled(self, factor: Tensor<4>) -> Self {
        Self {
            cos: self.cos * factor.clone(),
            sin: self.sin * factor,
        }
    }

    /// Turns `x`, `[B, H, positions, E]`; dimensions past the rotated ones pass through.
    pub fn apply(&self, x: Tensor<4>, layout: RotaryLayout) -> Tensor<4> {
        let [batch, heads, length, head_dim] = x.dims();
        let pairs = self.cos.dims()[3];
        let rest = (2 * pairs < head_dim).then(|| x.clone().slice_dim(3, 2 * pairs..head_dim));
        let turned = match layout {
            RotaryLayout::Half => {
                let (a, b) = self.turn(
                    x.clone().slice_dim(3, 0..pairs),
                    x.slice_dim(3, pairs..2 * pairs),
                );
                Tensor::cat(vec![a, b], 3)
            }
            RotaryLayout::Interleaved => {
                let x = x
                    .slice_dim(3, 0..2 * pairs)
                    .reshape([batch, heads, length, pairs, 2]);
                let [a, b] = [0, 1].map(|side| {
                    x.clone()
                        .slice_dim(4, side..side + 1)
                        .reshape([batch, heads, length, pairs])
                });
                let (a, b) = self.turn(a, b);
                Tensor::stack::<5>(vec![a, b], 4).reshape([batch, heads, length, 2 * pairs])
            }
        };
        match rest {
            Some(rest) => Tensor::cat(vec![turned, rest], 3),
            None => turned,
        }
    }

    /// The tables, if they are the same for all heads.
    fn tables(&self) -> Option<[Tensor<4>; 2]> {
        (self.cos.dims()[1] == 1).then(|| [self.cos.clone(), self.sin.clone()])
    }

    /// These two turns and nothing else, as attention may do them itself.
    pub fn plain(queries: &Self, keys: &Self, layout: RotaryLayout) -> Option<Plain> {
        let interleaved = layout == RotaryLayout::Interleaved;
        let rotation = Rotation {
            queries: queries.tables()?,
            keys: keys.tables()?,
            interleaved,
        };
        Some(Plain {
            rotation: Some(rotation),
            ..Plain::default()
        })
    }

    fn turn(&self, a: Tensor<4>, b: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        let turned_a = a.clone() * self.cos.clone() - b.clone() * self.sin.clone();
        let turned_b = b * self.cos.clone() + a * self.sin.clone();
        (turned_a, turned_b)
    }
}

/// A trained tensor's distance from its own value: 0, with the tensor's gradient.
pub(crate) fn moved<const D: usize>(value: Tensor<D>) -> Tensor<D> {
    value.clone() - value.detach()
}

/// A parameter's values on the host, in f64.
pub(crate) fn to_host<const D: usize>(value: Tensor<D>) -> Vec<f64> {
    value
        .into_data()
        .convert::<f64>()
        .try_to_vec()
        .expect("data was just converted to f64")
}

/// The number of dimensions of a head that turn, if pairs can be made of them.
pub(crate) fn rotated(rotary_dim: Option<usize>, shape: &ModelShape) -> Result<usize, ConfigError> {
    let dim = rotary_dim.unwrap_or(shape.head_dim);
    let even = format!("an even number from 2 to head_dim = {}", shape.head_dim);
    if rotary_dim.is_some() && (dim % 2 == 1 || dim == 0 || dim > shape.head_dim) {
        let (problem, hint) = (
            "pairs of dimensions inside one head must turn",
            "leave it out to turn the whole head",
        );
        return Err(ConfigError::new("rotary_dim", dim, problem, even, hint));
    }
    if dim % 2 == 1 {
        let hint = "set rotary_dim to an even number, or change d_model or n_heads so that \
                    head_dim is even";
        let problem = format!("head_dim = {dim} is odd and pairs of dimensions must turn");
        return Err(ConfigError::new("rotary_dim", dim, problem, even, hint));
    }
    Ok(dim)
}

/// A parameter held inside `low..=high` whose gradient passes as if it were not, so that it can
/// come back.
pub(crate) fn clamped<const D: usize>(value: Tensor<D>, low: f64, high: f64) -> Tensor<D> {
    let inside = value.clone().detach().clamp(low, high);
    moved(value) + inside
}
