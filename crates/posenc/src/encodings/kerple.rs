//! `kerple`: a penalty on the logits that grows with the logarithm or a power of distance, shaped
//! by two numbers per head.
//!
//! - Formula: with the distance d = |query - key| and per head r1, r2 > 0: `-r1 ln(1 + r2 d)`
//!   (log), `-r1 d^r2` (power), added to the logits. At least 0.01 for both, at most 2 for power's
//!   r2.
//! - Source: Chi et al. 2022 (arXiv 2205.09921), section 4; chijames/KERPLE.
//! - Deviations: as in the authors' code the bias comes after the division by sqrt(head_dim); the
//!   paper has it before. A parameter that leaves its range is read as the nearest allowed value
//!   and keeps its gradient; the authors move it back.
//! - Parameters: `r1` and `r2`, `[H]` each, shared by layers; drawn as the authors do.
//! - Limits: none.

use crate::ConfigError;
use crate::distances::Distances;
use crate::facts::{Facts, Hooks, ModelShape};
use crate::hooks::{Bias, BiasBlocks, FusedQk, PositionalEncoding, PrepareError, Prepared};
use crate::init::{Distribution, ParamSpec, Parameters};
use crate::positions::Positions;
use crate::spec::{About, EncodingSpec};
use crate::tensors::clamp_straight_through;
use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The kernel of [`Kerple`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum KerpleForm {
    /// `-r1 ln(1 + r2 d)`: the paper's best.
    #[default]
    Log,
    /// `-r1 d^r2`; ALiBi where r2 = 1.
    Power,
}

/// Configuration of [`Kerple`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct KerpleConfig {
    /// The kernel.
    pub form: KerpleForm,
}

/// A penalty on distance whose shape each head learns.
#[derive(Module, Debug)]
pub struct Kerple {
    r1: Param<Tensor<1>>,
    r2: Param<Tensor<1>>,
    #[module(skip)]
    form: KerpleForm,
}

struct PreparedKerple {
    r1: Tensor<4>,
    r2: Tensor<4>,
    form: KerpleForm,
    distances: Distances,
}

/// Smallest value of both parameters.
const LEAST: f64 = 0.01;

impl PositionalEncoding for Kerple {
    fn prepare<'a>(
        &'a self,
        positions: &Positions,
        device: &Device,
    ) -> Result<Box<dyn Prepared + 'a>, PrepareError> {
        let per_head = |r: &Param<Tensor<1>>, most: f64| {
            let heads = r.val().dims()[0];
            // The clamp lets gradients through, so that a parameter past its bounds can return.
            clamp_straight_through(r.val(), LEAST, most).reshape([1, heads, 1, 1])
        };
        let most = if self.form == KerpleForm::Power {
            2.0
        } else {
            f64::from(f32::MAX)
        };
        Ok(Box::new(PreparedKerple {
            r1: per_head(&self.r1, f64::from(f32::MAX)),
            r2: per_head(&self.r2, most),
            form: self.form,
            distances: Distances::new(positions, device),
        }))
    }
}

impl Prepared for PreparedKerple {
    fn fused_qk(&self, _layer: usize) -> Option<FusedQk> {
        Some(FusedQk::default())
    }

    fn logits_bias(&self, _layer: usize) -> Option<Bias<'_>> {
        Some(Bias::new(self))
    }
}

impl BiasBlocks for &PreparedKerple {
    fn block(&self, queries: Range<usize>, keys: Range<usize>) -> Tensor<4> {
        let distance = self.distances.block(queries, keys).abs();
        let grown = match self.form {
            KerpleForm::Log => (distance * self.r2.clone()).log1p(),
            // 0^r2 = 0, but its derivative by r2 goes through ln 0.
            KerpleForm::Power => {
                let positive = distance.clone().clamp_min(f64::from(f32::MIN_POSITIVE));
                (positive.log() * self.r2.clone()).exp() * distance.greater_elem(0.0).float()
            }
        };
        grown * self.r1.clone().neg()
    }

    fn by_distance(&self) -> bool {
        self.distances.by_index()
    }
}

impl EncodingSpec for KerpleConfig {
    type Module = Kerple;
    const ABOUT: About = About {
        summary: "a penalty on the logits that grows with the logarithm or a power of distance, \
                  shaped by two numbers per head",
        formula: "logits - r1 ln(1 + r2 |query - key|), or logits - r1 |query - key|^r2",
        source: "Chi et al. 2022, arXiv 2205.09921",
    };

    fn check(&self, _shape: &ModelShape) -> Result<(), ConfigError> {
        Ok(())
    }

    fn parameters(&self, shape: &ModelShape) -> Vec<ParamSpec> {
        let (r1, r2) = match self.form {
            KerpleForm::Log => (2.0, 1.0),
            KerpleForm::Power => (1.0, 2.0),
        };
        [("r1", r1), ("r2", r2)]
            .map(|(name, most)| {
                ParamSpec::new(name, [shape.n_heads], Distribution::Uniform(0.0, most))
            })
            .to_vec()
    }

    fn properties(&self, _shape: &ModelShape) -> Facts {
        Facts {
            relative: true,
            by_distance: true,
            ..Facts::new(Hooks::LOGITS_BIAS)
        }
    }

    fn build(&self, _shape: &ModelShape, parameters: &mut Parameters) -> Kerple {
        Kerple {
            r1: parameters.take("r1"),
            r2: parameters.take("r2"),
            form: self.form,
        }
    }
}
