//! `by_head`: different encodings in different heads of every layer.
//!
//! - Formula: the first `heads[0]` heads have the hooks of `parts[0]`, the next `heads[1]` those of
//!   `parts[1]`, and so on.
//! - Source: NAPE, half of the heads without an encoding and half with ALiBi; hybrids of heads with
//!   and without positions or windows.
//! - Parameters: those of its parts, each for its own number of heads, under `parts.0`, ...
//! - Limits: the tightest of its parts. None of them may add to the input, which heads share.

use super::{Encoding, EncodingConfig};
use crate::ConfigError;
use crate::by_part::{self, acts_for_all};
use crate::facts::{Facts, Lengths, ModelShape};
use crate::hooks::{
    Bias, BiasBlocks, Content, Context, FusedQk, PositionalEncoding, PrepareResult, Prepared, Qk,
    first_alike,
};
use crate::init::Parameters;
use crate::positions::Positions;
use crate::spec::{About, EncodingSpec, Part};
use crate::tensors::padded;
use burn::module::Module;
use burn::tensor::Tensor;
use schema::in_range;
use serde::{Deserialize, Serialize};
use std::cell::OnceCell;
use std::ops::Range;

/// `kind = "by_head"`: configuration of [`ByHead`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ByHeadConfig {
    /// The encodings, from the first heads on; 1 to 16 of them, and at most one for each head. None
    /// may add to the input.
    pub parts: Vec<EncodingConfig>,
    /// Number of heads of each part, at least 1, which add up to those of the model; when absent,
    /// as equal as can be, the first ones one more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heads: Option<Vec<usize>>,
}

/// Different encodings in different heads.
#[derive(Module, Debug)]
pub struct ByHead {
    parts: Vec<Encoding>,
    #[module(skip)]
    places: Vec<Place>,
    head_dim: usize,
}

/// What a part acts on.
#[derive(Clone, Debug)]
struct Place {
    heads: Range<usize>,
    /// Whether it may make heads wider. Others do not see the zeros that fill theirs up.
    may_widen: bool,
}

struct PreparedByHead<'a> {
    parts: Vec<Box<dyn Prepared + 'a>>,
    of: &'a ByHead,
}

/// The results of all parts, heads one after the other.
fn joined(parts: Vec<Option<Tensor<4>>>, places: &[Place]) -> Option<Tensor<4>> {
    by_part::joined(parts, 1, |at, _| places[at].heads.len())
}

impl PreparedByHead<'_> {
    fn each(&self) -> impl Iterator<Item = (&dyn Prepared, &Place)> {
        let parts = self.parts.iter().map(AsRef::as_ref);
        parts.zip(&self.of.places)
    }

    /// Hands `hook` what each part of a block may read.
    fn each_content(
        &self,
        content: &Content<'_>,
        hook: impl Fn(&dyn Prepared, &Content<'_>, &Place) -> Option<Tensor<4>>,
    ) -> Option<Tensor<4>> {
        let raw = OnceCell::new();
        let parts = self.each().map(|(part, place)| {
            let own = |x: &Tensor<4>| {
                let x = x.clone().slice_dim(1, place.heads.clone());
                if place.may_widen || x.dims()[3] == self.of.head_dim {
                    return x;
                }
                x.slice_dim(3, 0..self.of.head_dim)
            };
            let raw_of = || {
                let (q, k) = raw.get_or_init(|| (content.raw)());
                (own(q), own(k))
            };
            let seen = Content {
                q: &own(content.q),
                k: &own(content.k),
                raw: &raw_of,
                queries: content.queries.clone(),
                keys: content.keys.clone(),
                ..*content
            };
            hook(part, &seen, place)
        });
        joined(parts.collect(), &self.of.places)
    }
}

impl PositionalEncoding for ByHead {
    fn prepare(&self, positions: &Positions, context: &Context) -> PrepareResult<'_> {
        if let [all] = &self.parts[..] {
            return all.prepare(positions, context);
        }
        let parts = self.parts.iter();
        let prepared = parts.map(|part| part.prepare(positions, context));
        Ok(Box::new(PreparedByHead {
            parts: prepared.collect::<Result<_, _>>()?,
            of: self,
        }))
    }

    fn max_position(&self) -> Option<usize> {
        let parts = self.parts.iter();
        parts.filter_map(PositionalEncoding::max_position).min()
    }

    fn acts_in_groups(&self) -> bool {
        self.parts.iter().all(acts_for_all)
    }
}

impl Prepared for PreparedByHead<'_> {
    fn transform_qk(&self, layer: usize, q: Tensor<4>, k: Tensor<4>, hidden: &Tensor<3>) -> Qk {
        let (q, k): (Vec<_>, Vec<_>) = self
            .each()
            .map(|(part, place)| {
                let [q, k] = [&q, &k].map(|x| x.clone().slice_dim(1, place.heads.clone()));
                part.transform_qk(layer, q, k, hidden)
            })
            .unzip();
        let width = q.iter().map(|q| q.dims()[3]).max().unwrap_or(0);
        let all = |x: Vec<Tensor<4>>| {
            let wide = x.into_iter().map(|x| padded(x, width));
            Tensor::cat(wide.collect(), 1)
        };
        (all(q), all(k))
    }

    /// A factor on the logits that all have. A rotation of some heads cannot be fused.
    fn fused_qk(&self, layer: usize) -> Option<FusedQk> {
        let parts = self.parts.iter().map(|part| part.fused_qk(layer));
        let parts = parts.collect::<Option<Vec<_>>>()?;
        let factor = parts[0].factor;
        let alike = |part: &FusedQk| part.rotation.is_none() && part.factor == factor;
        parts.iter().all(alike).then(|| FusedQk::new(None, factor))
    }

    fn decays(&self, layer: usize, hidden: &dyn Fn() -> Tensor<3>) -> Option<Tensor<3>> {
        let parts = self.parts.iter();
        let sums = parts.map(|part| Some(part.decays(layer, hidden)?.unsqueeze_dim(3)));
        // Nothing decays where there are no sums.
        Some(joined(sums.collect(), &self.of.places)?.squeeze_dim(3))
    }

    fn logits_bias(&self, layer: usize) -> Option<Bias<'_>> {
        let parts = self.parts.iter().map(|part| part.logits_bias(layer));
        let parts: Vec<Option<Bias<'_>>> = parts.collect();
        let any = parts.iter().any(Option::is_some);
        let places = &self.of.places;
        any.then(|| Bias::new(BiasByHead { parts, places }))
    }

    fn bias_layer(&self, layer: usize) -> usize {
        first_alike(layer, |layer| {
            let parts = self.parts.iter().map(|part| part.bias_layer(layer));
            parts.collect::<Vec<_>>()
        })
    }

    fn content_bias(&self, layer: usize, content: &Content<'_>) -> Option<Tensor<4>> {
        self.each_content(content, |part, content, _| {
            part.content_bias(layer, content)
        })
    }

    fn output_bias(
        &self,
        layer: usize,
        content: &Content<'_>,
        weights: &dyn Fn() -> Tensor<4>,
    ) -> Option<Tensor<4>> {
        let all = OnceCell::new();
        self.each_content(content, |part, content, place| {
            let weights = all.get_or_init(weights);
            let own = || weights.clone().slice_dim(1, place.heads.clone());
            part.output_bias(layer, content, &own)
        })
    }
}

/// A bias whose heads are those of the parts; parts without one have 0.
struct BiasByHead<'a> {
    parts: Vec<Option<Bias<'a>>>,
    places: &'a [Place],
}

impl BiasBlocks for BiasByHead<'_> {
    fn block(&self, queries: Range<usize>, keys: Range<usize>) -> Tensor<4> {
        let block = |bias: &Bias<'_>| bias.block(queries.clone(), keys.clone());
        let parts = self.parts.iter().map(|bias| bias.as_ref().map(block));
        joined(parts.collect(), self.places).expect("a part has a bias")
    }

    fn by_distance(&self) -> bool {
        self.parts.iter().flatten().all(Bias::is_by_distance)
    }

    fn is_decay(&self) -> bool {
        self.parts.iter().flatten().all(Bias::is_decay)
    }
}

impl ByHeadConfig {
    /// Most encodings.
    pub const MAX_PARTS: usize = 16;

    /// How many heads each part has.
    fn shares(&self, n_heads: usize) -> Vec<usize> {
        let count = self.parts.len().max(1);
        let equal = (0..count).map(|i| n_heads / count + usize::from(i < n_heads % count));
        self.heads.clone().unwrap_or_else(|| equal.collect())
    }

    fn check_heads(&self, n_heads: usize) -> Result<(), ConfigError> {
        let count = self.parts.len();
        let most = Self::MAX_PARTS.min(n_heads);
        if !(1..=most).contains(&count) {
            let problem = format!("must have 1 to {most} encodings for {n_heads} heads");
            let (value, allowed) = (format!("{count} encodings"), format!("1 to {most}"));
            let hint = "list the encodings in parts and their numbers of heads in heads: parts = \
                        [A, B], heads = [2, 2]";
            return Err(ConfigError::new("parts", value, problem, allowed, hint));
        }
        let Some(heads) = &self.heads else {
            return Ok(());
        };
        let sum: usize = heads.iter().fold(0, |sum, own| sum.saturating_add(*own));
        let problem = if heads.len() != count {
            format!("has {} numbers for {count} parts", heads.len())
        } else if sum != n_heads {
            format!("adds up to {sum}, and the model has {n_heads} heads")
        } else {
            let hint = "an encoding without heads is left out of parts";
            let mut each = heads.iter().enumerate();
            return each
                .try_for_each(|(i, own)| in_range(&format!("heads.{i}"), *own, 1..=n_heads, hint));
        };
        Err(ConfigError::new(
            "heads",
            format!("{heads:?}"),
            problem,
            format!("{count} numbers that add up to {n_heads}"),
            "leave heads out for equal numbers",
        ))
    }
}

impl EncodingSpec for ByHeadConfig {
    type Module = ByHead;
    const ABOUT: About = About {
        summary: "different encodings in different heads of every layer",
        formula: "heads of part p have the hooks of parts[p]",
        source: "composition of the parts; NAPE (ICLR 2026): half of the heads none, half ALiBi",
        deviations: "NAPE was read in summaries, which do not say which half has ALiBi: `parts` \
                     decides. Slopes are those of as many heads as the part has; `alibi` takes \
                     others as `slopes`",
    };

    fn check(&self, shape: &ModelShape) -> Result<(), ConfigError> {
        self.check_heads(shape.n_heads)?;
        self.check_parts(shape)?;
        for (i, part) in self.parts.iter().enumerate() {
            if part.properties(&self.part_shape(i, shape)).hooks.embed {
                return Err(ConfigError::new(
                    format!("parts.{i}.kind"),
                    part.kind(),
                    "adds to the input, which all heads read",
                    "encodings that act on queries, keys, logits or outputs",
                    format!(
                        "{{ kind = \"stack\", parts = [{{ kind = \"{}\" }}, {{ kind = \"by_head\" \
                         .. }}] }} adds it for all heads",
                        part.kind()
                    ),
                ));
            }
        }
        Ok(())
    }

    fn resolve(&mut self, lengths: &Lengths) {
        self.parts.iter_mut().for_each(|part| part.resolve(lengths));
    }

    fn properties(&self, shape: &ModelShape) -> Facts {
        let parts = self.parts.iter().enumerate();
        let parts = parts.map(|(i, part)| part.properties(&self.part_shape(i, shape)));
        let parts: Vec<Facts> = parts.collect();
        if let [all] = &parts[..] {
            return all.clone();
        }
        let shares = self.shares(shape.n_heads);
        let sum = |fact: fn(&Facts) -> f64| {
            let own = parts.iter().zip(&shares);
            let own = own.map(|(part, heads)| fact(part) * *heads as f64);
            own.sum::<f64>() / shape.n_heads as f64
        };
        let facts = Facts::stacked(&parts);
        // What joins the heads again: one number per logit, and queries and keys.
        let join = f64::from(u8::from(sum(|part| part.bias_workspace) > 0.0));
        // One part that reads content keeps the logits and weights of all heads.
        let is_mixed =
            facts.hooks.content_bias && !parts.iter().all(|part| part.hooks.content_bias);
        let all_heads = if is_mixed { 2.0 } else { 0.0 };
        let join_qk = if facts.hooks.transform_qk { 2.0 } else { 0.0 };
        Facts {
            // No two parts meet in a head.
            relative: parts.iter().all(|part| part.relative),
            diagonal_network: false,
            bias_by_distance: false,
            bias_workspace: sum(|part| part.bias_workspace) + join + all_heads,
            bias_work: sum(|part| part.bias_work) + join,
            bias_kept: sum(|part| part.bias_kept) + 1.75 * all_heads,
            transform_workspace: sum(|part| part.transform_workspace) + join_qk,
            transform_kept: sum(|part| part.transform_kept),
            ..facts
        }
    }

    fn parts(&self) -> Vec<Part<'_>> {
        Part::listed(&self.parts)
    }

    fn part_shape(&self, part: usize, shape: &ModelShape) -> ModelShape {
        let n_heads = self.shares(shape.n_heads).get(part).copied();
        ModelShape {
            n_heads: n_heads.unwrap_or(shape.n_heads),
            ..*shape
        }
    }

    fn example() -> Option<Self> {
        Some(Self {
            parts: vec![super::simplest(), super::AlibiConfig::default().into()],
            heads: None,
        })
    }

    fn build(&self, shape: &ModelShape, parameters: &mut Parameters) -> ByHead {
        let (mut parts, mut places, mut first) = (vec![], vec![], 0);
        for (i, part) in self.parts.iter().enumerate() {
            let own = self.part_shape(i, shape);
            parts.push(parameters.scoped(&format!("parts.{i}"), |inner| part.build(&own, inner)));
            places.push(Place {
                heads: first..first + own.n_heads,
                may_widen: part.properties(&own).exclusive_in_stack,
            });
            first += own.n_heads;
        }
        ByHead {
            parts,
            places,
            head_dim: shape.head_dim,
        }
    }
}
