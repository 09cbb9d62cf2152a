//! `stack`: several encodings at once.
//!
//! - Formula: the parts' hooks one after the other, in order; biases add.
//! - Source: hybrids such as RoPE + ALiBi or sinusoidal + T5 are sums of their parts' hooks.
//! - Parameters: those of its parts, under `parts.0`, `parts.1`, ...
//! - Limits: the tightest of its parts.

use super::{Encoding, EncodingConfig};
use crate::ConfigError;
use crate::by_part::acts_for_all;
use crate::facts::{Facts, Lengths, ModelShape};
use crate::hooks::{
    Bias, Content, Context, FusedQk, PositionalEncoding, PrepareResult, Prepared, Qk, first_alike,
};
use crate::init::Parameters;
use crate::positions::Positions;
use crate::spec::{About, EncodingSpec, Part};
use burn::module::Module;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// `kind = "stack"`: configuration of [`Stack`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct StackConfig {
    /// The encodings to combine, first applied first, 1 to 16 of them.
    pub parts: Vec<EncodingConfig>,
}

/// Several encodings at once.
///
/// The parts may be of any type, not only encodings of the catalogue: an enum of your own over
/// [`Encoding`] and your module makes a mixed stack.
#[derive(Module, Debug)]
pub struct Stack<E: Module = Encoding> {
    parts: Vec<E>,
}

impl<E: Module + PositionalEncoding> Stack<E> {
    /// `parts` in order, first applied first, each with the facts it declares.
    ///
    /// # Errors
    ///
    /// If there are no parts or more than [`StackConfig::MAX_PARTS`], or two that exclude each
    /// other.
    pub fn new(parts: Vec<(E, Facts)>) -> Result<Self, ConfigError> {
        let (parts, facts): (Vec<E>, Vec<Facts>) = parts.into_iter().unzip();
        let names: Vec<String> = (0..facts.len()).map(|i| format!("part {i}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        check_count(parts.len())?;
        check_exclusive(&names, &facts)?;
        Ok(Self { parts })
    }
}

struct PreparedStack<'a> {
    parts: Vec<Box<dyn Prepared + 'a>>,
}

impl<E: Module + PositionalEncoding> PositionalEncoding for Stack<E> {
    fn prepare(&self, positions: &Positions, context: &Context) -> PrepareResult<'_> {
        let parts = self.parts.iter();
        let prepared = parts.map(|part| part.prepare(positions, context));
        Ok(Box::new(PreparedStack {
            parts: prepared.collect::<Result<_, _>>()?,
        }))
    }

    fn max_position(&self) -> Option<usize> {
        self.parts
            .iter()
            .filter_map(PositionalEncoding::max_position)
            .min()
    }

    fn acts_in_groups(&self) -> bool {
        self.parts.iter().all(acts_for_all)
    }
}

impl Prepared for PreparedStack<'_> {
    fn embed(&self, x: Tensor<3>) -> Tensor<3> {
        self.parts.iter().fold(x, |x, part| part.embed(x))
    }

    fn transform_qk(&self, layer: usize, q: Tensor<4>, k: Tensor<4>, hidden: &Tensor<3>) -> Qk {
        self.parts.iter().fold((q, k), |(q, k), part| {
            part.transform_qk(layer, q, k, hidden)
        })
    }

    fn fused_qk(&self, layer: usize) -> Option<FusedQk> {
        let mut parts = self.parts.iter();
        parts.try_fold(FusedQk::default(), |fused, part| {
            let part = part.fused_qk(layer)?;
            // Two rotations in sequence are not one rotation.
            let rotation = match (fused.rotation, part.rotation) {
                (Some(_), Some(_)) => return None,
                (one, other) => one.or(other),
            };
            Some(FusedQk::new(rotation, fused.factor * part.factor))
        })
    }

    fn decays(&self, layer: usize, hidden: &dyn Fn() -> Tensor<3>) -> Option<Tensor<3>> {
        let parts = self.parts.iter();
        let sums = parts.filter_map(|part| part.decays(layer, hidden));
        sums.reduce(|a, b| a + b)
    }

    fn logits_bias(&self, layer: usize) -> Option<Bias<'_>> {
        self.parts
            .iter()
            .filter_map(|part| part.logits_bias(layer))
            .reduce(Bias::plus)
    }

    fn bias_layer(&self, layer: usize) -> usize {
        first_alike(layer, |layer| {
            let parts = self.parts.iter().map(|part| part.bias_layer(layer));
            parts.collect::<Vec<_>>()
        })
    }

    fn content_bias(&self, layer: usize, content: &Content<'_>) -> Option<Tensor<4>> {
        let biases = self.parts.iter().enumerate().filter_map(|(i, part)| {
            let raw = || self.without(i, layer, (content.raw)(), content.hidden);
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
    /// Queries and keys as all parts but one leave them: a part that undoes its own rotation must
    /// not undo those of the others.
    fn without(&self, skipped: usize, layer: usize, (q, k): Qk, hidden: &Tensor<3>) -> Qk {
        let others = self.parts.iter().enumerate().filter(|(i, _)| *i != skipped);
        others.fold((q, k), |(q, k), (_, other)| {
            other.transform_qk(layer, q, k, hidden)
        })
    }
}

impl StackConfig {
    /// Most parts of a stack.
    pub const MAX_PARTS: usize = 16;
}

impl EncodingConfig {
    /// The parts of a stack; `None` for any other kind.
    pub fn stacked_parts(&self) -> Option<&[Self]> {
        match self {
            Self::Stack(stack) => Some(&stack.parts),
            _ => None,
        }
    }

    /// A stack of this encoding and `added`. The parts of a stack become parts of the new one.
    #[must_use]
    pub fn stacked_with(self, added: impl IntoIterator<Item = Self>) -> Self {
        let mut parts = match self {
            Self::Stack(stack) => stack.parts,
            other => vec![other],
        };
        parts.extend(added);
        Self::Stack(StackConfig { parts })
    }
}

fn check_count(parts: usize) -> Result<(), ConfigError> {
    if (1..=StackConfig::MAX_PARTS).contains(&parts) {
        return Ok(());
    }
    Err(ConfigError::new(
        "parts",
        format!("{parts} encodings"),
        format!("must have 1 to {} entries", StackConfig::MAX_PARTS),
        format!("1 to {} encodings", StackConfig::MAX_PARTS),
        "use kind = \"nope\" for no encoding",
    ))
}

/// Refuses a part that rotates or reads queries and keys beside one that excludes it.
fn check_exclusive(names: &[&str], facts: &[Facts]) -> Result<(), ConfigError> {
    let Some(exclusive) = facts.iter().position(|facts| facts.exclusive_in_stack) else {
        return Ok(());
    };
    let conflicts = |(i, facts): (usize, &Facts)| {
        i != exclusive && (facts.reads_transformed_qk || facts.rotates_qk)
    };
    let Some(other) = facts.iter().enumerate().position(conflicts) else {
        return Ok(());
    };
    let (exclusive, other) = (names[exclusive], names[other]);
    Err(ConfigError::new(
        "parts",
        format!("{other} and {exclusive}"),
        format!(
            "hold `{exclusive}`, which cannot be combined with another transform of queries and keys"
        ),
        "one of the two",
        "remove either; biases on positions only and `fox` can be added to both",
    ))
}

impl EncodingSpec for StackConfig {
    type Module = Stack;
    const NAME: Option<&'static str> = Some("");
    const ABOUT: About = About {
        summary: "several encodings at once",
        formula: "hooks applied in order, biases added",
        source: "composition of the parts",
        deviations: "none",
    };

    fn check(&self, shape: &ModelShape) -> Result<(), ConfigError> {
        check_count(self.parts.len())?;
        self.check_parts(shape)?;
        let kinds: Vec<&str> = self.parts.iter().map(EncodingConfig::kind).collect();
        let facts = self.parts.iter().map(|part| part.properties(shape));
        check_exclusive(&kinds, &facts.collect::<Vec<_>>())
    }

    fn resolve(&mut self, lengths: &Lengths) {
        self.parts.iter_mut().for_each(|part| part.resolve(lengths));
    }

    fn properties(&self, shape: &ModelShape) -> Facts {
        let parts = self.parts.iter().map(|part| part.properties(shape));
        Facts::stacked(&parts.collect::<Vec<_>>())
    }

    fn parts(&self) -> Vec<Part<'_>> {
        Part::listed(&self.parts)
    }

    fn example() -> Option<Self> {
        Some(Self {
            parts: vec![super::simplest()],
        })
    }

    fn build(&self, shape: &ModelShape, parameters: &mut Parameters) -> Stack {
        let parts = self.parts.iter().enumerate();
        Stack {
            parts: parts
                .map(|(i, part)| {
                    parameters.scoped(&format!("parts.{i}"), |inner| part.build(shape, inner))
                })
                .collect(),
        }
    }
}
