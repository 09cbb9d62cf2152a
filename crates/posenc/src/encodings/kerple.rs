//! `kerple`: a penalty on the logits that grows with the logarithm or a power of distance, shaped
//! by two numbers per head.
//!
//! - Formula: with the distance d = |query - key| and per head r1, r2, ... > 0: `-r1 ln(1 + r2 d)`
//!   (log), `-r1 d^r2` (power), `-r1 ln(1 + r2 d^r3)` (log3), added to the logits. With `weight`
//!   the logits are multiplied by `exp(-w1 d^w2)` before. All are at least 0.01, exponents of d at
//!   most 2.
//! - Source: Chi et al. 2022 (arXiv 2205.09921), section 4, and section 5.3 for log3
//!   ("3-para-log", 0 < r3 <= 2) and the weight ("bias+wht"), read in a public copy of the paper;
//!   chijames/KERPLE has log, and power with the weight; log3 was not found in it.
//! - Parameters: `r1`, `r2` and, if used, `r3`, `w1`, `w2`, `[H]` each, shared by layers; drawn as
//!   the authors do, r3 as their exponents.
//! - Limits: none.

use crate::ConfigError;
use crate::distances::Distances;
use crate::facts::{Facts, Hooks, ModelShape};
use crate::hooks::{
    Bias, BiasBlocks, Content, Context, FusedQk, PositionalEncoding, PrepareResult, Prepared,
};
use crate::init::{Distribution, ParamSpec, Parameters};
use crate::positions::Positions;
use crate::spec::{About, EncodingSpec};
use crate::tensors::{clamp_straight_through, for_batch, power};
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The kernel of [`Kerple`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum KerpleForm {
    /// `-r1 ln(1 + r2 d)`: the better of the paper's two-parameter forms.
    #[default]
    Log,
    /// `-r1 d^r2`; ALiBi where r2 = 1.
    Power,
    /// `-r1 ln(1 + r2 d^r3)`.
    Log3,
}

/// `kind = "kerple"`: configuration of [`Kerple`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct KerpleConfig {
    /// The kernel.
    pub form: KerpleForm,
    /// Whether the logits are multiplied by `exp(-w1 d^w2)` before the kernel is added.
    #[serde(skip_serializing_if = "schema::is_default")]
    pub weight: bool,
}

/// A penalty on distance whose shape each head learns.
#[derive(Module, Debug)]
pub struct Kerple {
    r1: Param<Tensor<1>>,
    r2: Param<Tensor<1>>,
    r3: Option<Param<Tensor<1>>>,
    w1: Option<Param<Tensor<1>>>,
    w2: Option<Param<Tensor<1>>>,
    #[module(skip)]
    form: KerpleForm,
}

/// Parameters are `[G, H, 1, 1]` for G models, inside their ranges.
struct PreparedKerple {
    r1: Tensor<4>,
    r2: Tensor<4>,
    r3: Option<Tensor<4>>,
    weight: Option<[Tensor<4>; 2]>,
    form: KerpleForm,
    distances: Distances,
}

/// Smallest value of every parameter.
const LEAST: f64 = 0.01;
/// Largest exponent of the distance, beyond which the kernel is not positive definite.
const STEEPEST: f64 = 2.0;
/// The largest value of the other parameters.
const ANY: f64 = f32::MAX as f64;

impl PositionalEncoding for Kerple {
    fn prepare(&self, positions: &Positions, context: &Context) -> PrepareResult<'_> {
        let per_head = |r: &Param<Tensor<1>>, most: f64| {
            let heads = r.val().dims()[0] / context.groups;
            // The clamp lets gradients through, so that a parameter past its bounds can return.
            let inside = clamp_straight_through(r.val(), LEAST, most);
            inside.reshape([context.groups, heads, 1, 1])
        };
        let most = if self.form == KerpleForm::Power {
            STEEPEST
        } else {
            ANY
        };
        let weight = self.w1.as_ref().zip(self.w2.as_ref());
        Ok(Box::new(PreparedKerple {
            r1: per_head(&self.r1, ANY),
            r2: per_head(&self.r2, most),
            r3: self.r3.as_ref().map(|r3| per_head(r3, STEEPEST)),
            weight: weight.map(|(w1, w2)| [per_head(w1, ANY), per_head(w2, STEEPEST)]),
            form: self.form,
            distances: Distances::new(positions, &context.device),
        }))
    }

    fn acts_in_groups(&self) -> bool {
        true
    }
}

impl Prepared for PreparedKerple {
    fn fused_qk(&self, _layer: usize) -> Option<FusedQk> {
        self.weight.is_none().then(FusedQk::default)
    }

    fn logits_bias(&self, _layer: usize) -> Option<Bias<'_>> {
        Some(Bias::new(self))
    }

    fn bias_layer(&self, _layer: usize) -> usize {
        0
    }

    fn content_bias(&self, _layer: usize, content: &Content<'_>) -> Option<Tensor<4>> {
        let [w1, w2] = self.weight.clone()?;
        let distance = self
            .distances
            .block(content.queries.clone(), content.keys.clone())
            .abs();
        // Attention adds the logits themselves: the rest of weight x logits, weight - 1.
        let rest = (power(distance, w2) * w1.neg()).exp() - 1.0;
        Some(content.logits() * for_batch(rest, content.q.dims()[0]))
    }
}

impl BiasBlocks for &PreparedKerple {
    fn block(&self, queries: Range<usize>, keys: Range<usize>) -> Tensor<4> {
        let distance = self.distances.block(queries, keys).abs();
        let grown = match (self.form, &self.r3) {
            (KerpleForm::Power, _) => power(distance, self.r2.clone()),
            (_, None) => (distance * self.r2.clone()).log1p(),
            (_, Some(r3)) => (power(distance, r3.clone()) * self.r2.clone()).log1p(),
        };
        grown * self.r1.clone().neg()
    }

    fn by_distance(&self) -> bool {
        self.distances.by_index()
    }
}

impl EncodingSpec for KerpleConfig {
    type Module = Kerple;
    const NAME: Option<&'static str> = Some("KERPLE");
    const ABOUT: About = About {
        summary: "a penalty on the logits that grows with the logarithm or a power of distance, \
                  shaped by two numbers per head",
        formula: "logits - r1 ln(1 + r2 |query - key|), or logits - r1 |query - key|^r2",
        source: "Chi et al. 2022, arXiv 2205.09921",
        deviations: "as in the authors' code the bias comes after the division by sqrt(head_dim); \
                     the paper has it before. A parameter that leaves its range is read as the \
                     nearest allowed value and keeps its gradient; the authors move it back",
    };

    fn check(&self, _shape: &ModelShape) -> Result<(), ConfigError> {
        Ok(())
    }

    fn parameters(&self, shape: &ModelShape) -> Vec<ParamSpec> {
        let mut drawn = match self.form {
            KerpleForm::Log => vec![("r1", 2.0), ("r2", 1.0)],
            KerpleForm::Power => vec![("r1", 1.0), ("r2", 2.0)],
            KerpleForm::Log3 => vec![("r1", 2.0), ("r2", 1.0), ("r3", 2.0)],
        };
        if self.weight {
            drawn.extend([("w1", 1.0), ("w2", 2.0)]);
        }
        let spec =
            |(name, most)| ParamSpec::new(name, [shape.n_heads], Distribution::Uniform(0.0, most));
        drawn.into_iter().map(spec).collect()
    }

    fn properties(&self, _shape: &ModelShape) -> Facts {
        Facts {
            relative: true,
            by_distance: true,
            ..Facts::new(Hooks::LOGITS_BIAS | Hooks::CONTENT_BIAS.when(self.weight))
        }
    }

    fn build(&self, _shape: &ModelShape, parameters: &mut Parameters) -> Kerple {
        Kerple {
            r1: parameters.take("r1"),
            r2: parameters.take("r2"),
            r3: parameters.take_optional("r3"),
            w1: parameters.take_optional("w1"),
            w2: parameters.take_optional("w2"),
            form: self.form,
        }
    }
}
