//! `pope`: polar coordinates: each dimension of queries and keys is a length that content sets and
//! an angle that position sets.
//!
//! - Formula: dimension j of q and k becomes a vector of length `softplus(x_j)`, rotated by `p
//!   theta_j`, for k by `p theta_j + delta_j`; `theta_j = base^(-j/d)`. The head doubles: `q.k =
//!   sum_j softplus(q_j) softplus(k_j) cos((m - n) theta_j - delta_j)`.
//! - Source: Gopalakrishnan et al. 2025, PoPE (arXiv 2509.10534); x-transformers' polar embedding.
//! - Parameters: `delta`, `[H, d]`, shared by layers, clamped to -2 pi..0, 0 at start; none where
//!   `learnable` is off.
//! - Limits: none by construction; linear attention cannot host it, since it makes its own feature
//!   maps.

use crate::ConfigError;
use crate::facts::{Facts, Hooks, Lengths, ModelShape};
use crate::hooks::{Context, PositionalEncoding, PrepareResult, Prepared, Qk};
use crate::init::{Distribution, ParamSpec, Parameters};
use crate::positions::Positions;
use crate::rotary::BASES;
use crate::rotary_tables::angles;
use crate::spec::{About, EncodingSpec, NumberTable};
use crate::tensors::{clamp_straight_through, for_batch, upload};
use burn::module::{Module, Param};
use burn::tensor::{Tensor, activation};
use schema::in_range;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// `kind = "pope"`: configuration of [`Pope`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct PopeConfig {
    /// Base of the frequencies, above 1 and at most 1e15.
    #[default = 10_000.0]
    pub base: f64,
    /// Whether each dimension of each head learns a phase.
    #[default = true]
    pub learnable: bool,
}

/// Polar encoding: content is a length, position an angle.
#[derive(Module, Debug)]
pub struct Pope {
    delta: Option<Param<Tensor<2>>>,
    head_dim: usize,
    base: f64,
}

struct PreparedPope {
    /// cos and sin for queries and for keys, `[G, 1 or H, positions, d]`.
    queries: [Tensor<4>; 2],
    keys: [Tensor<4>; 2],
}

/// Radians per token of each dimension, where a rotation has one frequency per pair.
fn frequencies(dim: usize, base: f64) -> Vec<f64> {
    let theta = |j: usize| libm::pow(base, -(j as f64) / dim as f64);
    (0..dim).map(theta).collect()
}

impl PositionalEncoding for Pope {
    fn prepare(&self, positions: &Positions, context: &Context) -> PrepareResult<'_> {
        let dim = self.head_dim;
        let theta = frequencies(dim, self.base);
        let tables = |positions: &[f64]| {
            let (sin, cos) = angles(positions, &theta).map(libm::sincos).unzip();
            [cos, sin].map(|table| upload(table, [1, 1, positions.len(), dim], &context.device))
        };
        let mut keys = tables(positions.keys());
        if let Some(delta) = &self.delta {
            let ([rows, _], groups) = (delta.val().dims(), context.groups);
            let delta = clamp_straight_through(delta.val(), -2.0 * std::f64::consts::PI, 0.0)
                .reshape([groups, rows / groups, 1, dim]);
            let (cos_delta, sin_delta) = (delta.clone().cos(), delta.sin());
            let [cos, sin] = keys;
            // The angle grows by delta.
            keys = [
                cos.clone() * cos_delta.clone() - sin.clone() * sin_delta.clone(),
                sin * cos_delta + cos * sin_delta,
            ];
        }
        Ok(Box::new(PreparedPope {
            queries: tables(positions.queries()),
            keys,
        }))
    }

    fn acts_in_groups(&self) -> bool {
        true
    }
}

impl Prepared for PreparedPope {
    fn transform_qk(&self, _: usize, q: Tensor<4>, k: Tensor<4>, _: &Tensor<3>) -> Qk {
        let polar = |x: Tensor<4>, [cos, sin]: &[Tensor<4>; 2]| {
            // Twice as wide: cos a cos b + sin a sin b leaves the cosine of the difference.
            let [cos, sin] = [cos, sin].map(|table| for_batch(table.clone(), x.dims()[0]));
            let length = activation::softplus(x, 1.0);
            Tensor::cat(vec![length.clone() * cos, length * sin], 3)
        };
        (polar(q, &self.queries), polar(k, &self.keys))
    }
}

impl EncodingSpec for PopeConfig {
    type Module = Pope;
    const NAME: Option<&'static str> = Some("PoPE");
    const ABOUT: About = About {
        summary: "polar coordinates: each dimension of queries and keys is a length that content \
                  sets and an angle that position sets",
        formula: "q.k = sum_j softplus(q_j) softplus(k_j) cos((m - n) base^(-j/d) - delta_j), \
                  delta_j within -2 pi..0",
        source: "Gopalakrishnan et al. 2025, arXiv 2509.10534",
        deviations: "none; the sign of delta is x-transformers'",
    };

    fn check(&self, _shape: &ModelShape) -> Result<(), ConfigError> {
        in_range("base", self.base, BASES, "the paper uses 10000")
    }

    fn parameters(&self, shape: &ModelShape) -> Vec<ParamSpec> {
        let delta = ParamSpec::new(
            "delta",
            [shape.n_heads, shape.head_dim],
            Distribution::Constant(0.0),
        );
        self.learnable.then_some(delta).into_iter().collect()
    }

    fn properties(&self, _shape: &ModelShape) -> Facts {
        Facts {
            relative: true,
            rotates_qk: true,
            exclusive_in_stack: true,
            transform_workspace: 22.0,
            transform_kept: 18.5,
            ..Facts::new(Hooks::TRANSFORM_QK)
        }
    }

    fn numbers(&self, shape: &ModelShape, _lengths: &Lengths) -> Vec<NumberTable> {
        let theta = frequencies(shape.head_dim, self.base);
        vec![NumberTable::of_frequencies(
            "frequencies of the dimensions of a head",
            "dim",
            &theta,
        )]
    }

    fn build(&self, shape: &ModelShape, parameters: &mut Parameters) -> Pope {
        Pope {
            delta: parameters.take_optional("delta"),
            head_dim: shape.head_dim,
            base: self.base,
        }
    }
}
