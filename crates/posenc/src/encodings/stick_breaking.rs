//! `stick_breaking`: every key, from the nearest on, takes a share of what is left.
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
use crate::hooks::{Content, Context, PositionalEncoding, PrepareError, Prepared};
use crate::init::Parameters;
use crate::positions::Positions;
use crate::spec::{About, EncodingSpec};
use crate::tensors::cells;
use burn::module::Module;
use burn::tensor::{Bool, Tensor, activation};
use serde::{Deserialize, Serialize};

/// Configuration of [`StickBreaking`]; nothing to set.
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
    fn prepare<'a>(
        &'a self,
        _positions: &Positions,
        _context: &Context,
    ) -> Result<Box<dyn Prepared + 'a>, PrepareError> {
        Ok(Box::new(PreparedStickBreaking))
    }
}

/// `[1, 1, q_len, k_len]`, true where the key is the query's own token.
fn own(content: &Content<'_>) -> Tensor<4, Bool> {
    let size = [content.queries.len(), content.keys.len()];
    let own = |row, key| key == content.first_query + row;
    cells(size, &content.q.device(), own)
}

impl Prepared for PreparedStickBreaking {
    fn content_bias(&self, _layer: usize, content: &Content<'_>) -> Option<Tensor<4>> {
        let logits = content.logits();
        let shape = logits.dims();
        let (own, later) = (
            own(content).expand(shape),
            content.causal_mask().expand(shape),
        );
        // What is not taken, as a logarithm: ln(1 - sigmoid(z)) = -softplus(z).
        let left = activation::softplus(logits.clone(), 1.0);
        let left = left
            .mask_fill(later.clone(), 0.0)
            .mask_fill(own.clone(), 0.0);
        let (all, up_to) = (left.clone().sum_dim(3), left.clone().cumsum(3));
        // From the key itself to the one before the query.
        let nearer = all.clone() - up_to + left;
        // The query's own token has no share to take: its logit goes, the remainder stays.
        let bias = nearer
            .neg()
            .mask_where(own, (all.expand(shape) + logits).neg());
        Some(bias.mask_fill(later, 0.0))
    }
}

impl EncodingSpec for StickBreakingConfig {
    type Module = StickBreaking;
    const NAME: Option<&'static str> = Some("stick-breaking");
    const ABOUT: About = About {
        summary: "every key, from the nearest on, takes a share of what is left",
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
            bias_kept: 6.5,
            ..Facts::new(Hooks::CONTENT_BIAS)
        }
    }

    fn build(&self, _shape: &ModelShape, _parameters: &mut Parameters) -> StickBreaking {
        StickBreaking {
            config: self.clone(),
        }
    }
}
