//! What the tests of this crate share: weights by path, a list of encodings, gradients, and
//! encodings that only tests need.
#![allow(dead_code)]

pub mod reference;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{DType, Device, Gradients, Int, Tensor, TensorData};
use posenc::{
    Bias, BiasBlocks, Content, Distribution, Encoding, EncodingConfig, Init, Lengths,
    PositionalEncoding, Positions, Prepared,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use tiny_transformer::{
    Activation, AttentionKind, FeatureMap, Mask, NormKind, Normalizer, QkNorm, Transformer,
    TransformerConfig,
};

/// A small model whose heads do not add up to its width.
pub fn small(norm: NormKind, activation: Activation, tied_head: bool) -> TransformerConfig {
    TransformerConfig {
        vocab_size: 11,
        d_model: 10,
        n_layers: 2,
        n_heads: 3,
        head_dim: 8,
        d_ff: 14,
        norm,
        activation,
        tied_head,
        dropout: 0.0,
        embedding_std: 0.8,
        qk_norm: QkNorm::None,
        matmul: tiny_transformer::Matmul::F32,
        attention: AttentionKind::Softmax,
        mask: Mask::Causal,
        feature_map: FeatureMap::Elu,
        normalizer: Normalizer::Unrotated,
    }
}

/// The same model with linear attention.
pub fn linear(
    config: TransformerConfig,
    feature_map: FeatureMap,
    normalizer: Normalizer,
) -> TransformerConfig {
    TransformerConfig {
        attention: AttentionKind::Linear,
        feature_map,
        normalizer,
        ..config
    }
}

pub const VARIANTS: [(NormKind, Activation, bool); 2] = [
    (NormKind::LayerNorm, Activation::Gelu, false),
    (NormKind::RmsNorm, Activation::Swiglu, true),
];

/// Numbers in -1..1 that depend on `seed` alone (splitmix64).
pub fn noise(seed: u64, count: usize) -> Vec<f64> {
    let mut state = seed;
    let mut next = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) >> 11
    };
    (0..count)
        .map(|_| next() as f64 / (1u64 << 52) as f64 - 1.0)
        .collect()
}

pub fn seed_of(path: &str) -> u64 {
    path.bytes().fold(7u64, |hash, byte| {
        hash.wrapping_mul(1_099_511_628_211) ^ u64::from(byte)
    })
}

/// Values that depend on the path alone. Constants are disturbed, so that a scale or shift that is
/// never applied shows.
pub fn draw(path: &str, shape: &[usize], distribution: Distribution) -> Vec<f64> {
    let values = noise(seed_of(path), shape.iter().product());
    match distribution {
        // A phase is read between -2 pi and 0; outside, its gradient points back inside and is not
        // the slope of anything.
        Distribution::Constant(value) if path.ends_with("delta") => {
            values.iter().map(|v| value - 0.3 * v.abs()).collect()
        }
        Distribution::Constant(value) => values.iter().map(|v| value + 0.3 * v).collect(),
        Distribution::Normal(std) => values.iter().map(|v| std * 3f64.sqrt() * v).collect(),
        // Away from the ends, at which some parameters are held.
        Distribution::Uniform(low, high) => values
            .iter()
            .map(|v| low + (high - low) * (0.5 + 0.4 * v))
            .collect(),
    }
}

pub fn tokens(seed: u64, batch: usize, length: usize, vocab: usize) -> Vec<i64> {
    noise(seed, batch * length)
        .iter()
        .map(|v| ((v + 1.0) / 2.0 * vocab as f64) as i64)
        .collect()
}

pub fn ints(values: &[i64], batch: usize, device: &Device) -> Tensor<2, Int> {
    Tensor::from_data(
        TensorData::new(values.to_vec(), [batch, values.len() / batch]),
        device,
    )
}

/// Reads a tensor back as f64, which loses nothing.
pub fn host<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor
        .into_data_dtype(DType::F64)
        .try_to_vec()
        .expect("just converted to f64")
}

pub fn largest_difference(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter()
        .zip(b)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f64::max)
}

pub fn config(value: Value) -> EncodingConfig {
    let mut config: EncodingConfig =
        serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{value}: {error}"));
    config.resolve(&Lengths {
        train_len: 8,
        test_len: 32,
    });
    config
}

/// The list of encodings that all crates share, every kind among them, resolved for a training
/// length of 8 and a test length of 32.
pub fn encodings() -> Vec<(String, EncodingConfig)> {
    let list: Vec<Value> =
        serde_json::from_str(include_str!("../../../posenc/tests/encodings.json")).expect("a list");
    let list: Vec<_> = list
        .into_iter()
        .map(|value| (value.to_string(), config(value)))
        .collect();
    for kind in EncodingConfig::KINDS {
        assert!(
            list.iter().any(|(_, config)| config.kind() == *kind),
            "{kind} is missing from the list"
        );
    }
    list
}

/// `wanted` tokens, or as many as the encoding has positions for.
pub fn reach(encoding: &EncodingConfig, wanted: usize) -> usize {
    let shape = small(NormKind::LayerNorm, Activation::Gelu, true).shape();
    encoding
        .facts(&shape)
        .max_position
        .map_or(wanted, |limit| limit.min(wanted))
}

pub fn model(
    config: &TransformerConfig,
    encoding: &EncodingConfig,
    device: &Device,
) -> Transformer<Encoding> {
    config.check().expect("sizes that work");
    encoding
        .check(&config.shape())
        .expect("an encoding that works");
    Transformer::new(config, encoding, &Init::new(device, &draw))
}

/// Shape and values of one parameter.
pub type Weight = (Vec<usize>, Vec<f64>);
/// Every parameter by path.
pub type Weights = BTreeMap<String, Weight>;

struct Walk<'a> {
    path: Vec<String>,
    gradients: Option<&'a Gradients>,
    found: Vec<(String, Weight)>,
}

impl ModuleVisitor for Walk<'_> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.push(if container.starts_with("Enum") {
            String::new()
        } else {
            name.to_owned()
        });
    }
    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let path: Vec<&str> = self
            .path
            .iter()
            .map(String::as_str)
            .filter(|part| !part.is_empty())
            .collect();
        let path = path.join(".");
        let tensor = match self.gradients {
            None => param.val(),
            Some(gradients) => param
                .val()
                .grad(gradients)
                .unwrap_or_else(|| panic!("{path} has no gradient")),
        };
        self.found
            .push((path, (tensor.dims().to_vec(), host(tensor))));
    }
}

fn walk(module: &impl Module, gradients: Option<&Gradients>) -> Weights {
    let mut walk = Walk {
        path: vec![],
        gradients,
        found: vec![],
    };
    module.visit(&mut walk);
    let count = walk.found.len();
    let found: Weights = walk.found.into_iter().collect();
    assert_eq!(found.len(), count, "paths are unique");
    found
}

pub fn weights(module: &impl Module) -> Weights {
    walk(module, None)
}

/// Gradient of `loss` for every parameter by path; a parameter without one fails.
pub fn gradients(module: &impl Module, loss: &Tensor<1>) -> Weights {
    walk(module, Some(&loss.backward()))
}

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
    fn prepare<'a>(&'a self, positions: &Positions, device: &Device) -> Box<dyn Prepared + 'a> {
        let prepared = PreparedAllHooks {
            encoding: self,
            positions: positions.clone(),
            device: device.clone(),
        };
        prepared.note(Call::Prepare);
        Box::new(prepared)
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
    fn transform_qk(&self, layer: usize, q: Tensor<4>, k: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
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
    fn prepare<'a>(&'a self, _positions: &Positions, _device: &Device) -> Box<dyn Prepared + 'a> {
        Box::new(PreparedContentOnly(self))
    }
}

impl Prepared for PreparedContentOnly<'_> {
    fn content_bias(&self, layer: usize, content: &Content<'_>) -> Option<Tensor<4>> {
        let gain = self.0.gain.val().reshape([1, 1, 1, 1]);
        Some((content.q.clone().sum_dim(3) - content.logits()) * gain * (0.2 * (layer + 1) as f64))
    }
}
