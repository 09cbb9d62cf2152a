//! Formula: none; order is visible through the causal mask alone.
//! Source: Haviv et al. 2022 (arXiv 2203.16634); Kazemnejad et al. 2023 (arXiv 2305.19466).
//! Deviations: none.
//! Parameters: none.
//! Limits: none. The unit of `stack`.

use crate::catalogue::{About, Facts, ModelShape, Spec};
use crate::{ConfigError, Init, Plain, PositionalEncoding, Positions, Prepared};
use burn::module::Module;
use burn::tensor::Device;
use serde::{Deserialize, Serialize};

/// Configuration of [`Nope`]: nothing to set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NopeConfig {}

/// No encoding of position.
#[derive(Module, Debug, Default)]
pub struct Nope {}

struct PreparedNope;

impl Prepared for PreparedNope {
    fn plain(&self, _layer: usize) -> Option<Plain> {
        Some(Plain::default())
    }
}

impl PositionalEncoding for Nope {
    fn prepare<'a>(&'a self, _positions: &Positions, _device: &Device) -> Box<dyn Prepared + 'a> {
        Box::new(PreparedNope)
    }
}

impl Spec for NopeConfig {
    type Module = Nope;
    const ABOUT: About = About {
        summary: "no encoding of position; the causal mask alone shows order",
        formula: "identity",
        source: "Haviv et al. 2022, arXiv 2203.16634; Kazemnejad et al. 2023, arXiv 2305.19466",
    };

    fn check(&self, _shape: &ModelShape) -> Result<(), ConfigError> {
        Ok(())
    }

    fn facts(&self, _shape: &ModelShape) -> Facts {
        Facts {
            relative: true,
            by_distance: true,
            linear: true,
            ..Facts::default()
        }
    }

    fn init(&self, _shape: &ModelShape, _init: &Init<'_>) -> Nope {
        Nope {}
    }
}
