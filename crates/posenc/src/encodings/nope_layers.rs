//! Formula: the hooks of `part` in every layer but each `every`-th, which has no encoding at all.
//! Source: RNoPE, Yang et al. 2025 (arXiv 2501.18795); SmolLM3 (every fourth layer); Llama 4.
//! Deviations: none; `embed` happens once, before the layers, whichever they are.
//! Parameters: those of `part`, under `part.0`.
//! Limits: those of its part.

use crate::catalogue::{About, Encoding, EncodingConfig, Facts, Lengths, ModelShape, Spec};
use crate::error::in_range;
use crate::{Bias, ConfigError, Content, Init, Plain, PositionalEncoding, Positions, Prepared};
use burn::module::Module;
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};

/// Configuration of [`NopeLayers`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NopeLayersConfig {
    /// Layers `every`, `2 every`, ..., counted from 1, go without; every layer would be kind
    /// `nope`.
    #[serde(default = "every_fourth")]
    pub every: usize,
    /// The encoding of the other layers.
    pub part: Box<EncodingConfig>,
}

fn every_fourth() -> usize {
    4
}

/// An encoding that some layers go without.
#[derive(Module, Debug)]
pub struct NopeLayers {
    /// One; a list because a module cannot hold itself otherwise.
    part: Vec<Encoding>,
    every: usize,
}

struct PreparedNopeLayers<'a> {
    part: Box<dyn Prepared + 'a>,
    every: usize,
}

impl PreparedNopeLayers<'_> {
    fn acts(&self, layer: usize) -> bool {
        !(layer + 1).is_multiple_of(self.every)
    }
}

impl PositionalEncoding for NopeLayers {
    fn prepare<'a>(&'a self, positions: &Positions, device: &Device) -> Box<dyn Prepared + 'a> {
        Box::new(PreparedNopeLayers {
            part: self.part[0].prepare(positions, device),
            every: self.every,
        })
    }

    fn max_position(&self) -> Option<usize> {
        self.part[0].max_position()
    }
}

impl Prepared for PreparedNopeLayers<'_> {
    fn embed(&self, x: Tensor<3>) -> Tensor<3> {
        self.part.embed(x)
    }

    fn transform_qk(&self, layer: usize, q: Tensor<4>, k: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        if self.acts(layer) {
            self.part.transform_qk(layer, q, k)
        } else {
            (q, k)
        }
    }

    fn plain(&self, layer: usize) -> Option<Plain> {
        if self.acts(layer) {
            self.part.plain(layer)
        } else {
            Some(Plain::default())
        }
    }

    fn logits_bias(&self, layer: usize) -> Option<Bias<'_>> {
        self.acts(layer)
            .then(|| self.part.logits_bias(layer))
            .flatten()
    }

    fn content_bias(&self, layer: usize, content: &Content<'_>) -> Option<Tensor<4>> {
        self.acts(layer)
            .then(|| self.part.content_bias(layer, content))
            .flatten()
    }

    fn output_bias(
        &self,
        layer: usize,
        content: &Content<'_>,
        weights: &dyn Fn() -> Tensor<4>,
    ) -> Option<Tensor<4>> {
        self.acts(layer)
            .then(|| self.part.output_bias(layer, content, weights))
            .flatten()
    }
}

impl Spec for NopeLayersConfig {
    type Module = NopeLayers;
    const ABOUT: About = About {
        summary: "an encoding that every n-th layer goes without",
        formula: "the hooks of `part`; identity in layers n, 2n, ...",
        source: "Yang et al. 2025, arXiv 2501.18795",
    };

    fn check(&self, shape: &ModelShape) -> Result<(), ConfigError> {
        in_range(
            "every",
            self.every as f64,
            2.0,
            1024.0,
            "use kind = \"nope\" for no encoding in any layer",
        )?;
        self.part.check(shape).map_err(|error| error.within("part"))
    }

    fn resolve(&mut self, lengths: &Lengths) {
        self.part.resolve(lengths);
    }

    fn facts(&self, shape: &ModelShape) -> Facts {
        let part = self.part.facts(shape);
        let parameters = part
            .parameters
            .iter()
            .map(|(path, shape)| (format!("part.0.{path}"), shape.clone()))
            .collect();
        Facts { parameters, ..part }
    }

    fn init(&self, shape: &ModelShape, init: &Init<'_>) -> NopeLayers {
        NopeLayers {
            part: vec![self.part.init(shape, &init.scope("part").scope(0))],
            every: self.every,
        }
    }
}
