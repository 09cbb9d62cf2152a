//! `nope`: no encoding of position; order is visible through the causal mask only.
//!
//! - Formula: none; order is visible through the causal mask only.
//! - Source: Haviv et al. 2022 (arXiv 2203.16634); Kazemnejad et al. 2023 (arXiv 2305.19466).
//! - Parameters: none.
//! - Limits: none. In a `stack` it changes nothing.

use crate::ConfigError;
use crate::facts::{Facts, Hooks, ModelShape};
use crate::hooks::{Context, FusedQk, PositionalEncoding, PrepareResult, Prepared};
use crate::init::Parameters;
use crate::positions::Positions;
use crate::spec::{About, EncodingSpec};
use burn::module::Module;
use serde::{Deserialize, Serialize};

/// `kind = "nope"`: configuration of [`Nope`]: nothing to set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct NopeConfig {}

/// No encoding of position.
#[derive(Module, Debug, Default)]
pub struct Nope {}

pub(super) struct PreparedNope;

impl Prepared for PreparedNope {
    fn fused_qk(&self, _layer: usize) -> Option<FusedQk> {
        Some(FusedQk::default())
    }
}

impl PositionalEncoding for Nope {
    fn prepare(&self, _positions: &Positions, _context: &Context) -> PrepareResult<'_> {
        Ok(Box::new(PreparedNope))
    }
}

impl EncodingSpec for NopeConfig {
    type Module = Nope;
    const NAME: Option<&'static str> = Some("NoPE");
    const ABOUT: About = About {
        summary: "no encoding of position; order is visible through the causal mask only",
        formula: "identity",
        source: "Haviv et al. 2022, arXiv 2203.16634; Kazemnejad et al. 2023, arXiv 2305.19466",
        deviations: "none",
    };

    fn check(&self, _shape: &ModelShape) -> Result<(), ConfigError> {
        Ok(())
    }

    fn properties(&self, _shape: &ModelShape) -> Facts {
        Facts {
            relative: true,
            by_distance: true,
            ignores_positions: true,
            linear: true,
            ..Facts::new(Hooks::NONE)
        }
    }

    fn build(&self, _shape: &ModelShape, _parameters: &mut Parameters) -> Nope {
        Nope {}
    }
}
