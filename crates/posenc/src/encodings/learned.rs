//! `learned`: a trained vector per position, added to the input.
//!
//! - Formula: row p of a trained table `[max_position, D]` is added to the input; D = d_model.
//! - Source: BERT (Devlin et al. 2018, arXiv 1810.04805) and GPT-2; Gehring et al. 2017 (arXiv
//!   1705.03122).
//! - Parameters: `table`, drawn from a normal distribution of deviation `init_std`.
//! - Limits: `max_position` rows; a longer sequence is unsupported, or, with `interpolate`,
//!   stretched over the table: position p of T reads the table at `p (max_position - 1) / (T - 1)`,
//!   between two rows. With `clamp` all positions past the table read its last row, as in BiPE (He
//!   et al. 2024, arXiv 2401.16421). Positions between two rows read the nearest one, unless the
//!   table is stretched. Rows that training never reached keep their initial values.

use crate::ConfigError;
use crate::facts::{Facts, Hooks, Lengths, ModelShape};
use crate::hooks::{Context, FusedQk, PositionalEncoding, PrepareResult, Prepared, within_limit};
use crate::init::{Distribution, ParamSpec, Parameters};
use crate::positions::Positions;
use crate::spec::{About, EncodingSpec};
use crate::tensors::{plus_rows, upload};
use crate::values::{in_range_if_set, unset};
use burn::module::{Module, Param};
use burn::tensor::{Int, Tensor, TensorData};
use schema::in_range;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// `kind = "learned"`: configuration of [`Learned`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, SmartDefault)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct LearnedConfig {
    /// Number of rows of the table, 1 to 16777216; the training length unless given.
    pub max_position: Option<usize>,
    /// Standard deviation of the initial values, 0 to 10.
    #[default = 0.02]
    pub init_std: f64,
    /// Whether the table is stretched over a longer sequence, as vision transformers do for larger
    /// images.
    #[serde(skip_serializing_if = "schema::is_default")]
    pub interpolate: bool,
    /// Whether positions past the table read its last row; not together with `interpolate`.
    #[serde(skip_serializing_if = "schema::is_default")]
    pub clamp: bool,
}

/// A trained vector per position, added to the input.
#[derive(Module, Debug)]
pub struct Learned {
    table: Param<Tensor<2>>,
    interpolate: bool,
    clamp: bool,
}

struct PreparedLearned {
    /// `[G, Q, D]` for G models, or `[B, Q, D]` for rows with their own positions.
    rows: Tensor<3>,
}

impl PositionalEncoding for Learned {
    fn prepare(&self, positions: &Positions, context: &Context) -> PrepareResult<'_> {
        let table = self.table.val();
        let [rows, width] = table.dims();
        let rows = rows / context.groups;
        let tables: Tensor<3> = table.reshape([context.groups, rows, width]);
        let read = |rows: Vec<i32>| {
            let queries = positions.queries().len();
            let (all, count) = (rows.len(), context.groups * rows.len() / queries);
            let rows = TensorData::new(rows, [all]);
            let rows = Tensor::<1, Int>::from_data(rows, &context.device);
            let read = tables.clone().select(1, rows);
            read.reshape([count, queries, width])
        };
        if positions.rows() <= rows || self.clamp {
            let last = (rows - 1) as f64;
            let places = positions.queries_of_rows().into_iter();
            let places = places.map(|p| p.round().min(last) as i32);
            return Ok(Box::new(PreparedLearned {
                rows: read(places.collect()),
            }));
        }
        within_limit(positions, (!self.interpolate).then_some(rows))?;
        let last = (rows - 1) as f64;
        let places: Vec<f64> = positions
            .queries()
            .iter()
            .map(|p| p * last / (positions.length() - 1.0))
            .collect();
        let upper = upload(
            places.iter().map(|p| p - p.floor()).collect(),
            [1, places.len(), 1],
            &context.device,
        );
        let [below, above] = [0.0, 1.0].map(|step| {
            read(
                places
                    .iter()
                    .map(|p| (p.floor() + step).min(last) as i32)
                    .collect(),
            )
        });
        Ok(Box::new(PreparedLearned {
            rows: below * (upper.clone().neg() + 1.0) + above * upper,
        }))
    }

    fn max_position(&self) -> Option<usize> {
        (!self.interpolate && !self.clamp).then(|| self.table.dims()[0])
    }

    fn reads_rows(&self) -> bool {
        // Stretching reads the length of a row.
        !self.interpolate
    }

    fn acts_in_groups(&self) -> bool {
        true
    }
}

impl Prepared for PreparedLearned {
    fn embed(&self, x: Tensor<3>) -> Tensor<3> {
        plus_rows(x, self.rows.clone())
    }

    fn fused_qk(&self, _layer: usize) -> Option<FusedQk> {
        Some(FusedQk::default())
    }
}

impl EncodingSpec for LearnedConfig {
    type Module = Learned;
    const NAME: Option<&'static str> = Some("learned positions");
    const ABOUT: About = About {
        summary: "a trained vector per position, added to the input",
        formula: "x_p + table[p]",
        source: "Gehring et al. 2017, arXiv 1705.03122; Devlin et al. 2018, arXiv 1810.04805",
        deviations: "none",
    };

    fn check(&self, _shape: &ModelShape) -> Result<(), ConfigError> {
        in_range("init_std", self.init_std, 0.0..=10.0, "GPT-2 uses 0.02")?;
        if self.clamp && self.interpolate {
            return Err(ConfigError::new(
                "clamp",
                "true",
                "reads the last row past the table, and `interpolate` stretches the table",
                "one of the two",
                "remove `clamp` or `interpolate`",
            ));
        }
        let hint = "leave it out for the training length";
        in_range_if_set("max_position", self.max_position, 1..=1 << 24, hint)
    }

    fn resolve(&mut self, lengths: &Lengths) {
        self.max_position.get_or_insert(lengths.train_len);
    }

    fn unresolved(&self) -> Option<String> {
        unset("max_position", self.max_position)
    }

    fn parameters(&self, shape: &ModelShape) -> Vec<ParamSpec> {
        let init = Distribution::Normal(self.init_std);
        let table = self
            .max_position
            .map(|rows| ParamSpec::new("table", [rows, shape.d_model], init));
        table.into_iter().collect()
    }

    fn properties(&self, _shape: &ModelShape) -> Facts {
        Facts {
            max_position: self
                .max_position
                .filter(|_| !self.interpolate && !self.clamp),
            reads_length: self.interpolate,
            linear: true,
            ..Facts::new(Hooks::EMBED)
        }
    }

    fn build(&self, _shape: &ModelShape, parameters: &mut Parameters) -> Learned {
        Learned {
            table: parameters.take("table"),
            interpolate: self.interpolate,
            clamp: self.clamp,
        }
    }
}
