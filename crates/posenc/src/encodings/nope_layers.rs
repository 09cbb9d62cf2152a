//! `nope_layers`: an encoding that every n-th layer does not use.
//!
//! - Formula: the hooks of `part` in every layer but each `every`-th, which has no encoding at all.
//! - Source: RNoPE, Yang et al. 2025 (arXiv 2501.18795); SmolLM3 (every fourth layer); Llama 4.
//! - Parameters: those of `part`, under `part.0`.
//! - Limits: those of its part.

use super::by_layer::PreparedByLayer;
use super::nope::PreparedNope;
use super::{Encoding, EncodingConfig};
use crate::ConfigError;
use crate::by_part::acts_for_all;
use crate::facts::{Facts, Lengths, ModelShape};
use crate::hooks::{Context, PositionalEncoding, PrepareResult};
use crate::init::Parameters;
use crate::positions::Positions;
use crate::spec::{About, EncodingSpec, Part};
use burn::module::Module;
use schema::in_range;
use serde::{Deserialize, Serialize};

/// `kind = "nope_layers"`: configuration of [`NopeLayers`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct NopeLayersConfig {
    /// Layers `every`, `2 every`, ..., counted from 1, have no encoding; 2 to 1024.
    #[serde(default = "every_fourth")]
    pub every: usize,
    /// The encoding of the other layers.
    pub part: Box<EncodingConfig>,
}

fn every_fourth() -> usize {
    4
}

/// An encoding that every n-th layer does not use.
///
/// The part may be of any type, not only one of the catalogue.
#[derive(Module, Debug)]
pub struct NopeLayers<E: Module = Encoding> {
    /// One; a list because a module cannot hold itself otherwise.
    part: Vec<E>,
    every: usize,
}

impl<E: Module + PositionalEncoding> NopeLayers<E> {
    /// `part` in every layer but `every`, `2 every`, ..., counted from 1.
    ///
    /// # Errors
    ///
    /// If `every` is not in `2..=1024`.
    pub fn new(part: E, every: usize) -> Result<Self, ConfigError> {
        check_every(every)?;
        Ok(Self {
            part: vec![part],
            every,
        })
    }
}

fn check_every(every: usize) -> Result<(), ConfigError> {
    let hint = "use kind = \"nope\" for no encoding in any layer";
    in_range("every", every, 2..=1024, hint)
}

impl<E: Module + PositionalEncoding> PositionalEncoding for NopeLayers<E> {
    fn prepare(&self, positions: &Positions, context: &Context) -> PrepareResult<'_> {
        let mut pattern = vec![0; self.every];
        pattern[self.every - 1] = 1;
        Ok(Box::new(PreparedByLayer {
            parts: vec![
                self.part[0].prepare(positions, context)?,
                Box::new(PreparedNope),
            ],
            pattern: pattern.into(),
        }))
    }

    fn max_position(&self) -> Option<usize> {
        self.part[0].max_position()
    }

    fn acts_in_groups(&self) -> bool {
        acts_for_all(&self.part[0])
    }
}

impl EncodingSpec for NopeLayersConfig {
    type Module = NopeLayers;
    const NAME: Option<&'static str> = Some("NoPE layers");
    const ABOUT: About = About {
        summary: "an encoding that every n-th layer does not use",
        formula: "the hooks of the part; identity in layers n, 2n, ...",
        source: "Yang et al. 2025, arXiv 2501.18795",
        deviations: "none; `embed` happens once, before the layers, whichever they are",
    };

    fn check(&self, shape: &ModelShape) -> Result<(), ConfigError> {
        check_every(self.every)?;
        self.check_parts(shape)
    }

    fn resolve(&mut self, lengths: &Lengths) {
        self.part.resolve(lengths);
    }

    fn properties(&self, shape: &ModelShape) -> Facts {
        self.part.properties(shape)
    }

    fn idle(&self, n_layers: usize) -> Vec<String> {
        let every = self.every;
        let all = format!(
            "`nope_layers`: every layer has the encoding, because every = {every} is more than \
             n_layers = {n_layers}"
        );
        let own = (every > n_layers).then_some(all);
        own.into_iter().chain(self.part.idle(n_layers)).collect()
    }

    fn parts(&self) -> Vec<Part<'_>> {
        vec![Part::only(&self.part)]
    }

    fn example() -> Option<Self> {
        Some(Self {
            every: every_fourth(),
            part: Box::new(super::usual()),
        })
    }

    fn build(&self, shape: &ModelShape, parameters: &mut Parameters) -> NopeLayers {
        NopeLayers {
            part: vec![parameters.scoped("part.0", |part| self.part.build(shape, part))],
            every: self.every,
        }
    }
}
