//! `by_layer`: a separate encoding for each layer, by a pattern that repeats.
//!
//! - Formula: layer l has the hooks of `parts[pattern[l mod the pattern's length]]`.
//! - Source: hybrids of full, windowed and position-free layers: Gemma 2 and 3, Llama 4, Command A;
//!   `nope_layers` is the case of one part and none.
//! - Parameters: those of its parts, under `parts.0`, `parts.1`, ...
//! - Limits: the tightest of its parts.

use super::{Encoding, EncodingConfig};
use crate::ConfigError;
use crate::by_part::acts_for_all;
use crate::facts::{Facts, Lengths, ModelShape};
use crate::hooks::{
    Bias, Content, Context, FusedQk, PositionalEncoding, PrepareResult, Prepared, Qk, RotaryZones,
    first_alike,
};
use crate::init::Parameters;
use crate::positions::Positions;
use crate::spec::{About, EncodingSpec, Part};
use burn::module::Module;
use burn::tensor::Tensor;
use schema::in_range;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// `kind = "by_layer"`: configuration of [`ByLayer`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ByLayerConfig {
    /// The encodings to choose from, 1 to 16 of them.
    pub parts: Vec<EncodingConfig>,
    /// Which of `parts` each layer has, counted from 0, in 1 to 1024 numbers; repeated over deeper
    /// models. Every part occurs.
    pub pattern: Vec<usize>,
}

/// An encoding for each layer.
#[derive(Module, Debug)]
pub struct ByLayer {
    parts: Vec<Encoding>,
    #[module(skip)]
    pattern: Vec<usize>,
}

pub(super) struct PreparedByLayer<'a> {
    pub(super) parts: Vec<Box<dyn Prepared + 'a>>,
    pub(super) pattern: Cow<'a, [usize]>,
}

impl PreparedByLayer<'_> {
    fn of(&self, layer: usize) -> &dyn Prepared {
        &*self.parts[self.pattern[layer % self.pattern.len()]]
    }
}

impl PositionalEncoding for ByLayer {
    fn prepare(&self, positions: &Positions, context: &Context) -> PrepareResult<'_> {
        let prepared = self
            .parts
            .iter()
            .map(|part| part.prepare(positions, context));
        Ok(Box::new(PreparedByLayer {
            parts: prepared.collect::<Result<_, _>>()?,
            pattern: self.pattern.as_slice().into(),
        }))
    }

    fn max_position(&self) -> Option<usize> {
        let limits = self
            .parts
            .iter()
            .filter_map(PositionalEncoding::max_position);
        limits.min()
    }

    fn acts_in_groups(&self) -> bool {
        self.parts.iter().all(acts_for_all)
    }
}

impl Prepared for PreparedByLayer<'_> {
    fn embed(&self, x: Tensor<3>) -> Tensor<3> {
        self.parts.iter().fold(x, |x, part| part.embed(x))
    }

    fn transform_qk(&self, layer: usize, q: Tensor<4>, k: Tensor<4>, hidden: &Tensor<3>) -> Qk {
        self.of(layer).transform_qk(layer, q, k, hidden)
    }

    fn fused_qk(&self, layer: usize) -> Option<FusedQk> {
        self.of(layer).fused_qk(layer)
    }

    fn decays(&self, layer: usize, hidden: &dyn Fn() -> Tensor<3>) -> Option<Tensor<3>> {
        self.of(layer).decays(layer, hidden)
    }

    fn zones(&self, layer: usize) -> Option<RotaryZones> {
        self.of(layer).zones(layer)
    }

    fn logits_bias(&self, layer: usize) -> Option<Bias<'_>> {
        self.of(layer).logits_bias(layer)
    }

    fn bias_layer(&self, layer: usize) -> usize {
        first_alike(layer, |layer| {
            let part = self.pattern[layer % self.pattern.len()];
            (part, self.parts[part].bias_layer(layer))
        })
    }

    fn content_bias(&self, layer: usize, content: &Content<'_>) -> Option<Tensor<4>> {
        self.of(layer).content_bias(layer, content)
    }

    fn output_bias(
        &self,
        layer: usize,
        content: &Content<'_>,
        weights: &dyn Fn() -> Tensor<4>,
    ) -> Option<Tensor<4>> {
        self.of(layer).output_bias(layer, content, weights)
    }
}

impl ByLayerConfig {
    /// Most encodings to choose from.
    pub const MAX_PARTS: usize = 16;
    /// Longest pattern.
    pub const MAX_PATTERN: usize = 1024;

    fn check_pattern(&self) -> Result<(), ConfigError> {
        let count = self.parts.len();
        let refused = |key: &str, value: String, problem: String, allowed: String| {
            let hint = "list the encodings in parts and name them in pattern by their place: parts \
                        = [A, B], pattern = [0, 0, 0, 1]";
            Err(ConfigError::new(key, value, problem, allowed, hint))
        };
        if !(1..=Self::MAX_PARTS).contains(&count) {
            let allowed = format!("1 to {} encodings", Self::MAX_PARTS);
            let value = format!("{count} encodings");
            return refused("parts", value, format!("must have {allowed}"), allowed);
        }
        if !(1..=Self::MAX_PATTERN).contains(&self.pattern.len()) {
            let allowed = format!("1 to {} numbers", Self::MAX_PATTERN);
            let value = format!("{} numbers", self.pattern.len());
            return refused("pattern", value, format!("must have {allowed}"), allowed);
        }
        for (i, part) in self.pattern.iter().enumerate() {
            let hint = "counted from 0: the first of parts is 0";
            in_range(&format!("pattern.{i}"), *part, 0..count, hint)?;
        }
        match (0..count).find(|part| !self.pattern.contains(part)) {
            None => Ok(()),
            Some(unused) => {
                let problem = format!("does not name part {unused}, which no layer would have");
                let allowed = format!("every number from 0 to {}", count - 1);
                refused("pattern", format!("{:?}", self.pattern), problem, allowed)
            }
        }
    }
}

impl EncodingSpec for ByLayerConfig {
    type Module = ByLayer;
    const ABOUT: About = About {
        summary: "a separate encoding for each layer, by a pattern that repeats",
        formula: "layer l has the hooks of parts[pattern[l mod length]]",
        source: "composition of the parts; Gemma 2, arXiv 2408.00118; Llama 4",
        deviations: "`embed` happens once, before the layers: every part that has it adds to the \
                     input",
    };

    fn check(&self, shape: &ModelShape) -> Result<(), ConfigError> {
        self.check_pattern()?;
        self.check_parts(shape)
    }

    fn resolve(&mut self, lengths: &Lengths) {
        self.parts.iter_mut().for_each(|part| part.resolve(lengths));
    }

    fn properties(&self, shape: &ModelShape) -> Facts {
        let parts = self.parts.iter().map(|part| part.properties(shape));
        let parts: Vec<Facts> = parts.collect();
        let most = |fact: fn(&Facts) -> f64| parts.iter().map(fact).fold(0.0, f64::max);
        Facts {
            // No two parts meet in a layer, but in the input.
            relative: parts.iter().all(|part| part.relative),
            diagonal_network: parts
                .iter()
                .all(|part| part.diagonal_network || !part.hooks.logits_bias)
                && parts.iter().any(|part| part.diagonal_network),
            bias_workspace: most(|part| part.bias_workspace),
            bias_work: most(|part| part.bias_work),
            bias_kept: most(|part| part.bias_kept),
            transform_workspace: most(|part| part.transform_workspace),
            transform_kept: most(|part| part.transform_kept),
            ..Facts::stacked(&parts)
        }
    }

    fn parts(&self) -> Vec<Part<'_>> {
        Part::listed(&self.parts)
    }

    fn idle(&self, n_layers: usize) -> Vec<String> {
        let named = &self.pattern[..n_layers.min(self.pattern.len())];
        let idle = |(i, part): (usize, &EncodingConfig)| {
            if named.contains(&i) {
                return part.idle(n_layers);
            }
            let (kind, pattern) = (part.kind(), &self.pattern);
            vec![format!(
                "`by_layer`: no layer has parts.{i} (`{kind}`), because pattern = {pattern:?} is \
                 longer than the model, which has n_layers = {n_layers}"
            )]
        };
        self.parts.iter().enumerate().flat_map(idle).collect()
    }

    fn example() -> Option<Self> {
        Some(Self {
            parts: vec![super::usual(), super::simplest()],
            pattern: vec![0, 0, 0, 1],
        })
    }

    fn build(&self, shape: &ModelShape, parameters: &mut Parameters) -> ByLayer {
        let parts = self.parts.iter().enumerate();
        let build = |(i, part): (usize, &EncodingConfig)| {
            parameters.scoped(&format!("parts.{i}"), |inner| part.build(shape, inner))
        };
        ByLayer {
            parts: parts.map(build).collect(),
            pattern: self.pattern.clone(),
        }
    }
}
