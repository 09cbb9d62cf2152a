//! `sandwich`: a fixed bias that falls off like the product of two sinusoidal encodings, flatter
//! for later heads.
//!
//! - Formula: `(sum over i = 1..D/2 of cos(d / 10000^(2i/D)) - D/2) / ratio_h` added to the logits;
//!   d the distance, D = `width`, `ratio_h = 8h/H` for h = 1..=H: the product of two sinusoidal
//!   encodings, 0 at distance 0.
//! - Source: Chi et al. 2022, Sandwich (arXiv 2212.10356), section 5; NVIDIA NeMo's
//!   `sandwich_relative_position_embedding`.
//! - Parameters: none.
//! - Limits: none by construction; the sum oscillates past half of its longest wavelength.

use crate::ConfigError;
use crate::distances::Distances;
use crate::facts::{Facts, Hooks, ModelShape};
use crate::hooks::{BiasAlone, BiasBlocks, Context, PositionalEncoding, PrepareResult};
use crate::init::Parameters;
use crate::positions::Positions;
use crate::spec::{About, EncodingSpec};
use crate::tensors::upload;
use burn::module::Module;
use burn::tensor::{Device, Tensor};
use schema::in_range;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;
use std::ops::Range;

/// `kind = "sandwich"`: configuration of [`Sandwich`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct SandwichConfig {
    /// Width D of the sinusoidal encoding whose products these are, even, 2 to 65536; the paper
    /// finds 128 best.
    #[default = 128]
    pub width: usize,
}

impl SandwichConfig {
    /// The bias of a head with ratio 1 at a distance.
    pub fn value(&self, distance: f64) -> f64 {
        let half = self.width / 2;
        let wave = |i: usize| {
            libm::cos(distance / libm::pow(10_000.0, 2.0 * i as f64 / self.width as f64))
        };
        // Minus `half`, the value at distance 0: the bias starts at 0.
        (1..=half).map(wave).sum::<f64>() - half as f64
    }
}

/// A fixed bias from the product of two sinusoidal encodings.
#[derive(Module, Debug)]
pub struct Sandwich {
    n_heads: usize,
    #[module(skip)]
    config: SandwichConfig,
}

struct PreparedSandwich<'a> {
    encoding: &'a Sandwich,
    distances: Distances,
    device: Device,
}

impl PositionalEncoding for Sandwich {
    fn prepare(&self, positions: &Positions, context: &Context) -> PrepareResult<'_> {
        Ok(Box::new(BiasAlone(PreparedSandwich {
            encoding: self,
            distances: Distances::new(positions, &context.device),
            device: context.device.clone(),
        })))
    }
}

impl BiasBlocks for &PreparedSandwich<'_> {
    fn block(&self, queries: Range<usize>, keys: Range<usize>) -> Tensor<4> {
        let distinct = self.distances.distinct(queries, keys);
        let base: Vec<f64> = distinct
            .distances
            .iter()
            .map(|distance| self.encoding.config.value(*distance))
            .collect();
        let heads = self.encoding.n_heads;
        // [1, H, distances], flatter for later heads.
        let values = (1..=heads)
            .flat_map(|h| {
                base.iter()
                    .map(move |value| value / (8.0 * h as f64 / heads as f64))
            })
            .collect();
        distinct.spread(upload(values, [1, heads, base.len()], &self.device))
    }

    fn by_distance(&self) -> bool {
        self.distances.by_index()
    }
}

impl EncodingSpec for SandwichConfig {
    type Module = Sandwich;
    const NAME: Option<&'static str> = Some("Sandwich");
    const ABOUT: About = About {
        summary: "a fixed bias that falls off like the product of two sinusoidal encodings, \
                  flatter for later heads",
        formula: "logits + (sum over i = 1..D/2 of cos(d / 10000^(2i/D)) - D/2) H/(8h)",
        source: "Chi et al. 2022, arXiv 2212.10356",
        deviations: "none from NeMo, whose D is the width of a head",
    };

    fn check(&self, _shape: &ModelShape) -> Result<(), ConfigError> {
        in_range("width", self.width, 2..=65_536, "the paper uses 128")?;
        if self.width % 2 == 1 {
            return Err(ConfigError::new(
                "width",
                self.width,
                "is odd, and every sine needs a cosine",
                "an even number",
                "the paper uses 128",
            ));
        }
        Ok(())
    }

    fn properties(&self, _shape: &ModelShape) -> Facts {
        Facts {
            relative: true,
            by_distance: true,
            ..Facts::new(Hooks::LOGITS_BIAS)
        }
    }

    fn build(&self, shape: &ModelShape, _parameters: &mut Parameters) -> Sandwich {
        Sandwich {
            n_heads: shape.n_heads,
            config: self.clone(),
        }
    }
}
