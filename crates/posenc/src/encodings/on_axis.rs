//! `on_axis`: an encoding that reads one coordinate of the tokens in place of their positions.
//!
//! - Formula: the hooks of `part` at the coordinates on axis `axis`.
//! - Source: position coupling, Cho et al. 2024 (arXiv 2405.20671), and Abacus, McLeish et al. 2024
//!   (arXiv 2405.17399), give digits such coordinates; BiPE, He et al. 2024 (arXiv 2401.16421),
//!   sentences. Abacus is `learned` on the places of digits, beside another encoding in a `stack`.
//!   BiPE is a `stack` of `learned` on places in a segment and `rope` or `alibi` on its number.
//! - Parameters: those of `part`, under `part.0`.
//! - Limits: those of its part, for coordinates. A part with a bias by position, or with a need for
//!   a causal mask, needs coordinates that never fall along the sequence.

use super::{Encoding, EncodingConfig};
use crate::ConfigError;
use crate::by_part::{self, acts_for_all};
use crate::facts::{AxisRead, Facts, Lengths, ModelShape};
use crate::hooks::{Context, PositionalEncoding, PrepareResult};
use crate::init::Parameters;
use crate::positions::Positions;
use crate::spec::{About, EncodingSpec, Part};
use burn::module::Module;
use schema::in_range;
use serde::{Deserialize, Serialize};

/// `kind = "on_axis"`: configuration of [`OnAxis`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct OnAxisConfig {
    /// Which axis it reads, counted from 0, 0 to 15.
    #[serde(default)]
    pub axis: usize,
    /// The encoding that reads it.
    pub part: Box<EncodingConfig>,
}

/// An encoding of one coordinate of the tokens.
#[derive(Module, Debug)]
pub struct OnAxis {
    /// One; a list because a module cannot hold itself otherwise.
    part: Vec<Encoding>,
    axis: usize,
}

impl PositionalEncoding for OnAxis {
    fn prepare(&self, positions: &Positions, context: &Context) -> PrepareResult<'_> {
        by_part::prepare(positions, |positions| {
            let (queries, keys) = positions.axis(self.axis);
            let coordinates = Positions::new(queries.to_vec(), keys.to_vec());
            self.part[0].prepare(&coordinates, context)
        })
    }

    fn max_position(&self) -> Option<usize> {
        self.part[0].max_position()
    }

    fn acts_in_groups(&self) -> bool {
        acts_for_all(&self.part[0])
    }
}

impl EncodingSpec for OnAxisConfig {
    type Module = OnAxis;
    const ABOUT: About = About {
        summary: "an encoding of one coordinate of the tokens, such as a digit's place",
        formula: "the hooks of the part at coordinates in place of positions",
        source: "Cho et al. 2024, arXiv 2405.20671; McLeish et al. 2024, arXiv 2405.17399",
        deviations: "none; the task defines the coordinates",
    };

    fn check(&self, shape: &ModelShape) -> Result<(), ConfigError> {
        in_range("axis", self.axis, 0..=15, "axes count from 0")?;
        self.check_parts(shape)?;
        let facts = self.part.properties(shape);
        let (problem, hint) = if facts.ignores_positions {
            (
                "reads no positions, so coordinates change nothing",
                "use `rope`, `learned` or `alibi`, or put it beside `on_axis` into a `stack`",
            )
        } else if facts.axes > 0 {
            (
                "reads axes itself, and inside `on_axis` would see this axis only",
                "use it without `on_axis`, or put both into a `stack`",
            )
        } else {
            return Ok(());
        };
        Err(ConfigError::new(
            "part.kind",
            self.part.kind(),
            problem,
            "encodings that read positions",
            hint,
        ))
    }

    fn resolve(&mut self, lengths: &Lengths) {
        self.part.resolve(lengths);
    }

    fn properties(&self, shape: &ModelShape) -> Facts {
        let part = self.part.properties(shape);
        let end = part.max_position_without_axes();
        // Such biases are defined for keys before the query.
        let rising = part.hooks.logits_bias || part.causal_only;
        Facts {
            // Replaced distances belong to positions.
            by_distance: false,
            // The table ends at a coordinate, wherever the token is.
            max_position: None,
            axes: self.axis + 1,
            axis_reads: vec![AxisRead::new(self.axis, end, rising)],
            ..part
        }
    }

    fn parts(&self) -> Vec<Part<'_>> {
        vec![Part::only(&self.part)]
    }

    fn example() -> Option<Self> {
        Some(Self {
            axis: 0,
            part: Box::new(super::usual()),
        })
    }

    fn build(&self, shape: &ModelShape, parameters: &mut Parameters) -> OnAxis {
        OnAxis {
            part: vec![parameters.scoped("part.0", |part| self.part.build(shape, part))],
            axis: self.axis,
        }
    }
}
