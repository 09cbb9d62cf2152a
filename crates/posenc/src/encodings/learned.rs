//! Formula: row p of a trained table `[max_position, D]` is added to the input; D = d_model.
//! Source: BERT (Devlin et al. 2018, arXiv 1810.04805) and GPT-2; Gehring et al. 2017 (arXiv
//! 1705.03122). Deviations: none.
//! Parameters: `table`, drawn from a normal distribution of deviation `init_std`.
//! Limits: `max_position` rows; a longer sequence is unsupported, or, with `interpolate`, stretched
//! over the table: position p of T reads the table at `p (max_position - 1) / (T - 1)`, between two
//! rows. Rows that training never reached keep their initial values.

use super::{is_default, upload};
use crate::catalogue::{About, Facts, Hooks, Lengths, ModelShape, Spec};
use crate::error::in_range;
use crate::{ConfigError, Distribution, Init, Plain, PositionalEncoding, Positions, Prepared};
use burn::module::{Module, Param};
use burn::tensor::{Device, Int, Tensor, TensorData};
use serde::{Deserialize, Serialize};

/// Configuration of [`Learned`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LearnedConfig {
    /// Rows of the table; the training length unless given.
    pub max_position: Option<usize>,
    /// Standard deviation of the initial values.
    pub init_std: f64,
    /// Whether a sequence longer than the table is squeezed into it, as vision transformers do
    /// when images grow.
    #[serde(skip_serializing_if = "is_default")]
    pub interpolate: bool,
}

impl Default for LearnedConfig {
    fn default() -> Self {
        Self {
            max_position: None,
            init_std: 0.02,
            interpolate: false,
        }
    }
}

/// A trained vector per position, added to the input.
#[derive(Module, Debug)]
pub struct Learned {
    table: Param<Tensor<2>>,
    interpolate: bool,
}

struct PreparedLearned {
    rows: Tensor<3>,
}

impl PositionalEncoding for Learned {
    fn prepare<'a>(&'a self, positions: &Positions, device: &Device) -> Box<dyn Prepared + 'a> {
        let table = self.table.val();
        let [rows, _] = table.dims();
        let read = |rows: Vec<i32>| {
            let count = rows.len();
            table
                .clone()
                .select(
                    0,
                    Tensor::<1, Int>::from_data(TensorData::new(rows, [count]), device),
                )
                .unsqueeze_dim(0)
        };
        if positions.rows() <= rows {
            return Box::new(PreparedLearned {
                rows: read(
                    positions
                        .queries()
                        .iter()
                        .map(|p| p.round() as i32)
                        .collect(),
                ),
            });
        }
        assert!(
            self.interpolate,
            "position {} is past the learned table",
            positions.rows() - 1
        );
        let last = (rows - 1) as f64;
        let places: Vec<f64> = positions
            .queries()
            .iter()
            .map(|p| p * last / (positions.length() - 1.0))
            .collect();
        let upper = upload(
            places.iter().map(|p| p - p.floor()).collect(),
            [1, places.len(), 1],
            device,
        );
        let [below, above] = [0.0, 1.0].map(|step| {
            read(
                places
                    .iter()
                    .map(|p| (p.floor() + step).min(last) as i32)
                    .collect(),
            )
        });
        Box::new(PreparedLearned {
            rows: below * (upper.clone().neg() + 1.0) + above * upper,
        })
    }

    fn max_position(&self) -> Option<usize> {
        (!self.interpolate).then(|| self.table.dims()[0])
    }
}

impl Prepared for PreparedLearned {
    fn embed(&self, x: Tensor<3>) -> Tensor<3> {
        x + self.rows.clone()
    }

    fn plain(&self, _layer: usize) -> Option<Plain> {
        Some(Plain::default())
    }
}

impl Spec for LearnedConfig {
    type Module = Learned;
    const ABOUT: About = About {
        summary: "a trained vector per position, added to the input",
        formula: "x_p + table[p]",
        source: "Gehring et al. 2017, arXiv 1705.03122; Devlin et al. 2018, arXiv 1810.04805",
    };

    fn check(&self, _shape: &ModelShape) -> Result<(), ConfigError> {
        in_range("init_std", self.init_std, 0.0, 10.0, "GPT-2 uses 0.02")?;
        let rows = self.max_position.unwrap_or(1);
        in_range(
            "max_position",
            rows as f64,
            1.0,
            (1u32 << 24) as f64,
            "leave it out for the training length",
        )
    }

    fn resolve(&mut self, lengths: &Lengths) {
        self.max_position.get_or_insert(lengths.train_len);
    }

    fn facts(&self, shape: &ModelShape) -> Facts {
        let rows = self.max_position.unwrap_or(0);
        Facts {
            hooks: Hooks {
                embed: true,
                ..Hooks::default()
            },
            parameters: vec![("table".to_owned(), vec![rows, shape.d_model])],
            max_position: (!self.interpolate).then_some(rows),
            reads_length: self.interpolate,
            linear: true,
            ..Facts::default()
        }
    }

    fn init(&self, shape: &ModelShape, init: &Init<'_>) -> Learned {
        let rows = self.max_position.unwrap_or(0);
        let interpolate = self.interpolate;
        Learned {
            interpolate,
            table: init.param(
                "table",
                [rows, shape.d_model],
                Distribution::Normal(self.init_std),
            ),
        }
    }
}
