//! `sinusoidal`: fixed sines and cosines added to the input.
//!
//! - Formula: `PE(p, 2i) = scale sin(p base^(-2i/D))`, `PE(p, 2i+1) = scale cos(same)`, added to
//!   the input; D = d_model.
//! - Source: Vaswani et al. 2017 (arXiv 1706.03762), section 3.5; orders as in RoFormer's and
//!   tensor2tensor's code.
//! - Parameters: none; `scale`, one number shared by all, where `learnable_scale` (x-transformers'
//!   scaled sinusoid).
//! - Limits: none by construction; positions past the training length were never seen.

use crate::ConfigError;
use crate::facts::{Facts, Hooks, ModelShape};
use crate::hooks::{Context, FusedQk, PositionalEncoding, PrepareResult, Prepared};
use crate::init::{Distribution, ParamSpec, Parameters};
use crate::positions::Positions;
use crate::rotary::{BASES, inv_freq};
use crate::spec::{About, EncodingSpec};
use crate::tensors::{plus_rows, upload};
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use schema::in_range;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// Order of sines and cosines in the vector. The three are in public use and not interchangeable
/// for a trained model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SinusoidalOrder {
    /// sin, cos, sin, cos, ...: the paper.
    #[default]
    Interleaved,
    /// All sines, then all cosines: RoFormer, Transformer-XL.
    Half,
    /// Halves with exponent `i/(D/2 - 1)`: tensor2tensor, fairseq.
    Tensor2tensor,
}

/// `kind = "sinusoidal"`: configuration of [`Sinusoidal`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct SinusoidalConfig {
    /// Base of the wavelengths, above 1 and at most 1e15.
    #[default = 10_000.0]
    pub base: f64,
    /// Order of sines and cosines.
    #[default(SinusoidalOrder::Interleaved)]
    pub order: SinusoidalOrder,
    /// Factor on the table, 1e-6 to 1e6. Embeddings drawn with a small deviation drown in a table
    /// of unit amplitude.
    #[default = 1.0]
    pub scale: f64,
    /// Whether the factor is trained, starting from `scale`.
    #[serde(skip_serializing_if = "schema::is_default")]
    pub learnable_scale: bool,
}

/// Fixed sines and cosines added to the input.
#[derive(Module, Debug)]
pub struct Sinusoidal {
    scale: Option<Param<Tensor<1>>>,
    d_model: usize,
    #[module(skip)]
    config: SinusoidalConfig,
}

struct PreparedSinusoidal {
    /// `[1, Q, D]`, or `[G, Q, D]` with the factors of G models.
    table: Tensor<3>,
}

impl SinusoidalConfig {
    /// The encoding of one position before `scale`, `d_model` numbers, in f64.
    pub(crate) fn row(&self, position: f64, d_model: usize) -> Vec<f64> {
        let half = d_model / 2;
        let frequencies = match self.order {
            SinusoidalOrder::Tensor2tensor => {
                // One pair has exponent 0 and must not divide by 0.
                let steps = (half.max(2) - 1) as f64;
                (0..half)
                    .map(|i| libm::pow(self.base, -(i as f64) / steps))
                    .collect()
            }
            _ => inv_freq(d_model, self.base),
        };
        let sin = frequencies.iter().map(|f| libm::sin(position * f));
        let cos = frequencies.iter().map(|f| libm::cos(position * f));
        let mut row: Vec<f64> = match self.order {
            SinusoidalOrder::Interleaved => sin.zip(cos).flat_map(|(s, c)| [s, c]).collect(),
            _ => sin.chain(cos).collect(),
        };
        // An odd width drops the last cosine (halves) or pads a zero (tensor2tensor), as their
        // authors' code does.
        row.resize(d_model, 0.0);
        row
    }
}

impl PositionalEncoding for Sinusoidal {
    fn prepare(&self, positions: &Positions, context: &Context) -> PrepareResult<'_> {
        let (places, queries) = (positions.queries_of_rows(), positions.queries().len());
        // A trained factor starts from `scale` and is multiplied in on the device.
        let fixed = if self.scale.is_some() {
            1.0
        } else {
            self.config.scale
        };
        let values = places
            .iter()
            .flat_map(|p| self.config.row(*p, self.d_model))
            .map(|value| fixed * value)
            .collect();
        let shape = [places.len() / queries, queries, self.d_model];
        let table = upload(values, shape, &context.device);
        Ok(Box::new(PreparedSinusoidal {
            table: match &self.scale {
                None => table,
                Some(scale) => table * scale.val().reshape([context.groups, 1, 1]),
            },
        }))
    }

    fn reads_rows(&self) -> bool {
        true
    }

    fn acts_in_groups(&self) -> bool {
        true
    }
}

impl Prepared for PreparedSinusoidal {
    fn embed(&self, x: Tensor<3>) -> Tensor<3> {
        plus_rows(x, self.table.clone())
    }

    fn fused_qk(&self, _layer: usize) -> Option<FusedQk> {
        Some(FusedQk::default())
    }
}

impl EncodingSpec for SinusoidalConfig {
    type Module = Sinusoidal;
    const ABOUT: About = About {
        summary: "fixed sines and cosines added to the input",
        formula: "PE(p, 2i) = scale sin(p base^(-2i/D)), PE(p, 2i+1) = scale cos(p base^(-2i/D))",
        source: "Vaswani et al. 2017, arXiv 1706.03762",
        deviations: "`scale` (1 is the paper's); the paper instead multiplies the embeddings by \
                     sqrt(D)",
    };

    fn check(&self, _shape: &ModelShape) -> Result<(), ConfigError> {
        in_range("base", self.base, BASES, "the paper uses 10000")?;
        in_range(
            "scale",
            self.scale,
            1e-6..=1e6,
            "the paper's table has scale 1",
        )
    }

    fn parameters(&self, _shape: &ModelShape) -> Vec<ParamSpec> {
        let scale = ParamSpec::new("scale", [1], Distribution::Constant(self.scale));
        self.learnable_scale.then_some(scale).into_iter().collect()
    }

    fn properties(&self, _shape: &ModelShape) -> Facts {
        Facts {
            linear: true,
            ..Facts::new(Hooks::EMBED)
        }
    }

    fn build(&self, shape: &ModelShape, parameters: &mut Parameters) -> Sinusoidal {
        Sinusoidal {
            scale: parameters.take_optional("scale"),
            d_model: shape.d_model,
            config: self.clone(),
        }
    }
}
