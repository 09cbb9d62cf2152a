//! `stick_breaking`: every key, from the nearest on, takes a share of the weight left.
//!
//! - Formula: with z the logits, key n < m gets the weight `sigmoid(z_mn) prod over n < l < m of
//!   (1 - sigmoid(z_ml))`, and the query's own token what is left over. As a bias on the logits,
//!   with `s(a) = sum over l = a..m-1 of softplus(z_ml)`: `-s(n)` for n < m, and `-s(0) - z_mm` for
//!   n = m. The softmax then has nothing to divide by.
//! - Source: Tan et al. 2024 (arXiv 2410.17980); shawntan/stickbreaking-attention, whose reference
//!   gives the remainder to the query's own value.
//! - Parameters: none.
//! - Limits: none. Causal only. Linear attention cannot host it. Beside other biases in a `stack`
//!   it breaks the stick by the products of queries and keys alone.

use crate::ConfigError;
use crate::facts::{Facts, Hooks, ModelShape};
use crate::hooks::{Content, Context, PositionalEncoding, PrepareResult, Prepared};
use crate::init::Parameters;
use crate::positions::Positions;
use crate::spec::{About, EncodingSpec};
use burn::module::Module;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// `kind = "stick_breaking"`: configuration of [`StickBreaking`]; nothing to set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct StickBreakingConfig {}

/// Attention by shares of what nearer keys left over.
#[derive(Module, Debug)]
pub struct StickBreaking {
    #[module(skip)]
    config: StickBreakingConfig,
}

struct PreparedStickBreaking;

impl PositionalEncoding for StickBreaking {
    fn prepare(&self, _positions: &Positions, _context: &Context) -> PrepareResult<'_> {
        Ok(Box::new(PreparedStickBreaking))
    }
}

impl Prepared for PreparedStickBreaking {
    fn content_bias(&self, _layer: usize, content: &Content<'_>) -> Option<Tensor<4>> {
        Some(
            content
                .ops
                .break_stick(content.logits(), content.first_query),
        )
    }
}

impl EncodingSpec for StickBreakingConfig {
    type Module = StickBreaking;
    const NAME: Option<&'static str> = Some("stick-breaking");
    const ABOUT: About = About {
        summary: "every key, from the nearest on, takes a share of the attention weight that is left",
        formula: "weight_mn = sigmoid(z_mn) prod_{n<l<m} (1 - sigmoid(z_ml)); the rest to m itself",
        source: "Tan et al. 2024, arXiv 2410.17980",
        deviations: "none. Without the remainder weights do not add up to 1, which no bias can do",
    };

    fn check(&self, _shape: &ModelShape) -> Result<(), ConfigError> {
        Ok(())
    }

    fn properties(&self, _shape: &ModelShape) -> Facts {
        Facts {
            relative: true,
            by_distance: true,
            ignores_positions: true,
            causal_only: true,
            bias_kept: 3.3,
            bias_work: 1.0,
            ..Facts::new(Hooks::CONTENT_BIAS)
        }
    }

    fn build(&self, _shape: &ModelShape, _parameters: &mut Parameters) -> StickBreaking {
        StickBreaking {
            config: self.clone(),
        }
    }
}
