//! Formula: pair i of q and k at position p turns by the angle `p theta_i`, `theta_i =
//! base^(-2i/r)`; scalings change theta_i; `learnable` trains alpha in `theta_i exp(alpha_i)`, from
//! alpha = 0. Source: Su et al. 2021, RoFormer (arXiv 2104.09864), eq. 15 and 34; layouts of GPT-J
//! (interleaved) and NeoX, Llama (half). Deviations: none; `rotary_dim` r turns the first r
//! dimensions of a head only (GPT-J, NeoX), frequencies use r. Parameters: none; `log_frequency`,
//! alpha, `[r/2]`, shared by layers and heads, where `learnable`. Limits: none by construction;
//! `dynamic_ntk` reads the length of the sequence. Scalings and their sources: `frequencies.rs`.

use super::{is_default, upload};
use crate::catalogue::{About, Facts, Hooks, Lengths, ModelShape, Spec};
use crate::error::in_range;
use crate::frequencies::{Frequencies, RopeScaling, inv_freq};
use crate::rotation::{RotaryLayout, Turn, moved, rotated, to_host};
use crate::{ConfigError, Distribution, Init, Plain, PositionalEncoding, Positions, Prepared};
use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};

/// How the frequencies of the pairs fall off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FrequencySpacing {
    /// `base^(-2i/r)`: the paper.
    #[default]
    Geometric,
    /// `1/(1 + 2i)`: folklore, without a claim of merit; `base` has no effect.
    Linear,
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
    /// How the frequencies fall off.
    #[serde(skip_serializing_if = "is_default")]
    pub spacing: FrequencySpacing,
    /// Whether the frequencies are trained.
    #[serde(skip_serializing_if = "is_default")]
    pub learnable: bool,
    /// Rescaling of the frequencies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scaling: Option<RopeScaling>,
}

impl Default for RopeConfig {
    fn default() -> Self {
        let (spacing, learnable) = (FrequencySpacing::Geometric, false);
        Self {
            base: 10_000.0,
            layout: RotaryLayout::Half,
            rotary_dim: None,
            spacing,
            learnable,
            scaling: None,
        }
    }
}

impl RopeConfig {
    /// Frequencies and attention factor for a sequence of `length` tokens in heads of `head_dim`.
    pub fn frequencies(&self, head_dim: usize, length: f64) -> Frequencies {
        let dim = self.rotary_dim.unwrap_or(head_dim);
        let plain = match self.spacing {
            FrequencySpacing::Geometric => inv_freq(dim, self.base),
            FrequencySpacing::Linear => (0..dim.div_ceil(2))
                .map(|i| 1.0 / (1.0 + 2.0 * i as f64))
                .collect(),
        };
        Frequencies::new(plain, dim, self.base, self.scaling.as_ref(), length)
    }
}

/// Rotation of queries and keys by their position.
#[derive(Module, Debug)]
pub struct Rope {
    log_frequency: Option<Param<Tensor<1>>>,
    head_dim: usize,
    #[module(skip)]
    config: RopeConfig,
}

struct PreparedRope {
    layout: RotaryLayout,
    queries: Turn,
    keys: Turn,
}

impl PositionalEncoding for Rope {
    fn prepare<'a>(&'a self, positions: &Positions, device: &Device) -> Box<dyn Prepared + 'a> {
        let mut frequencies = self.config.frequencies(self.head_dim, positions.length());
        let alpha = self.log_frequency.as_ref().map(Param::val);
        if let Some(alpha) = &alpha {
            let alpha = to_host(alpha.clone());
            frequencies
                .inv_freq
                .iter_mut()
                .zip(alpha)
                .for_each(|(theta, alpha)| *theta *= libm::exp(alpha));
        }
        let turn = |positions: &[f64]| {
            let turn = Turn::new(positions, &frequencies, device);
            match &alpha {
                None => turn,
                Some(alpha) => {
                    let angles = positions
                        .iter()
                        .flat_map(|p| frequencies.inv_freq.iter().map(move |theta| p * theta))
                        .collect();
                    let angles: Tensor<4> = upload(
                        angles,
                        [1, 1, positions.len(), frequencies.inv_freq.len()],
                        device,
                    );
                    turn.following(angles * moved(alpha.clone()).unsqueeze())
                }
            }
        };
        let (queries, keys) = (turn(positions.queries()), turn(positions.keys()));
        Box::new(PreparedRope {
            layout: self.config.layout,
            queries,
            keys,
        })
    }
}

impl Prepared for PreparedRope {
    fn transform_qk(&self, _layer: usize, q: Tensor<4>, k: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        (
            self.queries.apply(q, self.layout),
            self.keys.apply(k, self.layout),
        )
    }

    fn plain(&self, _layer: usize) -> Option<Plain> {
        Turn::plain(&self.queries, &self.keys, self.layout)
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
        let dim = rotated(self.rotary_dim, shape)?;
        let Some(scaling) = &self.scaling else {
            return Ok(());
        };
        if self.spacing == FrequencySpacing::Linear && scaling.needs_base() {
            let hint = "use spacing = \"geometric\", or linear scaling";
            let problem = format!(
                "scaling `{}` changes the base, which linear spacing does not have",
                scaling.kind()
            );
            return Err(ConfigError::new(
                "spacing",
                "linear",
                problem,
                "geometric",
                hint,
            ));
        }
        scaling.check(dim).map_err(|error| error.within("scaling"))
    }

    fn resolve(&mut self, lengths: &Lengths) {
        if let Some(scaling) = &mut self.scaling {
            scaling.resolve(lengths);
        }
    }

    fn facts(&self, shape: &ModelShape) -> Facts {
        let pairs = self.rotary_dim.unwrap_or(shape.head_dim) / 2;
        Facts {
            hooks: Hooks {
                transform_qk: true,
                ..Hooks::default()
            },
            parameters: if self.learnable {
                vec![("log_frequency".to_owned(), vec![pairs])]
            } else {
                vec![]
            },
            reads_length: self.scaling.as_ref().is_some_and(RopeScaling::reads_length),
            relative: true,
            linear: true,
            turns: true,
            ..Facts::default()
        }
    }

    fn init(&self, shape: &ModelShape, init: &Init<'_>) -> Rope {
        let pairs = self.rotary_dim.unwrap_or(shape.head_dim) / 2;
        let log_frequency = self
            .learnable
            .then(|| init.param("log_frequency", [pairs], Distribution::Constant(0.0)));
        Rope {
            log_frequency,
            head_dim: shape.head_dim,
            config: self.clone(),
        }
    }
}
