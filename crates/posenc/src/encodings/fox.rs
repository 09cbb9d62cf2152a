//! `fox`: forget gates: a penalty on distance that every token sets for itself.
//!
//! - Formula: each head forgets: logits get `sum of ln f_l over l = n+1..m`, with gates `f_l =
//!   sigmoid(w.x_l + b)` from the layer's input.
//! - Source: Lin et al. 2025, Forgetting Transformer (arXiv 2503.02130), eq. 4 to 8; ALiBi whose
//!   slope depends on the data.
//! - Parameters: per layer L: `layers.L.weight`, `[D, H]`; `layers.L.bias`, `[H]`, starting at
//!   `init_bias`.
//! - Limits: none by construction. Causal only: gates between a key and a later query. Linear
//!   attention cannot host it here.

use crate::ConfigError;
use crate::facts::{Facts, Hooks, ModelShape};
use crate::hooks::{Content, Context, FusedQk, PositionalEncoding, PrepareResult, Prepared, Qk};
use crate::init::{Distribution, ParamSpec, Parameters};
use crate::ops::Ops;
use crate::positions::Positions;
use crate::sequence::{per_channel, projected};
use crate::spec::{About, EncodingSpec};
use burn::module::{Module, Param};
use burn::tensor::{Tensor, activation};
use schema::in_range;
use serde::{Deserialize, Serialize};

/// `kind = "fox"`: configuration of [`Fox`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct FoxConfig {
    /// The gates' bias at start, -20 to 20: the larger, the longer a head remembers.
    pub init_bias: f64,
}

/// Forget gates accumulated between key and query.
#[derive(Module, Debug)]
pub struct Fox {
    pub(super) layers: Vec<FoxLayer>,
    /// Of the gates' argument: 1, or -1 for `cable`.
    pub(super) sign: f64,
    /// Of the logits.
    pub(super) factor: f64,
}

/// The gates of one layer.
#[derive(Module, Debug)]
pub struct FoxLayer {
    weight: Param<Tensor<2>>,
    bias: Param<Tensor<1>>,
}

struct PreparedFox<'a> {
    encoding: &'a Fox,
    context: Context,
}

impl PositionalEncoding for Fox {
    fn prepare(&self, _positions: &Positions, context: &Context) -> PrepareResult<'_> {
        Ok(Box::new(PreparedFox {
            encoding: self,
            context: context.clone(),
        }))
    }

    fn acts_in_groups(&self) -> bool {
        true
    }
}

impl Fox {
    pub(super) fn facts(hooks: Hooks) -> Facts {
        Facts {
            relative: true,
            by_distance: true,
            ignores_positions: true,
            causal_only: true,
            decays: true,
            bias_workspace: 5.0,
            bias_kept: 2.0,
            bias_work: 0.0,
            ..Facts::new(hooks)
        }
    }
}

impl FoxLayer {
    pub(crate) fn declare(layer: usize, shape: &ModelShape, init_bias: f64) -> [ParamSpec; 2] {
        let ModelShape {
            d_model, n_heads, ..
        } = *shape;
        let spread = Distribution::Normal(1.0 / (3.0 * d_model as f64).sqrt());
        let start = Distribution::Constant(init_bias);
        [
            ParamSpec::new(format!("layers.{layer}.weight"), [d_model, n_heads], spread),
            ParamSpec::new(format!("layers.{layer}.bias"), [n_heads], start),
        ]
    }

    pub(crate) fn take(layer: &mut Parameters) -> Self {
        Self {
            weight: layer.take("weight"),
            bias: layer.take("bias"),
        }
    }

    /// `sum of ln sigmoid(sign (w.x_l + b)) over l = 0..n` of all tokens, `[B, H, K]`, with the
    /// gates of `groups` models; a difference of two is the sum between.
    pub(crate) fn sums(
        &self,
        sign: f64,
        hidden: Tensor<3>,
        groups: usize,
        ops: &dyn Ops,
    ) -> Tensor<3> {
        let batch = hidden.dims()[0];
        let opened = projected(ops, hidden, self.weight.val(), groups);
        let opened = opened + per_channel(self.bias.val(), batch, groups);
        let opened = if sign < 0.0 { opened.neg() } else { opened };
        activation::log_sigmoid(opened).swap_dims(1, 2).cumsum(2)
    }

    /// `sum of ln sigmoid(sign (w.x_l + b)) over l = n+1..m`, 0 for keys after the query.
    pub(crate) fn decay(&self, sign: f64, content: &Content<'_>, groups: usize) -> Tensor<4> {
        let hidden = content.hidden.clone().slice_dim(1, content.keys.clone());
        let remembered = self.sums(sign, hidden, groups, content.ops);
        // Queries are among the keys, so their sums are entries of the same tensor.
        let rows = content.first_query..content.first_query + content.queries.len();
        let query = remembered.clone().slice_dim(2, rows).unsqueeze_dim::<4>(3);
        let bias = query - remembered.unsqueeze_dim::<4>(2);
        let shape = bias.dims();
        // Hidden keys would get a growing bias.
        bias.mask_fill(content.causal_mask().expand(shape), 0.0)
    }
}

impl Prepared for PreparedFox<'_> {
    fn transform_qk(&self, _: usize, q: Tensor<4>, k: Tensor<4>, _: &Tensor<3>) -> Qk {
        let factor = self.encoding.factor;
        let q = if factor == 1.0 { q } else { q * factor };
        (q, k)
    }

    fn fused_qk(&self, _layer: usize) -> Option<FusedQk> {
        Some(FusedQk::new(None, self.encoding.factor))
    }

    fn decays(&self, layer: usize, hidden: &dyn Fn() -> Tensor<3>) -> Option<Tensor<3>> {
        let Context { groups, ops, .. } = self.context;
        let Fox { layers, sign, .. } = self.encoding;
        Some(layers[layer].sums(*sign, hidden(), groups, ops))
    }

    fn content_bias(&self, layer: usize, content: &Content<'_>) -> Option<Tensor<4>> {
        let Fox { layers, sign, .. } = self.encoding;
        Some(layers[layer].decay(*sign, content, self.context.groups))
    }
}

impl EncodingSpec for FoxConfig {
    type Module = Fox;
    const NAME: Option<&'static str> = Some("FoX");
    const ABOUT: About = About {
        summary: "forget gates: a penalty on distance that every token sets for itself",
        formula: "logits + sum_{l=n+1..m} ln sigmoid(w.x_l + b)",
        source: "Lin et al. 2025, arXiv 2503.02130",
        deviations: "none of the attention; the paper's other changes to the block (output gates, \
                     norms) are not encodings",
    };

    fn check(&self, _shape: &ModelShape) -> Result<(), ConfigError> {
        let hint = "0 forgets half at every token, 5 almost nothing";
        in_range("init_bias", self.init_bias, -20.0..=20.0, hint)
    }

    fn parameters(&self, shape: &ModelShape) -> Vec<ParamSpec> {
        let of = |layer| FoxLayer::declare(layer, shape, self.init_bias);
        (0..shape.n_layers).flat_map(of).collect()
    }

    fn properties(&self, _shape: &ModelShape) -> Facts {
        Fox::facts(Hooks::CONTENT_BIAS)
    }

    fn build(&self, _shape: &ModelShape, parameters: &mut Parameters) -> Fox {
        Fox {
            layers: parameters.take_groups("layers", FoxLayer::take),
            sign: 1.0,
            factor: 1.0,
        }
    }
}
