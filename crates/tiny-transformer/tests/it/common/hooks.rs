//! Encodings that only tests need: one that uses every hook, and one that only sees content.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor, TensorData};
use posenc::{
    Bias, BiasBlocks, Content, Context, Distribution, Init, PositionalEncoding, Positions,
    PrepareResult, Prepared, Qk,
};
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// What attention asked of an encoding, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Call {
    Prepare,
    Embed,
    TransformQk(usize),
    LogitsBias(usize),
    Block(usize, Range<usize>, Range<usize>),
    ContentBias(usize, Range<usize>, Range<usize>),
    OutputBias(usize, Range<usize>, Range<usize>),
}

/// An encoding that uses all five hooks in a way that a host can follow, has a parameter, and
/// writes down every call.
#[derive(Module, Debug)]
pub struct AllHooks {
    pub gain: Param<Tensor<1>>,
    #[module(skip)]
    pub calls: Arc<Mutex<Vec<Call>>>,
}

impl AllHooks {
    pub fn new(init: &Init<'_>) -> Self {
        Self {
            gain: init.param("gain", [1], Distribution::Constant(1.0)),
            calls: Arc::default(),
        }
    }
    pub fn turn(layer: usize, position: f64, query: bool) -> f64 {
        if query {
            1.0 + 0.1 * layer as f64 + 0.02 * position
        } else {
            0.9 - 0.1 * layer as f64 - 0.01 * position
        }
    }
    pub fn added(position: f64) -> f64 {
        0.05 * position
    }
    pub fn slope(layer: usize) -> f64 {
        -0.07 * (layer + 1) as f64
    }
}

pub struct PreparedAllHooks<'a> {
    encoding: &'a AllHooks,
    positions: Positions,
    device: Device,
}

struct Line<'a> {
    prepared: &'a PreparedAllHooks<'a>,
    layer: usize,
}

impl PreparedAllHooks<'_> {
    fn note(&self, call: Call) {
        self.encoding
            .calls
            .lock()
            .expect("no panic while noting")
            .push(call);
    }
    fn column(&self, values: Vec<f64>) -> Tensor<1> {
        Tensor::from_data(
            TensorData::new(values.clone(), [values.len()]),
            &self.device,
        )
    }
}

impl PositionalEncoding for AllHooks {
    fn prepare(&self, positions: &Positions, context: &Context) -> PrepareResult<'_> {
        let prepared = PreparedAllHooks {
            encoding: self,
            positions: positions.clone(),
            device: context.device.clone(),
        };
        prepared.note(Call::Prepare);
        Ok(Box::new(prepared))
    }
}

impl Prepared for PreparedAllHooks<'_> {
    fn embed(&self, x: Tensor<3>) -> Tensor<3> {
        self.note(Call::Embed);
        let added = self.column(
            self.positions
                .queries()
                .iter()
                .map(|p| AllHooks::added(*p))
                .collect(),
        );
        x + added.reshape([1, -1, 1])
    }
    fn transform_qk(&self, layer: usize, q: Tensor<4>, k: Tensor<4>, _: &Tensor<3>) -> Qk {
        self.note(Call::TransformQk(layer));
        let of = |at: &[f64], query| {
            self.column(
                at.iter()
                    .map(|p| AllHooks::turn(layer, *p, query))
                    .collect(),
            )
            .reshape([1, 1, -1, 1])
        };
        (
            q * of(self.positions.queries(), true),
            k * of(self.positions.keys(), false),
        )
    }
    fn logits_bias(&self, layer: usize) -> Option<Bias<'_>> {
        self.note(Call::LogitsBias(layer));
        Some(Bias::new(Line {
            prepared: self,
            layer,
        }))
    }
    fn content_bias(&self, layer: usize, content: &Content<'_>) -> Option<Tensor<4>> {
        self.note(Call::ContentBias(
            layer,
            content.queries.clone(),
            content.keys.clone(),
        ));
        let logits = content.logits();
        let [batch, heads, q_len, k_len] = logits.dims();
        assert_eq!(
            (q_len, k_len),
            (content.queries.len(), content.keys.len()),
            "logits of the block"
        );
        assert_eq!(
            content.q.dims()[..3],
            [batch, heads, q_len],
            "queries of the block"
        );
        assert_eq!(
            content.k.dims()[..3],
            [batch, heads, k_len],
            "keys of the block"
        );
        assert_eq!(
            content.keys,
            0..content.first_query + q_len,
            "keys up to the block's last row"
        );
        assert_eq!(content.scale, 1.0 / (content.q.dims()[3] as f64).sqrt());
        let rows = content.first_query..content.first_query + q_len;
        let of_index = rows.flat_map(|i| {
            content
                .keys
                .clone()
                .map(move |j| 0.01 * i as f64 - 0.03 * j as f64)
        });
        let of_index = self
            .column(of_index.collect())
            .reshape([1, 1, q_len, k_len]);
        let turned =
            content.q.clone().sum_dim(3) * 0.1 + content.k.clone().sum_dim(3).swap_dims(2, 3) * 0.2;
        let (raw_q, raw_k) = (content.raw)();
        let (positions, hidden) = (&self.positions, content.hidden.clone());
        assert_eq!(
            (raw_q.dims()[2], raw_k.dims()[2]),
            (positions.queries().len(), positions.keys().len()),
            "all of them"
        );
        assert_eq!(
            hidden.dims()[..2],
            [batch, positions.keys().len()],
            "all of them"
        );
        let raw_q = raw_q.slice_dim(2, content.queries.clone()).sum_dim(3) * 0.05;
        let raw_k = raw_k
            .slice_dim(2, content.keys.clone())
            .sum_dim(3)
            .swap_dims(2, 3)
            * 0.03;
        let hidden = hidden
            .slice_dim(1, content.keys.clone())
            .sum_dim(2)
            .reshape([batch, 1, 1, k_len])
            * 0.02;
        let bias =
            logits.tanh() * (0.5 * (layer + 1) as f64) + turned + raw_q - raw_k + hidden + of_index;
        Some(bias * self.encoding.gain.val().reshape([1, 1, 1, 1]))
    }
    fn output_bias(
        &self,
        layer: usize,
        content: &Content<'_>,
        weights: &dyn Fn() -> Tensor<4>,
    ) -> Option<Tensor<4>> {
        self.note(Call::OutputBias(
            layer,
            content.queries.clone(),
            content.keys.clone(),
        ));
        let weights = weights();
        let [batch, heads, q_len, _] = content.q.dims();
        assert_eq!(
            weights.dims(),
            [batch, heads, q_len, content.keys.len()],
            "weights of the block"
        );
        let rows = content.first_query..content.first_query + q_len;
        let distance = rows
            .flat_map(|i| content.keys.clone().map(move |j| i as f64 - j as f64))
            .collect();
        let distance = self
            .column(distance)
            .reshape([1, 1, q_len, content.keys.len()]);
        let term =
            (weights * distance).sum_dim(3) * (0.1 * (layer + 1) as f64) + content.q.clone() * 0.05;
        Some(term * self.encoding.gain.val().reshape([1, 1, 1, 1]))
    }
}

impl BiasBlocks for Line<'_> {
    fn block(&self, queries: Range<usize>, keys: Range<usize>) -> Tensor<4> {
        self.prepared
            .note(Call::Block(self.layer, queries.clone(), keys.clone()));
        let (q_len, k_len) = (queries.len(), keys.len());
        let slope = AllHooks::slope(self.layer);
        let (at_q, at_k) = (
            &self.prepared.positions.queries()[queries],
            &self.prepared.positions.keys()[keys],
        );
        let values = at_q
            .iter()
            .flat_map(|m| at_k.iter().map(move |n| slope * (m - n)));
        self.prepared
            .column(values.collect())
            .reshape([1, 1, q_len, k_len])
    }
}

/// An encoding that only sees content: the bias of the smallest possible relative attention.
#[derive(Module, Debug)]
pub struct ContentOnly {
    pub gain: Param<Tensor<1>>,
}

impl ContentOnly {
    pub fn new(init: &Init<'_>) -> Self {
        Self {
            gain: init.param("gain", [1], Distribution::Constant(1.0)),
        }
    }
}

struct PreparedContentOnly<'a>(&'a ContentOnly);

impl PositionalEncoding for ContentOnly {
    fn prepare(&self, _positions: &Positions, _context: &Context) -> PrepareResult<'_> {
        Ok(Box::new(PreparedContentOnly(self)))
    }
}

impl Prepared for PreparedContentOnly<'_> {
    fn content_bias(&self, layer: usize, content: &Content<'_>) -> Option<Tensor<4>> {
        let gain = self.0.gain.val().reshape([1, 1, 1, 1]);
        Some((content.q.clone().sum_dim(3) - content.logits()) * gain * (0.2 * (layer + 1) as f64))
    }
}
