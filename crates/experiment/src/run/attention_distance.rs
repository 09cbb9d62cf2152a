//! What is recorded of every head, measured by a wrapper around the encoding that reads attention
//! weights, and queries and keys before they are rotated.

use crate::run::rope_scores::{ROWS, Sample, Scorer, Turns};
use crate::spec::MAX_LOGITS;
use burn::module::Module;
use burn::tensor::{Int, Tensor, TensorData};
use posenc::{
    Bias, Content, Context, Encoding, PositionalEncoding, Positions, PrepareResult, Prepared, Qk,
};
use records::metric::{ATTENTION_DISTANCE, BLIND, POSITIONAL_SCORE, SEMANTIC_SCORE};
use records::record::Metric;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tasks::Stream;
use tiny_transformer::{Pass, Transformer};

/// An encoding that also sums what is recorded of heads.
#[derive(Module, Debug)]
pub struct MeasuredEncoding {
    inner: Encoding,
    #[module(skip)]
    sums: Arc<Mutex<Sums>>,
}

/// Sums over many passes.
#[derive(Debug, Default)]
struct Sums {
    /// `[layer][head]`.
    heads: Vec<Vec<OfHead>>,
    queries: u64,
    pairs: u64,
    rows: usize,
    /// Tokens of each row of the batch in hand, without the padding after them.
    lengths: Vec<usize>,
}

#[derive(Clone, Debug, Default)]
struct OfHead {
    /// Over queries, the mean distance attended to.
    distance: f64,
    /// Pairs of weight 0.
    blind: f64,
    /// Over rows, and how many.
    semantic: (f64, u64),
    positional: (f64, u64),
}

impl Sums {
    fn locked(sums: &Mutex<Self>) -> MutexGuard<'_, Self> {
        sums.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `add` with the sums of each head of a layer. The encoding does not know the number of
    /// layers; the first pass shows it.
    fn add(&mut self, layer: usize, heads: usize, mut add: impl FnMut(usize, &mut OfHead)) {
        if self.heads.len() <= layer {
            self.heads.resize(layer + 1, Vec::new());
        }
        self.heads[layer].resize(heads, OfHead::default());
        let heads = self.heads[layer].iter_mut().enumerate();
        heads.for_each(|(head, sums)| add(head, sums));
    }
}

struct PreparedWatched<'a> {
    inner: Box<dyn Prepared + 'a>,
    sums: &'a Mutex<Sums>,
    /// As in [`Sums`].
    lengths: Vec<usize>,
    /// Tokens to read for the scores of rotary heads, and of which rows.
    samples: Vec<(Sample, Vec<usize>)>,
}

impl PositionalEncoding for MeasuredEncoding {
    fn prepare(&self, positions: &Positions, context: &Context) -> PrepareResult<'_> {
        let (before, lengths) = {
            let sums = Sums::locked(&self.sums);
            (sums.rows, sums.lengths.clone())
        };
        let mut read: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        if steps_evenly(positions.keys()) {
            let left = ROWS.saturating_sub(before);
            for (row, length) in lengths.iter().enumerate().take(left) {
                read.entry(*length).or_default().push(row);
            }
        }
        // Rows of one length share their sample.
        let samples = read.into_iter().filter_map(|(length, rows)| {
            let mut stream = Stream::new(0, "rope-scores", before as u64);
            Some((Sample::draw(length, &mut stream)?, rows))
        });
        Ok(Box::new(PreparedWatched {
            inner: self.inner.prepare(positions, context)?,
            sums: &self.sums,
            lengths,
            samples: samples.collect(),
        }))
    }

    fn max_position(&self) -> Option<usize> {
        self.inner.max_position()
    }
}

impl Prepared for PreparedWatched<'_> {
    fn embed(&self, x: Tensor<3>) -> Tensor<3> {
        self.inner.embed(x)
    }

    fn transform_qk(&self, layer: usize, q: Tensor<4>, k: Tensor<4>, hidden: &Tensor<3>) -> Qk {
        self.inner.transform_qk(layer, q, k, hidden)
    }

    fn logits_bias(&self, layer: usize) -> Option<Bias<'_>> {
        self.inner.logits_bias(layer)
    }

    fn content_bias(&self, layer: usize, content: &Content<'_>) -> Option<Tensor<4>> {
        self.inner.content_bias(layer, content)
    }

    fn output_bias(
        &self,
        layer: usize,
        content: &Content<'_>,
        weights: &dyn Fn() -> Tensor<4>,
    ) -> Option<Tensor<4>> {
        self.look(layer, content, &weights());
        self.score(layer, content);
        // The term of the wrapped encoding itself still counts, so the model is unchanged.
        self.inner.output_bias(layer, content, weights)
    }
}

/// Whether all steps from token to token are equal and not 0.
fn steps_evenly(positions: &[f64]) -> bool {
    let mut steps = positions.windows(2).map(|pair| pair[1] - pair[0]);
    let first = steps.next().unwrap_or(0.0);
    first != 0.0 && steps.all(|step| (step - first).abs() <= 1e-9 * first.abs())
}

/// A tensor's numbers on the host.
fn host<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    let data = tensor.into_data().convert::<f64>();
    data.try_to_vec::<f64>()
        .expect("data was just converted to f64")
}

impl PreparedWatched<'_> {
    /// Adds distances and pairs without weight of a block of attention weights.
    fn look(&self, layer: usize, content: &Content<'_>, weights: &Tensor<4>) {
        let (queries, keys) = (content.queries.clone(), content.keys.clone());
        // One matrix of distances for all rows and heads, broadcast over both.
        let shape = [1, 1, queries.len(), keys.len()];
        let distances = queries.clone().flat_map(|query| {
            let keys = keys.clone();
            keys.map(move |key| query.abs_diff(key) as f32)
        });
        let distances = TensorData::new(distances.collect::<Vec<f32>>(), shape);
        let distances = Tensor::<4>::from_data(distances, &content.q.device());
        let [batch, heads, ..] = weights.dims();
        // Queries of each row before its padding, which none of them sees.
        let own = |length: &usize| (*length).clamp(queries.start, queries.end) - queries.start;
        let own: Vec<usize> = self.lengths.iter().map(own).collect();
        let mut looked = (weights.clone() * distances).sum_dim(3);
        if own.iter().any(|own| *own < queries.len()) {
            let is_own = |own: &usize| [vec![1.0; *own], vec![0.0; queries.len() - *own]].concat();
            let is_own: Vec<f32> = own.iter().flat_map(is_own).collect();
            let is_own = TensorData::new(is_own, [batch, 1, queries.len(), 1]);
            looked = looked * Tensor::<4>::from_data(is_own, &content.q.device());
        }
        // One sum per row of the batch and head keeps the sums in f32 short.
        let looked = host(looked.sum_dim(2));
        // Counts of one query are exact in f32. Keys after it have no weight and are not pairs.
        let empty = host(weights.clone().equal_elem(0.0).float().sum_dim(3));
        let seen = |i: usize| (content.first_query + i + 1).min(keys.len());
        let mut sums = Sums::locked(self.sums);
        if layer == 0 {
            let pairs = own.iter().flat_map(|own| (0..*own).map(seen));
            sums.pairs += pairs.sum::<usize>() as u64;
        }
        sums.add(layer, heads, |head, sums| {
            // Heads are the inner dimension of the flattened sums.
            sums.distance += looked.iter().skip(head).step_by(heads).sum::<f64>();
            let empty = empty.chunks(queries.len()).skip(head).step_by(heads);
            let blind = empty.zip(&own).flat_map(|(row, own)| {
                let counts = row.iter().enumerate().take(*own);
                counts.map(|(i, count)| count - (keys.len() - seen(i)) as f64)
            });
            sums.blind += blind.sum::<f64>();
        });
    }

    /// Adds the scores of rotary heads, once for all blocks of queries. None where logits are not
    /// products of rotated queries and keys alone.
    fn score(&self, layer: usize, content: &Content<'_>) {
        if content.queries.start > 0 || self.samples.is_empty() {
            return;
        }
        let Some(turns) = self.turns(layer, content.hidden) else {
            return;
        };
        let (q, k) = (content.raw)();
        for (sample, rows) in &self.samples {
            self.score_rows(
                layer,
                &Scorer::new(&turns, sample),
                (sample, rows),
                [&q, &k],
            );
        }
    }

    /// Adds the scores of rows that are sampled alike.
    fn score_rows(
        &self,
        layer: usize,
        scorer: &Scorer<'_>,
        (sample, rows): (&Sample, &[usize]),
        [q, k]: [&Tensor<4>; 2],
    ) {
        let [_, heads, _, width] = q.dims();
        let of = |x: &Tensor<4>, positions: &[usize]| {
            let indices = |all: &[usize]| {
                let all: Vec<i64> = all.iter().map(|index| *index as i64).collect();
                Tensor::<1, Int>::from_data(&all[..], &x.device())
            };
            let read = x.clone().select(0, indices(rows));
            let vectors = host(read.select(2, indices(positions)));
            // `[row and head][position][width]`
            let vectors = vectors
                .chunks(width)
                .map(<[f64]>::to_vec)
                .collect::<Vec<_>>();
            let heads = vectors.chunks(positions.len()).map(<[Vec<f64>]>::to_vec);
            heads.collect::<Vec<_>>()
        };
        let (q, k) = (of(q, &sample.queries), of(k, &sample.keys));
        Sums::locked(self.sums).add(layer, heads, |head, sums| {
            for row in 0..rows.len() {
                let at = row * heads + head;
                let scores = scorer.scores(&q[at], &k[at]);
                let of = [
                    (&mut sums.semantic, scores.semantic),
                    (&mut sums.positional, scores.positional),
                ];
                for ((sum, count), score) in of {
                    *sum += score.unwrap_or(0.0);
                    *count += u64::from(score.is_some());
                }
            }
        });
    }

    /// The rotation of a layer from one token to the next.
    fn turns(&self, layer: usize, hidden: &Tensor<3>) -> Option<Turns> {
        let fused = self.inner.fused_qk(layer)?;
        let decays = || self.inner.decays(layer, &|| hidden.clone());
        if self.inner.logits_bias(layer).is_some() || decays().is_some() {
            return None;
        }
        let rotation = fused.rotation?;
        let [cos, sin] = rotation.keys.map(|table| {
            let [_, _, length, pairs] = table.dims();
            // The first two tokens and the last one.
            let rows = [0..2, length - 1..length].map(|rows| table.clone().slice_dim(2, rows));
            let rows = host(Tensor::cat(rows.to_vec(), 2));
            rows.chunks(pairs).map(<[f64]>::to_vec).collect::<Vec<_>>()
        });
        let size = |row: usize, pair: usize| libm::hypot(cos[row][pair], sin[row][pair]);
        let angle = |row: usize, pair: usize| libm::atan2(sin[row][pair], cos[row][pair]);
        let (pairs, factor) = (cos[0].len(), size(0, 0));
        // Sizes that change with the position, as those of xPos, are not a rotation alone.
        let is_alike = |pair| (size(2, pair) - factor).abs() <= 1e-5 * factor;
        (0..pairs).all(is_alike).then(|| Turns {
            inv_freq: (0..pairs)
                .map(|pair| angle(1, pair) - angle(0, pair))
                .collect(),
            factor,
            interleaved: rotation.interleaved,
        })
    }
}

/// What is recorded of heads, over many passes.
pub struct Profile {
    model: Transformer<MeasuredEncoding>,
}

impl Profile {
    /// Starts with a model under a wrapped encoding.
    pub fn new(model: Transformer, encoding: Encoding) -> Self {
        Self {
            model: model.with_encoding(MeasuredEncoding {
                inner: encoding,
                sums: Arc::default(),
            }),
        }
    }

    /// Adds a batch of tokens. `lengths` are those of its rows, each without the padding at its
    /// end: numbers are of the tokens before it.
    pub fn add(&mut self, tokens: Tensor<2, Int>, lengths: Vec<usize>, positions: &Positions) {
        let (rows, queries) = (lengths.len(), lengths.iter().sum::<usize>());
        Sums::locked(&self.model.encoding().sums).lengths = lengths;
        self.model.forward(
            tokens,
            positions,
            &Pass {
                max_logits: MAX_LOGITS,
                ..Pass::default()
            },
        );
        let mut sums = Sums::locked(&self.model.encoding().sums);
        sums.queries += queries as u64;
        sums.rows += rows;
    }

    /// Metrics of every head; layers and heads count from 1.
    pub fn metrics(&self) -> BTreeMap<String, Metric> {
        let sums = Sums::locked(&self.model.encoding().sums);
        let mut metrics = BTreeMap::new();
        for (layer, heads) in sums.heads.iter().enumerate() {
            for (head, of) in heads.iter().enumerate() {
                let queries = sums.queries as f64;
                let scored = |(sum, n): (f64, u64)| (sum / n as f64, n);
                let means = [
                    (ATTENTION_DISTANCE, (of.distance / queries, sums.queries)),
                    (BLIND, (of.blind / sums.pairs as f64, sums.queries)),
                    (SEMANTIC_SCORE, scored(of.semantic)),
                    (POSITIONAL_SCORE, scored(of.positional)),
                ];
                for (name, (value, n)) in means {
                    if n > 0 {
                        let name = format!("{name}_{}_{}", layer + 1, head + 1);
                        metrics.insert(name, Metric { value, n });
                    }
                }
            }
        }
        metrics
    }

    /// Returns the model under another encoding.
    pub fn into_model(self, encoding: Encoding) -> Transformer {
        self.model.with_encoding(encoding)
    }
}
