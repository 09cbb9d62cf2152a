//! `repo`: rotation by positions that each head learns to give to tokens by their content.
//!
//! - Formula: pair i of head h turns by `z_h theta_i`, `theta_i = base^(-2i/E)`, `z = (silu(x W_g)
//!   * (x W_c)) W_z`; x is what q and k are projected from.
//! - Source: RePo, Li et al. 2025 (arXiv 2512.14391), and the authors' code, `OLMo/olmo/model.py`,
//!   mode `swigluex_multihead`.
//! - Parameters: per layer L: `layers.L.gate` and `layers.L.content`, `[D, width]`, and
//!   `layers.L.position`, `[width, H]`.
//! - Limits: none. Order comes from the mask alone until weights tell tokens apart.

use crate::ConfigError;
use crate::facts::{Facts, Hooks, ModelShape};
use crate::hooks::{Context, PositionalEncoding, PrepareResult, Prepared, Qk};
use crate::init::{Distribution, ParamSpec, Parameters};
use crate::positions::Positions;
use crate::rotary::{BASES, inv_freq};
use crate::rotary_tables::check_rotary_dim;
use crate::sequence::{by_head, projected, turned};
use crate::spec::{About, EncodingSpec};
use crate::tensors::upload;
use crate::values::in_range_if_set;
use burn::module::{Module, Param};
use burn::tensor::{Tensor, activation};
use schema::in_range;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// `kind = "repo"`: configuration of [`Repo`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct RepoConfig {
    /// Base of the frequencies, above 1 and at most 1e15.
    #[default = 500_000.0]
    pub base: f64,
    /// Number of channels that positions are computed from, 1 to 65536; an eighth of d_model unless
    /// given.
    pub width: Option<usize>,
}

/// Rotation by positions that content gives.
#[derive(Module, Debug)]
pub struct Repo {
    layers: Vec<RepoLayer>,
    n_heads: usize,
    head_dim: usize,
    #[module(skip)]
    config: RepoConfig,
}

/// The positions of one layer.
#[derive(Module, Debug)]
pub struct RepoLayer {
    gate: Param<Tensor<2>>,
    content: Param<Tensor<2>>,
    position: Param<Tensor<2>>,
}

struct PreparedRepo<'a> {
    encoding: &'a Repo,
    context: Context,
    /// `[1, 1, 1, E/2]`.
    theta: Tensor<4>,
}

impl PositionalEncoding for Repo {
    fn prepare(&self, _positions: &Positions, context: &Context) -> PrepareResult<'_> {
        let theta = inv_freq(self.head_dim, self.config.base);
        let shape = [1, 1, 1, theta.len()];
        Ok(Box::new(PreparedRepo {
            encoding: self,
            context: context.clone(),
            theta: upload(theta, shape, &context.device),
        }))
    }

    fn acts_in_groups(&self) -> bool {
        true
    }
}

impl Prepared for PreparedRepo<'_> {
    fn transform_qk(&self, layer: usize, q: Tensor<4>, k: Tensor<4>, hidden: &Tensor<3>) -> Qk {
        let (heads, layer) = (self.encoding.n_heads, &self.encoding.layers[layer]);
        let Context { groups, ops, .. } = self.context;
        let of = |x: &Tensor<3>, weight: &Param<Tensor<2>>| {
            projected(ops, x.clone(), weight.val(), groups)
        };
        let gated = activation::silu(of(hidden, &layer.gate)) * of(hidden, &layer.content);
        let angles = by_head(of(&gated, &layer.position), heads) * self.theta.clone();
        turned(q, k, angles, ops)
    }
}

impl EncodingSpec for RepoConfig {
    type Module = Repo;
    const ABOUT: About = About {
        summary: "rotation by positions that each head gives to tokens by their content",
        formula: "pair i rotates by z_h theta_i, z = (silu(x W_g) * (x W_c)) W_z",
        source: "Li et al. 2025, arXiv 2512.14391",
        deviations: "the authors use it from layer 6 of 16 on, above layers of RoPE (`by_layer`), \
                     in a pretrained model whose x is not normalised. x is the layer's \
                     normalised input, which q and k are projected from; initial values beyond \
                     3 standard deviations are not drawn anew",
    };

    fn check(&self, shape: &ModelShape) -> Result<(), ConfigError> {
        in_range("base", self.base, BASES, "the authors use 500000")?;
        let hint = "leave it out for an eighth of d_model, as the authors have";
        in_range_if_set("width", self.width, 1..=65_536, hint)?;
        check_rotary_dim(None, shape).map(drop)
    }

    fn parameters(&self, shape: &ModelShape) -> Vec<ParamSpec> {
        let width = self.width.unwrap_or((shape.d_model / 8).max(1));
        let of = |layer: usize| {
            let spec = |name: &str, sizes: [usize; 2]| {
                let path = format!("layers.{layer}.{name}");
                ParamSpec::new(path, sizes, Distribution::Normal(0.02))
            };
            [
                spec("gate", [shape.d_model, width]),
                spec("content", [shape.d_model, width]),
                spec("position", [width, shape.n_heads]),
            ]
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
            transform_workspace: 9.0,
            transform_kept: 10.0,
            ..Facts::new(Hooks::TRANSFORM_QK)
        }
    }

    fn build(&self, shape: &ModelShape, parameters: &mut Parameters) -> Repo {
        Repo {
            layers: parameters.take_groups("layers", |layer| RepoLayer {
                gate: layer.take("gate"),
                content: layer.take("content"),
                position: layer.take("position"),
            }),
            n_heads: shape.n_heads,
            head_dim: shape.head_dim,
            config: self.clone(),
        }
    }
}
