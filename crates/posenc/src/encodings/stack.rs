//! Formula: the parts' hooks one after the other, in order; biases add.
//! Source: hybrids such as RoPE + ALiBi or sinusoidal + T5 are sums of their parts' hooks.
//! Deviations: none.
//! Parameters: those of its parts, under `parts.0`, `parts.1`, ...
//! Limits: the tightest of its parts.

use crate::catalogue::{About, Encoding, EncodingConfig, Facts, Hooks, Lengths, ModelShape, Spec};
use crate::{Bias, ConfigError, Content, Init, Plain, PositionalEncoding, Positions, Prepared};
use burn::module::Module;
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};

/// Configuration of [`Stack`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StackConfig {
    /// The encodings to combine, first applied first.
    pub parts: Vec<EncodingConfig>,
}

/// Several encodings at once.
#[derive(Module, Debug)]
pub struct Stack {
    parts: Vec<Encoding>,
}

struct PreparedStack<'a> {
    parts: Vec<Box<dyn Prepared + 'a>>,
}

impl PositionalEncoding for Stack {
    fn prepare<'a>(&'a self, positions: &Positions, device: &Device) -> Box<dyn Prepared + 'a> {
        Box::new(PreparedStack {
            parts: self
                .parts
                .iter()
                .map(|part| part.prepare(positions, device))
                .collect(),
        })
    }

    fn max_position(&self) -> Option<usize> {
        self.parts
            .iter()
            .filter_map(PositionalEncoding::max_position)
            .min()
    }
}

impl Prepared for PreparedStack<'_> {
    fn embed(&self, x: Tensor<3>) -> Tensor<3> {
        self.parts.iter().fold(x, |x, part| part.embed(x))
    }

    fn transform_qk(&self, layer: usize, q: Tensor<4>, k: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        self.parts
            .iter()
            .fold((q, k), |(q, k), part| part.transform_qk(layer, q, k))
    }

    fn plain(&self, layer: usize) -> Option<Plain> {
        self.parts.iter().try_fold(Plain::default(), |all, part| {
            let part = part.plain(layer)?;
            // Two rotations one after the other are none of this form.
            let rotation = match (all.rotation, part.rotation) {
                (Some(_), Some(_)) => return None,
                (one, other) => one.or(other),
            };
            Some(Plain {
                rotation,
                factor: all.factor * part.factor,
            })
        })
    }

    fn logits_bias(&self, layer: usize) -> Option<Bias<'_>> {
        self.parts
            .iter()
            .filter_map(|part| part.logits_bias(layer))
            .reduce(Bias::plus)
    }

    fn content_bias(&self, layer: usize, content: &Content<'_>) -> Option<Tensor<4>> {
        let biases = self.parts.iter().enumerate().filter_map(|(i, part)| {
            let raw = || self.without(i, layer, (content.raw)());
            part.content_bias(
                layer,
                &Content {
                    raw: &raw,
                    queries: content.queries.clone(),
                    keys: content.keys.clone(),
                    ..*content
                },
            )
        });
        biases.reduce(|sum, bias| sum + bias)
    }

    fn output_bias(
        &self,
        layer: usize,
        content: &Content<'_>,
        weights: &dyn Fn() -> Tensor<4>,
    ) -> Option<Tensor<4>> {
        let terms = self
            .parts
            .iter()
            .filter_map(|part| part.output_bias(layer, content, weights));
        terms.reduce(|sum, term| sum + term)
    }
}

impl PreparedStack<'_> {
    /// Queries and keys as all parts but one leave them: a part that replaces its own rotation must
    /// not undo the rest with it.
    fn without(
        &self,
        skipped: usize,
        layer: usize,
        (q, k): (Tensor<4>, Tensor<4>),
    ) -> (Tensor<4>, Tensor<4>) {
        let others = self.parts.iter().enumerate().filter(|(i, _)| *i != skipped);
        others.fold((q, k), |(q, k), (_, other)| other.transform_qk(layer, q, k))
    }
}

impl StackConfig {
    /// Most parts of a stack.
    pub const MAX_PARTS: usize = 16;
}

impl Spec for StackConfig {
    type Module = Stack;
    const ABOUT: About = About {
        summary: "several encodings at once",
        formula: "hooks applied in order, biases added",
        source: "composition of the parts",
    };

    fn check(&self, shape: &ModelShape) -> Result<(), ConfigError> {
        if self.parts.is_empty() || self.parts.len() > Self::MAX_PARTS {
            return Err(ConfigError::new(
                "parts",
                self.parts.len(),
                "a stack of nothing or of too much",
                "1 to 16 encodings",
                "use kind = \"nope\" for no encoding",
            ));
        }
        let check = |(i, part): (usize, &EncodingConfig)| {
            part.check(shape)
                .map_err(|error| error.within(&format!("parts.{i}")))
        };
        self.parts.iter().enumerate().try_for_each(check)?;
        let facts: Vec<Facts> = self.parts.iter().map(|part| part.facts(shape)).collect();
        let Some(alone) = facts.iter().position(|facts| facts.alone) else {
            return Ok(());
        };
        match facts
            .iter()
            .enumerate()
            .position(|(i, facts)| i != alone && (facts.meets || facts.turns))
        {
            Some(other) => Err(ConfigError::new(
                "parts",
                format!(
                    "{} and {}",
                    self.parts[other].kind(),
                    self.parts[alone].kind()
                ),
                format!(
                    "what {} makes of queries and keys fits nothing but itself",
                    self.parts[alone].kind()
                ),
                "one of the two",
                "remove either; biases on positions alone and `fox` go with both",
            )),
            None => Ok(()),
        }
    }

    fn resolve(&mut self, lengths: &Lengths) {
        self.parts.iter_mut().for_each(|part| part.resolve(lengths));
    }

    fn facts(&self, shape: &ModelShape) -> Facts {
        let parts: Vec<Facts> = self.parts.iter().map(|part| part.facts(shape)).collect();
        let under = |i: usize, (path, shape): &(String, Vec<usize>)| {
            (format!("parts.{i}.{path}"), shape.clone())
        };
        Facts {
            hooks: parts
                .iter()
                .fold(Hooks::default(), |hooks, part| hooks.or(part.hooks)),
            parameters: parts
                .iter()
                .enumerate()
                .flat_map(|(i, part)| part.parameters.iter().map(move |p| under(i, p)))
                .collect(),
            max_position: parts.iter().filter_map(|part| part.max_position).min(),
            reads_length: parts.iter().any(|part| part.reads_length),
            // Two rotations need not commute, and what meets a query that another part has turned
            // sees by how much.
            relative: parts.iter().all(|part| part.relative)
                && parts.iter().filter(|part| part.turns || part.meets).count() < 2,
            by_distance: parts.iter().all(|part| part.by_distance),
            linear: parts.iter().all(|part| part.linear),
            causal: parts.iter().any(|part| part.causal),
            turns: parts.iter().any(|part| part.turns),
            meets: parts.iter().any(|part| part.meets),
            alone: parts.iter().any(|part| part.alone),
            axes: parts.iter().map(|part| part.axes).max().unwrap_or(0),
        }
    }

    fn init(&self, shape: &ModelShape, init: &Init<'_>) -> Stack {
        let parts = init.scope("parts");
        Stack {
            parts: self
                .parts
                .iter()
                .enumerate()
                .map(|(i, part)| part.init(shape, &parts.scope(i)))
                .collect(),
        }
    }
}
