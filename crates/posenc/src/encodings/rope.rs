//! Formula: pair i of q and k at position p turns by the angle `p theta_i`, `theta_i = base^(-2i/r)`; scalings change theta_i.
//! Source: Su et al. 2021, RoFormer (arXiv 2104.09864), eq. 15 and 34; layouts of GPT-J (interleaved) and NeoX, Llama (half).
//! Deviations: none; `rotary_dim` r turns the first r dimensions of a head only (GPT-J, NeoX), frequencies use r.
//! Parameters: none.
//! Limits: none by construction; `dynamic_ntk` reads the length of the sequence. Scalings and their sources: `frequencies.rs`.

use super::upload;
use crate::catalogue::{About, Facts, Hooks, Lengths, ModelShape, Spec};
use crate::error::in_range;
use crate::frequencies::{Frequencies, RopeScaling};
use crate::{ConfigError, Init, PositionalEncoding, Positions, Prepared};
use burn::module::Module;
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};

/// Which two dimensions of a head form pair i. Equal up to a permutation of the head; never to be mixed in one model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RotaryLayout {
    /// `(2i, 2i + 1)`: the paper, GPT-J.
    Interleaved,
    /// `(i, i + r/2)`: NeoX, Llama, Qwen.
    #[default]
    Half,
}

/// Configuration of [`Rope`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RopeConfig {
    /// theta_base; `rope_theta` at Hugging Face.
    pub base: f64,
    /// Which dimensions form a pair.
    pub layout: RotaryLayout,
    /// Dimensions of each head that turn; the whole head unless given.
    pub rotary_dim: Option<usize>,
    /// Rescaling of the frequencies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scaling: Option<RopeScaling>,
}

impl Default for RopeConfig {
    fn default() -> Self {
        Self { base: 10_000.0, layout: RotaryLayout::Half, rotary_dim: None, scaling: None }
    }
}

impl RopeConfig {
    /// Frequencies and attention factor for a sequence of `length` tokens in heads of `head_dim`.
    pub fn frequencies(&self, head_dim: usize, length: f64) -> Frequencies {
        Frequencies::new(self.rotary_dim.unwrap_or(head_dim), self.base, self.scaling.as_ref(), length)
    }
}

/// Rotation of queries and keys by their position.
#[derive(Module, Debug)]
pub struct Rope {
    head_dim: usize,
    #[module(skip)]
    config: RopeConfig,
}

/// cos and sin of every position's angles, `[1, 1, positions, r/2]`, times the attention factor.
struct Turn {
    cos: Tensor<4>,
    sin: Tensor<4>,
}

struct PreparedRope {
    layout: RotaryLayout,
    queries: Turn,
    keys: Turn,
}

impl Turn {
    fn new(positions: &[f64], frequencies: &Frequencies, device: &Device) -> Self {
        let (mut cos, mut sin) = (Vec::new(), Vec::new());
        for position in positions {
            for theta in &frequencies.inv_freq {
                let (s, c) = libm::sincos(position * theta);
                cos.push(c * frequencies.attention_factor);
                sin.push(s * frequencies.attention_factor);
            }
        }
        let shape = [1, 1, positions.len(), frequencies.inv_freq.len()];
        Self { cos: upload(cos, shape, device), sin: upload(sin, shape, device) }
    }

    /// Turns `x`, `[B, H, positions, E]`; dimensions past the rotated ones pass through.
    fn apply(&self, x: Tensor<4>, layout: RotaryLayout) -> Tensor<4> {
        let [batch, heads, length, head_dim] = x.dims();
        let pairs = self.cos.dims()[3];
        let rest = (2 * pairs < head_dim).then(|| x.clone().slice_dim(3, 2 * pairs..head_dim));
        let turned = match layout {
            RotaryLayout::Half => {
                let (a, b) = self.turn(x.clone().slice_dim(3, 0..pairs), x.slice_dim(3, pairs..2 * pairs));
                Tensor::cat(vec![a, b], 3)
            }
            RotaryLayout::Interleaved => {
                let x = x.slice_dim(3, 0..2 * pairs).reshape([batch, heads, length, pairs, 2]);
                let [a, b] = [0, 1].map(|side| x.clone().slice_dim(4, side..side + 1).reshape([batch, heads, length, pairs]));
                let (a, b) = self.turn(a, b);
                Tensor::stack::<5>(vec![a, b], 4).reshape([batch, heads, length, 2 * pairs])
            }
        };
        match rest {
            Some(rest) => Tensor::cat(vec![turned, rest], 3),
            None => turned,
        }
    }

    fn turn(&self, a: Tensor<4>, b: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        let turned_a = a.clone() * self.cos.clone() - b.clone() * self.sin.clone();
        let turned_b = b * self.cos.clone() + a * self.sin.clone();
        (turned_a, turned_b)
    }
}

impl PositionalEncoding for Rope {
    fn prepare<'a>(&'a self, positions: &Positions, device: &Device) -> Box<dyn Prepared + 'a> {
        let frequencies = self.config.frequencies(self.head_dim, positions.length());
        Box::new(PreparedRope {
            layout: self.config.layout,
            queries: Turn::new(positions.queries(), &frequencies, device),
            keys: Turn::new(positions.keys(), &frequencies, device),
        })
    }
}

impl Prepared for PreparedRope {
    fn transform_qk(&self, _layer: usize, q: Tensor<4>, k: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        (self.queries.apply(q, self.layout), self.keys.apply(k, self.layout))
    }
}

impl Spec for RopeConfig {
    type Module = Rope;
    const ABOUT: About = About {
        summary: "rotation of queries and keys by their position",
        formula: "pair i turns by p theta_i, theta_i = base^(-2i/r)",
        source: "Su et al. 2021, arXiv 2104.09864",
    };

    fn check(&self, shape: &ModelShape) -> Result<(), ConfigError> {
        in_range("base", self.base, 1.0 + 1e-9, 1e15, "the paper uses 10000")?;
        let dim = self.rotary_dim.unwrap_or(shape.head_dim);
        let even = format!("an even number from 2 to head_dim = {}", shape.head_dim);
        if self.rotary_dim.is_some() && (dim % 2 == 1 || dim == 0 || dim > shape.head_dim) {
            return Err(ConfigError::new(
                "rotary_dim",
                dim,
                "pairs of dimensions inside one head must turn",
                even,
                "leave it out to turn the whole head",
            ));
        }
        if dim % 2 == 1 {
            let hint = "set rotary_dim to an even number, or change d_model or n_heads so that head_dim is even";
            return Err(ConfigError::new(
                "rotary_dim",
                dim,
                format!("head_dim = {dim} is odd and pairs of dimensions must turn"),
                even,
                hint,
            ));
        }
        self.scaling.as_ref().map_or(Ok(()), |scaling| scaling.check(dim).map_err(|error| error.within("scaling")))
    }

    fn resolve(&mut self, lengths: &Lengths) {
        if let Some(scaling) = &mut self.scaling {
            scaling.resolve(lengths);
        }
    }

    fn facts(&self, _shape: &ModelShape) -> Facts {
        let hooks = Hooks { transform_qk: true, ..Hooks::default() };
        let reads_length = self.scaling.as_ref().is_some_and(RopeScaling::reads_length);
        Facts { hooks, parameters: vec![], max_position: None, reads_length, relative: true }
    }

    fn init(&self, shape: &ModelShape, _init: &Init<'_>) -> Rope {
        Rope { head_dim: shape.head_dim, config: self.clone() }
    }
}
