//! `shaw`: trained vectors per clipped distance, added to keys and to values.
//!
//! - Formula: logits get `q . a_K[r]/sqrt(head_dim)` and outputs `sum over keys of weight a_V[r]`,
//!   r = clip(key - query, -k, k) + k.
//! - Source: Shaw et al. 2018 (arXiv 1803.02155), eq. 3 to 5; k = `max_distance`.
//! - Parameters: `keys.L` and, with `values`, `values.L`, `[2k + 1, head_dim]` per layer L, shared
//!   by heads.
//! - Limits: none: farther keys share the last row. Linear attention cannot host it.

use crate::ConfigError;
use crate::distances::Distances;
use crate::facts::{Facts, Hooks, Lengths, ModelShape};
use crate::hooks::{Content, Context, PositionalEncoding, PrepareResult, Prepared};
use crate::init::{Distribution, ParamSpec, Parameters};
use crate::positions::Positions;
use crate::spec::{About, EncodingSpec};
use crate::tensors::for_batch;
use crate::values::{in_range_if_set, resolved, unset};
use burn::module::{Module, Param};
use burn::tensor::{Int, Tensor};
use schema::in_range;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// `kind = "shaw"`: configuration of [`Shaw`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct ShawConfig {
    /// The largest distance k in tokens with its own rows, 1 to 1000000; at most 16, and half the
    /// training length, unless given.
    pub max_distance: Option<usize>,
    /// Whether outputs also get a term, as in the paper.
    #[default = true]
    pub values: bool,
    /// Standard deviation of the initial vectors, 0 to 10.
    #[default = 0.02]
    pub init_std: f64,
}

/// Trained vectors per clipped distance, multiplied with queries and added to values.
#[derive(Module, Debug)]
pub struct Shaw {
    keys: Vec<Param<Tensor<2>>>,
    values: Vec<Param<Tensor<2>>>,
    max_distance: usize,
}

struct PreparedShaw<'a> {
    encoding: &'a Shaw,
    distances: Distances,
    groups: usize,
}

impl PreparedShaw<'_> {
    /// A table for the sequences of a block, `[1 or B, 1, rows, E]`.
    fn table(&self, table: &Param<Tensor<2>>, content: &Content<'_>) -> Tensor<4> {
        let [rows, width] = table.val().dims();
        let shape = [self.groups, 1, rows / self.groups, width];
        for_batch(table.val().reshape(shape), content.q.dims()[0])
    }

    /// Row of the tables for each cell of the block, `[1, 1, q_len, k_len]`.
    fn rows(&self, content: &Content<'_>) -> Tensor<4, Int> {
        let k = self.encoding.max_distance as f64;
        let distinct = self.distances.visible(content);
        // r counts from key - query, the negative of the distance here.
        let row = |distance: f64| (k - distance.clamp(-k, k)).round() as i32;
        distinct.each_cell(&content.q.device(), row)
    }
}

impl PositionalEncoding for Shaw {
    fn prepare(&self, positions: &Positions, context: &Context) -> PrepareResult<'_> {
        Ok(Box::new(PreparedShaw {
            encoding: self,
            distances: Distances::new(positions, &context.device),
            groups: context.groups,
        }))
    }

    fn acts_in_groups(&self) -> bool {
        true
    }
}

impl Prepared for PreparedShaw<'_> {
    fn content_bias(&self, layer: usize, content: &Content<'_>) -> Option<Tensor<4>> {
        // One product per row of the table, gathered per cell: no vector per pair of positions.
        let table = self
            .table(&self.encoding.keys[layer], content)
            .swap_dims(2, 3);
        let products = (content.ops).matmul(content.q.clone() * content.scale, table);
        Some(content.ops.gather_columns(products, self.rows(content)))
    }

    fn output_bias(
        &self,
        layer: usize,
        content: &Content<'_>,
        weights: &dyn Fn() -> Tensor<4>,
    ) -> Option<Tensor<4>> {
        let table = self.table(self.encoding.values.get(layer)?, content);
        // Total weight of each row of the table.
        let (rows, count) = (self.rows(content), table.dims()[2]);
        let weights = content.ops.scatter_columns(weights(), rows, count);
        Some(content.ops.matmul(weights, table))
    }
}

impl EncodingSpec for ShawConfig {
    type Module = Shaw;
    const NAME: Option<&'static str> = Some("Shaw");
    const ABOUT: About = About {
        summary: "trained vectors per clipped distance, added to keys and to values",
        formula: "q_m . (k_n + a_K[clip(n - m)])/sqrt(d), output + sum_n weight_mn a_V[clip(n - \
                  m)]",
        source: "Shaw et al. 2018, arXiv 1803.02155",
        deviations: "none",
    };

    fn check(&self, _shape: &ModelShape) -> Result<(), ConfigError> {
        in_range_if_set(
            "max_distance",
            self.max_distance,
            1..=1_000_000,
            "the paper uses 16",
        )?;
        in_range("init_std", self.init_std, 0.0..=10.0, "0.02 by default")
    }

    fn resolve(&mut self, lengths: &Lengths) {
        self.max_distance
            .get_or_insert((lengths.train_len / 2).clamp(1, 16));
    }

    fn unresolved(&self) -> Option<String> {
        unset("max_distance", self.max_distance)
    }

    fn parameters(&self, shape: &ModelShape) -> Vec<ParamSpec> {
        let Some(max_distance) = self.max_distance else {
            return Vec::new();
        };
        let (rows, init) = (2 * max_distance + 1, Distribution::Normal(self.init_std));
        let tables = |name: &'static str| {
            (0..shape.n_layers).map(move |layer| {
                ParamSpec::new(format!("{name}.{layer}"), [rows, shape.head_dim], init)
            })
        };
        let values = tables("values").filter(|_| self.values);
        tables("keys").chain(values).collect()
    }

    fn properties(&self, _shape: &ModelShape) -> Facts {
        Facts {
            relative: true,
            by_distance: true,
            reads_transformed_qk: true,
            bias_workspace: 5.0,
            bias_kept: 4.5,
            bias_work: 4.0,
            ..Facts::new(Hooks::CONTENT_BIAS | Hooks::OUTPUT_BIAS.when(self.values))
        }
    }

    fn build(&self, _shape: &ModelShape, parameters: &mut Parameters) -> Shaw {
        Shaw {
            keys: parameters.take_list("keys"),
            values: parameters.take_list("values"),
            max_distance: resolved(self.max_distance),
        }
    }
}
