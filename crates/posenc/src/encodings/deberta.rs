//! `deberta`: disentangled attention: separate products of queries and of keys with trained
//! relative positions.
//!
//! - Formula: `(q_m.k_n + q_m.k_r[delta(m, n)] + k_n.q_r[delta(n, m)]) / sqrt(t head_dim)`, t the
//!   number of terms (3); `delta(m, n) = clip(m - n + k, 0, 2k - 1)`; k_r and q_r are projections
//!   of one table of relative positions.
//! - Source: He et al. 2020, DeBERTa (arXiv 2006.03654), eq. 3 and 4; Hugging Face `deberta_v2` for
//!   `buckets`.
//! - Parameters: `table`, `[2k, D]`, shared by layers; `c2p.L` and `p2c.L`, `[D, H E]` per layer L.
//! - Limits: none: farther keys share the last rows. Linear attention cannot host it.

use crate::ConfigError;
use crate::distances::Distances;
use crate::facts::{Facts, Hooks, Lengths, ModelShape};
use crate::hooks::{Content, Context, PositionalEncoding, PrepareResult, Prepared, Qk};
use crate::init::{Distribution, ParamSpec, Parameters};
use crate::positions::Positions;
use crate::spec::{About, EncodingSpec, NumberTable};
use crate::tensors::for_batch;
use crate::values::{in_range_if_set, resolved, unset};
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use schema::in_range;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;
use std::ops::Range;

/// Which of the two mixed terms are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DebertaTerms {
    /// Content to position only.
    C2p,
    /// Position to content only.
    P2c,
    /// The paper.
    #[default]
    Both,
}

/// Where the position-to-content term reads its table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DebertaForm {
    /// At the distance from key to query, delta(n, m): eq. 4.
    #[default]
    Paper,
    /// At the distance from query to key, delta(m, n): the released code, and the weights
    /// published with it.
    Code,
}

/// `kind = "deberta"`: configuration of [`Deberta`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct DebertaConfig {
    /// Which mixed terms are used.
    #[default(DebertaTerms::Both)]
    pub terms: DebertaTerms,
    /// Where the position-to-content term reads its table. The paper is the default: models here
    /// are trained from scratch, where its formula is the one to compare with.
    #[serde(skip_serializing_if = "schema::is_default")]
    #[default(DebertaForm::Paper)]
    pub form: DebertaForm,
    /// Distances in tokens from this one on share a row, 2 to 1000000; the training length unless
    /// given.
    pub max_distance: Option<usize>,
    /// Number of rows k, 4 to 1000000, and less than twice `max_distance - 1`; distances past half
    /// of it grow by their logarithm (v2). One row per distance, k = `max_distance`, unless given.
    pub buckets: Option<usize>,
    /// Standard deviation of the initial table, 0 to 10.
    #[default = 0.02]
    pub init_std: f64,
}

impl DebertaConfig {
    /// k: rows of the table in each direction.
    fn span(&self) -> Option<usize> {
        self.buckets.or(self.max_distance)
    }

    /// The bucket of a signed distance, itself where there are none.
    pub fn bucket(&self, distance: f64) -> f64 {
        let (Some(buckets), Some(max_distance)) = (self.buckets, self.max_distance) else {
            return distance;
        };
        // Up to the middle a bucket holds one distance; beyond, the logarithm of the distance.
        let middle = (buckets / 2) as f64;
        if distance.abs() <= middle {
            return distance;
        }
        let ratio =
            libm::log(distance.abs() / middle) / libm::log((max_distance as f64 - 1.0) / middle);
        ((ratio * (middle - 1.0)).ceil() + middle).copysign(distance)
    }

    /// Row of the table for a signed distance.
    fn row(&self, distance: f64) -> i32 {
        let k = resolved(self.span()) as f64;
        (self.bucket(distance) + k)
            .round()
            .clamp(0.0, 2.0 * k - 1.0) as i32
    }
}

/// Disentangled attention: products of content with relative position, in both directions.
#[derive(Module, Debug)]
pub struct Deberta {
    table: Param<Tensor<2>>,
    c2p: Vec<Param<Tensor<2>>>,
    p2c: Vec<Param<Tensor<2>>>,
    #[module(skip)]
    config: DebertaConfig,
}

struct PreparedDeberta<'a> {
    encoding: &'a Deberta,
    distances: Distances,
    groups: usize,
}

impl Deberta {
    /// Number of terms: content to content, and the mixed ones in use.
    fn terms(&self) -> f64 {
        1.0 + f64::from(u8::from(!self.c2p.is_empty())) + f64::from(u8::from(!self.p2c.is_empty()))
    }
}

impl PreparedDeberta<'_> {
    /// Rows of the table under a projection, for the product with `[B, H, *, E]`:
    /// `[1 or B, H, E, rows]`.
    fn projected(
        &self,
        projection: &Param<Tensor<2>>,
        rows: Range<usize>,
        content: &Content<'_>,
    ) -> Tensor<4> {
        let ([batch, heads, ..], groups) = (content.q.dims(), self.groups);
        let (table, [d_model, width]) = (self.encoding.table.val(), projection.val().dims());
        let (span, d_model) = (table.dims()[0] / groups, d_model / groups);
        let table = table.reshape([groups, 1, span, d_model]).slice_dim(2, rows);
        let projection = projection.val().reshape([groups, 1, d_model, width]);
        let projected = content.ops.matmul(table, projection);
        let rows = projected.dims()[2];
        let by_head = projected.reshape([groups, rows, heads, width / heads]);
        for_batch(by_head.permute([0, 2, 3, 1]), batch)
    }
}

impl PositionalEncoding for Deberta {
    fn prepare(&self, positions: &Positions, context: &Context) -> PrepareResult<'_> {
        Ok(Box::new(PreparedDeberta {
            encoding: self,
            distances: Distances::new(positions, &context.device),
            groups: context.groups,
        }))
    }

    fn acts_in_groups(&self) -> bool {
        true
    }
}

impl Prepared for PreparedDeberta<'_> {
    fn transform_qk(&self, _: usize, q: Tensor<4>, k: Tensor<4>, _: &Tensor<3>) -> Qk {
        // The content term is attention's own product; scaled queries scale it too.
        (q / self.encoding.terms().sqrt(), k)
    }

    fn content_bias(&self, layer: usize, content: &Content<'_>) -> Option<Tensor<4>> {
        let encoding = self.encoding;
        let distinct = self.distances.visible(content);
        // The rows of the table that the block reads, and for each cell which of them; looked up
        // once per distinct distance.
        let index = |sign: f64| {
            let row = |distance: f64| encoding.config.row(sign * distance);
            let rows = distinct.distances.iter().map(|distance| row(*distance));
            let (first, last) = rows.fold((i32::MAX, 0), |(a, b), row| (a.min(row), b.max(row)));
            let cells = distinct.each_cell(&content.q.device(), |distance| row(distance) - first);
            (first as usize..last as usize + 1, cells)
        };
        // Queries carry the number of terms since `transform_qk`; keys do not.
        let c2p = encoding.c2p.get(layer).map(|projection| {
            let (rows, cells) = index(1.0);
            let projected = self.projected(projection, rows, content);
            let products = (content.ops).matmul(content.q.clone() * content.scale, projected);
            content.ops.gather_columns(products, cells)
        });
        let p2c = encoding.p2c.get(layer).map(|projection| {
            let sign = if encoding.config.form == DebertaForm::Code {
                1.0
            } else {
                -1.0
            };
            let (rows, cells) = index(sign);
            // [B, H, k_len, rows]: gathered by key, then turned to queries by keys.
            let projected = self.projected(projection, rows, content);
            let k = content.k.clone() * (content.scale / encoding.terms().sqrt());
            let scores = content.ops.matmul(k, projected);
            let by_key = content.ops.gather_columns(scores, cells.swap_dims(2, 3));
            by_key.swap_dims(2, 3)
        });
        match (c2p, p2c) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        }
    }
}

impl EncodingSpec for DebertaConfig {
    type Module = Deberta;
    const NAME: Option<&'static str> = Some("DeBERTa");
    const ABOUT: About = About {
        summary: "disentangled attention: separate products of queries and of keys with trained \
                  relative positions",
        formula: "(q_m.k_n + q_m.k_r[delta(m, n)] + k_n.q_r[delta(n, m)]) / sqrt(3d)",
        source: "He et al. 2020, arXiv 2006.03654",
        deviations: "k_r and q_r have separate projections per layer, as in v1; v2 can share \
                     those of the content. `form = \"paper\"`, the default, reads q_r at delta(n, \
                     m) as eq. 4 has it; `form = \"code\"` reads it at delta(m, n), as the \
                     authors' code and Hugging Face do",
    };

    fn check(&self, _shape: &ModelShape) -> Result<(), ConfigError> {
        let hint = "leave it out for the training length";
        in_range_if_set("max_distance", self.max_distance, 2..=1_000_000, hint)?;
        in_range_if_set(
            "buckets",
            self.buckets,
            4..=1_000_000,
            "DeBERTa v2 uses 256",
        )?;
        let farthest = self.max_distance.unwrap_or(1 << 20);
        if let Some(buckets) = self.buckets
            && buckets / 2 + 1 >= farthest
        {
            return Err(ConfigError::new(
                "buckets",
                buckets,
                format!(
                    "is too large: half of the buckets hold one distance each and already reach \
                     max_distance = {farthest}"
                ),
                format!("below {}", 2 * (farthest - 1)),
                "raise max_distance or leave buckets out",
            ));
        }
        in_range("init_std", self.init_std, 0.0..=10.0, "DeBERTa uses 0.02")
    }

    fn resolve(&mut self, lengths: &Lengths) {
        self.max_distance.get_or_insert(lengths.train_len.max(2));
    }

    fn unresolved(&self) -> Option<String> {
        unset("max_distance", self.max_distance)
    }

    fn parameters(&self, shape: &ModelShape) -> Vec<ParamSpec> {
        let ModelShape {
            d_model,
            n_layers,
            n_heads,
            head_dim,
        } = *shape;
        let spread = Distribution::Normal(1.0 / (3.0 * d_model as f64).sqrt());
        let projections = |name: &'static str| {
            (0..n_layers).map(move |layer| {
                let path = format!("{name}.{layer}");
                ParamSpec::new(path, [d_model, n_heads * head_dim], spread)
            })
        };
        let table = self.span().map(|span| {
            ParamSpec::new(
                "table",
                [2 * span, d_model],
                Distribution::Normal(self.init_std),
            )
        });
        let c2p = projections("c2p").filter(|_| self.terms != DebertaTerms::P2c);
        let p2c = projections("p2c").filter(|_| self.terms != DebertaTerms::C2p);
        table.into_iter().chain(c2p).chain(p2c).collect()
    }

    fn properties(&self, shape: &ModelShape) -> Facts {
        // Each block of queries computes the products of all keys with up to k rows of the table.
        let by_key = match self.terms {
            DebertaTerms::C2p => 0.0,
            DebertaTerms::P2c | DebertaTerms::Both => self.span().unwrap_or(0) as f64,
        };
        Facts {
            relative: true,
            by_distance: true,
            reads_transformed_qk: true,
            bias_kept: 3.5,
            transform_workspace: 2.5 * by_key / shape.head_dim as f64,
            ..Facts::new(Hooks::TRANSFORM_QK | Hooks::CONTENT_BIAS)
        }
    }

    fn numbers(&self, _shape: &ModelShape, lengths: &Lengths) -> Vec<NumberTable> {
        let last = lengths.test_len.saturating_sub(1);
        let row = |distance: f64| f64::from(self.row(distance));
        let columns = ["query - key", "row"];
        vec![NumberTable::of_function(
            "rows of the table",
            columns,
            last,
            row,
        )]
    }

    fn build(&self, _shape: &ModelShape, parameters: &mut Parameters) -> Deberta {
        Deberta {
            table: parameters.take("table"),
            c2p: parameters.take_list("c2p"),
            p2c: parameters.take_list("p2c"),
            config: self.clone(),
        }
    }
}
