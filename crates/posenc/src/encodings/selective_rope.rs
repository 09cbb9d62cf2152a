//! `selective_rope`: rotation of queries and keys by angles that every token adds to.
//!
//! - Formula: pair i of head h turns by `theta_i sum of phi_l over l <= p`, `theta_i =
//!   base^(-2i/E)`, with phi a causal convolution over `kernel` tokens of `U D n(x)`, n the
//!   division of each head's part of the layer's input by its length, D and U projections through
//!   `rank` dimensions. `bias` adds `exp(c_hi)` to phi, and `gate` multiplies it by `sigmoid(w_h.n
//!   + b_h)`.
//! - Source: Movahedi et al. 2026, Selective RoPE (arXiv 2511.17388);
//!   timurcarstensen/selective-rope, `modules/rotary.py`.
//! - Parameters: per layer L: `layers.L.down`, `[D, rank]`; `up`, `[rank, H E/2]`; `convolution`,
//!   `[kernel, H E/2]`; `offset`, c, `[H E/2]`, with `bias`; `gate_weight`, `[D, H]`, and
//!   `gate_bias`, `[H]`, with `gate`; `log_temperature`, added to `ln theta`, `[E/2]`, where
//!   `learnable`.
//! - Limits: none by construction; angles are sums in f32, as in the authors' code. Positions are
//!   not read.

use crate::ConfigError;
use crate::facts::{Facts, Hooks, Lengths, ModelShape};
use crate::hooks::{Context, PositionalEncoding, PrepareResult, Prepared, Qk};
use crate::init::{Distribution, ParamSpec, Parameters};
use crate::positions::Positions;
use crate::rotary::{BASES, inv_freq};
use crate::rotary_tables::check_rotary_dim;
use crate::sequence::{by_head, causal_convolution, per_channel, projected, turned, unit};
use crate::spec::{About, EncodingSpec, NumberTable};
use crate::tensors::upload;
use burn::module::{Module, Param};
use burn::tensor::{Tensor, activation};
use schema::in_range;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// `kind = "selective_rope"`: configuration of [`SelectiveRope`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct SelectiveRopeConfig {
    /// Base of the temperatures, above 1 and at most 1e15.
    #[default = 500_000.0]
    pub base: f64,
    /// Number of dimensions between the two projections, 1 to 4096.
    #[default = 16]
    pub rank: usize,
    /// Number of tokens that the convolution reads, 1 to 64.
    #[default = 4]
    pub kernel: usize,
    /// Whether phi gets a positive offset.
    pub bias: bool,
    /// Whether phi is multiplied by a gate of every head.
    pub gate: bool,
    /// Whether the temperatures are trained.
    pub learnable: bool,
}

/// Rotation by angles that every token adds to.
#[derive(Module, Debug)]
pub struct SelectiveRope {
    layers: Vec<SelectiveRopeLayer>,
    n_heads: usize,
    head_dim: usize,
    #[module(skip)]
    config: SelectiveRopeConfig,
}

/// The projections of one layer.
#[derive(Module, Debug)]
pub struct SelectiveRopeLayer {
    down: Param<Tensor<2>>,
    up: Param<Tensor<2>>,
    convolution: Param<Tensor<2>>,
    offset: Option<Param<Tensor<1>>>,
    gate_weight: Option<Param<Tensor<2>>>,
    gate_bias: Option<Param<Tensor<1>>>,
    log_temperature: Option<Param<Tensor<1>>>,
}

struct PreparedSelectiveRope<'a> {
    encoding: &'a SelectiveRope,
    context: Context,
    /// `[1, 1, 1, E/2]`.
    temperature: Tensor<4>,
}

impl PositionalEncoding for SelectiveRope {
    fn prepare(&self, _positions: &Positions, context: &Context) -> PrepareResult<'_> {
        let theta = inv_freq(self.head_dim, self.config.base);
        let shape = [1, 1, 1, theta.len()];
        Ok(Box::new(PreparedSelectiveRope {
            encoding: self,
            context: context.clone(),
            temperature: upload(theta, shape, &context.device),
        }))
    }

    fn acts_in_groups(&self) -> bool {
        true
    }
}

impl PreparedSelectiveRope<'_> {
    /// The angles of all keys, `[B, H, K, E/2]`.
    fn angles(&self, layer: usize, hidden: &Tensor<3>) -> Tensor<4> {
        let (heads, layer) = (self.encoding.n_heads, &self.encoding.layers[layer]);
        let [batch, length, width] = hidden.dims();
        // Input that has no equal parts is one part.
        let parts = if width.is_multiple_of(heads) {
            heads
        } else {
            1
        };
        let parts = hidden
            .clone()
            .reshape([batch, length, parts, width / parts]);
        let normed = unit(parts).reshape([batch, length, width]);
        let Context { groups, ops, .. } = self.context;
        let phi = projected(ops, normed.clone(), layer.down.val(), groups);
        let phi = projected(ops, phi, layer.up.val(), groups);
        let mut phi = causal_convolution(phi, &layer.convolution.val(), groups);
        if let Some(offset) = &layer.offset {
            phi = phi + per_channel(offset.val().exp(), batch, groups);
        }
        let mut phi = by_head(phi, heads);
        if let (Some(weight), Some(bias)) = (&layer.gate_weight, &layer.gate_bias) {
            let opened = projected(ops, normed, weight.val(), groups);
            let opened = opened + per_channel(bias.val(), batch, groups);
            phi = phi * by_head(activation::sigmoid(opened), heads);
        }
        let temperature = match &layer.log_temperature {
            None => self.temperature.clone(),
            Some(trained) => {
                let trained = per_channel(trained.val().exp(), batch, groups);
                self.temperature.clone() * trained.unsqueeze_dim::<4>(1)
            }
        };
        phi.cumsum(2) * temperature
    }
}

impl Prepared for PreparedSelectiveRope<'_> {
    fn transform_qk(&self, layer: usize, q: Tensor<4>, k: Tensor<4>, hidden: &Tensor<3>) -> Qk {
        turned(q, k, self.angles(layer, hidden), self.context.ops)
    }
}

impl EncodingSpec for SelectiveRopeConfig {
    type Module = SelectiveRope;
    const NAME: Option<&'static str> = Some("Selective RoPE");
    const ABOUT: About = About {
        summary: "rotation of queries and keys by angles that every token adds to",
        formula: "pair i rotates by theta_i sum_{l<=p} phi_l, \
                  phi = conv(U D n(x_l)), n: each head's part by its length",
        source: "Movahedi et al. 2026, arXiv 2511.17388",
        deviations: "the authors' full-rank projection, differences in place of the convolution, \
                     other temperatures and gates by pair are not offered. Input whose width is \
                     no multiple of the heads is divided by its own length",
    };

    fn check(&self, shape: &ModelShape) -> Result<(), ConfigError> {
        in_range("base", self.base, BASES, "the authors use 500000")?;
        in_range("rank", self.rank, 1..=4096, "the authors use 16")?;
        in_range("kernel", self.kernel, 1..=64, "the authors use 4")?;
        check_rotary_dim(None, shape).map(drop)
    }

    fn parameters(&self, shape: &ModelShape) -> Vec<ParamSpec> {
        let (d_model, heads) = (shape.d_model, shape.n_heads);
        let width = heads * (shape.head_dim / 2);
        let linear = |inputs: usize| Distribution::Normal(1.0 / (3.0 * inputs as f64).sqrt());
        let zero = Distribution::Constant(0.0);
        let most = 1.0 / (self.kernel as f64).sqrt();
        let of = |layer: usize| {
            let spec = |name: &str, sizes: &[usize], init: Distribution| {
                ParamSpec::new(format!("layers.{layer}.{name}"), sizes, init)
            };
            let mut specs = vec![
                spec("down", &[d_model, self.rank], linear(d_model)),
                spec("up", &[self.rank, width], linear(self.rank)),
                spec(
                    "convolution",
                    &[self.kernel, width],
                    Distribution::Uniform(-most, most),
                ),
            ];
            if self.bias {
                specs.push(spec("offset", &[width], zero));
            }
            if self.gate {
                specs.push(spec("gate_weight", &[d_model, heads], linear(d_model)));
                specs.push(spec("gate_bias", &[heads], zero));
            }
            if self.learnable {
                specs.push(spec("log_temperature", &[shape.head_dim / 2], zero));
            }
            specs
        };
        (0..shape.n_layers).flat_map(of).collect()
    }

    fn properties(&self, _shape: &ModelShape) -> Facts {
        Facts {
            relative: true,
            by_distance: true,
            ignores_positions: true,
            linear: true,
            rotates_qk: true,
            transform_workspace: 6.0,
            transform_kept: 13.0,
            ..Facts::new(Hooks::TRANSFORM_QK)
        }
    }

    fn numbers(&self, shape: &ModelShape, _lengths: &Lengths) -> Vec<NumberTable> {
        let theta = inv_freq(shape.head_dim, self.base);
        let title = "temperatures: radians by a phi of 1";
        vec![NumberTable::of_frequencies(title, "pair", &theta)]
    }

    fn build(&self, shape: &ModelShape, parameters: &mut Parameters) -> SelectiveRope {
        SelectiveRope {
            layers: parameters.take_groups("layers", |layer| SelectiveRopeLayer {
                down: layer.take("down"),
                up: layer.take("up"),
                convolution: layer.take("convolution"),
                offset: layer.take_optional("offset"),
                gate_weight: layer.take_optional("gate_weight"),
                gate_bias: layer.take_optional("gate_bias"),
                log_temperature: layer.take_optional("log_temperature"),
            }),
            n_heads: shape.n_heads,
            head_dim: shape.head_dim,
            config: self.clone(),
        }
    }
}
