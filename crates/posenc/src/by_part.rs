//! Encodings that act on parts of a batch: on rows whose coordinates differ, and on the batches of
//! models that a host computes side by side.

use crate::hooks::{
    Bias, BiasBlocks, Content, FusedQk, PositionalEncoding, PrepareResult, Prepared, Qk,
    first_alike,
};
use crate::ops::Rotation;
use crate::positions::Positions;
use burn::module::Module;
use burn::tensor::Tensor;
use std::cell::OnceCell;
use std::ops::Range;

/// Prepares an encoding with `read` for the coordinates that all rows share, or for one row after
/// the other.
///
/// # Errors
///
/// The first one of `read`.
pub(crate) fn prepare<'a>(
    positions: &Positions,
    read: impl Fn(&Positions) -> PrepareResult<'a>,
) -> PrepareResult<'a> {
    let Some(rows) = positions.by_row() else {
        return read(positions);
    };
    let parts = rows.map(|row| read(&row)).collect::<Result<_, _>>()?;
    Ok(Box::new(PreparedParts {
        parts,
        of_models: false,
    }))
}

/// Whether one encoding can act for models side by side: with the parameters of all, or none.
pub fn acts_for_all<E: Module + PositionalEncoding>(encoding: &E) -> bool {
    encoding.acts_in_groups() || encoding.num_params() == 0
}

/// One encoding for models side by side: each of `models` acts on its part of the batch, which has
/// as many equal parts. Rotations come as tables `[G, 1, length, pairs]` and biases as `[G, ..]`,
/// with a part for each model; so do those by distance.
///
/// # Panics
///
/// If there is no model.
pub fn side_by_side<'a>(models: Vec<Box<dyn Prepared + 'a>>) -> Box<dyn Prepared + 'a> {
    assert!(!models.is_empty(), "an encoding");
    Box::new(PreparedParts {
        parts: models,
        of_models: true,
    })
}

/// An encoding for every part of a batch. Every hook is that of the parts, one after the other.
struct PreparedParts<'a> {
    parts: Vec<Box<dyn Prepared + 'a>>,
    /// Whether the host has other parameters for each part, and so takes tables and biases by part.
    of_models: bool,
}

/// The results of all parts, concatenated along `dim`; `None` if no part has one. A missing result
/// is 0, and dimensions of 1 are expanded. `size(index, largest)` is a part's extent along `dim`.
pub(crate) fn joined(
    parts: Vec<Option<Tensor<4>>>,
    dim: usize,
    size: impl Fn(usize, usize) -> usize,
) -> Option<Tensor<4>> {
    let shapes = parts.iter().flatten().map(Tensor::dims);
    let most = shapes.reduce(|a, b| std::array::from_fn(|i| a[i].max(b[i])))?;
    let like = parts.iter().flatten().next()?;
    let options = (&like.device(), like.dtype());
    let own = parts.iter().enumerate().map(|(at, part)| {
        let mut shape = most;
        shape[dim] = size(at, most[dim]);
        match part {
            Some(x) if x.dims() == shape => x.clone(),
            Some(x) => x.clone().expand(shape),
            None => Tensor::zeros(shape, options),
        }
    });
    Some(Tensor::cat(own.collect(), dim))
}

impl PreparedParts<'_> {
    /// The parts of a batch.
    fn split<const D: usize>(&self, batch: &Tensor<D>) -> Vec<Tensor<D>> {
        batch.clone().chunk(self.parts.len(), 0)
    }

    /// Hands `hook` what each part of a block may read.
    fn each_content(
        &self,
        content: &Content<'_>,
        hook: impl Fn(usize, &dyn Prepared, &Content<'_>) -> Option<Tensor<4>>,
    ) -> Option<Tensor<4>> {
        let [q, k] = [content.q, content.k].map(|x| self.split(x));
        let hidden = self.split(content.hidden);
        let raw = OnceCell::new();
        let raw_of = |at: usize| {
            let (q, k): &(Vec<_>, Vec<_>) = raw.get_or_init(|| {
                let (q, k) = (content.raw)();
                (self.split(&q), self.split(&k))
            });
            (q[at].clone(), k[at].clone())
        };
        let parts = self.parts.iter().enumerate().map(|(at, prepared)| {
            let raw = || raw_of(at);
            let own = Content {
                q: &q[at],
                k: &k[at],
                raw: &raw,
                hidden: &hidden[at],
                queries: content.queries.clone(),
                keys: content.keys.clone(),
                ..*content
            };
            let result = hook(at, prepared.as_ref(), &own)?;
            // Of all sequences of the part, also where the hook gives them one.
            let [_, heads, rows, columns] = result.dims();
            Some(result.expand([q[at].dims()[0], heads, rows, columns]))
        });
        joined(parts.collect(), 0, |_, most| most)
    }
}

impl Prepared for PreparedParts<'_> {
    fn embed(&self, x: Tensor<3>) -> Tensor<3> {
        let parts = self.parts.iter().zip(self.split(&x));
        let parts = parts.map(|(prepared, x)| prepared.embed(x));
        Tensor::cat(parts.collect(), 0)
    }

    fn transform_qk(&self, layer: usize, q: Tensor<4>, k: Tensor<4>, hidden: &Tensor<3>) -> Qk {
        let inputs = self.split(&q).into_iter().zip(self.split(&k));
        let inputs = inputs.zip(self.split(hidden));
        let parts = self.parts.iter().zip(inputs);
        let (q, k): (Vec<_>, Vec<_>) = parts
            .map(|(prepared, ((q, k), hidden))| prepared.transform_qk(layer, q, k, &hidden))
            .unzip();
        (Tensor::cat(q, 0), Tensor::cat(k, 0))
    }

    /// A factor on the logits that all have, and for models rotations of as many pairs. Rotations
    /// and biases of rows cannot be fused.
    fn fused_qk(&self, layer: usize) -> Option<FusedQk> {
        let parts = self.parts.iter().map(|part| {
            let plain = self.of_models || part.logits_bias(layer).is_none();
            part.fused_qk(layer).filter(|_| plain)
        });
        let parts = parts.collect::<Option<Vec<_>>>()?;
        let (count, factor) = (parts.len(), parts[0].factor);
        if parts.iter().any(|part| part.factor != factor) {
            return None;
        }
        let rotations = parts.into_iter().filter_map(|part| part.rotation);
        let rotations: Vec<Rotation> = rotations.collect();
        if rotations.is_empty() {
            return Some(FusedQk::new(None, factor));
        }
        let kind = |r: &Rotation| (r.interleaved, r.keys[0].dims());
        let alike = rotations.iter().all(|r| kind(r) == kind(&rotations[0]));
        let all = alike && rotations.len() == count;
        (all && self.of_models).then(|| FusedQk::new(Some(of_all(&rotations)), factor))
    }

    fn decays(&self, layer: usize, hidden: &dyn Fn() -> Tensor<3>) -> Option<Tensor<3>> {
        let all = OnceCell::new();
        let parts = self.parts.iter().enumerate().map(|(at, part)| {
            let own = || all.get_or_init(|| self.split(&hidden()))[at].clone();
            part.decays(layer, &own)
        });
        let parts: Vec<Option<Tensor<3>>> = parts.collect();
        let like = parts.iter().flatten().next()?.clone();
        // Nothing decays where there are no sums.
        let parts = parts
            .into_iter()
            .map(|sums| sums.unwrap_or_else(|| like.zeros_like()));
        Some(Tensor::cat(parts.collect(), 0))
    }

    fn logits_bias(&self, layer: usize) -> Option<Bias<'_>> {
        let parts = self.parts.iter().map(|part| part.logits_bias(layer));
        let parts: Vec<Option<Bias<'_>>> = parts.collect();
        let of_models = self.of_models;
        let any = parts.iter().any(Option::is_some);
        any.then(|| Bias::new(BiasByPart { parts, of_models }))
    }

    fn bias_layer(&self, layer: usize) -> usize {
        first_alike(layer, |layer| {
            let parts = self.parts.iter().map(|part| part.bias_layer(layer));
            parts.collect::<Vec<_>>()
        })
    }

    fn content_bias(&self, layer: usize, content: &Content<'_>) -> Option<Tensor<4>> {
        self.each_content(content, |_, prepared, content| {
            prepared.content_bias(layer, content)
        })
    }

    fn output_bias(
        &self,
        layer: usize,
        content: &Content<'_>,
        weights: &dyn Fn() -> Tensor<4>,
    ) -> Option<Tensor<4>> {
        let all = OnceCell::new();
        self.each_content(content, |at, prepared, content| {
            let own = || all.get_or_init(|| self.split(&weights()))[at].clone();
            prepared.output_bias(layer, content, &own)
        })
    }
}

/// The tables of all rotations.
fn of_all(rotations: &[Rotation]) -> Rotation {
    let tables = |of: &dyn Fn(&Rotation) -> Tensor<4>| {
        let tables = rotations.iter().map(of).collect();
        Tensor::cat(tables, 0)
    };
    let pair = |of: fn(&Rotation) -> &[Tensor<4>; 2]| {
        [0, 1].map(|i: usize| tables(&|rotation| of(rotation)[i].clone()))
    };
    let interleaved = rotations[0].interleaved;
    Rotation::new(pair(|r| &r.queries), pair(|r| &r.keys), interleaved)
}

/// A bias for each part: its blocks are `[G, H or 1, q_len, k_len]` for G models, and `[B, ..]` for
/// rows. Parts without a bias have 0.
struct BiasByPart<'a> {
    parts: Vec<Option<Bias<'a>>>,
    of_models: bool,
}

impl BiasBlocks for BiasByPart<'_> {
    fn block(&self, queries: Range<usize>, keys: Range<usize>) -> Tensor<4> {
        let block = |bias: &Bias<'_>| bias.block(queries.clone(), keys.clone());
        let parts = self.parts.iter().map(|bias| bias.as_ref().map(block));
        joined(parts.collect(), 0, |_, most| most).expect("a part has a bias")
    }

    fn by_distance(&self) -> bool {
        self.of_models && self.parts.iter().flatten().all(Bias::is_by_distance)
    }

    fn is_decay(&self) -> bool {
        self.parts.iter().flatten().all(Bias::is_decay)
    }
}
