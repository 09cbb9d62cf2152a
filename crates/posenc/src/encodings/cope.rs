//! `cope`: positions counted by content: queries decide which keys count, and are multiplied with a
//! trained vector per count.
//!
//! - Formula: a key's position is counted by content, `p_mn = sum of sigmoid(q_m.k_j) over j =
//!   n..m`, at most `max_position - 1`; logits get `q_m . e[p_mn]`, with e interpolated between the
//!   two nearest of `max_position` trained vectors.
//! - Source: Golovneva et al. 2024, CoPE (arXiv 2405.18719), eq. 3 to 7 and the code of its
//!   appendix.
//! - Parameters: `tables.L`, `[head_dim, max_position]` per layer L, shared by heads, 0 at start.
//! - Limits: none: counts past the end stay there. Causal only: counts end at the query. Linear
//!   attention cannot host it.

use crate::ConfigError;
use crate::facts::{Facts, Hooks, Lengths, ModelShape};
use crate::hooks::{Content, Context, PositionalEncoding, PrepareResult, Prepared};
use crate::init::{Distribution, ParamSpec, Parameters};
use crate::positions::Positions;
use crate::spec::{About, EncodingSpec};
use crate::tensors::for_batch;
use crate::values::{in_range_if_set, unset};
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use schema::in_range;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// `kind = "cope"`: configuration of [`Cope`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct CopeConfig {
    /// Number of trained positions, 2 to 1000000; the training length, but at most 64, unless
    /// given. Trained at 64 bytes, a table of 64 fails past that and one of 32 holds (experiment
    /// 002).
    pub max_position: Option<usize>,
    /// Whether gates see logits after their division by sqrt(head_dim).
    #[default = true]
    pub scaled_gates: bool,
    /// Standard deviation of the initial vectors, 0 to 10.
    pub init_std: f64,
}

/// Positions counted by content.
#[derive(Module, Debug)]
pub struct Cope {
    tables: Vec<Param<Tensor<2>>>,
    scaled_gates: bool,
}

struct PreparedCope<'a> {
    encoding: &'a Cope,
    groups: usize,
}

impl PositionalEncoding for Cope {
    fn prepare(&self, _positions: &Positions, context: &Context) -> PrepareResult<'_> {
        Ok(Box::new(PreparedCope {
            encoding: self,
            groups: context.groups,
        }))
    }

    fn acts_in_groups(&self) -> bool {
        true
    }
}

impl Prepared for PreparedCope<'_> {
    fn content_bias(&self, layer: usize, content: &Content<'_>) -> Option<Tensor<4>> {
        let table = self.encoding.tables[layer].val();
        let [rows, positions] = table.dims();
        let table = table.reshape([self.groups, 1, rows / self.groups, positions]);
        let table = for_batch(table, content.q.dims()[0]);
        let last = (positions - 1) as f64;
        let logits = content.logits();
        let logits = if self.encoding.scaled_gates {
            logits
        } else {
            logits / content.scale
        };
        let counted = content
            .ops
            .count_open_keys(logits, content.first_query, last);
        // [B, H, q_len, max_position]: one product per trained vector, not one per pair.
        let scores = content.ops.matmul(content.q.clone(), table);
        Some(content.ops.interpolate_columns(scores, counted))
    }
}

impl EncodingSpec for CopeConfig {
    type Module = Cope;
    const NAME: Option<&'static str> = Some("CoPE");
    const ABOUT: About = About {
        summary: "positions counted by content: queries decide which keys count, and are \
                  multiplied with a trained vector per count",
        formula: "logits + q_m . e[sum_{j=n..m} sigmoid(q_m . k_j)]",
        source: "Golovneva et al. 2024, arXiv 2405.18719",
        deviations: "none; gates see the logits after their division by sqrt(head_dim), as in the \
                     paper's code, or, with `scaled_gates = false`, before it, as in eq. 3. The \
                     product with e is not divided, as in the code",
    };

    fn check(&self, _shape: &ModelShape) -> Result<(), ConfigError> {
        in_range_if_set(
            "max_position",
            self.max_position,
            2..=1_000_000,
            "the paper uses 64",
        )?;
        in_range(
            "init_std",
            self.init_std,
            0.0..=10.0,
            "the paper starts from 0",
        )
    }

    fn resolve(&mut self, lengths: &Lengths) {
        self.max_position
            .get_or_insert(lengths.train_len.clamp(2, 64));
    }

    fn unresolved(&self) -> Option<String> {
        unset("max_position", self.max_position)
    }

    fn parameters(&self, shape: &ModelShape) -> Vec<ParamSpec> {
        let init = if self.init_std > 0.0 {
            Distribution::Normal(self.init_std)
        } else {
            Distribution::Constant(0.0)
        };
        let tables = self.max_position.map(|positions| {
            (0..shape.n_layers).map(move |layer| {
                ParamSpec::new(format!("tables.{layer}"), [shape.head_dim, positions], init)
            })
        });
        tables.into_iter().flatten().collect()
    }

    fn properties(&self, _shape: &ModelShape) -> Facts {
        Facts {
            relative: true,
            by_distance: true,
            ignores_positions: true,
            causal_only: true,
            reads_transformed_qk: true,
            bias_workspace: 5.5,
            bias_kept: 6.5,
            bias_work: 3.5,
            ..Facts::new(Hooks::CONTENT_BIAS)
        }
    }

    fn untrained(&self, train_len: usize, test_len: usize) -> Option<String> {
        let positions = self.max_position.filter(|most| *most >= train_len)?;
        let half = (train_len / 2).max(2);
        (test_len > train_len).then(|| {
            format!(
                "tests of {test_len} tokens count further in its table of {positions} than \
                 training on {train_len} does: `max_position = {half}`, half the training length, \
                 trains all"
            )
        })
    }

    fn build(&self, _shape: &ModelShape, parameters: &mut Parameters) -> Cope {
        Cope {
            tables: parameters.take_list("tables"),
            scaled_gates: self.scaled_gates,
        }
    }
}
