//! `cable`: a penalty on distance that every token adds to: FoX with the gate's sign turned.
//!
//! - Formula: logits get `-sum of softplus(w.x_l + b) over l = n+1..m`, from the layer's input;
//!   `-softplus(z) = ln sigmoid(-z)`, so this is `fox` with -w and -b.
//! - Source: CABLE, Veisi et al. 2025 (axiomlab/Cable, `Cable.py`).
//! - Parameters: per layer L: `layers.L.weight`, `[D, H]`; `layers.L.bias`, `[H]`.
//! - Limits: none by construction. Causal only, as FoX. Linear attention cannot host it here.

use super::fox::{Fox, FoxLayer};
use crate::ConfigError;
use crate::facts::{Facts, Hooks, ModelShape};
use crate::init::{ParamSpec, Parameters};
use crate::spec::{About, EncodingSpec};
use schema::in_range;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// `kind = "cable"`: configuration of [`Cable`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct CableConfig {
    /// Whether logits are divided by the square root of head_dim; the released code does not.
    #[default = true]
    pub scaled: bool,
    /// b at start, -20 to 20: the larger, the more a token adds.
    pub init_bias: f64,
}

/// Penalties accumulated between key and query: [`Fox`] with the gates' sign turned.
pub type Cable = Fox;

impl EncodingSpec for CableConfig {
    type Module = Cable;
    const NAME: Option<&'static str> = Some("CABLE");
    const ABOUT: About = About {
        summary: "a penalty on distance that every token adds to: FoX with the gate's sign turned",
        formula: "logits - sum_{l=n+1..m} softplus(w.x_l + b)",
        source: "Veisi et al. 2025, CABLE; axiomlab/Cable",
        deviations: "`scaled = false` leaves logits undivided by sqrt(head_dim), as the released \
                     code does (it divides by the root of C / n_embd = 1). w starts as FoX's, b \
                     at `init_bias`",
    };

    fn check(&self, _shape: &ModelShape) -> Result<(), ConfigError> {
        let hint = "0 forgets half at every token, -5 almost nothing";
        in_range("init_bias", self.init_bias, -20.0..=20.0, hint)
    }

    fn parameters(&self, shape: &ModelShape) -> Vec<ParamSpec> {
        let of = |layer| FoxLayer::declare(layer, shape, self.init_bias);
        (0..shape.n_layers).flat_map(of).collect()
    }

    fn properties(&self, _shape: &ModelShape) -> Facts {
        Fox::facts(Hooks::CONTENT_BIAS | Hooks::TRANSFORM_QK.when(!self.scaled))
    }

    fn build(&self, shape: &ModelShape, parameters: &mut Parameters) -> Cable {
        let factor = if self.scaled {
            1.0
        } else {
            (shape.head_dim as f64).sqrt()
        };
        Cable {
            layers: parameters.take_groups("layers", FoxLayer::take),
            sign: -1.0,
            factor,
        }
    }
}
