//! `grape_ap`: a penalty that adds up along the path from key to query.
//!
//! - Formula: logits get `slope_h sum of ln sigmoid(p_m.R_l n(p_l) / w) over l = n+1..m`, with
//!   ALiBi's slopes, p a projection of the layer's input to `width` w dimensions per head, n the
//!   division by the root mean square, and R_l the rotation of all pairs by -l radians.
//! - Source: GRAPE, 2025 (arXiv 2512.07805); model-architectures/GRAPE, `grape-ap-v1`. There the
//!   rotation has base 1, and p_m is neither divided nor rotated.
//! - Parameters: `layers.L`, `[D, H w]`, per layer L.
//! - Limits: none by construction. Causal only, as FoX. Linear attention cannot host it. Logits
//!   depend on absolute positions, which turn one of the two factors.

use super::alibi::slopes;
use crate::ConfigError;
use crate::facts::{Facts, Hooks, ModelShape};
use crate::hooks::{Content, Context, PositionalEncoding, PrepareResult, Prepared};
use crate::init::{Distribution, ParamSpec, Parameters};
use crate::positions::Positions;
use crate::rotary::RotaryLayout;
use crate::rotary_tables::RotaryTables;
use crate::sequence::{by_head, projected};
use crate::spec::{About, EncodingSpec};
use crate::tensors::upload;
use burn::module::{Module, Param};
use burn::tensor::{Tensor, activation};
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// `kind = "grape_ap"`: configuration of [`GrapeAp`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct GrapeApConfig {
    /// Number w of dimensions of p per head, even, 2 to 1024.
    #[default = 8]
    pub width: usize,
}

/// A penalty on distance that adds up along the path.
#[derive(Module, Debug)]
pub struct GrapeAp {
    layers: Vec<Param<Tensor<2>>>,
    n_heads: usize,
    width: usize,
}

struct PreparedGrapeAp<'a> {
    encoding: &'a GrapeAp,
    keys: RotaryTables,
    groups: usize,
}

/// Added to the mean square, so that zeros have a root: PyTorch's default in f32.
const EPSILON: f64 = f32::EPSILON as f64;

impl PositionalEncoding for GrapeAp {
    fn prepare(&self, positions: &Positions, context: &Context) -> PrepareResult<'_> {
        let (keys, pairs) = (positions.keys(), self.width / 2);
        // Base 1: every pair turns alike, the other way than RoPE.
        let angles = keys.iter().flat_map(|p| std::iter::repeat_n(-p, pairs));
        let shape = [1, 1, keys.len(), pairs];
        Ok(Box::new(PreparedGrapeAp {
            encoding: self,
            keys: RotaryTables::of_angles(angles, 1.0, shape, context),
            groups: context.groups,
        }))
    }

    fn acts_in_groups(&self) -> bool {
        true
    }
}

impl Prepared for PreparedGrapeAp<'_> {
    fn content_bias(&self, layer: usize, content: &Content<'_>) -> Option<Tensor<4>> {
        let (heads, width) = (self.encoding.n_heads, self.encoding.width);
        let (hidden, weight) = (content.hidden.clone(), self.encoding.layers[layer].val());
        // [B, H, all keys, w]; queries are among the keys.
        let p = by_head(projected(content.ops, hidden, weight, self.groups), heads);
        let mean_square = p.clone().square().mean_dim(3);
        let unit = p.clone() / (mean_square + EPSILON).sqrt();
        let turned = self.keys.apply(unit, RotaryLayout::Half);
        let rows = content.first_query..content.first_query + content.queries.len();
        let queries = p.slice_dim(2, rows) * (1.0 / width as f64);
        let keys = turned.slice_dim(2, content.keys.clone());
        let steps = activation::log_sigmoid(content.ops.matmul(queries, keys.swap_dims(2, 3)));
        let slope = upload(slopes(heads), [1, heads, 1, 1], &steps.device());
        let hidden = content.causal_mask().expand(steps.dims());
        // The path ends at the query: later keys add nothing.
        let steps = (steps * slope).mask_fill(hidden.clone(), 0.0);
        let walked = steps.clone().cumsum(3);
        Some((steps.sum_dim(3) - walked).mask_fill(hidden, 0.0))
    }
}

impl EncodingSpec for GrapeApConfig {
    type Module = GrapeAp;
    const NAME: Option<&'static str> = Some("GRAPE-AP");
    const ABOUT: About = About {
        summary: "a penalty that adds up along the path from key to query",
        formula: "logits + slope_h sum_{l=n+1..m} ln sigmoid(p_m.R_l n(p_l) / w), n(p) = p / rms(p), \
                  R_l turns all pairs by -l",
        source: "GRAPE, 2025, arXiv 2512.07805",
        deviations: "follows the released code, not the paper's eq. 5.1: that divides both p by their \
                     root mean square, the code the key's side only, with a rotation by -l \
                     radians (base 1) and p_m as it is; the authors also normalise queries and \
                     keys (`model.qk_norm`)",
    };

    fn check(&self, _shape: &ModelShape) -> Result<(), ConfigError> {
        let hint = "the authors use 8 or head_dim";
        schema::in_range("width", self.width, 2..=1024, hint)?;
        if self.width.is_multiple_of(2) {
            return Ok(());
        }
        Err(ConfigError::new(
            "width",
            self.width,
            "must form pairs of dimensions",
            "an even number from 2 to 1024",
            hint,
        ))
    }

    fn parameters(&self, shape: &ModelShape) -> Vec<ParamSpec> {
        let ModelShape {
            d_model, n_heads, ..
        } = *shape;
        let spread = Distribution::Normal(1.0 / (3.0 * d_model as f64).sqrt());
        let sizes = [d_model, n_heads * self.width];
        let of = |layer| ParamSpec::new(format!("layers.{layer}"), sizes, spread);
        (0..shape.n_layers).map(of).collect()
    }

    fn properties(&self, _shape: &ModelShape) -> Facts {
        Facts {
            causal_only: true,
            bias_kept: 4.0,
            ..Facts::new(Hooks::CONTENT_BIAS)
        }
    }

    fn build(&self, shape: &ModelShape, parameters: &mut Parameters) -> GrapeAp {
        GrapeAp {
            layers: parameters.take_list("layers"),
            n_heads: shape.n_heads,
            width: self.width,
        }
    }
}
