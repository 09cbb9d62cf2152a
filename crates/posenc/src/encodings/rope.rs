//! `rope`: rotation of queries and keys by their position.
//!
//! - Formula: pair i of q and k at position p rotates by the angle `p theta_i`, `theta_i =
//!   base^(-2i/r)`; scalings change theta_i; `learnable` trains alpha in `theta_i exp(alpha_i)`,
//!   from alpha = 0.
//! - Source: Su et al. 2021, RoFormer (arXiv 2104.09864), eq. 15 and 34; layouts of GPT-J
//!   (interleaved) and NeoX, Llama (half).
//! - Parameters: none; `log_frequency`, alpha, `[r/2]`, shared by layers and heads, where
//!   `learnable`.
//! - Limits: none by construction; `dynamic_ntk` reads the length of the sequence. Scalings and
//!   their sources: [`crate::scaling`].

use crate::ConfigError;
use crate::facts::{Facts, Hooks, Lengths, ModelShape};
use crate::hooks::{Context, FusedQk, PositionalEncoding, PrepareResult, Prepared, Qk};
use crate::init::{Distribution, ParamSpec, Parameters};
use crate::positions::Positions;
use crate::rotary::{BASES, Frequencies, FrequencySpacing, Rotary, RotaryLayout};
use crate::rotary_tables::{RotaryTables, check_rotary_dim};
use crate::scaling::RopeScaling;
use crate::spec::{About, EncodingSpec};
use crate::tensors::{straight_through, to_host, upload};
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use schema::in_range;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// `kind = "rope"`: configuration of [`Rope`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct RopeConfig {
    /// Base of the frequencies, above 1 and at most 1e15; `rope_theta` at Hugging Face.
    #[default = 10_000.0]
    pub base: f64,
    /// Which dimensions form a pair.
    #[default(RotaryLayout::Half)]
    pub layout: RotaryLayout,
    /// Number of rotated dimensions of each head, even, 2 to the dimensions of a head; the whole
    /// head unless given.
    pub rotary_dim: Option<usize>,
    /// How the frequencies fall off.
    #[serde(skip_serializing_if = "schema::is_default")]
    pub spacing: FrequencySpacing,
    /// Whether the frequencies are trained.
    #[serde(skip_serializing_if = "schema::is_default")]
    pub learnable: bool,
    /// Rescaling of the frequencies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scaling: Option<RopeScaling>,
}

impl RopeConfig {
    /// Frequencies and attention factor for a sequence of `length` tokens in heads of `head_dim`.
    ///
    /// # Errors
    ///
    /// If a key of the scaling depends on lengths and is not resolved.
    pub fn frequencies(&self, head_dim: usize, length: f64) -> Result<Frequencies, ConfigError> {
        self.rotation(head_dim).frequencies(length)
    }

    /// Multiplies the logits, beside the factor on cos and sin.
    fn logits_factor(&self) -> f64 {
        self.scaling
            .as_ref()
            .map_or(1.0, RopeScaling::logits_factor)
    }

    /// Refuses `base` and `spacing` beside a scaling that sets the frequencies itself.
    fn check_replaced(&self, scaling: &RopeScaling) -> Result<(), ConfigError> {
        let (key, value) = match (self.base, self.spacing) {
            _ if !scaling.replaces_plain() => return Ok(()),
            (base, _) if base != Self::default().base => ("base", base.to_string()),
            (_, FrequencySpacing::Linear) => ("spacing", "linear".to_owned()),
            _ => return Ok(()),
        };
        let problem = format!("has no effect where scaling `{}` gives all", scaling.kind());
        let hint = format!("remove {key}, or what replaces the frequencies");
        Err(ConfigError::new(key, value, problem, "nothing", hint))
    }

    fn rotation(&self, head_dim: usize) -> Rotary {
        Rotary {
            spacing: self.spacing,
            scaling: self.scaling.clone(),
            ..Rotary::of_head(self.base, self.rotary_dim, head_dim)
        }
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
    queries: RotaryTables,
    keys: RotaryTables,
    logits_factor: f64,
}

impl PositionalEncoding for Rope {
    fn prepare(&self, positions: &Positions, context: &Context) -> PrepareResult<'_> {
        let frequencies = self
            .config
            .frequencies(self.head_dim, positions.length())
            .expect("`init` refuses an unresolved scaling");
        let tables = |positions: &[f64]| match &self.log_frequency {
            None => RotaryTables::new(positions, &frequencies, context),
            Some(alpha) => trained_tables(positions, &frequencies, alpha.val(), context),
        };
        let (queries, keys) = (tables(positions.queries()), tables(positions.keys()));
        Ok(Box::new(PreparedRope {
            layout: self.config.layout,
            queries,
            keys,
            logits_factor: self.config.logits_factor(),
        }))
    }

    fn acts_in_groups(&self) -> bool {
        true
    }
}

/// Tables of `theta_i exp(alpha_i)`, `[G, 1, positions, pairs]`, for the alphas of G models.
fn trained_tables(
    positions: &[f64],
    frequencies: &Frequencies,
    alpha: Tensor<1>,
    context: &Context,
) -> RotaryTables {
    let pairs = frequencies.inv_freq.len();
    let shape = [context.groups, 1, positions.len(), pairs];
    // On the host, so that trained frequencies give tables as exact as fixed ones.
    let alphas = to_host(alpha.clone());
    let angles = alphas.chunks(pairs).flat_map(|alphas| {
        let thetas = frequencies.inv_freq.iter().zip(alphas);
        let thetas: Vec<f64> = thetas.map(|(theta, a)| theta * libm::exp(*a)).collect();
        let of = move |p: &f64| thetas.iter().map(|theta| p * theta).collect::<Vec<_>>();
        positions.iter().flat_map(of)
    });
    let angles: Vec<f64> = angles.collect();
    let factor = frequencies.attention_factor;
    let tables = RotaryTables::of_angles(angles.iter().copied(), factor, shape, context);
    // The derivative of p theta exp(alpha) by alpha is the angle itself.
    let angles: Tensor<4> = upload(angles, shape, &context.device);
    let change = straight_through(alpha).reshape([context.groups, 1, 1, pairs]);
    tables.with_gradient(angles * change)
}

impl Prepared for PreparedRope {
    fn transform_qk(&self, _: usize, q: Tensor<4>, k: Tensor<4>, _: &Tensor<3>) -> Qk {
        let mut q = self.queries.apply(q, self.layout);
        if self.logits_factor != 1.0 {
            q = q * self.logits_factor;
        }
        (q, self.keys.apply(k, self.layout))
    }

    fn fused_qk(&self, _layer: usize) -> Option<FusedQk> {
        let fused = RotaryTables::fused_qk(&self.queries, &self.keys, self.layout)?;
        Some(FusedQk::new(fused.rotation, self.logits_factor))
    }
}

impl EncodingSpec for RopeConfig {
    type Module = Rope;
    const NAME: Option<&'static str> = Some("RoPE");
    const ABOUT: About = About {
        summary: "rotation of queries and keys by their position",
        formula: "pair i rotates by p theta_i, theta_i = base^(-2i/r)",
        source: "Su et al. 2021, arXiv 2104.09864",
        deviations: "none; `rotary_dim` r rotates the first r dimensions of a head only (GPT-J, \
                     NeoX), frequencies use r",
    };

    fn check(&self, shape: &ModelShape) -> Result<(), ConfigError> {
        in_range("base", self.base, BASES, "the paper uses 10000")?;
        if self.spacing == FrequencySpacing::Linear && self.base != Self::default().base {
            return Err(ConfigError::new(
                "base",
                self.base,
                "has no effect with spacing = \"linear\"",
                "nothing",
                "remove base, or use spacing = \"geometric\"",
            ));
        }
        let dim = check_rotary_dim(self.rotary_dim, shape)?;
        let Some(scaling) = &self.scaling else {
            return Ok(());
        };
        if self.spacing == FrequencySpacing::Linear && scaling.reads_base() {
            return Err(ConfigError::new(
                "spacing",
                "linear",
                format!(
                    "does not go with scaling `{}`, which changes the base",
                    scaling.kind()
                ),
                "geometric",
                "use spacing = \"geometric\", or linear scaling",
            ));
        }
        self.check_replaced(scaling)?;
        scaling.check(dim).map_err(|error| error.within("scaling"))
    }

    fn resolve(&mut self, lengths: &Lengths) {
        if let Some(scaling) = &mut self.scaling {
            scaling.resolve(lengths);
        }
    }

    fn unresolved(&self) -> Option<String> {
        let key = self.scaling.as_ref().and_then(RopeScaling::unresolved);
        key.map(|key| format!("scaling.{key}"))
    }

    fn parameters(&self, shape: &ModelShape) -> Vec<ParamSpec> {
        let pairs = self.rotary_dim.unwrap_or(shape.head_dim) / 2;
        let trained = ParamSpec::new("log_frequency", [pairs], Distribution::Constant(0.0));
        self.learnable.then_some(trained).into_iter().collect()
    }

    fn properties(&self, _shape: &ModelShape) -> Facts {
        Facts {
            reads_length: self.scaling.as_ref().is_some_and(RopeScaling::reads_length),
            relative: true,
            linear: true,
            rotates_qk: true,
            // Tables that take a gradient are not fused into attention.
            transform_kept: if self.learnable { 9.0 } else { 0.0 },
            ..Facts::new(Hooks::TRANSFORM_QK)
        }
    }

    fn rotary(&self, shape: &ModelShape) -> Option<Rotary> {
        Some(self.rotation(shape.head_dim))
    }

    fn build(&self, shape: &ModelShape, parameters: &mut Parameters) -> Rope {
        Rope {
            log_frequency: parameters.take_optional("log_frequency"),
            head_dim: shape.head_dim,
            config: self.clone(),
        }
    }
}
