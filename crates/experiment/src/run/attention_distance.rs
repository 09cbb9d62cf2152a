//! Mean attention distance of every head, measured by a wrapper around the encoding that reads the
//! attention weights.

use crate::spec::MAX_LOGITS;
use burn::module::Module;
use burn::tensor::{Int, Tensor, TensorData};
use posenc::{
    Bias, Content, Context, Encoding, PositionalEncoding, Positions, PrepareError, Prepared,
};
use records::metric::ATTENTION_DISTANCE;
use records::record::Metric;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use tiny_transformer::{Pass, Transformer};

/// An encoding that also sums attention distances.
#[derive(Module, Debug)]
pub struct MeasuredEncoding {
    inner: Encoding,
    /// `[layer][head]`: sum over queries of the mean distance attended to.
    #[module(skip)]
    sums: Arc<Mutex<Vec<Vec<f64>>>>,
}

struct PreparedWatched<'a> {
    inner: Box<dyn Prepared + 'a>,
    sums: &'a Mutex<Vec<Vec<f64>>>,
}

impl PositionalEncoding for MeasuredEncoding {
    fn prepare<'a>(
        &'a self,
        positions: &Positions,
        context: &Context,
    ) -> Result<Box<dyn Prepared + 'a>, PrepareError> {
        Ok(Box::new(PreparedWatched {
            inner: self.inner.prepare(positions, context)?,
            sums: &self.sums,
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

    fn transform_qk(
        &self,
        layer: usize,
        q: Tensor<4>,
        k: Tensor<4>,
        hidden: &Tensor<3>,
    ) -> (Tensor<4>, Tensor<4>) {
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
        // One matrix of distances for all rows and heads, broadcast over both.
        let shape = [1, 1, content.queries.len(), content.keys.len()];
        let distances = content.queries.clone().flat_map(|query| {
            content
                .keys
                .clone()
                .map(move |key| query.abs_diff(key) as f32)
        });
        let distances = Tensor::<4>::from_data(
            TensorData::new(distances.collect::<Vec<f32>>(), shape),
            &content.q.device(),
        );
        // One sum per row of the batch and head keeps the sums in f32 short.
        let looked = (weights() * distances).sum_dim(3).sum_dim(2);
        // [batch, heads, 1, 1]
        let [batch, heads, ..] = looked.dims();
        let looked = looked
            .reshape([batch * heads])
            .into_data()
            .convert::<f64>()
            .try_to_vec::<f64>()
            .expect("data was just converted to f64");
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        // The encoding does not know the number of layers; the first pass shows it.
        if sums.len() <= layer {
            sums.resize(layer + 1, Vec::new());
        }
        sums[layer].resize(heads, 0.0);
        for (i, looked) in looked.into_iter().enumerate() {
            // Heads are the inner dimension of the flattened sums.
            sums[layer][i % heads] += looked;
        }
        drop(sums);
        // The term of the wrapped encoding itself still counts, so the model is unchanged.
        self.inner.output_bias(layer, content, weights)
    }
}

/// Sums of attention distances over many passes.
pub struct Profile {
    model: Transformer<MeasuredEncoding>,
    queries: u64,
}

impl Profile {
    /// Starts with a model under a wrapped encoding.
    pub fn new(model: Transformer, encoding: Encoding) -> Self {
        Self {
            model: model.with_encoding(MeasuredEncoding {
                inner: encoding,
                sums: Arc::default(),
            }),
            queries: 0,
        }
    }

    /// Adds a batch of tokens.
    pub fn add(&mut self, tokens: Tensor<2, Int>, positions: &Positions) {
        let [rows, seq_len] = tokens.dims();
        self.queries += (rows * seq_len) as u64;
        self.model.forward(
            tokens,
            positions,
            &Pass {
                max_logits: MAX_LOGITS,
                ..Pass::default()
            },
        );
    }

    /// One metric per head; layers and heads count from 1.
    pub fn metrics(&self) -> BTreeMap<String, Metric> {
        let sums = self
            .model
            .encoding()
            .sums
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut metrics = BTreeMap::new();
        for (layer, heads) in sums.iter().enumerate() {
            for (head, sum) in heads.iter().enumerate() {
                let mean = Metric {
                    value: sum / self.queries as f64,
                    n: self.queries,
                };
                metrics.insert(
                    format!("{ATTENTION_DISTANCE}_{}_{}", layer + 1, head + 1),
                    mean,
                );
            }
        }
        metrics
    }

    /// Returns the model under another encoding.
    pub fn into_model(self, encoding: Encoding) -> Transformer {
        self.model.with_encoding(encoding)
    }
}
