//! Formula: a key's position is counted by content, `p_mn = sum of sigmoid(q_m.k_j) over j = n..m`,
//! at most `max_position - 1`; logits get `q_m . e[p_mn]`, with e interpolated between the two
//! nearest of `max_position` trained vectors. Source: Golovneva et al. 2024, CoPE (arXiv
//! 2405.18719), eq. 3 to 7 and the code of its appendix. Deviations: none; gates see the logits
//! after their division by sqrt(head_dim), as in the paper's code, or, with `scaled_gates = false`,
//! before it, as in eq. 3. The product with e is not divided, as in the code. Parameters:
//! `tables.L`, `[head_dim, max_position]` per layer L, shared by heads, 0 at start. Limits: none:
//! counts past the end stay there. Causal only: counts end at the query. Linear attention cannot
//! host it.

use crate::catalogue::{About, Facts, Hooks, Lengths, ModelShape, Spec};
use crate::error::in_range;
use crate::{ConfigError, Content, Distribution, Init, PositionalEncoding, Positions, Prepared};
use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor, activation};
use serde::{Deserialize, Serialize};

/// Configuration of [`Cope`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CopeConfig {
    /// Number of trained positions; the training length, but at most 64, unless given.
    pub max_position: Option<usize>,
    /// Whether gates see logits after their division by sqrt(head_dim).
    pub scaled_gates: bool,
    /// Standard deviation of the initial vectors.
    pub init_std: f64,
}

impl Default for CopeConfig {
    fn default() -> Self {
        Self {
            max_position: None,
            scaled_gates: true,
            init_std: 0.0,
        }
    }
}

/// Positions counted by what the tokens are.
#[derive(Module, Debug)]
pub struct Cope {
    tables: Vec<Param<Tensor<2>>>,
    scaled_gates: bool,
}

struct PreparedCope<'a> {
    encoding: &'a Cope,
}

impl PositionalEncoding for Cope {
    fn prepare<'a>(&'a self, _positions: &Positions, _device: &Device) -> Box<dyn Prepared + 'a> {
        Box::new(PreparedCope { encoding: self })
    }
}

impl Prepared for PreparedCope<'_> {
    fn content_bias(&self, layer: usize, content: &Content<'_>) -> Option<Tensor<4>> {
        let table = self.encoding.tables[layer].val();
        let last = (table.dims()[1] - 1) as f64;
        let logits = content.logits();
        let shape = logits.dims();
        let logits = if self.encoding.scaled_gates {
            logits
        } else {
            logits / content.scale
        };
        let gates = activation::sigmoid(logits).mask_fill(content.causal_mask().expand(shape), 0.0);
        // The sum from a key to the query: all gates of the row, without those before the key.
        let before = gates.clone().cumsum(3) - gates.clone();
        let counted = (gates.sum_dim(3) - before).clamp(0.0, last);
        let below = counted.clone().detach().floor();
        let share = counted - below.clone();
        let scores = content.q.clone().matmul(table.unsqueeze());
        let [lower, upper] = [0.0, 1.0].map(|step| {
            scores
                .clone()
                .gather(3, (below.clone() + step).clamp_max(last).int())
        });
        Some(lower.clone() + (upper - lower) * share)
    }
}

impl Spec for CopeConfig {
    type Module = Cope;
    const ABOUT: About = About {
        summary: "positions counted by content: queries decide which keys count, and meet a \
                  trained vector per count",
        formula: "logits + q_m . e[sum_{j=n..m} sigmoid(q_m . k_j)]",
        source: "Golovneva et al. 2024, arXiv 2405.18719",
    };

    fn check(&self, _shape: &ModelShape) -> Result<(), ConfigError> {
        in_range(
            "max_position",
            self.max_position.unwrap_or(2) as f64,
            2.0,
            1e6,
            "the paper uses 64",
        )?;
        in_range(
            "init_std",
            self.init_std,
            0.0,
            10.0,
            "the paper starts from 0",
        )
    }

    fn resolve(&mut self, lengths: &Lengths) {
        self.max_position
            .get_or_insert(lengths.train_len.clamp(2, 64));
    }

    fn facts(&self, shape: &ModelShape) -> Facts {
        let table = |layer: usize| {
            (
                format!("tables.{layer}"),
                vec![shape.head_dim, self.max_position.unwrap_or(2)],
            )
        };
        Facts {
            hooks: Hooks {
                content_bias: true,
                ..Hooks::default()
            },
            parameters: (0..shape.n_layers).map(table).collect(),
            relative: true,
            by_distance: true,
            causal: true,
            meets: true,
            ..Facts::default()
        }
    }

    fn init(&self, shape: &ModelShape, init: &Init<'_>) -> Cope {
        let (tables, positions) = (init.scope("tables"), self.max_position.unwrap_or(2));
        let start = if self.init_std > 0.0 {
            Distribution::Normal(self.init_std)
        } else {
            Distribution::Constant(0.0)
        };
        let table =
            |layer: usize| tables.param(&layer.to_string(), [shape.head_dim, positions], start);
        Cope {
            tables: (0..shape.n_layers).map(table).collect(),
            scaled_gates: self.scaled_gates,
        }
    }
}
