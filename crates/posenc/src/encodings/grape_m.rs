//! `grape_m`: rotation with trained frequencies, by the position or by phases that tokens add up.
//!
//! - Formula: pair i turns by `Phi_p theta_i`, `theta_i = base^(-2i/E) exp(alpha_i / s)` with
//!   trained alpha from 0. Plain: Phi_p = p and s = 16. By content: s = 1 and Phi_p the sum over l
//!   < p of `sigmoid((w.x_l + b) / 16)` or of `softplus(w.x_l + b)`, from w = 0 and
//!   `softplus(b) = init_phase`.
//! - Source: GRAPE, 2025 (arXiv 2512.07805); model-architectures/GRAPE,
//!   `llama-mha-grape-m-nonctx.py` and `-m-ctx.py`. The released code takes the sigmoid; its own
//!   comments and names speak of the softplus.
//! - Parameters: per layer L: `layers.L.log_frequency`, alpha, `[1 or H, E/2]`; by content
//!   `layers.L.weight`, `[D, 1 or H]`, and `layers.L.bias`, `[1 or H]`.
//! - Limits: none by construction; phases by content are sums in f32, as in the authors' code.

use crate::ConfigError;
use crate::facts::{Facts, Hooks, Lengths, ModelShape};
use crate::hooks::{Context, FusedQk, PositionalEncoding, PrepareResult, Prepared, Qk};
use crate::init::{Distribution, ParamSpec, Parameters};
use crate::positions::Positions;
use crate::rotary::{BASES, Rotary, RotaryLayout, inv_freq};
use crate::rotary_tables::{RotaryTables, angles, check_rotary_dim};
use crate::sequence::{by_head, per_channel, projected, turned};
use crate::spec::{About, EncodingSpec, NumberTable};
use crate::tensors::{for_batch, straight_through, to_host, upload};
use burn::module::{Module, Param};
use burn::tensor::{Tensor, activation};
use schema::in_range;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// What the phases of tokens are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum GrapeMPhase {
    /// Their positions.
    #[default]
    Position,
    /// Sums of sigmoids of the layer's input: the released code.
    Sigmoid,
    /// Sums of softplus of the layer's input: the formula in its comments.
    Softplus,
}

/// `kind = "grape_m"`: configuration of [`GrapeM`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct GrapeMConfig {
    /// What the phases of tokens are.
    #[default(GrapeMPhase::Position)]
    pub phase: GrapeMPhase,
    /// Base of the frequencies at the start, above 1 and at most 1e15.
    #[default = 10_000.0]
    pub base: f64,
    /// Whether every head has its own frequencies and phases.
    pub per_head: bool,
    /// softplus(b) at the start, 1e-8 to 100; phases by content only.
    #[default = 1e-3]
    pub init_phase: f64,
}

/// Divides what is trained: the authors slow learning down by it.
const SCALE: f64 = 16.0;

impl GrapeMConfig {
    fn by_content(&self) -> bool {
        self.phase != GrapeMPhase::Position
    }

    /// Heads with their own frequencies: all or one for all.
    fn heads(&self, shape: &ModelShape) -> usize {
        if self.per_head { shape.n_heads } else { 1 }
    }
}

/// Rotation with trained frequencies and phases.
#[derive(Module, Debug)]
pub struct GrapeM {
    layers: Vec<GrapeMLayer>,
    head_dim: usize,
    #[module(skip)]
    config: GrapeMConfig,
}

/// Frequencies and phases of one layer.
#[derive(Module, Debug)]
pub struct GrapeMLayer {
    log_frequency: Param<Tensor<2>>,
    weight: Option<Param<Tensor<2>>>,
    bias: Option<Param<Tensor<1>>>,
}

/// Tables of queries and keys, per layer.
struct ByPosition {
    layers: Vec<[RotaryTables; 2]>,
}

struct ByContent<'a> {
    encoding: &'a GrapeM,
    context: Context,
    /// Frequencies of each layer, `[G, 1 or H, 1, E/2]`.
    layers: Vec<Tensor<4>>,
}

impl GrapeM {
    /// Exact tables of one layer at these positions, with the gradient of its frequencies.
    fn tables(&self, layer: &GrapeMLayer, positions: &[f64], context: &Context) -> RotaryTables {
        let alpha = layer.log_frequency.val();
        let ([rows, pairs], groups) = (alpha.dims(), context.groups);
        let heads = rows / groups;
        let plain = inv_freq(self.head_dim, self.config.base);
        // On the host, so that trained frequencies give tables as exact as fixed ones.
        let trained = to_host(alpha.clone());
        let theta: Vec<f64> = trained
            .iter()
            .enumerate()
            .map(|(at, alpha)| plain[at % pairs] * libm::exp(alpha / SCALE))
            .collect();
        let angles: Vec<f64> = theta
            .chunks(pairs)
            .flat_map(|theta| angles(positions, theta))
            .collect();
        let shape = [groups, heads, positions.len(), pairs];
        let tables = RotaryTables::of_angles(angles.iter().copied(), 1.0, shape, context);
        // The derivative of p theta exp(alpha / s) by alpha is the angle itself over s.
        let changes = straight_through(alpha).reshape([groups, heads, 1, pairs]) * (1.0 / SCALE);
        tables.with_gradient(upload::<4>(angles, shape, &context.device) * changes)
    }
}

impl PositionalEncoding for GrapeM {
    fn prepare(&self, positions: &Positions, context: &Context) -> PrepareResult<'_> {
        if self.config.by_content() {
            let plain = inv_freq(self.head_dim, self.config.base);
            let shape = [1, 1, 1, plain.len()];
            let plain: Tensor<4> = upload(plain, shape, &context.device);
            let of = |layer: &GrapeMLayer| {
                let alpha = layer.log_frequency.val();
                let ([rows, pairs], groups) = (alpha.dims(), context.groups);
                plain.clone() * alpha.exp().reshape([groups, rows / groups, 1, pairs])
            };
            return Ok(Box::new(ByContent {
                encoding: self,
                context: context.clone(),
                layers: self.layers.iter().map(of).collect(),
            }));
        }
        let of = |layer: &GrapeMLayer| {
            [positions.queries(), positions.keys()].map(|at| self.tables(layer, at, context))
        };
        Ok(Box::new(ByPosition {
            layers: self.layers.iter().map(of).collect(),
        }))
    }

    fn acts_in_groups(&self) -> bool {
        true
    }
}

impl Prepared for ByPosition {
    fn transform_qk(&self, layer: usize, q: Tensor<4>, k: Tensor<4>, _: &Tensor<3>) -> Qk {
        let [queries, keys] = &self.layers[layer];
        let layout = RotaryLayout::Half;
        (queries.apply(q, layout), keys.apply(k, layout))
    }

    fn fused_qk(&self, layer: usize) -> Option<FusedQk> {
        let [queries, keys] = &self.layers[layer];
        RotaryTables::fused_qk(queries, keys, RotaryLayout::Half)
    }
}

impl ByContent<'_> {
    /// The phases of all keys, `[B, 1 or H, K, 1]`.
    fn phases(&self, layer: usize, hidden: &Tensor<3>) -> Tensor<4> {
        let layer = &self.encoding.layers[layer];
        let (Some(weight), Some(bias)) = (&layer.weight, &layer.bias) else {
            unreachable!("phases by content have a projection")
        };
        let Context { groups, ops, .. } = self.context;
        let opened = projected(ops, hidden.clone(), weight.val(), groups);
        let opened = opened + per_channel(bias.val(), hidden.dims()[0], groups);
        let steps = if self.encoding.config.phase == GrapeMPhase::Sigmoid {
            activation::sigmoid(opened * (1.0 / SCALE))
        } else {
            activation::softplus(opened, 1.0)
        };
        let heads = steps.dims()[2];
        let steps = by_head(steps, heads);
        // The token's own step turns the tokens after it.
        steps.clone().cumsum(2) - steps
    }
}

impl Prepared for ByContent<'_> {
    fn transform_qk(&self, layer: usize, q: Tensor<4>, k: Tensor<4>, hidden: &Tensor<3>) -> Qk {
        let frequencies = for_batch(self.layers[layer].clone(), hidden.dims()[0]);
        turned(
            q,
            k,
            self.phases(layer, hidden) * frequencies,
            self.context.ops,
        )
    }
}

impl EncodingSpec for GrapeMConfig {
    type Module = GrapeM;
    const NAME: Option<&'static str> = Some("GRAPE-M");
    const ABOUT: About = About {
        summary: "rotation with trained frequencies, by the position or by phases that tokens add \
                  up",
        formula: "pair i rotates by Phi_p theta_i exp(alpha_i / s); Phi_p = p and s = 16, or Phi_p \
                  sums over tokens before p and s = 1",
        source: "GRAPE, 2025, arXiv 2512.07805",
        deviations: "turns as RoPE does, the authors' code the other way, which is the same up to \
                     the sign of half the dimensions. Alpha is what they train less its start. \
                     They also normalise queries and keys, after the rotation. One key sets \
                     frequencies and phases by head",
    };

    fn check(&self, shape: &ModelShape) -> Result<(), ConfigError> {
        in_range("base", self.base, BASES, "the authors use 10000")?;
        let hint = "the authors use 0.001";
        in_range("init_phase", self.init_phase, 1e-8..=100.0, hint)?;
        if !self.by_content() && self.init_phase != Self::default().init_phase {
            return Err(ConfigError::new(
                "init_phase",
                self.init_phase,
                "has no effect where the phases are positions",
                "0.001",
                "remove it, or set phase = \"sigmoid\" or \"softplus\"",
            ));
        }
        check_rotary_dim(None, shape).map(drop)
    }

    fn parameters(&self, shape: &ModelShape) -> Vec<ParamSpec> {
        let heads = self.heads(shape);
        let zero = Distribution::Constant(0.0);
        // softplus(b) = init_phase.
        let start = Distribution::Constant(libm::log(libm::expm1(self.init_phase)));
        let of = |layer: usize| {
            let spec = |name: &str, sizes: &[usize], init: Distribution| {
                ParamSpec::new(format!("layers.{layer}.{name}"), sizes, init)
            };
            let mut specs = vec![spec("log_frequency", &[heads, shape.head_dim / 2], zero)];
            if self.by_content() {
                specs.push(spec("weight", &[shape.d_model, heads], zero));
                specs.push(spec("bias", &[heads], start));
            }
            specs
        };
        (0..shape.n_layers).flat_map(of).collect()
    }

    fn properties(&self, _shape: &ModelShape) -> Facts {
        Facts {
            relative: true,
            by_distance: self.by_content(),
            ignores_positions: self.by_content(),
            linear: true,
            rotates_qk: true,
            // Tables without a gradient are fused.
            transform_workspace: if self.by_content() { 6.0 } else { 0.0 },
            transform_kept: if self.by_content() { 8.0 } else { 9.0 },
            ..Facts::new(Hooks::TRANSFORM_QK)
        }
    }

    fn rotary(&self, shape: &ModelShape) -> Option<Rotary> {
        (!self.by_content()).then(|| Rotary::new(self.base, shape.head_dim))
    }

    fn numbers(&self, shape: &ModelShape, _lengths: &Lengths) -> Vec<NumberTable> {
        if !self.by_content() {
            return Vec::new();
        }
        let theta = inv_freq(shape.head_dim, self.base);
        let title = "frequencies at the start: radians by a phase of 1";
        vec![NumberTable::of_frequencies(title, "pair", &theta)]
    }

    fn build(&self, shape: &ModelShape, parameters: &mut Parameters) -> GrapeM {
        GrapeM {
            layers: parameters.take_groups("layers", |layer| GrapeMLayer {
                log_frequency: layer.take("log_frequency"),
                weight: layer.take_optional("weight"),
                bias: layer.take_optional("bias"),
            }),
            head_dim: shape.head_dim,
            config: self.clone(),
        }
    }
}
